"""Sequences of their own lengths, raced with PyTorch's own such kernel: `python -m saccade.bench.varlen --out FILE`.

PyTorch has one, FlashAttention-2's, which its `varlen_attn` and nested tensors call. Both get the same packed tensors,
are compared with float64 on a few heads, and then timed in interleaved rounds by replays of CUDA graphs.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import random
from pathlib import Path

import torch

from .. import attention
from . import provenance, race
from .candidates import Candidate

TOLERANCE = 1e-3  # relative L2, of float16
CHECKED = 6  # heads of sequences


@dataclasses.dataclass
class Batch:
    """Packed sequences."""

    name: str
    lengths: list[int]
    heads: tuple[int, int] = (16, 16)
    dim: int = 128
    causal: bool = False
    key_lengths: list[int] | None = None  # as many keys as queries

    @property
    def keys(self) -> list[int]:
        """How many keys each sequence has."""
        return self.key_lengths or self.lengths

    @property
    def flops(self) -> int:
        """Of both products, of what the mask leaves (aligned at the end)."""
        seen = 0
        for q, k in zip(self.lengths, self.keys, strict=True):
            hidden = q * (q - 1) // 2 if self.causal else 0  # with no more queries than keys
            seen += q * k - hidden
        return 4 * seen * self.heads[0] * self.dim


def batches(rng: random.Random) -> list[Batch]:
    """What is raced."""

    def some(count, least, most):
        return [rng.randint(least, most) for _ in range(count)]

    found = []
    for dim in (64, 128):
        for causal in (False, True):
            for name, lengths in (
                ("8 of 2048", [2048] * 8),
                ("32 of 100 to 2000", some(32, 100, 2000)),
                ("4 of 2000 to 8000", some(4, 2000, 8000)),
                ("64 of 20 to 300", some(64, 20, 300)),
                ("one of 8000, 63 of 50", [8000] + [50] * 63),
            ):
                found.append(Batch(name, lengths, dim=dim, causal=causal))
    found.append(Batch("16 of 500 to 4000", some(16, 500, 4000), (32, 8), 128, True))
    found.append(Batch("8 of 500 to 4000", some(8, 500, 4000), (8, 8), 256, True))
    found.append(Batch("one row each, 64 of 1 to 8000 keys", [1] * 64, (32, 8), 128, False, some(64, 1, 8000)))
    found.append(Batch("128 rows each, 16 of 128 to 4000 keys", [128] * 16, (32, 8), 128, True, some(16, 128, 4000)))
    return found


def bounds(lengths: list[int]) -> torch.Tensor:
    """Where each sequence begins, and the last one ends."""
    return torch.tensor([sum(lengths[:n]) for n in range(len(lengths) + 1)], dtype=torch.int32, device="cuda")


def error(batch: Batch, q, k, v, out: torch.Tensor, rng: random.Random) -> float:
    """Relative L2 error against float64, over a few heads of sequences."""
    wrong = size = 0.0
    starts_q, starts_k = bounds(batch.lengths).tolist(), bounds(batch.keys).tolist()
    for _ in range(CHECKED):
        n, head = rng.randrange(len(batch.lengths)), rng.randrange(batch.heads[0])
        rows, keys = slice(starts_q[n], starts_q[n + 1]), slice(starts_k[n], starts_k[n + 1])
        key_head = head * batch.heads[1] // batch.heads[0]
        scores = q[rows, head].double() @ k[keys, key_head].double().T / math.sqrt(batch.dim)
        if batch.causal:
            hidden = torch.ones_like(scores, dtype=torch.bool).triu(1 + scores.shape[1] - scores.shape[0])
            scores.masked_fill_(hidden, -math.inf)
        exact = scores.softmax(-1) @ v[keys, key_head].double()
        wrong += (out[rows, head].double() - exact).square().sum().item()
        size += exact.square().sum().item()
    return math.sqrt(wrong / size)


def run(batch: Batch, budget: float, seed: int) -> dict:
    """One row of the document."""
    torch.manual_seed(seed)
    q = torch.randn(sum(batch.lengths), batch.heads[0], batch.dim, device="cuda", dtype=torch.float16)
    k, v = (
        torch.randn(sum(batch.keys), batch.heads[1], batch.dim, device="cuda", dtype=torch.float16) for _ in range(2)
    )
    starts_q, starts_k = bounds(batch.lengths), bounds(batch.keys)
    most_q, most_k = max(batch.lengths), max(batch.keys)

    def ours():
        return attention(
            q,
            k,
            v,
            causal="bottom_right" if batch.causal else False,
            cu_seqlens_q=starts_q,
            cu_seqlens_kv=starts_k,
            max_seqlen_q=most_q,
            max_seqlen_kv=most_k,
        )

    def theirs():
        return torch.ops.aten._flash_attention_forward(
            q, k, v, starts_q, starts_k, most_q, most_k, 0.0, batch.causal, False
        )[0]

    entered = [Candidate("saccade", ours), Candidate("sdpa_flash", theirs)]
    row = {
        "sequences": batch.name,
        "heads": batch.heads,
        "dim": batch.dim,
        "causal": batch.causal,
        "lengths": batch.lengths,
        "key_lengths": batch.keys,
        "flops": batch.flops,
    }
    for one in entered:
        poison = torch.full_like(q, math.nan)  # the allocator hands its memory out again
        del poison
        found = error(batch, q, k, v, one.call(), random.Random(seed))
        if not found <= TOLERANCE:
            raise SystemExit(f"{one.name} is wrong for {batch.name}: relative L2 error {found:.2g}")
        row[one.name] = {"relative_l2": race.rounded(found)}
    seconds, calls, failures = race.sample(entered, "device", budget, random.Random(seed), seed)
    if failures:
        raise SystemExit(f"not timed: {failures}")
    again = error(batch, q, k, v, ours(), random.Random(seed + 1))  # of other heads, after all that
    if not again <= TOLERANCE:
        raise SystemExit(f"saccade is wrong after the race of {batch.name}: relative L2 error {again:.2g}")
    _, ratios = race.compare(entered, seconds, seed)
    for one in entered:
        row[one.name]["time"] = race.summary(seconds[one.name], "device", calls[one.name], seed)
    row["speedup"] = ratios["saccade"]
    return row


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m saccade.bench.varlen", description=__doc__)
    parser.add_argument("--budget", type=float, default=0.3, help="seconds for each batch")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--commit", help="of the library, where the package does not know it")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    document = {
        "schema": "saccade.varlen/1",
        "what": "packed sequences of their own lengths, f16, saccade.attention beside PyTorch's FlashAttention-2",
        "provenance": provenance.collect(given.seed, given.commit),
        "results": [],
    }
    with torch.inference_mode():
        for batch in batches(random.Random(given.seed)):
            row = run(batch, given.budget, given.seed)
            document["results"].append(row)
            time, ratio = row["saccade"]["time"]["median_us"], row["speedup"]
            heads = "/".join(str(n) for n in batch.heads)
            text = f"{batch.name:<38} h{heads:<6} d{batch.dim:<4}{'causal' if batch.causal else '':<7}{time:>8.1f} us"
            text += f"  {batch.flops / time / 1e6:>4.0f} TFLOP/s"
            print(f"{text}  {ratio['value']:.2f}x [{ratio['low']:.2f}, {ratio['high']:.2f}]", flush=True)
    ratios = [row["speedup"]["value"] for row in document["results"]]
    document["geometric_mean"] = race.rounded(math.exp(sum(map(math.log, ratios)) / len(ratios)))
    document["lowest"] = min(ratios)
    print(f"{document['geometric_mean']:.2f}x in geometric mean, {document['lowest']:.2f}x at least")
    if given.out:
        given.out.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
