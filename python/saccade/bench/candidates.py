"""Who races: Saccade, its kernels by name, and every other attention that this process can call."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from .. import _native, scaled_dot_product_attention
from .shapes import Shape

torch_sdpa = torch.nn.functional.scaled_dot_product_attention
BACKENDS = {
    "sdpa_flash": SDPBackend.FLASH_ATTENTION,
    "sdpa_cudnn": SDPBackend.CUDNN_ATTENTION,
    "sdpa_efficient": SDPBackend.EFFICIENT_ATTENTION,
    "sdpa_math": SDPBackend.MATH,
}
RIVALS = ("sdpa", *BACKENDS, "flex", "flash_attn")


@dataclasses.dataclass
class Candidate:
    """One way to compute the shape: `call()` enqueues it and returns the output; `around()` is entered before."""

    name: str
    call: Callable[[], torch.Tensor]
    around: Callable[[], contextlib.AbstractContextManager] = contextlib.nullcontext
    config: str = ""
    workspace_bytes: int = 0

    @property
    def is_sdpa(self) -> bool:
        """Whether it is one of PyTorch's own backends."""
        return self.name in BACKENDS or self.name == "sdpa"


def ours(shape: Shape, q, k, v) -> Candidate:
    """What a user calls."""
    device = (_native.CUDA, q.device.index or 0) if q.is_cuda else (_native.CPU, 0)
    plan = _native.Plan(shape.problem, device, threads=torch.get_num_threads())
    call = functools.partial(scaled_dot_product_attention, q, k, v, is_causal=shape.causal, enable_gqa=shape.grouped)
    return Candidate("saccade", call, config=f"{plan.kernel}: {plan.config}", workspace_bytes=plan.workspace_bytes)


def kernel(name: str, shape: Shape, q, k, v) -> Candidate:
    """One of the library's kernels by its registry name ('NAME' or 'NAME:key=value ...'), called through the C ABI."""
    text = name  # two configurations of one kernel may race: each is called what it was asked for by
    name, _, config = text.partition(":")
    device = (_native.CUDA, q.device.index or 0) if q.is_cuda else (_native.CPU, 0)
    plan = _native.Plan(shape.problem, device, name, config, torch.get_num_threads())
    out = torch.full((*q.shape[:3], v.shape[3]), float("nan"), dtype=q.dtype, device=q.device)
    workspace = torch.empty(plan.workspace_bytes + 256, dtype=torch.uint8, device=q.device)
    aligned = (workspace.data_ptr() + 255) // 256 * 256
    pointers = {name: x.data_ptr() for name, x in (("q", q), ("k", k), ("v", v), ("o", out))}

    def call(kept=(q, k, v, workspace)):  # the pointers do not keep them alive
        stream = torch.cuda.current_stream().cuda_stream if q.is_cuda else 0
        plan.run(pointers, aligned, stream)
        return out

    return Candidate(text, call, config=plan.config, workspace_bytes=plan.workspace_bytes)


def rival(name: str, shape: Shape, q, k, v) -> Candidate:
    """Somebody else's attention; ImportError or RuntimeError when it is not to be had."""
    if name == "sdpa" or name in BACKENDS:
        call = functools.partial(torch_sdpa, q, k, v, is_causal=shape.causal, enable_gqa=shape.grouped)
        if name == "sdpa":
            return Candidate(name, call)
        return Candidate(name, call, functools.partial(sdpa_kernel, BACKENDS[name]))
    if name == "flex":
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        mask = None
        if shape.causal:
            mask = create_block_mask(
                lambda b, h, i, j: i >= j, None, None, q.shape[2], k.shape[2], device=q.device.type
            )
        compiled = torch.compile(flex_attention, dynamic=False)
        return Candidate(name, lambda: compiled(q, k, v, block_mask=mask, enable_gqa=shape.grouped))
    if name == "flash_attn":
        from flash_attn import flash_attn_func

        if shape.causal and q.shape[2] != k.shape[2]:
            raise RuntimeError("flash_attn aligns the causal diagonal at the other end")
        rows = [x.transpose(1, 2) for x in (q, k, v)]
        return Candidate(name, lambda: flash_attn_func(*rows, causal=shape.causal).transpose(1, 2))
    raise ValueError(f"'{name}' is none of {', '.join(RIVALS)}")
