"""NumPy and DLPack arrays: the C ABI without torch."""

import os
import pathlib
import subprocess
import sys

import pytest
import torch
from conftest import check_close
from test_attention import FEATURES, dense, integers

import saccade

numpy = pytest.importorskip("numpy", reason="NumPy is not installed")


class Foreign:
    """An array of a library that is known only by DLPack."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack__(self, stream=None, **options):
        return self.tensor.__dlpack__(stream=stream) if stream is not None else self.tensor.__dlpack__()

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()


def as_numpy(x):
    return x.numpy() if isinstance(x, torch.Tensor) else numpy.array(x, numpy.float32) if isinstance(x, list) else x


def as_torch(x):
    return torch.tensor(x) if isinstance(x, list) else x


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("feature", FEATURES)
def test_numpy_gives_what_torch_gives(dtype, feature):
    options = FEATURES[feature]
    q, k, v = dense("cpu", dtype)
    expected, expected_lse = saccade.attention(
        q, k, v, return_lse=True, **{name: as_torch(x) for name, x in options.items()}
    )
    out, lse = saccade.attention(
        *(x.numpy() for x in (q, k, v)), return_lse=True, **{name: as_numpy(x) for name, x in options.items()}
    )
    assert isinstance(out, numpy.ndarray) and out.dtype == q.numpy().dtype and lse.dtype == numpy.float32
    torch.testing.assert_close(torch.from_numpy(out), expected)
    torch.testing.assert_close(torch.from_numpy(lse), expected_lse)


def test_numpy_strides_masks_and_broadcasting():
    rng = numpy.random.default_rng(0)
    packed = rng.standard_normal((2, 9, 3, 4, 16), dtype=numpy.float32).transpose(2, 0, 3, 1, 4)
    mask = rng.random((4, 1, 9)) < 0.6
    out = saccade.attention(*packed, mask=mask)
    expected = saccade.attention(*(torch.from_numpy(x) for x in packed), mask=torch.from_numpy(mask))
    torch.testing.assert_close(torch.from_numpy(out), expected.contiguous())
    strided = rng.standard_normal((3, 2, 4, 9, 32), dtype=numpy.float32)[..., ::2]
    numpy.testing.assert_allclose(
        saccade.attention(*strided), saccade.attention(*(x.copy() for x in strided)), atol=1e-6
    )
    q, k = (
        rng.standard_normal((3, 2, 5, 8), dtype=numpy.float32),
        rng.standard_normal((1, 2, 5, 8), dtype=numpy.float32),
    )
    numpy.testing.assert_allclose(
        saccade.attention(q, k, k), saccade.attention(q, k.repeat(3, 0), k.repeat(3, 0)), atol=1e-6
    )
    backwards = rng.standard_normal((3, 2, 4, 9, 16), dtype=numpy.float32)[:, :, :, ::-1]
    numpy.testing.assert_allclose(
        saccade.attention(*backwards), saccade.attention(*(x.copy() for x in backwards)), atol=1e-6
    )


def test_numpy_ragged_and_paged():
    ends_q, ends_kv = integers([0, 3, 7], "cpu"), integers([0, 4, 9], "cpu")
    q, k, v = (torch.randn(n, 2, 8) for n in (7, 9, 9))
    expected = saccade.attention(q, k, v, cu_seqlens_q=ends_q, cu_seqlens_kv=ends_kv, causal="bottom_right")
    out = saccade.attention(
        *(x.numpy() for x in (q, k, v)),
        cu_seqlens_q=ends_q.numpy(),
        cu_seqlens_kv=ends_kv.numpy(),
        causal="bottom_right",
    )
    torch.testing.assert_close(torch.from_numpy(out), expected)
    table, used = torch.tensor([[1, 0]], dtype=torch.int32), integers([5], "cpu")
    q, k, v = torch.randn(1, 2, 3, 8), torch.randn(3, 4, 2, 8), torch.randn(3, 4, 2, 8)
    expected = saccade.attention(q, k, v, block_table=table, kv_lengths=used)
    out = saccade.attention(*(x.numpy() for x in (q, k, v)), block_table=table.numpy(), kv_lengths=used.numpy())
    torch.testing.assert_close(torch.from_numpy(out), expected)


def test_bfloat16_by_ml_dtypes():
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    q, k, v = (x.float() for x in dense("cpu", torch.bfloat16))
    out = saccade.attention(*(x.numpy().astype(ml_dtypes.bfloat16) for x in (q, k, v)))
    assert out.dtype == ml_dtypes.bfloat16
    check_close(torch.from_numpy(out.astype("float32")), saccade.attention(q, k, v).double(), torch.bfloat16)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_dlpack(device, dtype):
    if dtype == torch.bfloat16 and device == "cpu":
        pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    q, k, v = dense(device, dtype)
    mask = torch.rand(6, 9, device=device) < 0.7
    out = saccade.attention(*(Foreign(x) for x in (q, k, v)), mask=Foreign(mask.to(torch.float32)))
    if not isinstance(out, torch.Tensor):
        out = torch.from_numpy(out.astype("float32")).to(dtype)
    torch.testing.assert_close(out.contiguous(), saccade.attention(q, k, v, mask=mask.to(torch.float32)).contiguous())


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        (lambda q, k, v: (q.astype("float64"), k, v), ValueError, "q is float64"),
        (lambda q, k, v: (q, k.astype("float16"), v), ValueError, "k is float16 but q is float32"),
        (lambda q, k, v: (q[0], k, v), ValueError, r"q has the shape \(4, 6, 16\)"),
        (lambda q, k, v: (q[:, :3], k, v), ValueError, "q has 3 heads and k 2"),
        (lambda q, k, v: (q, k[..., :8], v), ValueError, "last sizes must agree"),
        (lambda q, k, v: (q, k, v[:, :, :4]), ValueError, "differ in the last size only"),
        (lambda q, k, v: (q, k, [1]), TypeError, "v is a list"),
    ],
)
def test_errors_name_argument_and_value(change, error, match):
    arrays = change(*(x.numpy() for x in dense("cpu", torch.float32)))
    with pytest.raises(error, match=match):
        saccade.attention(*arrays)


def test_options_are_checked():
    q, k, v = (x.numpy() for x in dense("cpu", torch.float32))
    with pytest.raises(ValueError, match=r"sinks has the shape \(3,\); it must be \(4,\)"):
        saccade.attention(q, k, v, sinks=numpy.zeros(3, "float32"))
    with pytest.raises(ValueError, match="mask is int64"):
        saccade.attention(q, k, v, mask=numpy.zeros((6, 9), "int64"))
    with pytest.raises(ValueError, match="does not broadcast"):
        saccade.attention(q, k, v, mask=numpy.zeros((2, 9), "float32"))
    with pytest.raises(ValueError, match="softcap is -1"):
        saccade.attention(q, k, v, softcap=-1)
    with pytest.raises(NotImplementedError, match="head dims go up to 512"):
        saccade.attention(*[numpy.zeros((1, 1, 1, 600), "float32")] * 3)


WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None  # importing it fails from here on
import numpy, saccade
q, k, v = numpy.random.default_rng(0).standard_normal((3, 1, 2, 7, 16), dtype=numpy.float32)
o, lse = saccade.attention(q, k, v, causal="bottom_right", window=(3, None), return_lse=True)
s = q @ k.swapaxes(-1, -2) / 4
i, j = numpy.indices((7, 7))
s[..., (j > i) | (j < i - 3)] = -numpy.inf
p = numpy.exp(s - s.max(-1, keepdims=True))
numpy.testing.assert_allclose(o, p / p.sum(-1, keepdims=True) @ v, atol=1e-5)
print(saccade.explain(q, k, v).splitlines()[0], saccade.version)

class Foreign:
    def __init__(self, x): self.x = x
    def __dlpack__(self, **options): return self.x.__dlpack__()
    def __dlpack_device__(self): return self.x.__dlpack_device__()

numpy.testing.assert_array_equal(saccade.attention(Foreign(q), Foreign(k), Foreign(v)), saccade.attention(q, k, v))
try:
    saccade.scaled_dot_product_attention
except ImportError as error:
    print("no torch:", type(error).__name__)
"""


