"""Ways to time a call: on the device, queued, and from host to host."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from .candidates import Candidate

CALLS_PER_GRAPH = 10
LONG_CALL_MS = 2.0
QUEUED_CALLS = 50  # well within the depth of a stream's queue, so that enqueuing never waits for the device
SYNCHRONIZED_CALLS = 20

Timer = Callable[[], float]


def device(candidate: Candidate) -> tuple[Timer, int]:
    """Seconds a call on the GPU: replays of a CUDA graph of ten calls, or of one where a call takes long."""
    stream = torch.cuda.Stream()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    with candidate.around(), torch.cuda.stream(stream):
        for _ in range(2):
            candidate.call()
        begin.record()
        candidate.call()
        end.record()
    torch.cuda.synchronize()
    calls = CALLS_PER_GRAPH if begin.elapsed_time(end) < LONG_CALL_MS else 1
    graph = torch.cuda.CUDAGraph()
    with candidate.around(), torch.cuda.graph(graph):
        for _ in range(calls):
            candidate.call()

    def replay(times: int) -> float:
        begin.record()
        for _ in range(times):
            graph.replay()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1e-3 / times / calls

    replay(1)
    times = max(1, min(50, int(1e-3 / (replay(1) * calls + 1e-9))))  # a millisecond a sample

    def timer(kept=candidate) -> float:  # a graph does not keep the memory it works on
        return replay(times)

    return timer, times * calls


def queued(candidate: Candidate) -> tuple[Timer, int]:
    """Seconds that the host needs to enqueue a call, the device being busy or not."""

    def timer() -> float:
        with candidate.around():
            candidate.call()
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(QUEUED_CALLS):
                candidate.call()
            seconds = time.perf_counter() - begin
            torch.cuda.synchronize()
        return seconds / QUEUED_CALLS

    return timer, QUEUED_CALLS


def synchronized(candidate: Candidate) -> tuple[Timer, int]:
    """Seconds from a call to its answer, of calls in a row unless they are long: enqueue, compute, wait."""

    def run(calls: int) -> float:
        with candidate.around():
            candidate.call()
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(calls):
                candidate.call()
                torch.cuda.synchronize()
            return (time.perf_counter() - begin) / calls

    calls = SYNCHRONIZED_CALLS if run(1) * 1e3 < LONG_CALL_MS else 1
    return lambda: run(calls), calls


def host(candidate: Candidate) -> tuple[Timer, int]:
    """Seconds a call on the CPU; short calls are repeated."""
    with candidate.around():
        candidate.call()
        begin = time.perf_counter()
        candidate.call()
        calls = max(1, min(100, int(5e-4 / max(time.perf_counter() - begin, 1e-7))))

    def timer() -> float:
        with candidate.around():
            begin = time.perf_counter()
            for _ in range(calls):
                candidate.call()
            return (time.perf_counter() - begin) / calls

    return timer, calls


BY_NAME = {"device": device, "queued": queued, "synchronized": synchronized, "host": host}
