"""`saccade.attention`: every feature of the library, on torch tensors, NumPy arrays and DLPack arrays."""

from __future__ import annotations

import sys
from typing import Any

from . import _arrays, _native

_ALIGNMENTS = ("top_left", "bottom_right")
_OPTIONAL = ("mask", "alibi_slopes", "sinks", "cu_seqlens_q", "cu_seqlens_kv", "kv_lengths", "block_table")


def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    mask: Any = None,
    causal: bool | str = False,
    window: tuple[int | None, int | None] | None = None,
    alignment: str | None = None,
    scale: float | None = None,
    softcap: float = 0.0,
    sinks: Any = None,
    alibi_slopes: Any = None,
    cu_seqlens_q: Any = None,
    cu_seqlens_kv: Any = None,
    max_seqlen_q: int | None = None,
    max_seqlen_kv: int | None = None,
    kv_lengths: Any = None,
    block_table: Any = None,
    return_lse: bool = False,
) -> Any:
    """Attention with all of Saccade's semantics; `include/saccade/problem.h` has the formula.

    Dense tensors are `[batch, heads, length, dim]` with any strides; k and v may have fewer heads (GQA), v another dim.
    The result is of q's kind: a torch tensor, a NumPy array, an array of a DLPack library.

    Args:
        q, k, v: float16, bfloat16 or float32. With `cu_seqlens_q` q is `[total_q, heads, dim]`; with `cu_seqlens_kv`
            k and v are `[total_kv, heads_kv, dim]`; with `block_table`, `[pages, page_size, heads_kv, dim]`.
        mask: broadcast to `[batch, heads, len_q, len_kv]`; bool (True: attend), or added to the scores.
        causal: False; "top_left" (or True), where query 0 sees key 0, as in PyTorch; "bottom_right", where the last
            query sees the last key, as in flash-attention.
        window: keys visible before and after the diagonal; None on a side: no bound.
        alignment: where the diagonal of `window` and ALiBi starts, when `causal` does not say it.
        scale: of the scores; 1/sqrt(dim) by default.
        softcap: c > 0 replaces a score s by c * tanh(s / c).
        sinks: float32 `[heads]`: a logit a head that joins the softmax's denominator.
        alibi_slopes: float32 `[heads]` or `[batch, heads]`.
        cu_seqlens_q, cu_seqlens_kv: int32 `[batch + 1]`: where each sequence starts, ending with the total.
        max_seqlen_q, max_seqlen_kv: the longest sequence; read from cu_seqlens when not given, which waits for a GPU.
        kv_lengths: int32 `[batch]`: keys that are in use.
        block_table: int32 `[batch, pages]`: the pages of each sequence; needs `kv_lengths`.
        return_lse: also return the log-sum-exp, float32 `[batch, heads, len_q]`, or `[heads, total_q]`.

    A sliding window over NumPy arrays:

    >>> import numpy as np, saccade
    >>> q, k, v = np.random.default_rng(0).standard_normal((3, 1, 4, 16, 32), dtype=np.float32)
    >>> o, lse = saccade.attention(q, k, v, window=(4, 0), return_lse=True)
    >>> o.shape, lse.shape, lse.dtype.name
    ((1, 4, 16, 32), (1, 4, 16), 'float32')

    Two sequences of 3 and 5 tokens in one call:

    >>> import torch
    >>> q, k, v = torch.randn(3, 8, 2, 64).unbind()
    >>> ends = torch.tensor([0, 3, 8], dtype=torch.int32)
    >>> saccade.attention(q, k, v, cu_seqlens_q=ends, cu_seqlens_kv=ends, causal="top_left").shape
    torch.Size([8, 2, 64])
    """
    options = _options(
        causal, window, alignment, scale, softcap, mask=mask, sinks=sinks, alibi_slopes=alibi_slopes,
        cu_seqlens_q=cu_seqlens_q, cu_seqlens_kv=cu_seqlens_kv, kv_lengths=kv_lengths, block_table=block_table,
    )  # fmt: skip
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(q, torch.Tensor):
        if not (isinstance(k, torch.Tensor) and isinstance(v, torch.Tensor)):
            name, x = ("v", v) if isinstance(k, torch.Tensor) else ("k", k)
            raise TypeError(f"{name} is a {type(x).__name__} but q is a torch tensor")
        for name in _OPTIONAL:
            if options[name] is not None and not isinstance(options[name], torch.Tensor):
                raise TypeError(f"{name} is a {type(options[name]).__name__} but q is a torch tensor")
        return _on_torch(q, k, v, options, max_seqlen_q, max_seqlen_kv, return_lse)
    tensors = {"q": q, "k": k, "v": v, **{name: options[name] for name in _OPTIONAL}}
    if not _arrays.is_numpy(q) and _on_gpu(q) and _can_import_torch():
        return _by_torch_views(tensors, options, max_seqlen_q, max_seqlen_kv, return_lse)
    return _on_arrays(tensors, options, max_seqlen_q, max_seqlen_kv, return_lse)


