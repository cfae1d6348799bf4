"""Every feature of saccade.attention against the formula in float64, by sequence."""

import random
import warnings

import oracle
import pytest
import torch
from conftest import DTYPES, check_close

import saccade


def integers(values, device):
    return torch.tensor(values, dtype=torch.int32, device=device)


def expected_of(sequences, heads, device=None, **options):
    """The oracle over [(q, k, v)] of [heads, length, dim]; options of one sequence at index b are functions of b."""
    results = []
    for b, (q, k, v) in enumerate(sequences):
        own = {name: value(b) if callable(value) else value for name, value in options.items()}
        own = {name: x.cpu() if isinstance(x, torch.Tensor) else x for name, x in own.items()}
        results.append(oracle.attention(q.cpu(), k.cpu(), v.cpu(), **own))
    return results


def check(result, lse, expected, dtype, what=""):
    """result [b, h, l, d], lse [b, h, l] against a list of (o, lse)."""
    check_close(result, torch.stack([o for o, _ in expected]), dtype, what)
    check_lse(lse, torch.stack([x for _, x in expected]), dtype, what)


def check_lse(lse, expected, dtype, what=""):
    assert lse.dtype == torch.float32
    empty = expected == -float("inf")
    assert torch.equal(lse.cpu() == -float("inf"), empty), what
    error = (lse.cpu().double() - expected)[~empty].abs()
    bound = {torch.float32: 1e-5, torch.float16: 5e-3, torch.bfloat16: 4e-2}[dtype]
    assert error.numel() == 0 or error.max() < bound, f"{what}: lse is off by {error.max():.3g}"


def dense(device, dtype, heads=4, heads_kv=2, rows=6, keys=9, dim=16, dim_v=16, batch=2):
    shapes = (batch, heads, rows, dim), (batch, heads_kv, keys, dim), (batch, heads_kv, keys, dim_v)
    return [torch.randn(shape, device=device).to(dtype) for shape in shapes]


FEATURES = {
    "plain": {},
    "top_left": {"causal": "top_left"},
    "bottom_right": {"causal": "bottom_right"},
    "window": {"window": (2, 1)},
    "window_left": {"window": (3, None), "alignment": "bottom_right"},
    "window_right": {"window": (None, 2)},
    "causal_window": {"window": (2, None), "causal": "bottom_right"},
    "softcap": {"softcap": 1.5},
    "scale": {"scale": 0.7},
    "sinks": {"sinks": [0.5, -1.0, 2.0, 0.0]},
    "alibi": {"alibi_slopes": [0.5, 0.25, 0.125, 0.0625]},
    "alibi_bottom_right": {"alibi_slopes": [0.5, 0.25, 0.125, 0.0625], "alignment": "bottom_right"},
    "everything": {"causal": "bottom_right", "window": (4, None), "softcap": 3.0, "scale": 0.4,
                   "sinks": [0.5, -1.0, 2.0, 0.0], "alibi_slopes": [0.5, 0.25, 0.125, 0.0625]},
}  # fmt: skip


def on(device, options):
    return {name: torch.tensor(x, device=device) if isinstance(x, list) else x for name, x in options.items()}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("feature", FEATURES)
def test_dense(device, dtype, feature, no_fallback):
    options = on(device, FEATURES[feature])
    for lengths in ((6, 9), (9, 6), (1, 5)):
        q, k, v = dense(device, dtype, rows=lengths[0], keys=lengths[1])
        out, lse = saccade.attention(q, k, v, return_lse=True, **options)
        assert out.dtype == dtype
        check(out, lse, expected_of(list(zip(q, k, v, strict=True)), 4, **options), dtype, feature)
        assert torch.equal(saccade.attention(q, k, v, **options), out)


@pytest.mark.parametrize("shape", [(6, 9), (4, 6, 9), (2, 1, 6, 9), (2, 4, 1, 9), (1, 1, 6, 1), (9,)])
@pytest.mark.parametrize("kind", ["bool", "float"])
def test_masks(device, shape, kind, no_fallback):
    q, k, v = dense(device, torch.float32)
    mask = torch.rand(shape, device=device) < 0.5
    if kind == "float":
        mask = torch.randn(shape, device=device).masked_fill(~mask, -float("inf"))
    out, lse = saccade.attention(q, k, v, mask=mask, softcap=2.0, return_lse=True)
    whole = mask.expand(2, 4, 6, 9)
    check(
        out, lse, expected_of(list(zip(q, k, v, strict=True)), 4, mask=lambda b: whole[b], softcap=2.0), torch.float32
    )


