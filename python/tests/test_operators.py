"""What PyTorch asks of an operator: opcheck, torch.compile, autocast, autograd, CUDA graphs, streams, devices."""

import warnings

import pytest
import torch
import torch.nn.functional as F
from conftest import check_close
from torch.nn.attention import SDPBackend, sdpa_kernel

import saccade
from saccade import _torch

ours = saccade.scaled_dot_product_attention


def sdpa_samples(device, requires_grad):
    def tensor(*shape, dtype=torch.float32):
        return torch.randn(shape, device=device).to(dtype).requires_grad_(requires_grad)

    mask = torch.rand(5, 7, device=device) < 0.6
    yield (tensor(2, 3, 5, 8), tensor(2, 3, 7, 8), tensor(2, 3, 7, 8), None, False, None, False)
    yield (tensor(2, 4, 5, 8), tensor(2, 2, 7, 8), tensor(2, 2, 7, 16), mask, False, 0.5, True)
    yield (tensor(1, 3, 5, 8), tensor(2, 1, 7, 8), tensor(2, 3, 7, 8), None, True, None, False)
    yield (
        tensor(2, 5, 3, 8).transpose(1, 2),
        *(tensor(2, 7, 3, 8).transpose(1, 2) for _ in "kv"),
        None,
        False,
        None,
        False,
    )
    if not requires_grad:
        yield (*(tensor(1, 2, 6, 8, dtype=torch.bfloat16) for _ in "qkv"), None, True, None, False)
        yield (tensor(1, 2, 8, 6).mT, tensor(1, 2, 7, 8), tensor(1, 2, 7, 8), None, False, None, False)


@pytest.mark.parametrize("requires_grad", [False, True])
def test_opcheck_sdpa(device, requires_grad):
    for sample in sdpa_samples(device, requires_grad):
        torch.library.opcheck(torch.ops.saccade.sdpa.default, sample)
        if not requires_grad:
            torch.library.opcheck(torch.ops.saccade.sdpa_forward.default, sample)
    for causal in (False, True):
        qkv = [torch.randn(2, 3, 7, 16, device=device, dtype=torch.float16) for _ in "qkv"]
        torch.library.opcheck(torch.ops.saccade.sdpa_plain.default, (*qkv, causal))


def attention_samples(device, requires_grad):
    def tensor(*shape):
        return torch.randn(shape, device=device).requires_grad_(requires_grad)

    def integers(*values):
        return torch.tensor(values, dtype=torch.int32, device=device)

    none = [None] * 7
    plain = [0, 0, True, True, 3, -1, None, 0.0]
    qkv = (tensor(2, 4, 5, 8), tensor(2, 2, 7, 8), tensor(2, 2, 7, 16))
    yield (*qkv, *none, *plain, True)
    yield (*qkv, *none, *plain, False)
    extras = [torch.randn(5, 7, device=device), torch.rand(4, device=device), torch.randn(4, device=device)]
    yield (*qkv, *extras, None, None, None, None, 0, 0, False, False, -1, -1, 0.3, 5.0, True)
    ragged = (tensor(8, 4, 8), tensor(9, 2, 8), tensor(9, 2, 8))
    yield (
        *ragged,
        None,
        None,
        None,
        integers(0, 3, 8),
        integers(0, 4, 9),
        None,
        None,
        5,
        5,
        True,
        False,
        -1,
        -1,
        None,
        0.0,
        True,
    )
    pages = (tensor(2, 4, 3, 8), tensor(6, 4, 2, 8), tensor(6, 4, 2, 8))
    table = torch.tensor([[5, 1], [0, 2]], dtype=torch.int32, device=device)
    yield (*pages, None, None, None, None, None, integers(7, 3), table, 0, 8, True, True, -1, -1, None, 0.0, True)


