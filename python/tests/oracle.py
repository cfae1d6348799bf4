"""Attention by its formula in float64, one query at a time: nothing shared with what it judges."""

import math

import torch


def attention(q, k, v, *, mask=None, causal=False, window=None, alignment=None, scale=None, softcap=0.0, sinks=None,
              alibi_slopes=None):  # fmt: skip
    """q [h, lq, d], k and v [g, lk, d] of one sequence; mask [h, lq, lk]; slopes and sinks [h]. (o, lse)."""
    heads, rows, dim = q.shape
    keys, dim_v = k.shape[1], v.shape[2]
    scale = 1 / math.sqrt(dim) if scale is None else scale
    place = causal if isinstance(causal, str) else alignment or "top_left"
    diagonal = keys - rows if place == "bottom_right" else 0
    left, right = window or (None, None)
    o = torch.zeros(heads, rows, dim_v, dtype=torch.float64)
    lse = torch.full((heads, rows), -math.inf, dtype=torch.float64)
    q, k, v = q.double(), k.double(), v.double()
    for h in range(heads):
        g = h // (heads // k.shape[0])
        for i in range(rows):
            logits, values = [], []
            for j in range(keys):
                at = i + diagonal
                if causal and j > at or left is not None and j < at - left or right is not None and j > at + right:
                    continue
                s = (q[h, i] @ k[g, j]).item() * scale
                if softcap:
                    s = softcap * math.tanh(s / softcap)
                if mask is not None and mask.dtype == torch.bool:
                    if not mask[h, i, j]:
                        continue
                elif mask is not None:
                    s += mask[h, i, j].item()
                if alibi_slopes is not None:
                    s -= alibi_slopes[h].item() * abs(at - j)
                if s == -math.inf:
                    continue
                logits.append(s)
                values.append(v[g, j])
            if sinks is not None:
                logits.append(sinks[h].item())
            if not logits:
                continue
            lse[h, i] = torch.tensor(logits, dtype=torch.float64).logsumexp(0)
            for s, value in zip(logits, values, strict=False):
                o[h, i] += math.exp(s - lse[h, i].item()) * value
    return o, lse
