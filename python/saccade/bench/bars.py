"""What a race over `cases/anchors.txt` says about the bars: `python -m saccade.bench.bars anchors.json`.

Speed-ups are over the fastest SDPA backend of each shape (or over one, `--over sdpa_flash`), in geometric mean by
kind of shape; of what the planner chooses, or of one kernel that raced (`--kernel sm80`). `--peer` takes times of
somebody who did not race ([{"shape", "sdpa_cudnn_us", "peer_us"}, ...]): how far our ratio to cuDNN is above theirs.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

from .statistics import geometric_mean

MISSION = re.compile(r"b1 h8 l512 d64 f16( causal)?$")


def kind(shape: str, most_heads: int = 64) -> str:
    """Which bar a shape belongs to; short ones have up to 2048 tokens and `most_heads` batch-heads."""
    number = {key: int(value) for key, value in re.findall(r"\b([a-z]+)(\d+)", shape)}
    if MISSION.match(shape):
        return "mission"
    if number.get("lq") == 1:
        return "decode"
    if "lq" in number:
        return "other queries than keys"
    if number["l"] <= 2048 and number["b"] * number["h"] <= most_heads:
        return "short"
    return f"long d{number['d']}"


def speedups(
    document: dict, over: str | None = None, most_heads: int = 64, kernel: str = "saccade"
) -> dict[str, dict[str, float]]:
    """By kind of shape, then by shape."""
    found: dict[str, dict[str, float]] = {}
    for result in document["results"]:
        times = {row["kernel"]: row["time"]["median_us"] for row in result["kernels"] if "time" in row}
        rival = times[over] if over else min(us for name, us in times.items() if name.startswith("sdpa"))
        found.setdefault(kind(result["shape"], most_heads), {})[result["shape"]] = rival / times[kernel]
    return found


def worst_error(document: dict, rival: str = "sdpa_flash", kernel: str = "saccade") -> float:
    """The kernel's relative L2 error over the rival's, at most."""
    ratios = []
    for result in document["results"]:
        error = {row["kernel"]: row["verified"]["relative_l2"] for row in result["kernels"] if "verified" in row}
        if rival in error:
            ratios.append(error[kernel] / error[rival])
    return max(ratios)


def over_peer(document: dict, peer: list[dict]) -> dict[str, dict[str, float]]:
    """Our ratio to cuDNN over the peer's, by kind of shape."""
    theirs = {row["shape"]: row["sdpa_cudnn_us"] / row["peer_us"] for row in peer}
    ours = speedups(document, "sdpa_cudnn")
    by_kind = {
        name: {shape: ratio / theirs[shape] for shape, ratio in shapes.items() if shape in theirs}
        for name, shapes in ours.items()
    }
    return {name: shapes for name, shapes in by_kind.items() if shapes}


def print_table(title: str, table: dict[str, dict[str, float]]) -> None:
    """A line a kind."""
    print(title)
    for name, shapes in table.items():
        least = min(shapes, key=shapes.get)
        mean = geometric_mean(list(shapes.values()))
        print(f"  {name:10} {len(shapes):3} shapes  {mean:.2f}x  least {shapes[least]:.2f}x ({least})")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m saccade.bench.bars", description=__doc__)
    parser.add_argument("file", type=Path, help="what `python -m saccade.bench --out` wrote")
    parser.add_argument("--kernel", default="saccade", help="whose bars; default: what the planner chooses")
    parser.add_argument("--over", help="this backend instead of the fastest")
    parser.add_argument("--most-heads", type=int, default=64, help="batch-heads that a short shape has at most")
    parser.add_argument("--peer", type=Path, help="times of somebody who did not race")
    given = parser.parse_args()
    document = json.loads(given.file.read_text())
    table = speedups(document, given.over, given.most_heads, given.kernel)
    print_table(f"{given.kernel} over {given.over or 'the best SDPA backend'}:", table)
    if given.peer:
        print_table("ratio to cuDNN over the peer's:", over_peer(document, json.loads(given.peer.read_text())["times"]))
    print(f"error over sdpa_flash's: {worst_error(document, kernel=given.kernel):.2f}x at most")


if __name__ == "__main__":
    main()
