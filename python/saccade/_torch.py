"""Saccade on torch tensors: the drop-in for SDPA, `attention`, and who computes a call."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.compiler import is_dynamo_compiling
from torch.nn import Parameter

from . import _native, _operators
from ._fallback import warn_once
from ._operators import torch_sdpa
from ._reference import attention_reference

_DTYPES = frozenset((torch.float16, torch.bfloat16, torch.float32))
_MAX_HEAD_DIM = 512
_MAX_FAST_HEAD_DIM = 256  # on CUDA
_GRADIENTS = "gradients are needed, and there is no backward yet"
_NO_FAST_KERNEL = "float32 and head dims over 256 have no fast kernel on CUDA yet"
_slow_seen = False  # whether a call has been refused for that: then later ones are asked first
_other_ranks_seen = False  # the same of tensors without four dimensions: asking takes a fifth of the wrapper's time
_PLAIN = (Tensor, Parameter)
_is_grad_enabled = torch.is_grad_enabled
# Without a Python frame in between.
_sdpa_forward = getattr(_operators.sdpa_forward, "_op", _operators.sdpa_forward)
_sdpa_plain = getattr(_operators.sdpa_plain, "_op", _operators.sdpa_plain)
_attention_forward = getattr(_operators.attention_forward, "_op", _operators.attention_forward)

# --- The drop-in ----------------------------------------------------------------------------------------------------


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """`torch.nn.functional.scaled_dot_product_attention`, faster where Saccade can, PyTorch's own where it cannot.

    The signature, the broadcasting, the results within rounding and the errors are PyTorch's. What Saccade does not do
    (dropout, gradients, float64, ...) goes to PyTorch with one `saccade.FallbackWarning` a reason.

    >>> import torch, saccade
    >>> q = torch.randn(2, 8, 5, 64)
    >>> k, v = torch.randn(2, 2, 7, 64), torch.randn(2, 2, 7, 32)
    >>> saccade.scaled_dot_product_attention(q, k, v, enable_gqa=True).shape
    torch.Size([2, 8, 5, 32])
    """
    # The common cases, decided in under half a microsecond; C++ checks dtypes, sizes, strides and devices.
    plain = type(query) is type(key) is type(value) is Tensor and not is_dynamo_compiling()
    if plain and _is_grad_enabled() and (query.requires_grad or key.requires_grad or value.requires_grad):
        return _by_torch(_GRADIENTS, query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    four = plain and (not _other_ranks_seen or query.ndim == 4)  # or C++ finds out
    if four and dropout_p == 0.0 and forward_ad._current_level < 0:
        refusal = None
        try:
            if attn_mask is None and scale is None and not enable_gqa:
                if not _slow_seen or has_fast_kernel(query, value):
                    return _sdpa_plain(query, key, value, is_causal)
            elif has_fast_kernel(query, value) and (
                attn_mask is None or type(attn_mask) is Tensor and not (attn_mask.requires_grad and _is_grad_enabled())
            ):
                return _sdpa_forward(query, key, value, attn_mask, is_causal, scale, enable_gqa)
        except (RuntimeError, TypeError) as error:  # PyTorch has an answer, or says what is wrong in its own words
            refusal = str(error)  # not the error itself, which would keep this frame's tensors alive
        if refusal is not None and query.ndim != 4:
            _remember_other_ranks()
        elif refusal is not None and query.dtype in _DTYPES and key.ndim == value.ndim == 4:
            if "no fast kernel" in refusal:
                _remember_slow()
                refusal = _NO_FAST_KERNEL
            return _by_torch(refusal, query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    return _general(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)


def _remember_slow():
    global _slow_seen
    _slow_seen = True


def _remember_other_ranks():
    global _other_ranks_seen
    _other_ranks_seen = True


def _by_torch(why, query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa):
    """PyTorch's answer, or its error: only when it does have an answer is this a fallback to be told of."""
    if all(isinstance(x, Tensor) and not x.is_nested for x in (query, key, value)):
        # Some of its backends read past the end, or crash, instead of noticing.
        if key.shape[-2:-1] != value.shape[-2:-1]:
            raise RuntimeError(f"key and value differ in length: {tuple(key.shape)} and {tuple(value.shape)}")
        if query.shape[-1:] != key.shape[-1:]:
            raise RuntimeError(f"query and key differ in head dim: {tuple(query.shape)} and {tuple(key.shape)}")
    result = torch_sdpa(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
    warn_once(why)
    return result


def _general(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa):
    """Every other case: other ranks, tracing, and all that goes to PyTorch."""
    traced = is_dynamo_compiling()
    reason = unsupported(query, key, value, attn_mask, dropout_p)
    if reason is None and traced:
        reason = _mismatch(query, key, value, attn_mask, is_causal, enable_gqa)
    if reason is not None:
        return _by_torch(reason, query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    if traced:
        return _operators.sdpa_of_any_rank(query, key, value, attn_mask, is_causal, scale, enable_gqa)
    # Without a gradient the twin does, unless a tensor is not what it seems.
    op = _operators.sdpa if any(_is_fake(x) for x in (query, key, value)) else _sdpa_forward
    try:
        return _operators.sdpa_of_any_rank(query, key, value, attn_mask, is_causal, scale, enable_gqa, op)
    except (RuntimeError, TypeError) as error:
        refusal = str(error)
    return _by_torch(refusal, query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)


def unsupported(query, key, value, attn_mask=None, dropout_p=0.0) -> str | None:
    """Why PyTorch must compute this, if it must; shapes are not looked at. torch.compile traces it."""
    tensors = (query, key, value) if attn_mask is None else (query, key, value, attn_mask)
    for x in tensors:
        if not isinstance(x, Tensor):
            return f"an argument is a {type(x).__name__}, not a tensor"
        if type(x) not in _PLAIN and not _is_fake(x):
            return f"a tensor is of the subclass {type(x).__name__}"
        if x.layout != torch.strided:
            return f"a tensor has the layout {x.layout}"
    if dropout_p != 0.0:
        return "dropout"
    if torch.is_grad_enabled() and any(x.requires_grad for x in tensors):
        return _GRADIENTS
    if query.dtype not in _DTYPES:
        return f"dtype {query.dtype}"
    if query.device.type not in ("cpu", "cuda", "meta"):
        return f"device type {query.device.type}"
    if query.device.type == "cuda" and not _serves_cuda(query.device.index or 0):
        return f"no kernels for {query.device} in this build or for this device"
    if query.shape[-1:] and (query.shape[-1] > _MAX_HEAD_DIM or (value.ndim > 0 and value.shape[-1] > _MAX_HEAD_DIM)):
        return f"head dims over {_MAX_HEAD_DIM}"
    if not has_fast_kernel(query, value):
        return _NO_FAST_KERNEL
    if forward_ad._current_level >= 0:
        return "forward-mode differentiation"
    return None


def has_fast_kernel(query, value) -> bool:
    """Whether a kernel made for speed serves. On CUDA a reference kernel does the rest, and PyTorch does it faster.

    torch.compile traces it."""
    if query.device.type != "cuda":
        return True
    if query.dtype == torch.float32 and not torch.is_autocast_enabled("cuda"):
        return False
    wide = query.ndim > 0 and query.shape[-1] > _MAX_FAST_HEAD_DIM
    return not wide and not (value.ndim > 0 and value.shape[-1] > _MAX_FAST_HEAD_DIM)


def _serves_cuda(index: int) -> bool:
    return _native.serves(_native.CUDA, index)


_serves_cuda._dynamo_marked_constant = True  # type: ignore[attr-defined]  # asked once, while tracing


def _is_fake(x) -> bool:
    return isinstance(x, torch._subclasses.FakeTensor)


def _mismatch(query, key, value, attn_mask, is_causal, enable_gqa) -> str | None:
    """What the operator would refuse, found without calling it: while tracing, an exception is too late."""
    if query.ndim < 2 or key.ndim < 2 or value.ndim < 2:
        return "an argument with fewer than 2 dimensions"
    if attn_mask is not None:
        if is_causal:
            return "attn_mask together with is_causal"
        if attn_mask.dtype not in (torch.bool, torch.float32, query.dtype):
            return f"a mask of {attn_mask.dtype}"
    if not (query.dtype == key.dtype == value.dtype) and not torch.is_autocast_enabled(query.device.type):
        return "q, k and v of different dtypes"
    if not (query.device == key.device == value.device):
        return "q, k and v on different devices"
    if query.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2]:
        return "sizes of q, k and v that do not fit"
    grouped = enable_gqa and query.ndim > 2 and key.ndim > 2 and value.ndim > 2
    if grouped and (key.shape[-3] != value.shape[-3] or query.shape[-3] % max(key.shape[-3], 1) != 0):
        return "head counts that do not fit"
    if query.numel() == 0 or key.numel() == 0 or value.numel() == 0:
        return "empty tensors"
    return None


# --- saccade.attention on tensors -----------------------------------------------------------------------------------


def attention(q: Tensor, k: Tensor, v: Tensor, options: dict, return_lse: bool):
    """`saccade.attention` after its arguments were brought into one form; see _attention.py."""
    reason = None
    if _is_grad_enabled() and (
        q.requires_grad
        or k.requires_grad
        or v.requires_grad
        or any(options[name] is not None and options[name].requires_grad for name in _operators.TENSOR_OPTIONS)
    ):
        reason = _GRADIENTS
    elif not (q.is_cpu or q.is_cuda or q.is_meta):
        reason = f"device type {q.device.type}"
    elif q.dtype == torch.float64:
        reason = f"dtype {q.dtype}"
    elif forward_ad._current_level >= 0:
        reason = "forward-mode differentiation"
    if reason is not None:
        warn_once(reason)
        out, lse = attention_reference(q, k, v, **options)
    else:
        plain = type(q) is Tensor and not is_dynamo_compiling()
        op = _attention_forward if plain else _operators.attention
        out, lse = op(q, k, v, *[options[name] for name in _operators.OPTIONS], return_lse)
    return (out, lse) if return_lse else out


# --- Below Python: the operator that C++ callers reach --------------------------------------------------------------


def _operator_kernel(
    query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, *, scale=None, enable_gqa=False
):
    """aten::scaled_dot_product_attention while Saccade is enabled. PyTorch's own kernel is called by its name in the
    dispatcher, so that it cannot come back here."""
    reason = unsupported(query, key, value, attn_mask, dropout_p)
    if reason is None and query.ndim == key.ndim == value.ndim == 4:
        try:
            return _sdpa_forward(query, key, value, attn_mask, is_causal, scale, enable_gqa)
        except RuntimeError as error:
            reason = str(error)
    result = torch.ops.aten.scaled_dot_product_attention.default.decompose(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )
    if reason is not None and all(type(x) in _PLAIN for x in (query, key, value)):  # not while PyTorch is tracing
        warn_once(reason)
    return result


def override_operator() -> torch.library.Library:
    """Puts _operator_kernel in the dispatcher until the library is destroyed."""
    library = torch.library.Library("aten", "IMPL")
    for key in ("CPU", "CUDA", "AutogradCPU", "AutogradCUDA"):
        library.impl("scaled_dot_product_attention", _operator_kernel, key)
    return library
