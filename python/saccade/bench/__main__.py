"""The command line of `python -m saccade.bench`."""

from __future__ import annotations

import argparse
import json
import pathlib
import random
import secrets
import sys
import warnings

import torch

from .. import FallbackWarning, is_enabled
from . import ceilings, picture, race, statistics
from .candidates import RIVALS, Candidate, kernel, ours, rival
from .provenance import collect, now
from .race import rounded
from .shapes import MISSION, Shape, parse, read_cases


def arguments(argv: list[str] | None) -> argparse.Namespace:
    """The options, checked as far as they can be without a device."""
    parser = argparse.ArgumentParser(
        prog="python -m saccade.bench",
        description="Races Saccade against every SDPA backend of PyTorch, in one process, interleaved.",
    )
    parser.add_argument("shapes", nargs="*", metavar="SHAPE", help="e.g. 'b1 h8 l512 d64 f16 causal'")
    parser.add_argument("--cases", action="append", default=[], help="a case file, by path or by name in ./cases")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: cuda where there is one")
    parser.add_argument("--kernel", action="append", default=[], help="also this kernel of the library, by name")
    parser.add_argument("--without-saccade", action="store_true", help="race the named kernels only")
    parser.add_argument("--rival", action="append", choices=RIVALS, help="only these rivals; default: all")
    parser.add_argument("--host-times", action="store_true", help="on a GPU also the host's time, queued and waiting")
    parser.add_argument("--budget", type=float, default=0.5, help="seconds a candidate and shape (default 0.5)")
    parser.add_argument("--threads", type=int, help="of the CPU; default: all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--commit", help="what the provenance says; default: that of the working directory")
    parser.add_argument("--out", help="where the JSON goes")
    parser.add_argument("--svg", help="where the picture goes")
    given = parser.parse_args(argv)
    given.device = given.device or ("cuda" if torch.cuda.is_available() else "cpu")
    if given.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: PyTorch sees no GPU")
    if is_enabled():
        parser.error("Saccade is enabled: PyTorch would race under its own name with our kernels")
    if given.without_saccade and not given.kernel:
        parser.error("--without-saccade needs a --kernel")
    try:
        texts = [*given.shapes, *(text for name in given.cases for text in read_cases(name))]
        given.shapes = [parse(text) for text in texts or MISSION]
    except ValueError as error:
        parser.error(str(error))
    return given


def enter(shape: Shape, given: argparse.Namespace, q, k, v) -> tuple[list[Candidate], list[dict]]:
    """Everybody who takes part, checked against float64, and the document's rows: those who cannot say why."""
    judge = race.Judge(shape, q, k, v, random.Random(given.seed))
    makers = [] if given.without_saccade else [("saccade", lambda: ours(shape, q, k, v))]
    makers += [(name, lambda name=name: kernel(name, shape, q, k, v)) for name in given.kernel]
    makers += [(name, lambda name=name: rival(name, shape, q, k, v)) for name in given.rival or RIVALS]
    entered, rows = [], []
    for name, make in makers:
        row = {"kernel": name, "rival": name in RIVALS}
        rows.append(row)
        try:
            candidate = make()
            with warnings.catch_warnings():
                warnings.simplefilter("error", FallbackWarning)  # PyTorch under our name does not race
                row["verified"] = race.checked(candidate, judge, q)
        except ImportError as error:
            row["rejected"] = f"not installed: {error.name or error}"
        except (RuntimeError, ValueError, NotImplementedError, FallbackWarning) as error:
            row["rejected"] = (str(error).splitlines() or [type(error).__name__])[0]
        else:
            if row["verified"]["passed"]:
                entered.append(candidate)
            else:
                row["not_timed"] = f"wrong: relative L2 error {row['verified']['relative_l2']}"
    return entered, rows


def run_shape(shape: Shape, given: argparse.Namespace, ceiling: dict, rng: random.Random) -> dict:
    """One shape, as it stands in the document."""
    q, k, v = shape.tensors(given.device, rng.getrandbits(32))
    entered, rows = enter(shape, given, q, k, v)
    main_timer = "device" if given.device == "cuda" else "host"
    seconds, calls, failures = race.sample(entered, main_timer, given.budget, rng, given.seed)
    best, ratios = race.compare(entered, seconds, given.seed)
    by_name = {candidate.name: candidate for candidate in entered}
    for row in rows:
        name = row["kernel"]
        if name in failures:
            row["not_timed"] = failures[name]
        if name not in seconds:
            continue
        time = race.summary(seconds[name], main_timer, calls[name], given.seed)
        nanoseconds = time["median_us"] * 1e3
        row |= {
            "config": by_name[name].config,
            "time": time,
            "gflops": rounded(shape.flops / nanoseconds),
            "fma_percent": rounded(100 * shape.flops / nanoseconds / ceiling["matrix"]),
            "gbps": rounded(shape.bytes / nanoseconds),
            "read_percent": rounded(100 * shape.bytes / nanoseconds / ceiling["read"]),
            "workspace_bytes": by_name[name].workspace_bytes,
        }
        if name in ratios:
            row["speedup"] = ratios[name]
    if given.device == "cuda" and given.host_times:
        for timer in ("queued", "synchronized"):
            add_host_times(rows, [c for c in entered if c.name in seconds], timer, given, rng)
    compute_bound = shape.flops / ceiling["matrix"] >= shape.bytes / ceiling["read"]
    return {
        "shape": shape.text,
        "flops": shape.flops,
        "bytes": shape.bytes,
        "read_ceiling_gbps": rounded(ceiling["read"]),
        "fma_ceiling_gflops": rounded(ceiling["matrix"]),
        "bound": "compute" if compute_bound else "memory",
        "best_sdpa": best,
        "bars": [],
        "kernels": rows,
    }


