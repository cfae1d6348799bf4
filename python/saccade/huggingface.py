"""Saccade as an attention implementation of Hugging Face's transformers; imported only when asked for."""

from __future__ import annotations

import warnings

from . import attention, scaled_dot_product_attention


def attention_forward(
    module,
    query,
    key,
    value,
    attention_mask,
    dropout=0.0,
    scaling=None,
    is_causal=None,
    position_bias=None,
    cache=None,
    softcap=None,
    s_aux=None,
    **kwargs,
):
    """What transformers calls: [batch, heads, length, dim] in, [batch, length, heads, dim] and no weights out.

    Softcap, sinks (`s_aux`) and position biases are served, which "sdpa" refuses or emulates.
    """
    if cache is not None:
        raise NotImplementedError("the paged cache of continuous batching is not supported; use 'sdpa' for it")
    if kwargs.get("output_attentions", False):
        warnings.warn("'saccade' gives no attention weights; use 'eager' for output_attentions=True", stacklevel=2)
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    causal = bool(is_causal) and attention_mask is None and query.shape[2] > 1
    if softcap is None and s_aux is None and position_bias is None:
        out = scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=attention_mask,
            dropout_p=dropout,
            is_causal=causal,
            scale=scaling,
            enable_gqa=key.shape[1] != query.shape[1],
        )
    else:
        if dropout != 0.0:
            raise NotImplementedError("dropout together with softcap, sinks or a position bias")
        out = attention(
            query,
            key,
            value,
            mask=_with_bias(attention_mask, position_bias),
            causal=causal,
            scale=scaling,
            softcap=softcap or 0.0,
            sinks=s_aux.float() if s_aux is not None else None,
        )
    return out.transpose(1, 2).contiguous(), None


def _with_bias(mask, bias):
    if bias is None or mask is None:
        return mask if bias is None else bias
    return bias + mask if mask.is_floating_point() else bias.masked_fill(~mask, float("-inf"))


def register() -> None:
    """Adds "saccade" to the implementations that `attn_implementation` may name, with SDPA's masks."""
    from transformers import AttentionInterface

    AttentionInterface.register("saccade", attention_forward)
    try:
        from transformers import AttentionMaskInterface
        from transformers.masking_utils import sdpa_mask
    except ImportError:  # older: masks are chosen by the model
        return
    AttentionMaskInterface.register("saccade", sdpa_mask)
