"""What is said when a call goes to PyTorch instead."""

from __future__ import annotations

import pathlib
import sys
import warnings

_FOLDER = str(pathlib.Path(__file__).parent)


class FallbackWarning(UserWarning):
    """A call was computed by PyTorch, for the reason the message gives. Given once a reason."""


_said: set[str] = set()


def warn_once(reason: str) -> bool:
    """Warns of this reason unless that was done before, at the caller's line. torch.compile wants a value."""
    if reason not in _said:
        level, frame = 1, sys._getframe()
        while frame is not None and frame.f_code.co_filename.startswith(_FOLDER):
            level, frame = level + 1, frame.f_back
        warnings.warn(f"computed by PyTorch instead: {reason}", FallbackWarning, stacklevel=level)
        _said.add(reason)  # after it: a filter may have made an error of it, and then it is one every time
    return True


# torch.compile runs it while it traces, and puts nothing into the graph.
warn_once._dynamo_marked_constant = True  # type: ignore[attr-defined]


def forget_warnings() -> None:
    """Makes every reason be given again."""
    _said.clear()
