"""One shape: everybody is checked against float64, then timed in interleaved rounds."""

from __future__ import annotations

import math
import random
import time

import torch

from . import statistics, timers
from .candidates import Candidate
from .shapes import Shape

WARM_UP_ROUNDS = 2
MIN_SAMPLES, MAX_SAMPLES, RELATIVE_WIDTH = 10, 300, 0.01
# Relative L2 error against float64: a few roundings of the dtype. A wrong mask or a dropped tile is far above.
TOLERANCES = {torch.float16: 1e-3, torch.bfloat16: 8e-3, torch.float32: 2e-6}
CHECKED_HEADS = 4
CHECKED_ROWS = 256


def float64_attention(shape: Shape, q, k, v, head: tuple[int, int]) -> torch.Tensor:
    """The exact answer of one head."""
    b, h = head
    group = q.shape[1] // k.shape[1]
    scores = q[b, h].double() @ k[b, h // group].double().T / math.sqrt(q.shape[3])
    if shape.causal:
        hidden = torch.ones_like(scores, dtype=torch.bool).triu(1)
        scores.masked_fill_(hidden, -math.inf)
    return scores.softmax(-1) @ v[b, h // group].double()


class Judge:
    """Compares outputs with the exact answer of a few heads: the first, the last and some at random; of more where
    each has few rows."""

    def __init__(self, shape: Shape, q, k, v, rng: random.Random):
        """Computes the exact answers."""
        every = [(b, h) for b in range(q.shape[0]) for h in range(q.shape[1])]
        count = max(CHECKED_HEADS, CHECKED_ROWS // max(q.shape[2], 1))
        picked = {every[0], every[-1], *rng.sample(every, min(count - 2, len(every)))}
        self._tolerance = TOLERANCES[shape.dtype]
        self._exact = {head: float64_attention(shape, q, k, v, head) for head in sorted(picked)}
        self._rows = (len(self._exact) * q.shape[2], len(every) * q.shape[2])

    def __call__(self, output: torch.Tensor) -> dict:
        """The verdict as it stands in the document."""
        wrong = torch.stack([(output[head].double() - exact).square().sum() for head, exact in self._exact.items()])
        size = torch.stack([exact.square().sum() for exact in self._exact.values()])
        worst = max((output[head].double() - exact).abs().max().item() for head, exact in self._exact.items())
        error = (wrong.sum() / size.sum()).sqrt().item()
        return {
            "passed": bool(error <= self._tolerance),
            "relative_l2": rounded(error),
            "max_error": rounded(worst),
            "rows_checked": self._rows[0],
            "rows_total": self._rows[1],
        }


def rounded(x: float) -> float:
    """Five significant digits; not a number stays what it is."""
    return float(f"{x:.5g}")


def checked(candidate: Candidate, judge: Judge, like: torch.Tensor) -> dict:
    """Runs once and judges; on a GPU on poisoned memory, since the allocator hands the block of the NaNs out again."""
    poison = torch.full_like(like, float("nan"))
    del poison
    with candidate.around():
        output = candidate.call()
    if output.is_cuda:
        torch.cuda.synchronize()
    return judge(output)


def summary(seconds: list[float], timer: str, calls: int, seed: int) -> dict:
    """What the document says about one list of samples."""
    low, high = statistics.median_interval(seconds, seed)
    middle = statistics.median(seconds)
    return {
        "timer": timer,
        "median_us": rounded(middle * 1e6),
        "low_us": rounded(low * 1e6),
        "high_us": rounded(high * 1e6),
        "min_us": rounded(min(seconds) * 1e6),
        "p95_us": rounded(statistics.percentile(seconds, 0.95) * 1e6),
        "samples": len(seconds),
        "calls_per_sample": calls,
        "converged": high - low <= RELATIVE_WIDTH * middle,
    }


def sample(candidates: list[Candidate], timer: str, budget: float, rng: random.Random, seed: int):
    """Times all candidates in rounds of random order: seconds, calls a sample, and why somebody could not be timed."""
    running, calls, failures = {}, {}, {}
    for candidate in candidates:
        try:
            running[candidate.name], calls[candidate.name] = timers.BY_NAME[timer](candidate)
        except RuntimeError as error:
            failures[candidate.name] = str(error).splitlines()[0]
    seconds = {name: [] for name in running}
    end = None
    for number in range(MAX_SAMPLES + WARM_UP_ROUNDS):
        for name in rng.sample(sorted(running), len(running)):
            took = running[name]()
            if number >= WARM_UP_ROUNDS:
                seconds[name].append(took)
        if end is None:
            end = time.perf_counter() + budget * max(len(running), 1)  # capture and compilation are not paid from it
        count = number + 1 - WARM_UP_ROUNDS
        if count < MIN_SAMPLES:
            continue
        if time.perf_counter() > end:
            break
        if count % 10 == 0 and all(_settled(times, seed) for times in seconds.values()):
            break
    return seconds, calls, failures


def _settled(times: list[float], seed: int) -> bool:
    low, high = statistics.median_interval(times, seed)
    return high - low <= RELATIVE_WIDTH * statistics.median(times)


def compare(candidates: list[Candidate], seconds: dict[str, list[float]], seed: int) -> tuple[str | None, dict]:
    """The fastest SDPA backend, and everybody's speed-up over it."""
    backends = [c.name for c in candidates if c.is_sdpa and c.name in seconds]
    if not backends:
        return None, {}
    best = min(backends, key=lambda name: statistics.median(seconds[name]))
    ratios = {name: statistics.speedup(times, seconds[best], seed) for name, times in seconds.items() if name != best}
    return best, {
        name: {
            "baseline": best,
            "value": rounded(r.value),
            "low": rounded(r.low),
            "high": rounded(r.high),
            "verdict": r.verdict,
        }
        for name, r in ratios.items()
    }