def explain(q: Any, k: Any, v: Any, **options: Any) -> str:
    """Which kernel `saccade.attention` takes for these arguments, and why every faster one said no.

    >>> import torch, saccade
    >>> q = torch.randn(1, 8, 512, 64)
    >>> print(saccade.explain(q, q, q, causal=True))  # doctest: +ELLIPSIS
    b1 h8 l512 d64 f32 causal on cpu
    ...
    """
    rest = {name: options.pop(name, None) for name in ("max_seqlen_q", "max_seqlen_kv")}
    return_lse = options.pop("return_lse", False)
    rules = {"causal": False, "window": None, "alignment": None, "scale": None, "softcap": 0.0}
    unknown = set(options) - set(rules) - set(_OPTIONAL)
    if unknown:
        raise TypeError(f"explain() has no argument {sorted(unknown)[0]!r}")
    named = _options(
        **{name: options.get(name, default) for name, default in rules.items()},
        **{name: options.get(name) for name in _OPTIONAL},
    )
    tensors = {"q": q, "k": k, "v": v, **{name: named[name] for name in _OPTIONAL}}
    views = {name: _arrays.view(name, _detached(x)) for name, x in tensors.items() if x is not None}
    problem, _, _ = _describe(views, named, rest["max_seqlen_q"], rest["max_seqlen_kv"], return_lse)
    return _native.explain(problem, views["q"].device)


def _detached(x):
    return x.detach() if hasattr(x, "detach") else x


# --- Arguments in one form ------------------------------------------------------------------------------------------


def _options(causal, window, alignment, scale, softcap, **tensors) -> dict[str, Any]:
    if causal is True:
        causal = "top_left"
    if causal is not False and causal not in _ALIGNMENTS:
        raise ValueError(f"causal is {causal!r}; it must be False, True, 'top_left' or 'bottom_right'")
    if alignment is not None and alignment not in _ALIGNMENTS:
        raise ValueError(f"alignment is {alignment!r}; it must be 'top_left' or 'bottom_right'")
    if causal and alignment is not None and alignment != causal:
        raise ValueError(f"causal is {causal!r} but alignment is {alignment!r}")
    left, right = _window(window)
    return {
        **tensors,
        "max_len_q": 0,
        "max_len_kv": 0,
        "causal": causal is not False,
        "bottom_right": (causal or alignment) == "bottom_right",
        "window_left": left,
        "window_right": right,
        "scale": scale,
        "softcap": softcap,
    }


def _window(window) -> tuple[int, int]:
    if window is None:
        return -1, -1
    if not isinstance(window, (tuple, list)) or len(window) != 2:
        raise ValueError(f"window is {window!r}; it must be a pair (left, right), None on a side for no bound")
    for side in window:
        if side is not None and side < 0:
            raise ValueError(f"window is {window!r}; its sides must not be negative (None: no bound)")
    return tuple(-1 if side is None else side for side in window)  # type: ignore[return-value]


def _longest(name, given, ends):
    if given is not None:
        return given
    if len(ends) < 1:
        raise ValueError(f"{name} is empty; it must have an entry more than there are sequences")
    return max([b - a for a, b in zip(ends, ends[1:], strict=False)], default=0)