@pytest.mark.parametrize("requires_grad", [False, True])
def test_opcheck_attention(device, requires_grad):
    everything = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
    for sample in attention_samples(device, requires_grad):
        has_lengths = any(x is not None for x in sample[6:10])
        # The gradient of sequences by lengths reads the lengths, which a trace cannot.
        checks = everything[:3] if requires_grad and has_lengths else everything
        torch.library.opcheck(torch.ops.saccade.attention.default, sample, test_utils=checks)
        if not requires_grad:
            torch.library.opcheck(torch.ops.saccade.attention_forward.default, sample)


def test_gradients_of_the_operators(device):
    q, k, v = (torch.randn(2, 2, 5, 8, device=device, requires_grad=True) for _ in range(3))
    mask = torch.randn(5, 5, device=device, requires_grad=True)
    mine = torch.autograd.grad(torch.ops.saccade.sdpa(q, k, v, mask).square().sum(), (q, k, v, mask))
    theirs = torch.autograd.grad(F.scaled_dot_product_attention(q, k, v, mask).square().sum(), (q, k, v, mask))
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", saccade.FallbackWarning)
        out, lse = saccade.attention(q, k, v, mask=mask, return_lse=True)
    by_attention = torch.autograd.grad(out.square().sum() + 0 * lse.sum(), (q, k, v, mask))
    for a, b in zip(by_attention, theirs, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


@pytest.fixture
def fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


# "aot_eager" does all but code generation, which needs minutes of a C++ compiler; one test goes the whole way.
def compiled(function, dynamic=True, backend="aot_eager"):
    return torch.compile(function, fullgraph=True, dynamic=dynamic, backend=backend)


@pytest.mark.parametrize("causal", [False, True])
def test_compile_with_dynamic_shapes(device, causal, fresh_compiler, no_fallback):
    @compiled
    def model(q, k, v):
        return ours(q * 2, k, v, is_causal=causal) + 1

    with torch.no_grad():
        for length in (5, 9, 33):
            q, k, v = (torch.randn(2, 3, length, 16, device=device) for _ in range(3))
            expected = F.scaled_dot_product_attention(q * 2, k, v, is_causal=causal) + 1
            check_close(model(q, k, v), expected.double(), torch.float32)


def test_compile_masks_ranks_and_attention(device, fresh_compiler, no_fallback):
    @compiled
    def model(q, k, v, mask):
        four = ours(q, k, v, mask, scale=0.3)
        three = ours(q[0], k[0], v[0], is_causal=True)
        window, lse = saccade.attention(q, k, v, window=(3, 0), return_lse=True)
        return four, three, window, lse

    for length in (6, 11):
        q, k, v = (torch.randn(2, 3, length, 16, device=device) for _ in range(3))
        mask = torch.rand(length, length, device=device) < 0.8
        four, three, window, lse = model(q, k, v, mask)
        check_close(four, F.scaled_dot_product_attention(q, k, v, mask, scale=0.3).double(), torch.float32)
        check_close(three, F.scaled_dot_product_attention(q[0], k[0], v[0], is_causal=True).double(), torch.float32)
        expected, expected_lse = saccade.attention(q, k, v, window=(3, 0), return_lse=True)
        torch.testing.assert_close(window, expected)
        torch.testing.assert_close(lse, expected_lse)


def test_compile_falls_back_without_a_graph_break(device, fresh_compiler):
    @compiled
    def model(q, k, v):
        return ours(q, k, v)

    q, k, v = (torch.randn(2, 3, 5, 16, device=device, requires_grad=True) for _ in range(3))
    with pytest.warns(saccade.FallbackWarning, match="gradients"):
        out = model(q, k, v)
    mine = torch.autograd.grad(out.square().sum(), (q, k, v))
    theirs = torch.autograd.grad(F.scaled_dot_product_attention(q, k, v).square().sum(), (q, k, v))
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)
    with pytest.warns(saccade.FallbackWarning, match="float64"), torch.no_grad():
        model(q.double(), k.double(), v.double())


def test_compile_sees_the_switch(device, fresh_compiler):
    graphs = []

    def keep(graph, inputs):
        graphs.append([str(node.target) for node in graph.graph.nodes if node.op == "call_function"])
        return graph.forward

    model = torch.compile(lambda q: F.scaled_dot_product_attention(q, q, q), backend=keep, fullgraph=True)
    q = torch.randn(1, 2, 4, 8, device=device)
    model(q)
    with saccade.enabled():
        model(q)
    model(q)
    assert "saccade" not in str(graphs[0])
    assert "saccade" in str(graphs[1])