def test_slopes_of_each_batch(device, no_fallback):
    q, k, v = dense(device, torch.float32)
    slopes = torch.rand(2, 4, device=device)
    out, lse = saccade.attention(q, k, v, alibi_slopes=slopes, return_lse=True)
    check(out, lse, expected_of(list(zip(q, k, v, strict=True)), 4, alibi_slopes=lambda b: slopes[b]), torch.float32)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("feature", ["plain", "top_left", "bottom_right", "everything"])
def test_ragged(device, dtype, feature, no_fallback):
    options = on(device, FEATURES[feature])
    ends_q, ends_kv = [0, 3, 3, 10], [0, 5, 6, 13]
    q, k, v = (torch.randn(n, h, 16, device=device).to(dtype) for n, h in ((10, 4), (13, 2), (13, 2)))
    lengths = {"cu_seqlens_q": integers(ends_q, device), "cu_seqlens_kv": integers(ends_kv, device)}
    out, lse = saccade.attention(q, k, v, return_lse=True, **lengths, **options)
    assert out.shape == (10, 4, 16)
    assert lse.shape == (4, 10)
    sequences = [
        (q[a:b].transpose(0, 1), k[c:d].transpose(0, 1), v[c:d].transpose(0, 1))
        for a, b, c, d in zip(ends_q, ends_q[1:], ends_kv, ends_kv[1:], strict=False)
    ]
    expected = expected_of(sequences, 4, **options)
    check_close(out, torch.cat([o for o, _ in expected], 1).transpose(0, 1), dtype, feature)
    check_lse(lse, torch.cat([x for _, x in expected], 1), dtype, feature)
    given = saccade.attention(q, k, v, max_seqlen_q=7, max_seqlen_kv=7, **lengths, **options)
    assert torch.equal(given, out)


@pytest.mark.parametrize("feature", ["plain", "bottom_right", "everything"])
def test_key_lengths(device, feature, no_fallback):
    options = on(device, FEATURES[feature])
    q, k, v = dense(device, torch.float32, rows=3)
    used = [7, 0]
    out, lse = saccade.attention(q, k, v, kv_lengths=integers(used, device), return_lse=True, **options)
    sequences = [(q[b], k[b, :, :n], v[b, :, :n]) for b, n in enumerate(used)]
    check(out, lse, expected_of(sequences, 4, **options), torch.float32)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("feature", ["plain", "bottom_right", "everything"])
def test_paged(device, dtype, rows, feature, no_fallback):
    options = on(device, FEATURES[feature])
    k, v = (torch.randn(7, 4, 2, 16, device=device).to(dtype) for _ in range(2))
    q = torch.randn(2, 4, rows, 16, device=device).to(dtype)
    table = torch.tensor([[5, 1, 6], [0, 3, 2]], dtype=torch.int32, device=device)
    used = [10, 4]
    out, lse = saccade.attention(
        q, k, v, block_table=table, kv_lengths=integers(used, device), return_lse=True, **options
    )
    sequences = []
    for b, n in enumerate(used):
        keys, values = (x[table[b].long()].flatten(0, 1)[:n].transpose(0, 1) for x in (k, v))
        sequences.append((q[b], keys, values))
    check(out, lse, expected_of(sequences, 4, **options), dtype, feature)


def test_ragged_queries_over_pages(device, no_fallback):
    k, v = (torch.randn(6, 4, 2, 16, device=device) for _ in range(2))
    q = torch.randn(5, 4, 16, device=device)
    table = torch.tensor([[5, 1], [0, 3]], dtype=torch.int32, device=device)
    out = saccade.attention(
        q, k, v, block_table=table, kv_lengths=integers([8, 5], device), cu_seqlens_q=integers([0, 2, 5], device),
        causal="bottom_right",
    )  # fmt: skip
    for b, (start, end, used) in enumerate(((0, 2, 8), (2, 5, 5))):
        keys, values = (x[table[b].long()].flatten(0, 1)[:used].transpose(0, 1) for x in (k, v))
        expected, _ = oracle.attention(
            q[start:end].transpose(0, 1).cpu(), keys.cpu(), values.cpu(), causal="bottom_right"
        )
        check_close(out[start:end], expected.transpose(0, 1), torch.float32)