def _can_import_torch() -> bool:
    if sys.modules.get("torch", 0) is None:  # blocked
        return False
    try:
        import torch  # noqa: F401
    except ImportError:
        return False
    return True


def _on_gpu(x) -> bool:
    return hasattr(x, "__dlpack_device__") and int(x.__dlpack_device__()[0]) in (2, 13)


# --- torch ----------------------------------------------------------------------------------------------------------


def _on_torch(q, k, v, options, max_len_q, max_len_kv, return_lse):
    from . import _torch

    def longest(name, given):
        return given if given is not None else _longest(name, None, options[name].tolist())

    if options["cu_seqlens_q"] is not None:
        options["max_len_q"] = longest("cu_seqlens_q", max_len_q)
    if options["cu_seqlens_kv"] is not None:
        options["max_len_kv"] = longest("cu_seqlens_kv", max_len_kv)
    elif options["block_table"] is not None:
        options["max_len_kv"] = max_len_kv if max_len_kv is not None else options["block_table"].shape[-1] * k.shape[1]
    return _torch.attention(q, k, v, options, return_lse)


def _by_torch_views(tensors, options, max_len_q, max_len_kv, return_lse):
    """CuPy, JAX and others on a GPU: torch shares their memory, orders the streams and owns the result."""
    import torch

    shared = {name: torch.from_dlpack(x) for name, x in tensors.items() if x is not None}
    q, k, v = shared.pop("q"), shared.pop("k"), shared.pop("v")
    options = {**options, **shared}
    result = _on_torch(q, k, v, options, max_len_q, max_len_kv, return_lse)
    if return_lse:
        return tuple(_arrays.as_kind_of(x, tensors["q"]) for x in result)
    return _arrays.as_kind_of(result, tensors["q"])


# --- Arrays without torch -------------------------------------------------------------------------------------------


def _on_arrays(tensors, options, max_len_q, max_len_kv, return_lse):
    views = {name: _arrays.view(name, x) for name, x in tensors.items() if x is not None}
    problem, shape, lse_shape = _describe(views, options, max_len_q, max_len_kv, return_lse)
    device = views["q"].device
    out = _arrays.empty_like(tensors["q"], device, shape)
    views["o"] = _arrays.view("o", out)
    if return_lse:
        lse = _arrays.empty_like(tensors["q"], device, lse_shape, "float32")
        views["lse"] = _arrays.view("lse", lse)
    _native.attend(problem, {name: x.pointer for name, x in views.items()}, device)
    out = _arrays.as_kind_of(out, tensors["q"])
    return (out, _arrays.as_kind_of(lse, tensors["q"])) if return_lse else out


def _require(condition, message):
    if not condition:
        raise ValueError(message)


