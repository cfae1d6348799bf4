"""Where a measurement comes from: machine, clocks, versions, commit."""

from __future__ import annotations

import datetime
import os
import pathlib
import shlex
import subprocess
import sys

import torch

from .. import _native

_GPU_FIELDS = (
    "name",
    "driver_version",
    "clocks.sm",
    "clocks.mem",
    "clocks.max.sm",
    "power.limit",
    "temperature.gpu",
    "clocks_event_reasons.active",
)


def now() -> str:
    """The time in UTC, as the documents write it."""
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def _output(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=30).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


def _cpu() -> str:
    info = pathlib.Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")


def _without_folder(argument: str) -> str:
    """Where a file lay is nobody's business."""
    return argument.rsplit("/", 1)[-1] if argument.startswith("/") else argument


def collect(seed: int, commit: str | None) -> dict:
    """All of it. The commit is that of the working directory unless it is given."""
    found = commit or _output("git", "rev-parse", "--short=12", "HEAD") or "unknown"
    gpus = []
    if torch.cuda.is_available():
        listed = _output("nvidia-smi", f"--query-gpu={','.join(_GPU_FIELDS)}", "--format=csv,noheader")
        for line in listed.splitlines():
            gpus.append(dict(zip(_GPU_FIELDS, (part.strip() for part in line.split(",")), strict=False)))
    return {
        "commit": found,
        "dirty": bool(not commit and _output("git", "status", "--porcelain")),
        "version": _native.version(),
        "compiler": "see the library's build",
        "flags": "",
        "toolkit": f"CUDA {torch.version.cuda}" if torch.version.cuda else "",
        "torch": torch.__version__,
        "cudnn": torch.backends.cudnn.version() or 0,
        "python": sys.version.split()[0],
        "host": {
            "cpu": _cpu(),
            "logical_cpus": os.cpu_count(),
            "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            "largest_cache_bytes": 0,
            "simd_target": torch.backends.cpu.get_cpu_capability(),
            "governor": "unknown",
        },
        "driver": gpus[0]["driver_version"] if gpus else "",
        "gpus": gpus,
        "date": now(),
        "seed": seed,
        "command_line": shlex.join(["python", "-m", "saccade.bench", *(_without_folder(x) for x in sys.argv[1:])]),
    }