def test_strides(device, no_fallback):
    packed = torch.randn(2, 9, 3, 4, 16, device=device)
    q, k, v = packed.permute(2, 0, 3, 1, 4)
    out = saccade.attention(q, k, v, causal=True)
    assert out.transpose(1, 2).is_contiguous()
    check_close(
        out, saccade.attention(q.contiguous(), k.contiguous(), v.contiguous(), causal=True).double(), torch.float32
    )
    wide = torch.randn(3, 2, 4, 9, 32, device=device)[..., ::2]
    check_close(saccade.attention(*wide), saccade.attention(*(x.contiguous() for x in wide)).double(), torch.float32)


@pytest.mark.parametrize("seed", range(60))
def test_random_problems(device, seed, no_fallback):
    rng = random.Random(seed)
    torch.manual_seed(seed)
    dtype = rng.choice(DTYPES)
    heads_kv = rng.choice([1, 2])
    heads = heads_kv * rng.choice([1, 3])
    rows, keys = rng.choice([1, 4, 13]), rng.choice([1, 8, 19])
    q, k, v = dense(
        device, dtype, heads, heads_kv, rows, keys, rng.choice([8, 20]), rng.choice([8, 12]), rng.choice([1, 3])
    )
    options = {}
    options["causal"] = rng.choice([False, "top_left", "bottom_right"])
    if rng.random() < 0.4:
        options["window"] = (rng.choice([None, 0, 3]), rng.choice([None, 0, 2]))
        if not options["causal"]:
            options["alignment"] = rng.choice(["top_left", "bottom_right"])
    if rng.random() < 0.3:
        options["softcap"] = rng.choice([0.5, 10.0])
    if rng.random() < 0.3:
        options["scale"] = rng.choice([0.0, 0.2, -1.0])
    if rng.random() < 0.3:
        options["sinks"] = torch.randn(heads, device=device)
    if rng.random() < 0.3:
        options["alibi_slopes"] = torch.rand(heads, device=device)
    out, lse = saccade.attention(q, k, v, return_lse=True, **options)
    check(out, lse, expected_of(list(zip(q, k, v, strict=True)), heads, **options), dtype, f"seed {seed}")


@pytest.mark.parametrize("feature", FEATURES)
def test_the_differentiable_fallback(device, feature):
    options = on(device, FEATURES[feature])
    q, k, v = (x.requires_grad_() for x in dense(device, torch.float32))
    with pytest.warns(saccade.FallbackWarning, match="gradients"):
        out, lse = saccade.attention(q, k, v, return_lse=True, **options)
    check(
        out, lse, expected_of(list(zip(q.detach(), k.detach(), v.detach(), strict=True)), 4, **options), torch.float32
    )
    (out.sum() + lse.sum()).backward()
    assert q.grad is not None and q.grad.isfinite().all()


