"""Attention with every feature in plain torch operators: slow, differentiable; what gradients are taken through."""

from __future__ import annotations

import math

import torch


def attention_reference(
    q,
    k,
    v,
    *,
    mask=None,
    alibi_slopes=None,
    sinks=None,
    cu_seqlens_q=None,
    cu_seqlens_kv=None,
    kv_lengths=None,
    block_table=None,
    max_len_q=0,
    max_len_kv=0,
    causal=False,
    bottom_right=False,
    window_left=-1,
    window_right=-1,
    scale=None,
    softcap=0.0,
):
    """(o, lse) of include/saccade/problem.h's formula; lse is float32."""
    rules = {
        "scale": 1 / math.sqrt(max(q.shape[-1], 1)) if scale is None else scale,
        "softcap": softcap,
        "window": (window_left, 0 if causal else window_right),
        "bottom_right": bottom_right,
    }
    if cu_seqlens_q is None and cu_seqlens_kv is None and kv_lengths is None and block_table is None:
        slopes = alibi_slopes[..., None, None] if alibi_slopes is not None else None
        return _dense(q, k, v, mask, slopes, sinks, **rules)

    ends_q = cu_seqlens_q.tolist() if cu_seqlens_q is not None else None
    ends_kv = cu_seqlens_kv.tolist() if cu_seqlens_kv is not None else None
    lengths = kv_lengths.tolist() if kv_lengths is not None else None
    batch = len(ends_q) - 1 if ends_q is not None else q.shape[0]
    if ends_q is None and ends_kv is None and block_table is None:
        batch = max(batch, k.shape[0], v.shape[0])
    outs, lses = [], []
    for b in range(batch):
        q_b = q[ends_q[b] : ends_q[b + 1]].transpose(0, 1) if ends_q is not None else q[b if q.shape[0] > 1 else 0]
        k_b, v_b = (_keys_of(x, b, ends_kv, lengths, block_table) for x in (k, v))
        mask_b = _mask_of(mask, b, q_b.shape[1], k_b.shape[1])
        slopes = alibi_slopes if alibi_slopes is None or alibi_slopes.ndim == 1 else alibi_slopes[b]
        slopes = slopes[..., None, None] if slopes is not None else None
        o_b, lse_b = _dense(q_b[None], k_b[None], v_b[None], mask_b, slopes, sinks, **rules)
        outs.append(o_b[0])
        lses.append(lse_b[0])
    if ends_q is None:
        return torch.stack(outs), torch.stack(lses)
    tail = q.shape[0] - ends_q[-1]
    outs.append(q.new_zeros(q.shape[1], tail, v.shape[-1]))
    lses.append(q.new_full((q.shape[1], tail), -math.inf, dtype=torch.float32))
    return torch.cat(outs, 1).transpose(0, 1), torch.cat(lses, 1)


def _keys_of(x, b, ends, lengths, block_table):
    """[heads, length, dim] of one sequence."""
    if ends is not None:
        return x[ends[b] : ends[b + 1]].transpose(0, 1)
    if block_table is None:
        return x[b if x.shape[0] > 1 else 0, :, : lengths[b]]
    rows = x[block_table[b].long().clamp(0, x.shape[0] - 1)].flatten(0, 1)
    return rows[: lengths[b]].transpose(0, 1)


def _mask_of(mask, b, rows, keys):
    if mask is None:
        return None
    mask = mask[(None,) * (4 - mask.ndim)]
    return mask[b if mask.shape[0] > 1 else 0][:, :rows, :keys]


def _dense(q, k, v, mask, slopes, sinks, scale, softcap, window, bottom_right):
    compute = torch.float64 if q.dtype == torch.float64 else torch.float32
    heads, kv_heads = q.shape[-3], k.shape[-3]
    if kv_heads != heads and kv_heads > 0:
        k = k.repeat_interleave(heads // kv_heads, -3)
        v = v.repeat_interleave(heads // kv_heads, -3)
    scores = q.to(compute) @ k.to(compute).transpose(-1, -2) * scale
    if softcap > 0:
        scores = softcap * torch.tanh(scores / softcap)
    rows, keys = q.shape[-2], k.shape[-2]
    diagonal = keys - rows if bottom_right else 0
    i = torch.arange(rows, device=q.device)[:, None] + diagonal
    j = torch.arange(keys, device=q.device)[None, :]
    visible = torch.ones(rows, keys, dtype=torch.bool, device=q.device)
    if window[0] >= 0:
        visible = visible & (j >= i - window[0])
    if window[1] >= 0:
        visible = visible & (j <= i + window[1])
    if mask is not None and mask.dtype == torch.bool:
        visible = visible & mask
    elif mask is not None:
        # Hidden like by a boolean mask, so that a row of nothing else has gradients of 0 instead of NaN.
        visible = visible & (mask != -math.inf)
        scores = scores + mask.to(compute).masked_fill(mask == -math.inf, 0)
    if slopes is not None:
        scores = scores - slopes.to(compute) * (i - j).abs()
    scores = scores.masked_fill(~visible, -math.inf)
    if sinks is not None:
        column = sinks.to(compute)[:, None, None].expand(*scores.shape[:-1], 1)
        scores = torch.cat([scores, column], -1)
    lse = torch.logsumexp(scores, -1) if scores.shape[-1] else scores.new_full(scores.shape[:-1], -math.inf)
    # A row with nothing to attend to has weights of 0, not NaN.
    weights = torch.exp(scores - lse.masked_fill(lse == -math.inf, 0)[..., None])
    out = weights[..., :keys] @ v.to(compute)
    return out.to(q.dtype), lse.to(torch.float32)
