"""Medians, bootstrap intervals, ratios with a verdict: the rules are those of src/measure/statistics.h."""

from __future__ import annotations

import dataclasses
import math

import torch

RESAMPLES = 10_000
FEW_SAMPLES = 6  # fewer cannot carry a 95% interval of a median
SAME_MARGIN = 0.02  # closer to 1 than this no difference is called


@dataclasses.dataclass(frozen=True)
class Speedup:
    """median(baseline) / median(candidate), its 95% interval and what that says."""

    value: float
    low: float
    high: float
    verdict: str


def median(samples: list[float]) -> float:
    """The middle value, or the mean of the middle two."""
    return percentile(samples, 0.5)


def percentile(samples: list[float], p: float) -> float:
    """The p-quantile with linear interpolation between order statistics."""
    return torch.quantile(torch.tensor(samples, dtype=torch.float64), p).item()


def _resampled_medians(samples: torch.Tensor, picks: torch.Tensor) -> torch.Tensor:
    drawn = samples[picks].sort(dim=1).values
    n = drawn.shape[1]
    return (drawn[:, (n - 1) // 2] + drawn[:, n // 2]) / 2


def _picks(count: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(count, (RESAMPLES, count), generator=generator)


def _interval(values: torch.Tensor) -> tuple[float, float]:
    ends = torch.quantile(values, torch.tensor([0.025, 0.975], dtype=torch.float64))
    return ends[0].item(), ends[1].item()


def median_interval(samples: list[float], seed: int) -> tuple[float, float]:
    """The percentile-bootstrap 95% interval of the median."""
    times = torch.tensor(samples, dtype=torch.float64)
    return _interval(_resampled_medians(times, _picks(len(samples), seed)))


def speedup(candidate: list[float], baseline: list[float], seed: int) -> Speedup:
    """Compares times of the same rounds: sample i of both is drawn together, so that a common drift cancels.

    >>> ten, twenty = [10.0 + i % 3 for i in range(30)], [20.0 + i % 3 for i in range(30)]
    >>> speedup(ten, twenty, seed=1).verdict
    'faster'
    """
    picks = _picks(len(candidate), seed)
    ours, theirs = (torch.tensor(x, dtype=torch.float64) for x in (candidate, baseline))
    low, high = _interval(_resampled_medians(theirs, picks) / _resampled_medians(ours, picks))
    value = median(baseline) / median(candidate)
    return Speedup(value, low, high, _judge(value, low, high, len(candidate)))


def _judge(value: float, low: float, high: float, samples: int) -> str:
    margin = 0.25 if samples < FEW_SAMPLES else 0.0
    if low > 1 + margin and value > 1 + SAME_MARGIN:
        return "faster"
    if high < 1 / (1 + margin) and value < 1 / (1 + SAME_MARGIN):
        return "slower"
    narrow = low > 1 - SAME_MARGIN and high < 1 + SAME_MARGIN
    return "same" if narrow and samples >= FEW_SAMPLES else "unclear"


def geometric_mean(values: list[float]) -> float:
    """Of positive numbers; NaN without any."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan
