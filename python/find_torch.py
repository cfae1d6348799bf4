"""Prints the folder of the torch package of this interpreter, or nothing.

pip builds in an isolated environment that hides what is installed; only torch's headers are needed, so the
interpreter's own package folders are looked at as well. torch itself is not imported: that would take seconds.
"""

import importlib.util
import pathlib
import sysconfig


def candidates():
    """Every folder that may be the torch package."""
    try:
        spec = importlib.util.find_spec("torch")
    except (ImportError, ValueError):
        spec = None
    if spec is not None and spec.submodule_search_locations:
        yield from spec.submodule_search_locations
    for name in ("platlib", "purelib"):
        yield pathlib.Path(sysconfig.get_paths()[name]) / "torch"


for folder in map(pathlib.Path, candidates()):
    if (folder / "include/torch/csrc/stable/library.h").exists() and (folder / "lib/libtorch_cpu.so").exists():
        print(folder)
        break
