"""Every test runs on the CPU, and on a CUDA device where there is one."""

import random
import warnings

import pytest
import torch

import saccade
from saccade import _fallback, _torch


@pytest.fixture(params=["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"])
def device(request):
    return request.param


@pytest.fixture(autouse=True)
def as_new():
    """No state of one test reaches the next."""
    _fallback.forget_warnings()
    _torch._slow_seen = False
    torch.manual_seed(0)
    random.seed(0)
    yield
    saccade.disable()


@pytest.fixture(autouse=True)
def slow_kernels_too(request, monkeypatch):
    """Unless a test is marked `fast_only`: on CUDA what the drop-in leaves to PyTorch because only the reference kernel
    does it is computed by that one. So float32 shows every path's mistakes there too."""
    if torch.cuda.is_available() and request.node.get_closest_marker("fast_only") is None:
        plain = _torch._sdpa_plain

        def any_kernel(q, k, v, causal):
            try:
                return plain(q, k, v, causal)
            except RuntimeError as error:
                if "no fast kernel" not in str(error):
                    raise
            return _torch._sdpa_forward(q, k, v, None, causal)

        monkeypatch.setattr(_torch, "has_fast_kernel", lambda query, value: True)
        monkeypatch.setattr(_torch, "_sdpa_plain", any_kernel)


@pytest.fixture
def no_fallback():
    """A fallback to PyTorch is a failure."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", saccade.FallbackWarning)
        yield


DTYPES = [torch.float32, torch.float16, torch.bfloat16]
# Relative L2 and largest error against float64 on the same rounded inputs, for values of N(0, 1).
BOUNDS = {torch.float32: (3e-6, 3e-5), torch.float16: (1e-3, 1e-2), torch.bfloat16: (8e-3, 8e-2)}


def check_close(actual, expected, dtype=None, what=""):
    """Both the relative L2 error and the largest one are within the bounds of the dtype; NaN only where expected."""
    dtype = dtype or actual.dtype
    assert actual.shape == expected.shape, what
    actual, expected = actual.detach().double().cpu(), expected.detach().double().cpu()
    assert torch.equal(actual.isnan(), expected.isnan()), f"{what}: NaN in other places"
    infinite = expected.isinf()
    assert torch.equal(actual[infinite], expected[infinite]), f"{what}: infinities differ"
    finite = ~(infinite | expected.isnan())
    if finite.sum() == 0:
        return
    error = (actual - expected)[finite]
    relative, largest = BOUNDS[dtype]
    norm = expected[finite].norm()
    assert error.norm() <= relative * norm + 1e-30, f"{what}: relative L2 error {error.norm() / norm:.3g}"
    assert error.abs().max() <= largest * max(1.0, expected[finite].abs().max()), (
        f"{what}: error {error.abs().max():.3g}"
    )