def test_without_torch():
    folder = str(pathlib.Path(saccade.__file__).parent.parent)
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH],
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": folder}, timeout=120,
    )  # fmt: skip
    assert done.stdout == f"b1 h2 l7 d16 f32 on cpu {saccade.version}\nno torch: ModuleNotFoundError\n", done.stderr


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_jax(dtype):
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    tensors = dense("cpu", dtype)
    q, k, v = (jax.numpy.asarray(x.float().numpy()).astype(str(dtype)[6:]) for x in tensors)
    mask = jax.numpy.tril(jax.numpy.ones((6, 9), bool))
    out, lse = saccade.attention(q, k, v, mask=mask, return_lse=True)
    assert isinstance(out, jax.Array) and isinstance(lse, jax.Array) and out.dtype == q.dtype
    expected = saccade.attention(*tensors, causal=True).float().contiguous()
    torch.testing.assert_close(torch.from_numpy(jax.numpy.asarray(out, "float32").__array__().copy()), expected)


def test_cupy():
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    q, k, v = (cupy.asarray(x.numpy()) for x in dense("cpu", torch.float32))
    out = saccade.attention(q, k, v)
    assert isinstance(out, cupy.ndarray)
    expected = saccade.attention(*(torch.from_dlpack(x) for x in (q, k, v)))
    torch.testing.assert_close(torch.from_dlpack(out), expected)
