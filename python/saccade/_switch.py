"""Switching Saccade on for code that calls PyTorch's SDPA, and off again."""

from __future__ import annotations

import contextlib
import sys

_NAME = "saccade"
_installed = None


def enable() -> None:
    """Makes `torch.nn.functional.scaled_dot_product_attention` compute by Saccade, in this process, until `disable()`.

    It is PyTorch's hook for third-party implementations where there is one: `torch.nn.attention.
    activate_flash_attention_impl("saccade")` does the same, and activating another implementation ends it. Both the
    Python function and the operator below it are replaced, so callers that imported the function before, and callers in
    C++, are served too. What Saccade does not do goes to PyTorch as before.

    >>> import torch, saccade
    >>> saccade.enable()
    >>> saccade.is_enabled()
    True
    >>> torch.nn.functional.scaled_dot_product_attention is saccade.scaled_dot_product_attention
    True
    >>> saccade.disable()
    """
    if is_enabled():
        return
    hook = _offer_to_torch()
    if hook is not None:
        hook.activate_flash_attention_impl(_NAME)
    else:
        _install()
    if "transformers" in sys.modules:
        with contextlib.suppress(ImportError):
            register_huggingface()


def disable() -> None:
    """Undoes `enable()`; does nothing when it is not on."""
    if not is_enabled():
        return
    hook = _offer_to_torch()
    if hook is not None and hook.current_flash_attention_impl() == _NAME:
        hook.restore_flash_attention_impl()
    else:
        _installed.remove()


def is_enabled() -> bool:
    """Whether `enable()` is in force."""
    return _installed is not None


@contextlib.contextmanager
def enabled():
    """`enable()` for a block; afterwards things are as they were before it.

    >>> import torch, saccade
    >>> q = torch.randn(1, 2, 8, 16)
    >>> with saccade.enabled():
    ...     o = torch.nn.functional.scaled_dot_product_attention(q, q, q)
    >>> saccade.is_enabled()
    False
    """
    before = is_enabled()
    enable()
    try:
        yield
    finally:
        if not before:
            disable()


def register_huggingface() -> None:
    """Registers "saccade" with transformers: `from_pretrained(..., attn_implementation="saccade")`.

    Models with `attn_implementation="sdpa"` need no more than `saccade.enable()`.
    """
    from .huggingface import register

    register()


def _offer_to_torch():
    """Names Saccade to PyTorch's registry of implementations, which activates nothing; None where torch has none."""
    import torch.nn.attention as hook

    if not hasattr(hook, "register_flash_attention_impl"):
        return None
    hook.register_flash_attention_impl(_NAME, register_fn=_install)
    return hook if hasattr(hook, "restore_flash_attention_impl") else None  # what cannot be undone is not used


def _install():
    """Replaces function and operator; the handle's remove() puts them back."""
    global _installed
    if _installed is None:
        _installed = _Installed()
    return _installed


class _Installed:
    """SDPA is ours while this lives in `_installed`."""

    def __init__(self):
        import torch

        from . import _torch

        self._functional = torch.nn.functional
        self._before = self._functional.scaled_dot_product_attention
        self._functional.scaled_dot_product_attention = _torch.scaled_dot_product_attention
        self._library = _torch.override_operator()

    def remove(self) -> None:
        """Puts PyTorch's own function and operator back."""
        global _installed
        self._functional.scaled_dot_product_attention = self._before
        self._library._destroy()
        _installed = None
