"""The C ABI by ctypes: problems, plans and runs on raw memory. Needs neither torch nor NumPy."""

from __future__ import annotations

import ctypes
import functools
import pathlib

CPU, CUDA = 0, 1
UNBOUNDED = 2**63 - 1
DTYPES = {"float16": 0, "bfloat16": 1, "float32": 2}
TOP_LEFT, BOTTOM_RIGHT = 0, 1
MASK_NONE, MASK_BOOLEAN, MASK_ADDITIVE = 0, 1, 2
KV_DENSE, KV_RAGGED, KV_PAGED = 0, 1, 2
_INVALID_ARGUMENT, _UNSUPPORTED, _OUT_OF_MEMORY = 1, 2, 5


class Strides(ctypes.Structure):
    """saccade_strides."""

    _fields_ = [(name, ctypes.c_int64) for name in ("batch", "head", "row", "dim")]


def _fields(kind, names):
    return [(name, kind) for name in names.split()]


class Problem(ctypes.Structure):
    """saccade_problem, with the defaults of saccade::Problem."""

    _fields_ = (
        [("struct_size", ctypes.c_size_t)]
        + _fields(ctypes.c_int32, "dtype has_scale")
        + _fields(ctypes.c_int64, "batch heads_q heads_kv len_q len_kv dim_qk dim_v")
        + _fields(Strides, "q k v o")
        + _fields(ctypes.c_float, "scale softcap")
        + _fields(ctypes.c_int32, "causal alignment")
        + _fields(ctypes.c_int64, "window_left window_right")
        + _fields(ctypes.c_int32, "mask mask_dtype")
        + _fields(ctypes.c_int64, "mask_batch_stride mask_head_stride mask_row_stride mask_key_stride")
        + _fields(ctypes.c_int32, "alibi sinks")
        + _fields(ctypes.c_int64, "alibi_batch_stride")
        + _fields(ctypes.c_int32, "lse ragged_q")
        + _fields(ctypes.c_int64, "lse_batch_stride lse_head_stride lse_row_stride total_q")
        + _fields(ctypes.c_int32, "kv_layout kv_lengths")
        + _fields(ctypes.c_int64, "total_kv page_size num_pages pages_per_sequence")
    )

    def __init__(self, **fields):
        """Sets the given fields; the rest is off."""
        super().__init__(struct_size=ctypes.sizeof(Problem), window_left=UNBOUNDED, window_right=UNBOUNDED, **fields)


class Tensors(ctypes.Structure):
    """saccade_tensors."""

    _fields_ = [("struct_size", ctypes.c_size_t)] + _fields(
        ctypes.c_void_p,
        "q k v o lse mask alibi_slopes sinks cu_seqlens_q cu_seqlens_kv kv_lengths block_table",
    )


class Options(ctypes.Structure):
    """saccade_options."""

    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("device_kind", ctypes.c_int32),
        ("device_index", ctypes.c_int32),
        ("kernel", ctypes.c_char_p),
        ("config", ctypes.c_char_p),
        ("threads", ctypes.c_int32),
        ("pointer_alignment", ctypes.c_int32),
        ("trusted_pointers", ctypes.c_int32),
    ]


@functools.cache
def library() -> ctypes.CDLL:
    """The shared library that lies beside this file."""
    folder = pathlib.Path(__file__).parent
    found = sorted(folder.glob("libsaccade.so*"))
    if not found:
        raise ImportError(f"there is no libsaccade.so in {folder}; install the package with `pip install .`")
    for helper in folder.glob("libhwy.so*"):  # loaded first, it is found by its name
        ctypes.CDLL(str(helper))
    c = ctypes.CDLL(str(found[0]))
    for name in ("version", "last_error", "plan_explain", "plan_kernel", "plan_config"):
        getattr(c, f"saccade_{name}").restype = ctypes.c_char_p
    for name in ("explain", "kernel", "config", "workspace_bytes", "destroy"):
        getattr(c, f"saccade_plan_{name}").argtypes = [ctypes.c_void_p]
    c.saccade_plan_workspace_bytes.restype = ctypes.c_size_t
    c.saccade_plan_destroy.restype = None
    c.saccade_run.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_size_t, ctypes.c_void_p]
    return c


def version() -> str:
    """The native library's version."""
    return library().saccade_version().decode()


def check(status: int) -> None:
    """Raises what a status code means, with the library's sentence."""
    if status == 0:
        return
    sentence = library().saccade_last_error().decode()
    kinds = {_INVALID_ARGUMENT: ValueError, _UNSUPPORTED: NotImplementedError, _OUT_OF_MEMORY: MemoryError}
    raise kinds.get(status, RuntimeError)(sentence)


def parse(text: str) -> Problem:
    """A problem in the shape syntax, e.g. "b1 h8 l512 d64 f16 causal"."""
    problem = Problem()
    check(library().saccade_problem_parse(text.encode(), ctypes.byref(problem)))
    return problem


class Plan:
    """A kernel chosen for a problem: by the planner, or by its name and settings."""

    def __init__(self, problem: Problem, device: tuple[int, int], kernel: str = "", config: str = "", threads: int = 0):
        """Raises the library's reason when nothing fits."""
        self._plan = ctypes.c_void_p()
        wanted = (kernel.encode() or None, config.encode() or None)
        options = Options(ctypes.sizeof(Options), *device, *wanted, threads)
        check(library().saccade_plan_create(ctypes.byref(problem), ctypes.byref(options), ctypes.byref(self._plan)))
        self.workspace_bytes: int = library().saccade_plan_workspace_bytes(self._plan)
        self.kernel, self.config, self.explanation = (
            getattr(library(), f"saccade_plan_{what}")(self._plan).decode() for what in ("kernel", "config", "explain")
        )

    def __del__(self):
        """Gives the plan back."""
        if self._plan:
            library().saccade_plan_destroy(self._plan)

    def run(self, pointers: dict[str, int], workspace: int = 0, stream: int = 0) -> None:
        """Enqueues the problem on these addresses; the workspace must be as large as the plan says."""
        tensors = Tensors(struct_size=ctypes.sizeof(Tensors), **pointers)
        check(library().saccade_run(self._plan, ctypes.byref(tensors), workspace, self.workspace_bytes, stream))


def attend(problem: Problem, pointers: dict[str, int], device: tuple[int, int]) -> None:
    """Plans, runs and waits."""
    tensors = Tensors(struct_size=ctypes.sizeof(Tensors), **pointers)
    options = Options(ctypes.sizeof(Options), *device)
    check(library().saccade_attend(ctypes.byref(problem), ctypes.byref(tensors), ctypes.byref(options)))


def explain(problem: Problem, device: tuple[int, int]) -> str:
    """Which kernel the planner takes, and why not the faster ones."""
    return Plan(problem, device).explanation


@functools.cache
def serves(kind: int, index: int) -> bool:
    """Whether this library has kernels for this device, here and now."""
    row = Strides(8, 8, 8, 1)
    problem = Problem(batch=1, heads_q=1, heads_kv=1, len_q=1, len_kv=1, dim_qk=8, dim_v=8, q=row, k=row, v=row, o=row)
    try:
        explain(problem, (kind, index))
    except RuntimeError:
        return False
    return True