def test_compile_with_inductor(device, fresh_compiler, no_fallback):
    @torch.compile(fullgraph=True)
    def model(q, k, v):
        return ours(q.sin(), k, v, is_causal=True).cos()

    q, k, v = (torch.randn(1, 2, 9, 16, device=device) for _ in range(3))
    with torch.no_grad():
        expected = F.scaled_dot_product_attention(q.sin(), k, v, is_causal=True).cos()
        check_close(model(q, k, v), expected.double(), torch.float32)


def test_export(device, no_fallback):
    class Model(torch.nn.Module):
        def forward(self, q, k, v):
            return ours(q, k, v, is_causal=True)

    q, k, v = (torch.randn(1, 2, 9, 16, device=device) for _ in range(3))
    with torch.no_grad():
        program = torch.export.export(Model(), (q, k, v))
        assert "saccade" in str(program.graph)
        torch.testing.assert_close(program.module()(q, k, v), ours(q, k, v, is_causal=True))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(device, dtype, no_fallback):
    q, k, v = (torch.randn(2, 3, 9, 16, device=device) for _ in range(3))
    mask = torch.randn(9, 9, device=device)
    with torch.autocast(device, dtype):
        mine = ours(q, k, v, mask)
        theirs = F.scaled_dot_product_attention(q, k, v, mask)
        mixed = ours(q, k.to(dtype), v.to(dtype))
        full = saccade.attention(q, k, v, causal=True)
        with torch.autocast(device, enabled=False):
            assert ours(q, k, v).dtype == torch.float32
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", saccade.FallbackWarning)
            assert ours(q.double(), k.double(), v.double()).dtype == torch.float64
    assert mine.dtype == theirs.dtype == dtype == mixed.dtype == full.dtype
    cast = [x.to(dtype).double() for x in (q, k, v, mask)]
    check_close(mine, F.scaled_dot_product_attention(*cast), dtype)


def test_fake_and_meta_tensors():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        q = torch.randn(2, 3, 5, 8)
        assert ours(q, q, q[..., :4]).shape == (2, 3, 5, 4)
        if not torch.cuda.is_available():  # what could not run later is not put into a graph
            q = torch.randn(2, 3, 5, 8, device="cuda")
            with pytest.warns(saccade.FallbackWarning, match="no kernels for cuda:0"):
                assert ours(q, q, q).shape == q.shape
    q = torch.empty(2, 3, 5, 8, device="meta")
    assert ours(q, q, q).device.type == "meta"


needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


@needs_gpu
def test_every_test_ran_on_a_gpu_too(request):
    """Skipped where there is none, so that the report says it."""
    assert any(item.name.endswith("cuda]") or "[cuda-" in item.name for item in request.session.items)


@needs_gpu
def test_cuda_graph():
    q, k, v = (torch.randn(1, 8, 128, 64, device="cuda", dtype=torch.float16) for _ in range(3))
    ours(q, k, v)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = ours(q, k, v)
    for seed in range(3):
        torch.manual_seed(seed)
        q.normal_()
        graph.replay()
        check_close(out, F.scaled_dot_product_attention(q.double(), k.double(), v.double()), torch.float16)


@needs_gpu
def test_streams_are_respected():
    """The call waits for what its stream did before, and overlapping streams do not share scratch memory."""
    streams = [torch.cuda.Stream() for _ in range(4)]
    inputs = [[torch.randn(1, 4, 512, 64, device="cuda", dtype=torch.float16) for _ in range(3)] for _ in streams]
    expected = [F.scaled_dot_product_attention(q.double() + 1, k.double(), v.double()) for q, k, v in inputs]
    torch.cuda.synchronize()
    results = []
    for stream, (q, k, v) in zip(streams, inputs, strict=True):
        with torch.cuda.stream(stream):
            torch.cuda._sleep(10_000_000)
            results.append(ours(q + 1, k, v))
    torch.cuda.synchronize()
    for result, right in zip(results, expected, strict=True):
        check_close(result, right, torch.float16)