def add_host_times(rows: list[dict], entered: list[Candidate], timer: str, given, rng) -> None:
    """The host's side of the same calls, each with its own fastest backend."""
    seconds, calls, _ = race.sample(entered, timer, given.budget, rng, given.seed)
    _, ratios = race.compare(entered, seconds, given.seed)
    for row in rows:
        if row["kernel"] in seconds:
            name = row["kernel"]
            row[timer] = race.summary(seconds[name], timer, calls[name], given.seed)
            if name in ratios:
                row[timer]["speedup"] = ratios[name]


def describe(shape: dict) -> str:
    """A few lines for the terminal."""
    lines = [f"\n{shape['shape']}"]
    for row in shape["kernels"]:
        if "time" not in row:
            lines.append(f"  {row['kernel']:<26} {row.get('rejected') or row.get('not_timed')}")
            continue
        text = f"  {row['kernel']:<26} {row['time']['median_us']:>11.2f} us  {row['gflops']:>9.0f} GFLOP/s"
        for what in ("time", "queued", "synchronized"):
            ratio = row.get("speedup") if what == "time" else row.get(what, {}).get("speedup")
            if what != "time" and what in row:
                text += f"   {what} {row[what]['median_us']:.2f} us"
            if ratio:
                text += f"  {ratio['value']:.2f}x [{ratio['low']:.2f}, {ratio['high']:.2f}] {ratio['verdict']}"
        lines.append(text)
    return "\n".join(lines)


def totals(results: list[dict]) -> dict:
    """Geometric mean and lowest of each of our candidates' speed-ups over the fastest SDPA backend of each shape."""
    found: dict[str, list[float]] = {}
    for shape in results:
        for row in shape["kernels"]:
            if "speedup" in row and row["kernel"] not in RIVALS:
                found.setdefault(row["kernel"], []).append(row["speedup"]["value"])
    return {
        name: {
            "shapes": len(values),
            "of": len(results),
            "geometric_mean": rounded(statistics.geometric_mean(values)),
            "lowest": min(values),
        }
        for name, values in found.items()
    }


def main(argv: list[str] | None = None) -> int:
    """Runs the race; 1 when one of our candidates was wrong."""
    given = arguments(argv)
    if given.threads:
        torch.set_num_threads(given.threads)
    rng = random.Random(given.seed)
    measured = {}
    document = {
        "schema": "saccade.bench/1",
        "run": secrets.token_hex(8),
        "finished": "",
        "provenance": collect(given.seed, given.commit),
        "device": "cuda:0" if given.device == "cuda" else "cpu",
        "threads": torch.get_num_threads(),
        "caches": "warm",
        "budget_seconds": given.budget,
        "ceilings": {},
        "results": [],
    }
    read = ceilings.read_gbps(given.device)
    for shape in given.shapes:
        if shape.dtype not in measured:
            measured[shape.dtype] = ceilings.matrix_gflops(given.device, shape.dtype)
        ceiling = {"matrix": measured[shape.dtype], "read": read}
        document["ceilings"] = {"fma_gflops": rounded(max(measured.values())), "copy_gbps": rounded(read)}
        with torch.inference_mode():
            document["results"].append(run_shape(shape, given, ceiling, rng))
        print(describe(document["results"][-1]), flush=True)
        document["finished"] = now()
        document["totals"] = totals(document["results"])
        if given.out:
            pathlib.Path(given.out).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    for name, total in document["totals"].items():
        print(
            f"\n{name}: {total['geometric_mean']:.2f}x the fastest SDPA backend in geometric mean, "
            f"{total['lowest']:.2f}x at least ({total['shapes']} of {total['of']} shapes)"
        )
    if given.svg:
        name = given.kernel[0].partition(":")[0] if given.without_saccade else "saccade"
        pathlib.Path(given.svg).write_text(picture.svg(document, name), encoding="utf-8")
    mine = [row for shape in document["results"] for row in shape["kernels"] if row["kernel"] not in RIVALS]
    return 1 if any(not row.get("verified", {"passed": True})["passed"] for row in mine) else 0  # a no is no failure


if __name__ == "__main__":
    sys.exit(main())
