"""Fused scaled-dot-product attention for PyTorch, NumPy and any DLPack array.

Importing this package changes nothing and imports neither torch nor NumPy. With torch:

>>> import torch, saccade
>>> q, k, v = (torch.randn(1, 8, 128, 64) for _ in range(3))
>>> saccade.scaled_dot_product_attention(q, k, v, is_causal=True).shape
torch.Size([1, 8, 128, 64])

`saccade.enable()` makes `torch.nn.functional.scaled_dot_product_attention` itself do this; `python -m saccade.run
script.py` does it for a whole script. `saccade.attention` has every feature of the library: windows, softcap, sinks,
ALiBi, variable lengths, paged caches, log-sum-exp.
"""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

from ._attention import attention, explain
from ._fallback import FallbackWarning
from ._native import version as _native_version
from ._switch import _offer_to_torch, disable, enable, enabled, is_enabled, register_huggingface

if TYPE_CHECKING:
    from ._torch import scaled_dot_product_attention

    version: str
    __version__: str

__all__ = [
    "FallbackWarning",
    "attention",
    "disable",
    "enable",
    "enabled",
    "explain",
    "is_enabled",
    "register_huggingface",
    "scaled_dot_product_attention",
    "version",
]


def __getattr__(name: str):
    """Loads what is expensive on its first use: the torch operators, the native library."""
    if name == "scaled_dot_product_attention":
        from ._torch import scaled_dot_product_attention as value
    elif name in ("version", "__version__"):
        value = _native_version()
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__():
    """All public names, loaded or not."""
    return sorted(set(globals()) | set(__all__))


if sys.modules.get("torch") is not None:
    # Its registry of implementations gets to know the name; nothing is switched on.
    with contextlib.suppress(ImportError, AttributeError):  # torch is only half imported
        _offer_to_torch()
