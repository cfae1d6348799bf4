"""Arrays of any library as pointer, shape, strides, dtype and device: NumPy directly, the others by DLPack."""

from __future__ import annotations

import ctypes
import dataclasses
from typing import Any

from . import _native


@dataclasses.dataclass
class Array:
    """Somebody's memory. `owner` keeps it alive; strides are in elements."""

    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    device: tuple[int, int]
    owner: Any

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


_DL_DTYPES = {(0, 32): "int32", (2, 16): "float16", (2, 32): "float32", (2, 64): "float64", (4, 16): "bfloat16",
              (6, 8): "bool", (1, 8): "uint8", (0, 64): "int64"}  # fmt: skip
_DL_DEVICES = {1: _native.CPU, 3: _native.CPU, 2: _native.CUDA, 13: _native.CUDA}
_LEGACY_STREAM = 1


def is_numpy(x: Any) -> bool:
    """Whether x is a NumPy array, without importing NumPy."""
    return type(x).__module__.split(".")[0] == "numpy" and hasattr(x, "__array_interface__")


def view(name: str, x: Any) -> Array:
    """The memory of a NumPy or DLPack array; TypeError names the argument."""
    if is_numpy(x):
        size = x.itemsize
        if any(s % size for s in x.strides):
            x = x.copy()
        pointer = x.__array_interface__["data"][0]
        return Array(pointer, x.shape, tuple(s // size for s in x.strides), x.dtype.name, (_native.CPU, 0), x)
    if not hasattr(x, "__dlpack__"):
        raise TypeError(f"{name} is a {type(x).__name__}; it must be a torch tensor, a NumPy array or a DLPack array")
    return _from_dlpack(name, x)


def _from_dlpack(name: str, x: Any) -> Array:
    on_gpu = hasattr(x, "__dlpack_device__") and int(x.__dlpack_device__()[0]) == 2
    capsule = x.__dlpack__(stream=_LEGACY_STREAM) if on_gpu else x.__dlpack__()
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    t = _DLTensor.from_address(get(capsule, b"dltensor"))
    if t.device_type not in _DL_DEVICES:
        raise TypeError(f"{name} lies on DLPack device type {t.device_type}; only the CPU and CUDA are known")
    shape = tuple(t.shape[: t.ndim])
    strides = tuple(t.strides[: t.ndim]) if t.strides else _packed(shape)
    dtype = _DL_DTYPES.get((t.code, t.bits), f"DLPack type {t.code} of {t.bits} bits")
    kind = _DL_DEVICES[t.device_type]
    index = t.device_id if kind == _native.CUDA else 0
    return Array((t.data or 0) + t.byte_offset, shape, strides, dtype, (kind, index), (capsule, x))


def _packed(shape):
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def empty_like(x: Any, device: tuple[int, int], shape: tuple[int, ...], dtype: str | None = None) -> Any:
    """A new array of x's library where that can be written to, else of NumPy."""
    if device[0] == _native.CUDA:
        namespace = _namespace(x)
        if namespace is None or type(x).__module__.split(".")[0] != "cupy":
            raise TypeError(
                f"a {type(x).__name__} on a GPU needs torch installed: without it only CuPy arrays can be made there"
            )
        return namespace.empty(shape, dtype=dtype or x.dtype)
    import numpy

    if dtype is None:
        dtype = x.dtype if is_numpy(x) else view("q", x).dtype
    if str(dtype) == "bfloat16":
        from ml_dtypes import bfloat16 as dtype
    return numpy.empty(shape, dtype)


def as_kind_of(result: Any, x: Any) -> Any:
    """The result as an array of x's library, where that library can take it over."""
    if is_numpy(x) or type(result) is type(x):
        return result
    namespace = _namespace(x)
    for take in ("from_dlpack", "asarray"):
        function = getattr(namespace, take, None)
        if function is not None:
            try:
                return function(result)
            except (TypeError, ValueError, RuntimeError, BufferError, AttributeError):
                continue
    return result


def _namespace(x: Any):
    return x.__array_namespace__() if hasattr(x, "__array_namespace__") else None
