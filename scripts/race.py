#!/usr/bin/env python3
"""Races Saccade's CUDA kernels against every SDPA backend of PyTorch, in one process.

Device time by replays of CUDA graphs of ten calls, all candidates interleaved in random order; every candidate is
first compared with a float64 computation on fresh random data, its output poisoned beforehand. Writes one JSON file.

  race.py --library build/release/src/libsaccade.so --kernel ladder_wmma --shape '1x8x512x64 full' --out race.json
"""
import argparse
import ctypes
import datetime
import json
import random
import statistics
import subprocess

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

CALLS_PER_GRAPH = 10
BACKENDS = {
    "sdpa_flash": SDPBackend.FLASH_ATTENTION,
    "sdpa_cudnn": SDPBackend.CUDNN_ATTENTION,
    "sdpa_efficient": SDPBackend.EFFICIENT_ATTENTION,
}
ANCHORS = ["1x8x512x64", "1x8x128x64", "1x8x1024x64", "1x8x2048x64", "2x8x512x64", "4x16x512x64", "1x16x512x128",
           "1x32x1024x128", "8x16x2048x64", "8x16x2048x128", "4x16x4096x64", "4x16x4096x128"]


class Options(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("device_kind", ctypes.c_int32), ("device_index", ctypes.c_int32),
                ("kernel", ctypes.c_char_p), ("config", ctypes.c_char_p), ("threads", ctypes.c_int32)]


class Tensors(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t)] + [(name, ctypes.c_void_p) for name in (
        "q", "k", "v", "o", "lse", "mask", "alibi_slopes", "sinks", "cu_seqlens_q", "cu_seqlens_kv", "kv_lengths",
        "block_table")]


class Library:
    """The C ABI, as far as a race needs it."""

    def __init__(self, path):
        self.c = ctypes.CDLL(path)
        for name in ("saccade_last_error", "saccade_plan_kernel", "saccade_version"):
            getattr(self.c, name).restype = ctypes.c_char_p
        self.c.saccade_plan_workspace_bytes.restype = ctypes.c_size_t

    def check(self, status):
        if status != 0:
            raise RuntimeError(self.c.saccade_last_error().decode())

    def call(self, shape, kernel, q, k, v, o):
        """A function that enqueues one call on the current stream."""
        problem = ctypes.create_string_buffer(1024)
        self.check(self.c.saccade_problem_parse(shape.encode(), problem))
        options = Options(ctypes.sizeof(Options), 1, 0, kernel.encode(), None, 0)
        plan = ctypes.c_void_p()
        self.check(self.c.saccade_plan_create(problem, ctypes.byref(options), ctypes.byref(plan)))
        size = self.c.saccade_plan_workspace_bytes(plan)
        workspace = torch.empty(max(size, 1), dtype=torch.uint8, device="cuda")
        tensors = Tensors(struct_size=ctypes.sizeof(Tensors), q=q.data_ptr(), k=k.data_ptr(), v=v.data_ptr(), o=o.data_ptr())

        def run(kept=(q, k, v, o, workspace)):  # the pointers above do not keep them alive
            stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
            self.check(self.c.saccade_run(plan, ctypes.byref(tensors), ctypes.c_void_p(workspace.data_ptr()),
                                          ctypes.c_size_t(size), stream))
        return run


def float64_attention(q, k, v, causal):
    """By heads, so that long sequences fit."""
    out = torch.empty_like(q, dtype=torch.float64)
    hidden = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device="cuda").triu(1) if causal else None
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            s = q[b, h].double() @ k[b, h].double().T / q.shape[3] ** 0.5
            if causal:
                s.masked_fill_(hidden, float("-inf"))
            out[b, h] = s.softmax(-1) @ v[b, h].double()
    return out


def captured(run):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS_PER_GRAPH):
            run()
    return graph


def replay_seconds(graph, times):
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(times):
        graph.replay()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e-3 / times / CALLS_PER_GRAPH


def ratio_interval(slow, fast, rng, resamples=2000):
    """Ratio of medians with its 95% bootstrap interval."""
    ratios = sorted(statistics.median(rng.choices(slow, k=len(slow))) / statistics.median(rng.choices(fast, k=len(fast)))
                    for _ in range(resamples))
    return (statistics.median(slow) / statistics.median(fast), ratios[int(0.025 * resamples)], ratios[int(0.975 * resamples)])


