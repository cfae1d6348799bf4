"""Several runs of `python -m saccade.bench --host-times` as one: `python -m saccade.bench.host_times RUN.json ...`.

A host's speed varies between processes by more than a run's own interval says, so what is compared with a bar is the
mean over runs, with an interval that comes from their differences. What this command has written may stand among the
documents: its runs are added to.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from pathlib import Path

TIMERS = ("queued", "synchronized")


def ratios_of(run: int, document: dict, rival: str = "sdpa") -> list[dict]:
    """A row a shape: both sides' host times a call, and ours in terms of theirs."""
    rows = []
    for result in document["results"]:
        by_name = {row["kernel"]: row for row in result["kernels"]}
        row = {"run": run, "commit": document["provenance"]["commit"], "shape": result["shape"]}
        for timer in TIMERS:
            ours, theirs = (by_name[name][timer]["median_us"] for name in ("saccade", rival))
            row[timer] = {"saccade_us": ours, f"{rival}_us": theirs, "ratio": round(ours / theirs, 3)}
        rows.append(row)
    return rows


def put_together(documents: list[dict]) -> tuple[list[dict], list[dict]]:
    """The rows of all runs, numbered through, and where each run comes from."""
    rows, provenance = [], []
    for document in documents:
        before = len(provenance)
        if "runs" in document:
            rows += [{**row, "run": before + row["run"]} for row in document["runs"]]
            provenance += document["provenance"]
        else:
            rows += ratios_of(before + 1, document)
            provenance.append(document["provenance"])
    return rows, provenance


def means(rows: list[dict]) -> dict:
    """By shape and timer: the mean ratio with a 95% interval, the least and the most."""
    found: dict = {}
    for shape in dict.fromkeys(row["shape"] for row in rows):
        for timer in TIMERS:
            ratios = [row[timer]["ratio"] for row in rows if row["shape"] == shape]
            mean = statistics.mean(ratios)
            spread = 1.96 * statistics.stdev(ratios) / math.sqrt(len(ratios)) if len(ratios) > 1 else math.inf
            found.setdefault(shape, {})[timer] = {
                "runs": len(ratios),
                "mean": round(mean, 3),
                "low": round(mean - spread, 3),
                "high": round(mean + spread, 3),
                "least": min(ratios),
                "most": max(ratios),
            }
    return found


def main(argv: list[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m saccade.bench.host_times", description=__doc__)
    parser.add_argument("documents", type=Path, nargs="+", help="what runs of python -m saccade.bench have written")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args(argv)
    documents = [json.loads(path.read_text()) for path in given.documents]
    rows, provenance = put_together(documents)
    found = means(rows)
    for shape, by_timer in found.items():
        for timer, ratio in by_timer.items():
            print(f"{shape:<28} {timer:<13} {ratio['mean']:.3f} [{ratio['low']:.3f}, {ratio['high']:.3f}]")
    if given.out:
        document = {
            "schema": "saccade.host_times/2",
            "what": "the host's time a call, ours and SDPA's (its own choice of backend), medians of each run",
            "provenance": provenance,
            "mean_ratios": found,
            "runs": rows,
        }
        given.out.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
