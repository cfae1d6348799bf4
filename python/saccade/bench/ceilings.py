"""What this machine can do at best, by PyTorch's own means: a large matrix product, and a read of much memory."""

from __future__ import annotations

import time

import torch


def _best_seconds(call, device: str, repetitions: int = 8) -> float:
    best = float("inf")
    for _ in range(repetitions):
        if device == "cuda":
            torch.cuda.synchronize()
        begin = time.perf_counter()
        call()
        if device == "cuda":
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - begin)
    return best


def matrix_gflops(device: str, dtype: torch.dtype) -> float:
    """Of a square product, in the shapes' dtype on a GPU and in f32 on a CPU."""
    size = 8192 if device == "cuda" else 1536
    kind = dtype if device == "cuda" else torch.float32
    a, b = (torch.randn(size, size, device=device).to(kind) for _ in range(2))
    return 2.0 * size**3 / _best_seconds(lambda: a @ b, device) / 1e9


def read_gbps(device: str) -> float:
    """Of a sum over memory that no cache holds."""
    numbers = torch.ones((2 << 30 if device == "cuda" else 512 << 20) // 4, device=device)
    return numbers.nbytes / _best_seconds(numbers.sum, device) / 1e9
