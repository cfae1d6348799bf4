"""The drop-in against PyTorch's documented behaviour; the oracle is PyTorch's math backend in float64."""

import contextlib
import gc
import inspect
import os
import random
import threading
import warnings
import weakref

import pytest
import torch
import torch.nn.functional as F
from conftest import DTYPES, check_close
from torch.nn.attention import SDPBackend, sdpa_kernel

import saccade
from saccade import _fallback, _torch

ours = saccade.scaled_dot_product_attention


def oracle(q, k, v, attn_mask=None, **options):
    wide = [x.double() if x is not None and x.is_floating_point() else x for x in (q, k, v, attn_mask)]
    with sdpa_kernel(SDPBackend.MATH):
        return F.scaled_dot_product_attention(*wide, **options)


def qkv(device, dtype=torch.float32, q=(2, 3, 33, 64), k=None, v=None):
    k = k or q
    v = v or (*k[:-1], q[-1])
    return [torch.randn(shape, device=device).to(dtype) for shape in (q, k, v)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("lengths", [(1, 1), (33, 33), (5, 70), (70, 5), (257, 130)])
def test_plain_and_causal(device, dtype, causal, lengths, no_fallback):
    q, k, v = qkv(device, dtype, (2, 3, lengths[0], 64), (2, 3, lengths[1], 64))
    check_close(ours(q, k, v, is_causal=causal), oracle(q, k, v, is_causal=causal), dtype)


@pytest.mark.parametrize("dims", [(1, 1), (8, 8), (64, 32), (80, 96), (128, 256), (512, 512), (3, 5)])
def test_head_dims(device, dims, no_fallback):
    q, k, v = qkv(device, torch.float32, (1, 2, 9, dims[0]), (1, 2, 11, dims[0]), (1, 2, 11, dims[1]))
    check_close(ours(q, k, v), oracle(q, k, v))


@pytest.mark.parametrize("scale", [None, 0.0, 0.3, -0.5, 2])
def test_scale(device, scale, no_fallback):
    q, k, v = qkv(device)
    check_close(ours(q, k, v, scale=scale), oracle(q, k, v, scale=scale))


@pytest.mark.parametrize("heads", [(8, 2), (6, 1), (4, 4)])
def test_grouped_heads(device, heads, no_fallback):
    q, k, v = qkv(device, torch.float32, (2, heads[0], 7, 32), (2, heads[1], 12, 32))
    check_close(ours(q, k, v, enable_gqa=True), oracle(q, k, v, enable_gqa=True))


MASK_SHAPES = [
    (7, 12),
    (1, 12),
    (7, 1),
    (12,),
    (3, 7, 12),
    (1, 7, 12),
    (2, 1, 7, 12),
    (2, 3, 1, 12),
    (2, 3, 7, 12),
    (1, 1, 1, 1),
]


@pytest.mark.parametrize("shape", MASK_SHAPES)
@pytest.mark.parametrize("kind", ["bool", "float32", "same"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_masks_broadcast(device, shape, kind, dtype, no_fallback):
    q, k, v = qkv(device, dtype, (2, 3, 7, 32), (2, 3, 12, 32))
    mask = torch.rand(shape, device=device) < 0.6
    if kind != "bool":
        mask = torch.randn(shape, device=device).to(torch.float32 if kind == "float32" else dtype)
    check_close(ours(q, k, v, mask), oracle(q, k, v, mask), dtype)


@pytest.mark.parametrize("kind", ["bool", "float"])
def test_fully_masked_rows_are_zero(device, kind, no_fallback):
    q, k, v = qkv(device, q=(1, 2, 6, 16))
    mask = torch.ones(6, 6, dtype=torch.bool, device=device)
    mask[2] = False
    mask[4, 1:] = False
    if kind == "float":
        mask = torch.zeros(6, 6, device=device).masked_fill(~mask, float("-inf"))
    out = ours(q, k, v, mask)
    assert torch.equal(out[:, :, 2], torch.zeros_like(out[:, :, 2]))
    check_close(out, oracle(q, k, v, mask))
    with sdpa_kernel(SDPBackend.MATH):
        check_close(out, F.scaled_dot_product_attention(q, k, v, mask))


@pytest.mark.parametrize("rank", [2, 3, 5, 6])
def test_other_ranks(device, rank, no_fallback):
    lead = (2, 1, 3, 2)[4 - (rank - 2) :]
    q, k, v = qkv(device, q=(*lead, 5, 16), k=(*lead, 9, 16))
    check_close(ours(q, k, v, is_causal=True), oracle(q, k, v, is_causal=True))
    mask = torch.rand(*lead, 5, 9, device=device) < 0.7
    check_close(ours(q, k, v, mask), oracle(q, k, v, mask))


def test_ranks_are_asked_for_once_another_was_seen(device, no_fallback, monkeypatch):
    plain, asked = _torch._sdpa_plain, []
    monkeypatch.setattr(_torch, "_other_ranks_seen", False)
    monkeypatch.setattr(_torch, "_sdpa_plain", lambda *given: asked.append(given[0].ndim) or plain(*given))
    for lead in ((2,), (1, 2), (2,)):
        q, k, v = qkv(device, q=(*lead, 5, 16), k=(*lead, 9, 16))
        check_close(ours(q, k, v), oracle(q, k, v))
    assert asked == [3, 4]


@pytest.mark.parametrize(
    "shapes",
    [((2, 3, 5, 16), (1, 3, 5, 16)), ((1, 3, 5, 16), (4, 3, 6, 16)), ((2, 3, 5, 16), (2, 1, 5, 16)),
     ((2, 1, 5, 16), (2, 3, 5, 16)), ((5, 16), (2, 3, 7, 16)), ((2, 3, 5, 16), (7, 16)),
     ((4, 2, 3, 5, 8), (2, 1, 6, 8))],
)  # fmt: skip
def test_batch_dimensions_broadcast(device, shapes, no_fallback):
    q, k, v = qkv(device, q=shapes[0], k=shapes[1])
    with torch.no_grad():
        check_close(ours(q, k, v), oracle(q, k, v))


def test_expanded_keys(device, no_fallback):
    q = torch.randn(2, 4, 9, 32, device=device)
    k = torch.randn(1, 1, 11, 32, device=device).expand(2, 4, 11, 32)
    v = torch.randn(2, 1, 11, 32, device=device).expand(2, 4, 11, 32)
    check_close(ours(q, k, v), oracle(q, k, v))
    row = torch.randn(2, 4, 1, 32, device=device).expand(2, 4, 11, 32)
    check_close(ours(q, row, v), oracle(q, row, v))


def test_views(device, no_fallback):
    packed = torch.randn(2, 9, 3, 4, 32, device=device)  # [batch, length, qkv, heads, dim]
    q, k, v = packed.permute(2, 0, 3, 1, 4)
    out = ours(q, k, v)
    check_close(out, oracle(q, k, v))
    assert out.transpose(1, 2).is_contiguous()  # lies as q does, as PyTorch's own
    every_other = torch.randn(3, 2, 4, 18, 64, device=device)[:, :, :, ::2, ::2]
    check_close(ours(*every_other), oracle(*every_other))
    columns_first = torch.randn(3, 2, 4, 32, 9, device=device).mT
    check_close(ours(*columns_first), oracle(*columns_first))


def test_lazily_negated_views(device, no_fallback):
    q, k, v = (torch.randn(1, 2, 5, 8, dtype=torch.complex64, device=device).conj().imag for _ in range(3))
    assert q.is_neg()
    check_close(ours(q, k, v), oracle(q, k, v))


@pytest.mark.parametrize(
    "shapes",
    [((0, 2, 3, 8), (0, 2, 4, 8)), ((2, 0, 3, 8), (2, 0, 4, 8)), ((2, 2, 0, 8), (2, 2, 4, 8)),
     ((2, 2, 3, 8), (2, 2, 0, 8)), ((2, 2, 3, 0), (2, 2, 4, 0))],
)  # fmt: skip
def test_zero_sizes(device, shapes):
    q, k, v = qkv(device, q=shapes[0], k=shapes[1], v=(*shapes[1][:-1], 8))
    check_close(ours(q, k, v), oracle(q, k, v))


def test_nan_reaches_the_output(device, no_fallback):
    q, k, v = qkv(device, q=(1, 1, 4, 8))
    q[0, 0, 1, 0] = float("nan")
    assert ours(q, k, v).isnan().any(-1).flatten().tolist() == [False, True, False, False]


# Older ones divide by zero, and end the process.
EMPTY_IS_SAFE = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 15)


def random_case(rng, device):
    """A seeded problem: any rank, layout, broadcasting and mask, with a mistake in one of ten."""
    dtype = rng.choice(DTYPES)
    rank = rng.choice([2, 3, 4, 4, 4, 4, 5])
    lead = [rng.choice([1, 2, 3]) for _ in range(rank - 2)]
    empty = [0] if EMPTY_IS_SAFE else []
    len_q, len_kv = rng.choice([1, 2, 7, 40, *empty]), rng.choice([1, 5, 33, 64, *empty])
    dim, dim_v = rng.choice([1, 8, 24, 64, 128]), rng.choice([8, 40, 64])
    gqa = rank >= 3 and rng.random() < 0.3
    kv_lead = [n if rng.random() < 0.8 else 1 for n in lead]
    q_lead = [n if rng.random() < 0.8 else 1 for n in lead]
    if gqa:
        kv_lead[-1] = rng.choice([1, 2])
        q_lead[-1] = kv_lead[-1] * rng.choice([1, 2, 4])

    def tensor(shape):
        order = list(range(len(shape)))
        if rng.random() < 0.5:
            rng.shuffle(order)
        x = torch.randn([shape[i] for i in order], device=device).to(dtype)
        x = x.permute([order.index(i) for i in range(len(shape))])
        if rng.random() < 0.2:
            x = torch.cat([x, x], -2)[..., : shape[-2], :]
        if rng.random() < 0.1 and shape[-2] > 0:
            x = x[..., :1, :].expand(shape)
        return x

    q, k, v = tensor([*q_lead, len_q, dim]), tensor([*kv_lead, len_kv, dim]), tensor([*kv_lead, len_kv, dim_v])
    options = {"is_causal": rng.random() < 0.3, "enable_gqa": gqa}
    if rng.random() < 0.3:
        options["scale"] = rng.choice([0.0, 0.1, 1.0])
    mask = None
    if not options["is_causal"] and rng.random() < 0.5:
        full = [*torch.broadcast_shapes(q_lead, q_lead if gqa else kv_lead), len_q, len_kv]
        shape = [n if rng.random() < 0.6 else 1 for n in full][rng.randrange(0, max(1, len(full) - 1)) :]
        mask = torch.rand(shape, device=device) < 0.7
        if rng.random() < 0.5:
            mask = (
                torch.randn(shape, device=device)
                .to(rng.choice([dtype, torch.float32]))
                .masked_fill(~mask, float("-inf"))
            )
    mistake = rng.choice(["k dim", "v length", "dtype", "mask dtype", "mask shape", "both", "heads"])
    if rng.random() < 0.1:
        match mistake:
            case "k dim":
                k = k[..., : dim // 2]
            case "v length":
                v = v[..., : len_kv // 2, :]
            case "dtype":
                v = v.to(rng.choice(DTYPES))
            case "mask dtype":
                mask = torch.zeros(
                    len_q, len_kv, device=device, dtype=rng.choice([torch.int32, torch.float64, torch.float16])
                )
            case "mask shape":
                mask = torch.zeros(len_q + 1, len_kv + 1, device=device)
            case "both":
                options["is_causal"], mask = True, torch.ones(len_q, len_kv, device=device, dtype=torch.bool)
            case "heads":
                k = torch.cat([k, k, k, k, k], -3) if rank > 2 else k
    return (q, k, v, mask), options


def outcome(function, args, options):
    try:
        return function(*args, **options), None
    except Exception as error:
        return None, error


@pytest.mark.parametrize("seed", range(int(os.environ.get("SACCADE_SDPA_SEEDS", "300"))))
def test_random_problems(device, seed):
    rng = random.Random(seed)
    torch.manual_seed(seed)
    args, options = random_case(rng, device)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", saccade.FallbackWarning)
        result, our_error = outcome(ours, args, options)
    q, k, v, _ = args
    if k.shape[-2] != v.shape[-2] or q.shape[-1] != k.shape[-1]:  # some of torch's backends read past the end or crash
        assert isinstance(our_error, RuntimeError), f"seed {seed}"
        return
    if device == "cuda" and options["is_causal"] and args[3] is not None:
        return  # an error in one of torch's backends and none in another
    # On CUDA its fused backends are not asked: one reads some masks at odd addresses, and the process is done for.
    with contextlib.nullcontext() if device == "cpu" else sdpa_kernel(SDPBackend.MATH):
        theirs, their_error = outcome(F.scaled_dot_product_attention, args, options)
    if their_error is not None and our_error is None:  # a backend that takes less than PyTorch documents
        with sdpa_kernel(SDPBackend.MATH):
            theirs, their_error = outcome(F.scaled_dot_product_attention, args, options)
    assert type(our_error) is type(their_error), f"seed {seed}: {our_error!r} where torch gives {their_error!r}"
    if their_error is None:
        assert result.dtype == theirs.dtype
        check_close(result, oracle(*args, **options), what=f"seed {seed}")


@pytest.mark.parametrize(
    "change",
    [
        lambda q, k, v: ((q, k[..., :3], v), {}),
        lambda q, k, v: ((q, k, v[..., :3, :]), {}),
        lambda q, k, v: ((q, k.half(), v), {}),
        lambda q, k, v: ((q, k, v, torch.zeros(5, 5)), {}),
        lambda q, k, v: ((q, k, v, torch.zeros(4, 4, dtype=torch.int64)), {}),
        lambda q, k, v: ((q, k, v, torch.ones(4, 4, dtype=torch.bool)), {"is_causal": True}),
        lambda q, k, v: ((q, k[:, :1].repeat(1, 3, 1, 1), v), {}),
        lambda q, k, v: ((q, k[:, :1].repeat(1, 3, 1, 1), v[:, :1].repeat(1, 3, 1, 1)), {"enable_gqa": True}),
        lambda q, k, v: ((q[0, 0, 0], k[0, 0, 0], v[0, 0, 0]), {}),
        lambda q, k, v: ((q, k, v), {"dropout_p": 1.5}),
        lambda q, k, v: ((q, k, "v"), {}),
        lambda q, k, v: ((q, k, None), {}),
        lambda q, k, v: ((q, k, v), {"scale": "large"}),
        lambda q, k, v: ((q.long(), k.long(), v.long()), {}),
        lambda q, k, v: ((q, k, v.to("meta")), {}),
    ],
)
def test_errors_are_pytorchs(device, change):
    q, k, v = qkv(device, q=(1, 2, 4, 8))
    args, options = change(q, k, v)
    args = [x.to(device) if isinstance(x, torch.Tensor) and x.device.type != "meta" else x for x in args]
    with pytest.raises(Exception) as theirs, sdpa_kernel(SDPBackend.MATH):  # the backend that checks everything
        F.scaled_dot_product_attention(*args, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", saccade.FallbackWarning)
        result, error = outcome(ours, args, options)
    if error is None:  # this torch has a backend that takes it
        assert torch.equal(result, F.scaled_dot_product_attention(*args, **options))
    else:
        assert isinstance(error, theirs.type)


@pytest.mark.parametrize(
    ("reason", "call"),
    [
        ("dropout", lambda q: ours(q, q, q, dropout_p=0.1)),
        ("gradients", lambda q: ours(q.requires_grad_(), q, q)),
        ("float64", lambda q: ours(q.double(), q.double(), q.double())),
        ("head dims", lambda q: ours(*[torch.zeros(1, 1, 2, 520, device=q.device)] * 3)),
        ("subclass", lambda q: ours(q.as_subclass(type("Mine", (torch.Tensor,), {})), q, q)),
        ("forward-mode", lambda q: torch.func.jvp(lambda x: ours(x, x, x), (q,), (q,))[0]),
    ],
)
def test_fallbacks_warn_once_and_are_right(device, reason, call):
    q = torch.randn(1, 2, 4, 8, device=device)
    with pytest.warns(saccade.FallbackWarning, match=reason), sdpa_kernel(SDPBackend.MATH):
        call(q)
    with warnings.catch_warnings(), sdpa_kernel(SDPBackend.MATH):
        warnings.simplefilter("error", saccade.FallbackWarning)
        call(q.detach().clone())


@pytest.mark.fast_only
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_what_only_the_reference_kernel_does_on_cuda_goes_to_pytorch():
    def qkv(*shape, dtype=torch.float32):
        return [torch.randn(shape, device="cuda", dtype=dtype) for _ in "qkv"]

    small, wide = qkv(1, 2, 9, 16), qkv(1, 2, 9, 264, dtype=torch.float16)
    mask = torch.ones(9, 9, dtype=torch.bool, device="cuda")
    for call in (
        lambda: ours(*small),
        lambda: ours(*small, is_causal=True),
        lambda: ours(*small, mask),
        lambda: ours(*small, scale=0.5, enable_gqa=True),
        lambda: ours(*[x[0] for x in small]),
        lambda: ours(*wide),
        torch.compile(lambda: ours(*small), fullgraph=True, backend="eager"),
        lambda: torch.func.vmap(ours)(*[x[None] for x in small]),
    ):
        _fallback.forget_warnings()
        _torch._slow_seen = False
        with pytest.warns(saccade.FallbackWarning, match="no fast kernel"):
            call()
        with warnings.catch_warnings():
            warnings.simplefilter("error", saccade.FallbackWarning)
            call()
    q, k, v = small
    check_close(ours(q, k, v), oracle(q, k, v))
    nested = torch.nested.nested_tensor([torch.randn(2, n, 16) for n in (3, 5)], dtype=torch.float16, device="cuda")
    with pytest.warns(saccade.FallbackWarning):
        ours(nested, nested, nested)
    _fallback.forget_warnings()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("error", saccade.FallbackWarning)
        ours(*[x.half() for x in small], mask)
        ours(*[x.half() for x in small], is_causal=True)
        with torch.autocast("cuda", torch.float16):
            ours(*small)
            ours(*small, mask)


def test_errors_and_fallbacks_leave_nothing_behind(device):
    """No exception keeps a tensor alive, and PyTorch's error stands alone."""
    gc.disable()
    try:
        q = torch.randn(1, 2, 4, 8, device=device)
        alive = weakref.ref(q)
        with pytest.raises(RuntimeError) as info:
            ours(q, q[..., :3], q)
        assert info.value.__context__ is None
        del info
        with pytest.warns(saccade.FallbackWarning):
            ours(q.double(), q.double(), q.double())
        del q
        assert alive() is None
    finally:
        gc.enable()


def test_nested_tensors_go_to_pytorch(device):
    parts = [torch.randn(n, 2, 8, device=device) for n in (3, 5)]
    nested = torch.nested.nested_tensor(parts, layout=torch.jagged).transpose(1, 2)
    with pytest.warns(saccade.FallbackWarning):
        result = ours(nested, nested, nested)
    for mine, part in zip(result.transpose(1, 2).unbind(), parts, strict=True):
        x = part.transpose(0, 1)[None]
        check_close(mine.transpose(0, 1)[None], oracle(x, x, x))


def test_gradients_are_pytorchs(device):
    q, k, v = (x.requires_grad_() for x in qkv(device, q=(1, 2, 5, 8)))
    with pytest.warns(saccade.FallbackWarning, match="gradients"):
        mine = torch.autograd.grad(ours(q, k, v).square().sum(), (q, k, v))
    theirs = torch.autograd.grad(F.scaled_dot_product_attention(q, k, v).square().sum(), (q, k, v))
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a, b)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error", saccade.FallbackWarning)
        assert not ours(q, k, v).requires_grad


def test_vmap(device, no_fallback):
    q, k, v = (torch.randn(2, 3, 4, 6, 8, device=device) for _ in range(3))
    mask = torch.rand(2, 6, 6, device=device) < 0.7
    vmap = torch.func.vmap
    check_close(vmap(ours)(q, k, v), oracle(q, k, v))
    check_close(vmap(ours, in_dims=(1, None, 1), out_dims=1)(q, k[:, 0], v), oracle(q, k[:, :1], v))
    check_close(vmap(ours)(q, k, v, mask), oracle(q, k, v, mask[:, None, None]))
    check_close(vmap(ours, in_dims=(0, 0, 0, None))(q, k, v, mask[0]), oracle(q, k, v, mask[0]))
    check_close(vmap(vmap(ours))(q, k, v), oracle(q, k, v))


def test_transforms_that_differentiate(device):
    q = torch.randn(2, 3, 4, 8, device=device)
    with warnings.catch_warnings(), sdpa_kernel(SDPBackend.MATH):
        warnings.simplefilter("ignore", saccade.FallbackWarning)
        for transform in (
            lambda f: torch.func.grad(lambda x: f(x, x, x).square().sum())(q),
            lambda f: torch.func.vmap(torch.func.grad(lambda x: f(x, x, x).square().sum()))(q[None]),
            lambda f: torch.func.jvp(lambda x: f(x, q, q), (q,), (q,))[1],
            lambda f: torch.func.jacrev(lambda x: f(x, q, q).sum(-1))(q),
        ):
            torch.testing.assert_close(transform(ours), transform(F.scaled_dot_product_attention))


def test_parameters_and_inference_mode(device, no_fallback):
    q, k, v = (torch.nn.Parameter(x) for x in qkv(device))
    with torch.inference_mode():
        check_close(ours(q, k, v), oracle(q, k, v))
    with torch.no_grad():
        check_close(ours(q, k, v), oracle(q, k, v))


def test_signature_is_pytorchs():
    assert list(inspect.signature(ours).parameters) == [
        "query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa",
    ]  # fmt: skip
    q = torch.randn(1, 1, 2, 8)
    check_close(
        ours(query=q, key=q, value=q, attn_mask=None, dropout_p=0.0, is_causal=True), oracle(q, q, q, is_causal=True)
    )


def test_many_threads(device, no_fallback):
    """Plans and workspaces of one thread do not reach another."""
    cases = [qkv(device, dtype, (1, 2, n, 64)) for n in (1, 17, 64, 130) for dtype in DTYPES]
    expected = [oracle(*case, is_causal=True) for case in cases]
    failures = []

    def work(seed):
        rng = random.Random(seed)
        try:
            for _ in range(40):
                i = rng.randrange(len(cases))
                check_close(ours(*cases[i], is_causal=True), expected[i])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]


def test_more_shapes_than_plans_are_kept(no_fallback):
    v = torch.randn(1, 1, 1, 4)
    for n in range(1, 4200):
        out = ours(v, v.expand(1, 1, n, 4), v.expand(1, 1, n, 4))
    torch.testing.assert_close(out, v)


def test_number_of_threads_is_torchs(no_fallback):
    q, k, v = qkv("cpu", q=(1, 2, 100, 64))
    before = torch.get_num_threads()
    try:
        results = []
        for count in (1, 2, 1):
            torch.set_num_threads(count)
            results.append(ours(q, k, v))
            assert f"threads={count}" in saccade.explain(q, k, v)
    finally:
        torch.set_num_threads(before)
    for result in results:
        check_close(result, oracle(q, k, v))