@needs_gpu
@pytest.mark.parametrize("shape", [(1, 8, 512, 64), (2, 16, 1024, 128), (1, 2, 96, 256), (64, 12, 64, 64)])
def test_calls_in_a_row_wait_for_each_other_on_cuda(shape):
    """Launches may begin before the kernel before them has ended; reads and writes may not."""
    q, k, v = (torch.randn(shape, device="cuda", dtype=torch.float16) for _ in range(3))

    def chain(after):
        x, kept = q.clone(), []
        for i in range(50):
            out = ours(x, k, v, is_causal=i % 2 == 1)
            after()
            kept.append(ours(ours(out, out, v), k, v))
            after()
            x.copy_(out * 8 + kept[-1])  # right behind a kernel that may still read x
            after()
        return x, *kept

    expected = chain(torch.cuda.synchronize)
    for _ in range(3):
        for found, right in zip(chain(lambda: None), expected, strict=True):
            torch.testing.assert_close(found, right, rtol=0, atol=0)


@needs_gpu
@pytest.mark.parametrize("keys", [(1, 1, 65536, 128), (1, 8, 4096, 128), (16, 8, 4096, 128)])
def test_decoding_in_a_row_waits_for_what_was_written_on_cuda(keys):
    """Clusters share the keys out, meet in workspaces that calls reuse, and read keys that were changed just before."""
    q = torch.randn(keys[0], 32, 1, 128, device="cuda", dtype=torch.float16)
    k, v = (torch.randn(keys, device="cuda", dtype=torch.float16) for _ in range(2))

    def chain(after):
        x, cache, kept = q, k.clone(), []
        for _ in range(50):
            x = ours(x, cache, v, enable_gqa=True) * 30
            after()
            cache[:, :, 0].add_(0.001)
            after()
            kept.append(x)
        return torch.stack(kept)

    expected = chain(torch.cuda.synchronize)
    for _ in range(3):
        torch.testing.assert_close(chain(lambda: None), expected, rtol=0, atol=0)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="fewer than 2 CUDA devices")
def test_second_device():
    q, k, v = (torch.randn(1, 2, 64, 64, device="cuda:1", dtype=torch.float16) for _ in range(3))
    with torch.cuda.device(0):
        out = ours(q, k, v)
        assert torch.cuda.current_device() == 0
    assert out.device == q.device
    check_close(out, F.scaled_dot_product_attention(q.double(), k.double(), v.double()), torch.float16)


def test_mixed_devices_are_refused():
    q = torch.randn(1, 1, 2, 4)
    with pytest.raises(RuntimeError):
        _torch._sdpa_forward(q, q, q.to("meta"))


def test_gradients_of_gradients(device):
    q, k, v = (torch.randn(1, 2, 5, 8, device=device, dtype=torch.float32, requires_grad=True) for _ in range(3))

    def penalty(attend):
        out = attend(q, k, v)
        (first,) = torch.autograd.grad(out.square().sum(), q, create_graph=True)
        return torch.autograd.grad(first.square().sum(), (q, k, v))

    def plain(q, k, v):
        return torch.softmax(q @ k.transpose(-1, -2) / 8**0.5, -1) @ v

    expected = penalty(plain)
    with sdpa_kernel(SDPBackend.MATH):  # PyTorch's other backends have none, and say so
        found = penalty(torch.ops.saccade.sdpa)
    for ours_, exact in zip(found, expected, strict=True):
        torch.testing.assert_close(ours_, exact, rtol=1e-4, atol=1e-4)


def test_fake_tensors_refuse_what_real_ones_refuse():
    with torch.device("meta"):
        q, k = torch.empty(1, 2, 4, 16), torch.empty(1, 2, 5, 8)
    with pytest.raises(RuntimeError, match="head dim"):
        torch.ops.saccade.sdpa(q, k, k)
