"""The torch operators from Python: loading, fake kernels, autograd, autocast, and the drop-in for SDPA."""

from __future__ import annotations

import pathlib

import torch
from torch import Tensor
from torch._C._functorch import peek_interpreter_stack
from torch.autograd import forward_ad
from torch.compiler import is_dynamo_compiling
from torch.nn import Parameter

from . import _native
from ._fallback import warn_once
from ._reference import attention_reference

_folder = pathlib.Path(__file__).parent
_path = _folder / "libsaccade_torch.so"
if not _path.exists():
    raise ImportError(
        f"{_path} is missing: this package was built where torch was not found. Install torch, then build it again "
        "(pip install --force-reinstall --no-deps .)"
    )
_native.library()  # first, so that the operators find it loaded
torch.ops.load_library(str(_path))

#: torch's own function, whatever enable() puts in its place.
torch_sdpa = torch._C._nn.scaled_dot_product_attention

_DTYPES = frozenset((torch.float16, torch.bfloat16, torch.float32))
_MAX_HEAD_DIM = 512
_PLAIN = (Tensor, Parameter)
_is_grad_enabled = torch.is_grad_enabled

_sdpa = torch.ops.saccade.sdpa.default
_sdpa_forward = torch.ops.saccade.sdpa_forward.default
_attention = torch.ops.saccade.attention.default
_attention_forward = torch.ops.saccade.attention_forward.default