def _describe(views, options, max_len_q, max_len_kv, return_lse):
    """The problem, the output's shape and the lse's; python/csrc/describe.cpp does the same for torch."""
    q, k, v = (views[name] for name in "qkv")
    ragged_q, ragged_kv, paged = (name in views for name in ("cu_seqlens_q", "cu_seqlens_kv", "block_table"))
    for name, x, ragged in (("q", q, ragged_q), ("k", k, ragged_kv), ("v", v, ragged_kv)):
        rank = 3 if ragged else 4
        _require(x.ndim == rank, f"{name} has the shape {x.shape}; it must have {rank} dimensions")
        _require(x.dtype in _native.DTYPES, f"{name} is {x.dtype}; it must be float16, bfloat16 or float32")
        _require(x.dtype == q.dtype, f"{name} is {x.dtype} but q is {q.dtype}")
        _make_rows_contiguous(name, views)
    q, k, v = (views[name] for name in "qkv")
    for name, x in views.items():
        _require(x.device == q.device, f"{name} lies on another device than q")
    k_head, k_row = (2, 1) if paged else (1, 0) if ragged_kv else (1, 2)
    q_row = 0 if ragged_q else 2
    _require(k.shape[-1] == q.shape[-1], f"k has the shape {k.shape} and q {q.shape}; their last sizes must agree")
    agree = v.shape[:-1] == k.shape[:-1] if ragged_kv or paged else v.shape[1:3] == k.shape[1:3]
    _require(agree, f"k has the shape {k.shape} and v {v.shape}; they may differ in the last size only")
    batch = _batch(views, q, k, v, ragged_q, ragged_kv, paged)
    heads, heads_kv = q.shape[1], k.shape[k_head]
    _require(
        heads == 0 or (heads_kv > 0 and heads % heads_kv == 0),
        f"q has {heads} heads and k {heads_kv}; the first must be a multiple of the second",
    )

    def strides(x, head, row, outer):
        step = x.strides[0] if outer and (x.shape[0] > 1 or batch == 1) else 0
        return _native.Strides(step, x.strides[head], x.strides[row], 1)

    dim, length = v.shape[-1], q.shape[q_row]
    problem = _native.Problem(
        dtype=_native.DTYPES[q.dtype], batch=batch, heads_q=heads, heads_kv=heads_kv, dim_qk=q.shape[-1], dim_v=dim,
        q=strides(q, 1, q_row, not ragged_q),
        softcap=options["softcap"], causal=options["causal"], alignment=int(options["bottom_right"]),
        lse=return_lse, lse_row_stride=1, ragged_q=ragged_q,
        kv_layout=_native.KV_PAGED if paged else _native.KV_RAGGED if ragged_kv else _native.KV_DENSE,
    )  # fmt: skip
    if options["scale"] is not None:
        problem.has_scale, problem.scale = 1, options["scale"]
    for side in ("window_left", "window_right"):
        setattr(problem, side, _native.UNBOUNDED if options[side] < 0 else options[side])
    if paged:  # always by its own stride: pages are named by number
        problem.k, problem.v = (_native.Strides(x.strides[0], x.strides[2], x.strides[1], 1) for x in (k, v))
    else:
        problem.k, problem.v = (strides(x, k_head, k_row, not ragged_kv) for x in (k, v))
    _describe_lengths(problem, views, max_len_q, max_len_kv)
    if ragged_q:
        problem.o = _native.Strides(0, dim, heads * dim, 1)
        problem.lse_head_stride = length
        shape, lse_shape = (length, heads, dim), (heads, length)
    else:
        problem.o = _native.Strides(heads * length * dim, length * dim, dim, 1)
        problem.lse_batch_stride, problem.lse_head_stride = heads * length, length
        shape, lse_shape = (batch, heads, length, dim), (batch, heads, length)
    _describe_mask(problem, views.get("mask"), q.dtype)
    _describe_vectors(problem, views)
    return problem, shape, lse_shape


def _batch(views, q, k, v, ragged_q, ragged_kv, paged):
    sizes = {}
    if ragged_q:
        sizes["cu_seqlens_q"] = views["cu_seqlens_q"].shape[0] - 1
    else:
        sizes["q"] = q.shape[0]
    if ragged_kv:
        sizes["cu_seqlens_kv"] = views["cu_seqlens_kv"].shape[0] - 1
    elif paged:
        sizes["block_table"] = views["block_table"].shape[0]
    else:
        sizes.update(k=k.shape[0], v=v.shape[0])
    batch = next((size for size in sizes.values() if size != 1), 1)
    exact = ragged_q or ragged_kv or paged
    for name, size in sizes.items():
        _require(size == batch or (size == 1 and not exact), f"{name} has {size} sequences where another has {batch}")
    return batch


def _make_rows_contiguous(name, views):
    x = views[name]
    if x.shape[-1] > 1 and x.strides[-1] != 1:
        import numpy

        source = x.owner if _arrays.is_numpy(x.owner) else x.owner[1]
        if x.device[0] != _native.CPU:
            raise ValueError(f"the last dimension of {name} has stride {x.strides[-1]}; it must be contiguous")
        views[name] = _arrays.view(name, numpy.ascontiguousarray(source))


