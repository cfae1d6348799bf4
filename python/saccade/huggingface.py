"""Saccade as an attention implementation of Hugging Face's transformers; imported only when asked for."""

from __future__ import annotations

from . import scaled_dot_product_attention


def attention_forward(module, query, key, value, attention_mask, dropout=0.0, scaling=None, is_causal=None, **kwargs):
    """What transformers calls: [batch, heads, length, dim] in, [batch, length, heads, dim] and no weights out."""
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    causal = bool(is_causal) and attention_mask is None and query.shape[2] > 1
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
    return out.transpose(1, 2).contiguous(), None


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