def race(library, name, kernels, budget, rounds, rng):
    dims, mode = name.split()
    batch, heads, length, dim = map(int, dims.split("x"))
    causal = mode == "causal"
    q, k, v = (torch.randn(batch, heads, length, dim, device="cuda", dtype=torch.float16) for _ in range(3))
    expected = float64_attention(q, k, v, causal)
    shape = f"b{batch} h{heads} l{length} d{dim} f16" + (" causal" if causal else "")
    result = {"shape": shape, "candidates": {}}
    graphs, batches, alive = {}, {}, []  # a graph does not keep the memory it works on

    def enter(label, run, output):
        try:
            run()
            torch.cuda.synchronize()
            error = (output().double() - expected).norm() / expected.norm()
            if not error < 2e-3:
                result["candidates"][label] = {"failed": f"relative L2 error {error.item():.3g}"}
                return
            graph = captured(run)
            once = replay_seconds(graph, 1)
            batches[label] = max(1, min(100, int(budget / rounds / max(once * CALLS_PER_GRAPH, 1e-7))))
            graphs[label] = graph
            alive.append(run)
            result["candidates"][label] = {"relative_l2": float(f"{error.item():.4g}")}
        except RuntimeError as problem:
            result["candidates"][label] = {"failed": str(problem).splitlines()[0]}

    for kernel in kernels:
        o = torch.full_like(q, float("nan"))
        try:
            run = library.call(shape, kernel, q, k, v, o)
        except RuntimeError as problem:
            result["candidates"][kernel] = {"failed": str(problem)}
            continue
        enter(kernel, run, lambda o=o: o)
    for label, backend in BACKENDS.items():
        kept = {}

        def run(backend=backend, kept=kept):
            with sdpa_kernel(backend):
                kept["o"] = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
        enter(label, run, lambda kept=kept: kept["o"])

    samples = {label: [] for label in graphs}
    for round_number in range(rounds + 2):
        order = list(graphs)
        rng.shuffle(order)
        for label in order:
            seconds = replay_seconds(graphs[label], batches[label])
            if round_number >= 2:  # the first two rounds warm up
                samples[label].append(seconds)
    for label, seconds in samples.items():
        ordered = sorted(seconds)
        result["candidates"][label].update(
            median_us=round(statistics.median(seconds) * 1e6, 3), min_us=round(ordered[0] * 1e6, 3),
            p95_us=round(ordered[int(0.95 * (len(ordered) - 1))] * 1e6, 3), samples=len(seconds))
    rivals = [label for label in BACKENDS if label in samples]
    if rivals:
        best = min(rivals, key=lambda label: statistics.median(samples[label]))
        result["best_sdpa"] = best
        for kernel in kernels:
            if kernel in samples:
                value, low, high = ratio_interval(samples[best], samples[kernel], rng)
                result["candidates"][kernel]["speedup_over_best_sdpa"] = {
                    "value": round(value, 4), "low": round(low, 4), "high": round(high, 4)}
    return result


def provenance(commit):
    fields = "name,driver_version,clocks.sm,clocks.mem,clocks.max.sm,power.limit,temperature.gpu,clocks_event_reasons.active"
    gpu = subprocess.run(["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"], capture_output=True, text=True)
    return {"commit": commit, "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "gpu": dict(zip(fields.split(","), (part.strip() for part in gpu.stdout.strip().split(",")))),
            "torch": torch.__version__, "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version(),
            "timer": "device: CUDA graph of 10 calls, replayed, events; interleaved in random order"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True)
    parser.add_argument("--kernel", action="append", required=True)
    parser.add_argument("--shape", action="append", help="BxHxLxD full|causal; default: the anchors up to 4096 tokens")
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--budget", type=float, default=0.4, help="seconds a candidate and shape")
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", required=True)
    arguments = parser.parse_args()
    torch.manual_seed(arguments.seed)
    rng = random.Random(arguments.seed)
    library = Library(arguments.library)
    shapes = arguments.shape or [f"{dims} {mode}" for dims in ANCHORS for mode in ("full", "causal")]
    document = {"schema": "saccade.race/1", "provenance": provenance(arguments.commit), "seed": arguments.seed, "shapes": []}
    for name in shapes:
        result = race(library, name, arguments.kernel, arguments.budget, arguments.rounds, rng)
        document["shapes"].append(result)
        times = "  ".join(f"{label} {c['median_us']}" if "median_us" in c else f"{label} {c['failed']}"
                          for label, c in result["candidates"].items())
        print(f"{result['shape']}: {times}", flush=True)
        with open(arguments.out, "w", encoding="utf-8") as file:
            json.dump(document, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