def _describe_lengths(problem, views, max_len_q, max_len_kv):
    q, k = views["q"], views["k"]
    if "cu_seqlens_q" in views:
        problem.total_q = q.shape[0]
        problem.len_q = _longest("cu_seqlens_q", max_len_q, _integers("cu_seqlens_q", views, max_len_q))
    else:
        problem.len_q = q.shape[2]
    if "cu_seqlens_kv" in views:
        problem.total_kv = k.shape[0]
        problem.len_kv = _longest("cu_seqlens_kv", max_len_kv, _integers("cu_seqlens_kv", views, max_len_kv))
    elif "block_table" in views:
        table = views["block_table"]
        _require(table.ndim == 2, f"block_table has the shape {table.shape}; it must have 2 dimensions")
        _require("kv_lengths" in views, "block_table needs kv_lengths")
        problem.num_pages, problem.page_size = k.shape[:2]
        problem.pages_per_sequence = table.shape[1]
        problem.len_kv = max_len_kv if max_len_kv is not None else table.shape[1] * k.shape[1]
    else:
        problem.len_kv = k.shape[2]
    problem.kv_lengths = "kv_lengths" in views


def _integers(name, views, given):
    """The values of an int32 vector on the host; nothing is read when the longest length was given."""
    x = views[name]
    if given is not None:
        return []
    _require(x.dtype == "int32" and x.ndim == 1, f"{name} must be int32 with 1 dimension")
    _require(x.device[0] == _native.CPU, f"{name} lies on a GPU: give the longest length too (max_seqlen_*)")
    import ctypes

    return [ctypes.c_int32.from_address(x.pointer + 4 * i * x.strides[0]).value for i in range(x.shape[0])]


def _describe_mask(problem, mask, dtype):
    if mask is None:
        return
    if mask.dtype == "bool":
        problem.mask = _native.MASK_BOOLEAN
    else:
        _require(mask.dtype in ("float32", dtype), f"mask is {mask.dtype}; it must be bool, float32 or {dtype}")
        problem.mask, problem.mask_dtype = _native.MASK_ADDITIVE, _native.DTYPES[mask.dtype]
    wanted = (problem.batch, problem.heads_q, problem.len_q, problem.len_kv)
    _require(mask.ndim <= 4, f"mask has the shape {mask.shape}; it may have up to 4 dimensions")
    names = ("mask_batch_stride", "mask_head_stride", "mask_row_stride", "mask_key_stride")
    for axis in range(1, mask.ndim + 1):
        size = mask.shape[-axis]
        _require(size in (1, wanted[-axis]), f"mask has the shape {mask.shape}, which does not broadcast to {wanted}")
        setattr(problem, names[-axis], 0 if size == 1 else mask.strides[-axis])


def _describe_vectors(problem, views):
    heads, batch = problem.heads_q, problem.batch
    if "alibi_slopes" in views:
        slopes = views["alibi_slopes"]
        _require(
            slopes.shape in ((heads,), (batch, heads)),
            f"alibi_slopes has the shape {slopes.shape}; it must be {(heads,)} or {(batch, heads)}",
        )
        problem.alibi, problem.alibi_batch_stride = 1, heads if slopes.ndim == 2 else 0
    problem.sinks = "sinks" in views
    vectors = (
        ("alibi_slopes", "float32", None),
        ("sinks", "float32", (heads,)),
        ("cu_seqlens_q", "int32", (batch + 1,)),
        ("cu_seqlens_kv", "int32", (batch + 1,)),
        ("kv_lengths", "int32", (batch,)),
        ("block_table", "int32", None),
    )
    for name, dtype, shape in vectors:
        if name not in views:
            continue
        x = views[name]
        _require(x.dtype == dtype, f"{name} is {x.dtype}; it must be {dtype}")
        _require(shape is None or x.shape == shape, f"{name} has the shape {x.shape}; it must be {shape}")
        packed = _arrays._packed(x.shape)
        contiguous = all(n <= 1 or a == b for n, a, b in zip(x.shape, x.strides, packed, strict=True))
        _require(contiguous, f"{name} must be contiguous; its strides are {x.strides}")