def test_gradients_by_differences(device):
    q, k, v = (
        x.double().requires_grad_() for x in dense(device, torch.float32, rows=3, keys=4, dim=3, dim_v=3, batch=1)
    )
    sinks = torch.randn(4, device=device, dtype=torch.float64, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", saccade.FallbackWarning)
        torch.autograd.gradcheck(
            lambda q, k, v, s: saccade.attention(q, k, v, sinks=s, causal="bottom_right", softcap=2.0), (q, k, v, sinks)
        )


def test_ragged_and_paged_fallbacks(device):
    """The differentiable fallback gives what the kernels give."""
    ends = {"cu_seqlens_q": integers([0, 3, 7], device), "cu_seqlens_kv": integers([0, 4, 9], device)}
    q, k, v = (torch.randn(n, 2, 8, device=device) for n in (7, 9, 9))
    table = {
        "block_table": torch.tensor([[1, 0]], dtype=torch.int32, device=device),
        "kv_lengths": integers([5], device),
    }
    pages = torch.randn(1, 2, 3, 8, device=device), *(torch.randn(3, 4, 2, 8, device=device) for _ in range(2))
    for args, options in (((q, k, v), ends), (pages, table)):
        expected = saccade.attention(*args, causal="bottom_right", return_lse=True, **options)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", saccade.FallbackWarning)
            result = saccade.attention(
                args[0].requires_grad_(), *args[1:], causal="bottom_right", return_lse=True, **options
            )
        for a, b in zip(result, expected, strict=True):
            torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"causal": "left"}, ValueError, "causal is 'left'"),
        ({"causal": "top_left", "alignment": "bottom_right"}, ValueError, "alignment is 'bottom_right'"),
        ({"alignment": "middle"}, ValueError, "alignment is 'middle'"),
        ({"window": 3}, ValueError, "window is 3"),
        ({"window": (-2, 0)}, ValueError, "window is"),
        ({"softcap": -1.0}, RuntimeError, "softcap is -1"),
        ({"scale": float("nan")}, RuntimeError, "scale is nan"),
        ({"sinks": torch.zeros(3)}, RuntimeError, "sinks has 3 elements; it must have 4"),
        ({"sinks": torch.zeros(4, dtype=torch.float64)}, RuntimeError, "sinks must be float32"),
        ({"alibi_slopes": torch.zeros(5)}, RuntimeError, "alibi_slopes is 5"),
        ({"mask": torch.zeros(2, 2)}, RuntimeError, "mask has size 2"),
        ({"mask": torch.zeros(6, 9, dtype=torch.int32)}, RuntimeError, "mask is neither bool"),
        ({"kv_lengths": torch.zeros(3, dtype=torch.int32)}, RuntimeError, "kv_lengths has 3 elements"),
        ({"kv_lengths": torch.tensor([10, 1], dtype=torch.int32)}, RuntimeError, r"kv_lengths\[0\] is 10"),
        ({"sinks": [1.0]}, TypeError, "sinks is a list"),
    ],
)
def test_errors_name_argument_and_value(options, error, match):
    q, k, v = dense("cpu", torch.float32)
    with pytest.raises(error, match=match):
        saccade.attention(q, k, v, **options)


def test_shape_errors():
    q, k, v = dense("cpu", torch.float32)
    with pytest.raises(RuntimeError, match="q has 3 dimensions"):
        saccade.attention(q[0], k, v)
    with pytest.raises(RuntimeError, match="multiple"):
        saccade.attention(q[:, :3], k, v)
    with pytest.raises(RuntimeError, match="last dimension of k is 8"):
        saccade.attention(q, k[..., :8], v)
    with pytest.raises(RuntimeError, match="batches"):
        saccade.attention(torch.cat([q, q[:1]]), k, v)
    with pytest.raises(RuntimeError, match="dtype"):
        saccade.attention(q, k.half(), v)
    with pytest.raises(RuntimeError, match="float16, bfloat16 or float32"):
        saccade.attention(q.long(), k.long(), v.long())
    with pytest.raises(TypeError, match="k is a list"):
        saccade.attention(q, [1], v)


def test_explain(device):
    q, k, v = dense(device, torch.float16)
    text = saccade.explain(q, k, v, causal="bottom_right", window=(3, None))
    assert text.startswith("b2 h4/2 lq6 lk9 d16 f16") and "chosen" in text
    with pytest.raises(TypeError, match="colour"):
        saccade.explain(q, k, v, colour=1)


def test_rows_with_nothing_to_attend_to_have_gradients_of_zero(device):
    q, k, v = (torch.randn(1, 1, 3, 8, device=device, requires_grad=True) for _ in range(3))
    mask = torch.zeros(3, 3, device=device)
    mask[1] = float("-inf")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", saccade.FallbackWarning)
        saccade.attention(q, k, v, mask=mask).sum().backward()
    for x in (q, k, v):
        assert x.grad.isfinite().all()
    assert (q.grad[0, 0, 1] == 0).all()


def test_block_tables_are_matrices_with_a_row_for_each_sequence(device):
    q, pages = torch.randn(2, 1, 1, 8, device=device), torch.randn(4, 16, 1, 8, device=device)
    lengths = torch.tensor([3, 5], dtype=torch.int32, device=device)
    for table in (torch.zeros(2), torch.zeros(3, 2), torch.zeros(1, 2)):
        table = table.to(device=device, dtype=torch.int32)
        with pytest.raises((RuntimeError, ValueError)):
            saccade.attention(q, pages, pages, block_table=table, kv_lengths=lengths)