# --- The drop-in ------------------------------------------------------------------------------------------------------


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
    if is_dynamo_compiling():
        return _general(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    # The common case, decided in under a microsecond; C++ makes every check of sizes, strides and devices.
    if (
        type(query) is Tensor
        and type(key) is Tensor
        and type(value) is Tensor
        and (attn_mask is None or type(attn_mask) is Tensor)
        and query.ndim == 4
        and query.dtype in _DTYPES
        and dropout_p == 0.0
        and not (_is_grad_enabled() and _require_grad(query, key, value, attn_mask))
        and forward_ad._current_level < 0
        and peek_interpreter_stack() is None
    ):
        try:
            return _sdpa_forward(query, key, value, attn_mask, is_causal, scale, enable_gqa)
        except RuntimeError as error:
            refusal = error
        except TypeError:  # an argument of a wrong type: PyTorch says it in its words
            return torch_sdpa(
                query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
            )
        if key.ndim == value.ndim == 4:
            return _by_torch(refusal, query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    return _general(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)


def _require_grad(query, key, value, attn_mask):
    return (
        query.requires_grad
        or key.requires_grad
        or value.requires_grad
        or (attn_mask is not None and attn_mask.requires_grad)
    )


def _by_torch(why, query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa):
    """PyTorch's answer, or its error: only when it does have an answer is this a fallback to be told of."""
    if isinstance(key, Tensor) and isinstance(value, Tensor) and not key.is_nested and key.shape[-2:-1] != value.shape[-2:-1]:
        # Some of its backends read past the end instead of noticing.
        raise RuntimeError(f"key and value differ in length: {tuple(key.shape)} and {tuple(value.shape)}")
    result = torch_sdpa(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
    warn_once(str(why).split("\nException raised", 1)[0])
    return result


def _general(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa):
    """Every other case: other ranks, tracing, and all that goes to PyTorch."""
    reason = unsupported(query, key, value, attn_mask, dropout_p)
    if reason is not None:
        return _by_torch(reason, query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    if is_dynamo_compiling() or query.ndim == key.ndim == value.ndim == 4:
        problem = _mismatch(query, key, value, attn_mask, is_causal, enable_gqa)
        if problem is not None:
            return _by_torch(problem, query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
        return _any_rank(query, key, value, attn_mask, is_causal, scale, enable_gqa)
    try:
        return _any_rank(query, key, value, attn_mask, is_causal, scale, enable_gqa)
    except RuntimeError as error:
        refusal = error
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
        return "gradients are needed, and there is no backward yet"
    if query.dtype not in _DTYPES and not torch.is_autocast_enabled(query.device.type):
        return f"dtype {query.dtype}"
    if query.device.type not in ("cpu", "cuda", "meta"):
        return f"device type {query.device.type}"
    if query.shape[-1:] and (query.shape[-1] > _MAX_HEAD_DIM or (value.ndim > 0 and value.shape[-1] > _MAX_HEAD_DIM)):
        return f"head dims over {_MAX_HEAD_DIM}"
    if forward_ad._current_level >= 0:
        return "forward-mode differentiation"
    if not is_dynamo_compiling() and peek_interpreter_stack() is not None:
        return "a torch.func transform"
    return None


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
    if query.ndim > 2 and key.ndim > 2 and value.ndim > 2 and enable_gqa:
        if key.shape[-3] != value.shape[-3] or query.shape[-3] % max(key.shape[-3], 1) != 0:
            return "head counts that do not fit"
    if query.numel() == 0 or key.numel() == 0 or value.numel() == 0:
        return "empty tensors"
    return None


def _any_rank(query, key, value, attn_mask, is_causal, scale, enable_gqa):
    """Brings any rank to [batch, heads, length, dim], and the answer back."""
    if query.ndim == key.ndim == value.ndim == 4 and (attn_mask is None or attn_mask.ndim <= 4):
        return _sdpa(query, key, value, attn_mask, is_causal, scale, enable_gqa)
    if min(query.ndim, key.ndim, value.ndim) < 2:
        raise RuntimeError("an argument with fewer than 2 dimensions")
    if enable_gqa and min(query.ndim, key.ndim, value.ndim) < 3:
        raise RuntimeError("enable_gqa needs a dimension of heads")
    rank = max(query.ndim, key.ndim, value.ndim)
    if attn_mask is not None and attn_mask.ndim > rank:
        raise RuntimeError("a mask with more dimensions than q, k and v")
    heads_of = 3 if rank > 2 else 2
    batch = torch.broadcast_shapes(query.shape[:-heads_of], key.shape[:-heads_of], value.shape[:-heads_of])

    def to_4d(x):
        x = x[(None,) * (max(rank, 3) - x.ndim)]
        return x.expand(*batch, *x.shape[-3:]).reshape(-1, *x.shape[-3:]) if batch else x[None]

    if attn_mask is not None and attn_mask.ndim > 3:
        attn_mask = attn_mask.expand(*batch, *attn_mask.shape[-3:]).reshape(-1, *attn_mask.shape[-3:])
    out = _sdpa(to_4d(query), to_4d(key), to_4d(value), attn_mask, is_causal, scale, enable_gqa)
    return out.reshape(*batch, *out.shape[4 - heads_of :])


# --- saccade.attention on tensors -------------------------------------------------------------------------------------


def attention(q: Tensor, k: Tensor, v: Tensor, options: dict, return_lse: bool):
    """`saccade.attention` after its arguments were brought into one form; see _attention.py."""
    tensors = [q, k, v, *(options[name] for name in _TENSOR_OPTIONS if options[name] is not None)]
    traced = is_dynamo_compiling() or any(_is_fake(x) for x in tensors)
    reason = None
    if torch.is_grad_enabled() and any(x.requires_grad for x in tensors):
        reason = "gradients are needed, and there is no backward yet"
    elif q.device.type not in ("cpu", "cuda", "meta"):
        reason = f"device type {q.device.type}"
    elif q.dtype == torch.float64:
        reason = f"dtype {q.dtype}"
    elif forward_ad._current_level >= 0:
        reason = "forward-mode differentiation"
    elif not is_dynamo_compiling() and peek_interpreter_stack() is not None:
        reason = "a torch.func transform"
    if reason is not None:
        warn_once(reason)
        out, lse = attention_reference(q, k, v, **options)
    else:
        op = _attention if traced else _attention_forward
        out, lse = op(q, k, v, *(options[name] for name in _OPTIONS), return_lse)
    return (out, lse) if return_lse else out


_TENSOR_OPTIONS = ("mask", "alibi_slopes", "sinks", "cu_seqlens_q", "cu_seqlens_kv", "kv_lengths", "block_table")
_OPTIONS = (
    *_TENSOR_OPTIONS,
    *("max_len_q", "max_len_kv", "causal", "bottom_right", "window_left", "window_right", "scale", "softcap"),
)


# --- What torch.compile, autograd and autocast ask of an operator -----------------------------------------------------


def _common(*sizes):
    common = 1
    for size in sizes:
        if size != 1:
            common = size
    return common


def _empty_like_q(q, batch, heads, length, dim):
    """The output's layout follows q's, as describe.cpp has it."""
    rows_contiguous = q.shape[3] <= 1 or q.stride(3) == 1
    if rows_contiguous and q.stride(2) > q.stride(1):
        strides = (heads * length * dim, dim, heads * dim, 1)
    else:
        strides = (heads * length * dim, length * dim, dim, 1)
    return q.new_empty_strided((batch, heads, length, dim), strides)


def _sdpa_fake(query, key, value, attn_mask=None, is_causal=False, scale=None, enable_gqa=False):
    for name, x in (("query", query), ("key", key), ("value", value)):
        torch._check(x.ndim == 4, lambda name=name, x=x: f"{name} has {x.ndim} dimensions; it must have 4")
    torch._check(query.device == key.device == value.device, lambda: "the tensors lie on different devices")
    batch = _common(query.shape[0], key.shape[0], value.shape[0])
    heads = query.shape[1] if enable_gqa else _common(query.shape[1], key.shape[1], value.shape[1])
    return _empty_like_q(query, batch, heads, query.shape[2], value.shape[3])


def _attention_fake(q, k, v, *options):
    named = dict(zip(_OPTIONS, options, strict=False))
    return_lse = options[-1]
    if named["cu_seqlens_q"] is not None:
        total, heads, _ = q.shape
        out = q.new_empty((total, heads, v.shape[-1]))
        lse_shape = (heads, total)
    else:
        batch = q.shape[0]
        if named["cu_seqlens_kv"] is None and named["block_table"] is None:
            batch = _common(q.shape[0], k.shape[0], v.shape[0])
        out = _empty_like_q(q, batch, q.shape[1], q.shape[2], v.shape[-1])
        lse_shape = (batch, q.shape[1], q.shape[2])
    return out, q.new_empty(lse_shape if return_lse else (0,), dtype=torch.float32)


def _vjp(run, tensors, gradients):
    """Gradients of run(*tensors) by PyTorch's own operators: the formula until there is a backward of ours."""
    with torch.enable_grad():
        inputs = [x.detach().requires_grad_(x.is_floating_point()) if x is not None else None for x in tensors]
        outputs = run(*inputs)
        asked = [x for x in inputs if x is not None and x.requires_grad]
        found = torch.autograd.grad(outputs, asked, gradients, allow_unused=True)
    by_input = iter(found)
    return [next(by_input) if x is not None and x.requires_grad else None for x in inputs]


def _sdpa_setup(ctx, inputs, output):
    *tensors, ctx.is_causal, ctx.scale, ctx.enable_gqa = inputs
    ctx.save_for_backward(*tensors)


def _sdpa_backward(ctx, gradient):
    def run(q, k, v, mask):
        return [torch_sdpa(q, k, v, mask, 0.0, ctx.is_causal, scale=ctx.scale, enable_gqa=ctx.enable_gqa)]

    return (*_vjp(run, ctx.saved_tensors, [gradient]), None, None, None)


def _attention_setup(ctx, inputs, output):
    ctx.plain = inputs[10:-1]
    ctx.return_lse = inputs[-1]
    ctx.save_for_backward(*inputs[:10])


def _attention_backward(ctx, gradient, lse_gradient):
    def run(q, k, v, *tensors):
        options = dict(zip(_OPTIONS, (*tensors, *ctx.plain), strict=True))
        out, lse = attention_reference(q, k, v, **options)
        return [out, lse] if ctx.return_lse else [out]

    gradients = [gradient, lse_gradient] if ctx.return_lse else [gradient]
    return (*_vjp(run, ctx.saved_tensors, gradients), *[None] * (len(ctx.plain) + 1))


def _register() -> torch.library.Library:
    library = torch.library.Library("saccade", "IMPL")
    for name in ("sdpa", "sdpa_forward"):
        torch.library.register_fake(f"saccade::{name}", _sdpa_fake, lib=library)
    for name in ("attention", "attention_forward"):
        torch.library.register_fake(f"saccade::{name}", _attention_fake, lib=library)
    torch.library.register_autograd("saccade::sdpa", _sdpa_backward, setup_context=_sdpa_setup, lib=library)
    torch.library.register_autograd(
        "saccade::attention", _attention_backward, setup_context=_attention_setup, lib=library
    )
    for name in ("sdpa_forward", "attention_forward"):
        library.impl(name, torch.library.fallthrough_kernel, "Autograd")
    for device in ("cpu", "cuda"):
        for name in ("sdpa", "sdpa_forward", "attention", "attention_forward"):
            library.impl(name, _autocast_kernel(getattr(torch.ops.saccade, name).default, device), f"Autocast{device.upper()}")
    return library


def _autocast_kernel(op, device):
    """As PyTorch's SDPA under autocast: floating-point q, k, v and mask take the region's dtype."""
    key = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, f"Autocast{device.upper()}"))
    count = 4  # q, k, v and the mask come first in every operator

    def kernel(*args):
        dtype = torch.get_autocast_dtype(device)
        cast = [
            x.to(dtype) if isinstance(x, Tensor) and x.is_floating_point() and x.dtype != torch.float64 else x
            for x in args[:count]
        ]
        with torch._C._ExcludeDispatchKeyGuard(key):
            return op(*cast, *args[count:])

    return kernel


_library = _register()


# --- Below Python: the operator that C++ callers reach ------------------------------------------------------------------


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
