"""Shapes in the library's syntax, as tensors of torch."""

from __future__ import annotations

import dataclasses
import pathlib

import torch

from .. import _native

_DTYPES = (torch.float16, torch.bfloat16, torch.float32)
MISSION = ("b1 h8 l512 d64 f16", "b1 h8 l512 d64 f16 causal")


@dataclasses.dataclass(frozen=True)
class Shape:
    """What SDPA can express of a problem: packed [batch, head, length, dim] tensors, full or causal."""

    text: str
    problem: _native.Problem
    dtype: torch.dtype
    causal: bool

    @property
    def flops(self) -> float:
        """Of both products; half of it when causal and square. As the library counts."""
        p = self.problem
        whole = 2.0 * p.batch * p.heads_q * p.len_q * p.len_kv * (p.dim_qk + p.dim_v)
        return whole / 2 if self.causal and p.len_q == p.len_kv else whole

    @property
    def bytes(self) -> float:
        """That must move at least: each tensor once."""
        p = self.problem
        rows = p.batch * (p.heads_q * p.len_q + p.heads_kv * p.len_kv)
        return float(rows * (p.dim_qk + p.dim_v) * self.dtype.itemsize)

    @property
    def grouped(self) -> bool:
        """Whether several query heads share a key head."""
        return self.problem.heads_q != self.problem.heads_kv

    def tensors(self, device: str, seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Fresh q, k and v: independent, N(0, 1)."""
        p = self.problem
        generator = torch.Generator(device).manual_seed(seed)
        sizes = (
            (p.batch, p.heads_q, p.len_q, p.dim_qk),
            (p.batch, p.heads_kv, p.len_kv, p.dim_qk),
            (p.batch, p.heads_kv, p.len_kv, p.dim_v),
        )
        return tuple(torch.randn(s, device=device, generator=generator).to(self.dtype) for s in sizes)


def parse(text: str) -> Shape:
    """Reads a shape; ValueError when SDPA has no word for something in it."""
    problem = _native.parse(text)
    plain = _native.Problem()
    for name in ("softcap", "mask", "alibi", "sinks", "lse", "ragged_q", "kv_layout", "kv_lengths", "alignment"):
        if getattr(problem, name) != getattr(plain, name):
            raise ValueError(f"'{text}': SDPA has no {name}; bench takes full and causal shapes")
    if problem.window_left != plain.window_left or problem.window_right != plain.window_right:
        raise ValueError(f"'{text}': SDPA has no window; bench takes full and causal shapes")
    return Shape(text, problem, _DTYPES[problem.dtype], bool(problem.causal))


def read_cases(name: str) -> list[str]:
    """The shapes of a case file, by path or by its name in ./cases; bars and other remarks are left out."""
    path = pathlib.Path(name)
    if not path.is_file():
        path = pathlib.Path("cases") / f"{name}.txt"
    if not path.is_file():
        raise ValueError(f"there is no case file '{name}', nor {path}")
    lines = (line.split("#", 1)[0].strip() for line in path.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line]
