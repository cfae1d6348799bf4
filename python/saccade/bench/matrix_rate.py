"""A long attention beside a large matrix product, interleaved: `python -m saccade.bench.matrix_rate --out FILE`.

The ceiling that `python -m saccade.bench` measures once, on a cool chip, is higher than what the chip holds for
seconds; here both take turns until neither has an advantage.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path

import torch

from . import provenance
from .candidates import kernel
from .shapes import parse


def seconds(call, times: int) -> float:
    """Of one call, by events around `times` of them."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(times):
        call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / times * 1e-3


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m saccade.bench.matrix_rate", description=__doc__)
    parser.add_argument("--shape", default="b1 h16 l16384 d128 f16")
    parser.add_argument("--kernel", default="sm90")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--commit", help="of the library, where the package does not know it")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    shape = parse(given.shape)
    seed = 3
    attention = kernel(given.kernel, shape, *shape.tensors("cuda", seed))
    size = 8192
    a, b, out = (torch.randn(size, size, device="cuda", dtype=torch.float16) for _ in range(3))

    def product():
        torch.matmul(a, b, out=out)

    for call in (attention.call, product):
        seconds(call, 3)
    ours, theirs = [], []
    for _ in range(given.rounds):
        ours.append(shape.flops / seconds(attention.call, 2) / 1e12)
        theirs.append(2 * size**3 / seconds(product, 6) / 1e12)
    ratios = [x / y for x, y in zip(ours, theirs, strict=True)]
    document = {
        "what": f"{given.shape} by {given.kernel} beside torch.matmul {size}^3 f16, interleaved, device events",
        "provenance": provenance.collect(seed, given.commit),
        "config": attention.config,
        "attention_tflops": ours,
        "matmul_tflops": theirs,
        "median_attention": statistics.median(ours),
        "median_matmul": statistics.median(theirs),
        "median_ratio": statistics.median(ratios),
        "lowest_ratio": min(ratios),
        "highest_ratio": max(ratios),
    }
    print(f"{document['median_attention']:.0f} of {document['median_matmul']:.0f} TFLOP/s", end="")
    print(f": {100 * document['median_ratio']:.0f}%")
    if given.out:
        given.out.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
