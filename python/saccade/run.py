"""Runs an unchanged script or module with Saccade on.

Usage: python -m saccade.run script.py ARGS...
       python -m saccade.run -m module ARGS...
"""

from __future__ import annotations

import os
import runpy
import sys

import saccade


def main(arguments: list[str]) -> int:
    """Becomes `python ARGUMENTS...` with SDPA computed by Saccade."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(__doc__, file=sys.stderr)
        return 2 if not arguments else 0
    if arguments[0] == "-m" and len(arguments) < 2:
        print("python -m saccade.run -m needs the name of a module", file=sys.stderr)
        return 2
    saccade.enable()
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        sys.path[0] = os.getcwd()
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        sys.path[0] = os.path.dirname(os.path.abspath(arguments[0]))
        runpy.run_path(arguments[0], run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
