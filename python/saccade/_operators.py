"""The torch operators: loading them, and what torch.compile, autograd and autocast ask of them.

Each operator has a twin `_forward` without a gradient, and the drop-in one for plain calls: see python/csrc/ops.cpp.
"""

from __future__ import annotations

import pathlib

import torch
from torch import Tensor

from . import _native
from ._reference import attention_reference

_path = pathlib.Path(__file__).parent / "libsaccade_torch.so"
if not _path.exists():
    raise ImportError(
        f"{_path} is missing: this package was built where torch was not found. Install torch, then build it again "
        "(pip install --force-reinstall --no-deps .)"
    )
_native.library()  # first, so that the operators find it loaded
torch.ops.load_library(str(_path))

#: torch's own function, whatever enable() puts in its place.
torch_sdpa = torch._C._nn.scaled_dot_product_attention

sdpa = torch.ops.saccade.sdpa.default
sdpa_forward = torch.ops.saccade.sdpa_forward.default
sdpa_plain = torch.ops.saccade.sdpa_plain.default
attention = torch.ops.saccade.attention.default
attention_forward = torch.ops.saccade.attention_forward.default

#: The arguments of `attention` behind q, k and v, in order, but for the last, return_lse.
TENSOR_OPTIONS = ("mask", "alibi_slopes", "sinks", "cu_seqlens_q", "cu_seqlens_kv", "kv_lengths", "block_table")
OPTIONS = (
    *TENSOR_OPTIONS,
    *("max_len_q", "max_len_kv", "causal", "bottom_right", "window_left", "window_right", "scale", "softcap"),
)


def sdpa_of_any_rank(query, key, value, attn_mask, is_causal, scale, enable_gqa, op=sdpa):
    """Brings any rank to [batch, heads, length, dim], and the answer back."""
    rank = max(query.ndim, key.ndim, value.ndim)
    least = min(query.ndim, key.ndim, value.ndim)
    if attn_mask is not None and attn_mask.ndim > rank:
        raise RuntimeError("a mask with more dimensions than q, k and v")
    if rank == least == 4:
        return op(query, key, value, attn_mask, is_causal, scale, enable_gqa)
    if rank == least == 3:
        return op(query[None], key[None], value[None], attn_mask, is_causal, scale, enable_gqa)[0]
    if least < 2:
        raise RuntimeError("an argument with fewer than 2 dimensions")
    if enable_gqa and least < 3:
        raise RuntimeError("enable_gqa needs a dimension of heads")
    inner = min(rank, 3)  # dimensions that are not batch
    batch = torch.broadcast_shapes(query.shape[:-inner], key.shape[:-inner], value.shape[:-inner])

    def to_4d(x):
        x = x[(None,) * (max(rank, 3) - x.ndim)]
        return x.expand(*batch, *x.shape[-3:]).reshape(-1, *x.shape[-3:]) if batch else x[None]

    if attn_mask is not None and attn_mask.ndim > 3:
        attn_mask = attn_mask.expand(*batch, *attn_mask.shape[-3:]).reshape(-1, *attn_mask.shape[-3:])
    out = op(to_4d(query), to_4d(key), to_4d(value), attn_mask, is_causal, scale, enable_gqa)
    return out.reshape(*batch, *out.shape[4 - inner :])


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
    torch._check(query.shape[3] == key.shape[3], lambda: "query and key differ in head dim")
    torch._check(key.shape[2] == value.shape[2], lambda: "key and value differ in length")
    batch = _common(query.shape[0], key.shape[0], value.shape[0])
    heads = query.shape[1] if enable_gqa else _common(query.shape[1], key.shape[1], value.shape[1])
    return _empty_like_q(query, batch, heads, query.shape[2], value.shape[3])


def _sdpa_plain_fake(query, key, value, is_causal):
    return _sdpa_fake(query, key, value, None, is_causal)


def _attention_fake(q, k, v, *options):
    named = dict(zip(OPTIONS, options, strict=False))
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
    twice = torch.is_grad_enabled()  # the gradients' own gradients will be asked for
    with torch.enable_grad():
        inputs = tensors
        if not twice:
            inputs = [x.detach().requires_grad_(x.is_floating_point()) if x is not None else None for x in tensors]
        outputs = run(*inputs)
        asked = [x for x in inputs if x is not None and x.requires_grad]
        found = torch.autograd.grad(outputs, asked, gradients, allow_unused=True, create_graph=twice)
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
        options = dict(zip(OPTIONS, (*tensors, *ctx.plain), strict=True))
        out, lse = attention_reference(q, k, v, **options)
        return [out, lse] if ctx.return_lse else [out]

    gradients = [gradient, lse_gradient] if ctx.return_lse else [gradient]
    return (*_vjp(run, ctx.saved_tensors, gradients), *[None] * (len(ctx.plain) + 1))


def _sdpa_vmap(
    info, in_dims, query, key, value, attn_mask=None, is_causal=False, scale=None, enable_gqa=False, op=sdpa
):
    """torch.func.vmap: one more batch dimension in front."""
    query, key, value = (
        x.movedim(dim, 0) if dim is not None else x[None]
        for x, dim in zip((query, key, value), in_dims[:3], strict=True)
    )
    if attn_mask is not None and in_dims[3] is not None:
        attn_mask = attn_mask.movedim(in_dims[3], 0)
        attn_mask = attn_mask.reshape(attn_mask.shape[0], *[1] * (5 - attn_mask.ndim), *attn_mask.shape[1:])
    return sdpa_of_any_rank(query, key, value, attn_mask, is_causal, scale, enable_gqa, op), 0


def _sdpa_plain_vmap(info, in_dims, query, key, value, is_causal):
    def plain(query, key, value, attn_mask, is_causal, scale, enable_gqa):
        return sdpa_plain(query, key, value, is_causal)

    return _sdpa_vmap(info, (*in_dims[:3], None), query, key, value, None, is_causal, op=plain)


def _register() -> torch.library.Library:
    library = torch.library.Library("saccade", "IMPL")
    for name in ("sdpa", "sdpa_forward"):
        torch.library.register_fake(f"saccade::{name}", _sdpa_fake, lib=library)
        torch.library.register_vmap(f"saccade::{name}", _sdpa_vmap, lib=library)
    torch.library.register_fake("saccade::sdpa_plain", _sdpa_plain_fake, lib=library)
    torch.library.register_vmap("saccade::sdpa_plain", _sdpa_plain_vmap, lib=library)
    for name in ("attention", "attention_forward"):
        torch.library.register_fake(f"saccade::{name}", _attention_fake, lib=library)
    torch.library.register_autograd("saccade::sdpa", _sdpa_backward, setup_context=_sdpa_setup, lib=library)
    torch.library.register_autograd(
        "saccade::attention", _attention_backward, setup_context=_attention_setup, lib=library
    )
    for name in ("sdpa_forward", "sdpa_plain", "attention_forward"):
        library.impl(name, torch.library.fallthrough_kernel, "Autograd")
    for device in ("cpu", "cuda"):
        for name in ("sdpa", "sdpa_forward", "sdpa_plain", "attention", "attention_forward"):
            op = getattr(torch.ops.saccade, name).default
            library.impl(name, _autocast_kernel(op, device), f"Autocast{device.upper()}")
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
