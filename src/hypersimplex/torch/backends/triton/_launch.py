"""What to launch for which shape: one kernel each, one program for each group of neighboring slices.

Tensors are contiguous; k, tau and weight are one float64 for each slice, one after the other in memory. Triton is
imported by the first launch, so that the self-check sees it fail.
"""

from typing import NamedTuple

import torch
from torch import Tensor

# Entries in a tile: as many as a program holds in registers.
TILE = 8192
# Many short slices share a program, which then has about so many entries.
LEAST = 1024


class Plan(NamedTuple):
    """An array as (outer, n, inner), and the tiles that cover it."""

    n: int
    inner: int
    slices: int
    block_n: int
    block_c: int

    @property
    def is_long(self) -> bool:
        return self.n > self.block_n

    @property
    def grid(self) -> tuple[int]:
        return (-(-self.slices // self.block_c),)

    @property
    def sizes(self) -> dict[str, int]:
        warps = 4 if self.block_n * self.block_c <= 2048 else 8
        return {"BLOCK_N": self.block_n, "BLOCK_C": self.block_c, "num_warps": warps}


def _power(n: int) -> int:
    """The next power of two."""
    return 1 << max(n - 1, 0).bit_length()


def plan(shape: torch.Size, dim: int) -> Plan:
    dim = dim % len(shape)
    n, inner = shape[dim], shape[dim + 1 :].numel()
    slices = shape[:dim].numel() * inner
    if inner == 1:
        columns = max(1, min(32, LEAST // _power(n), _power(slices)))
    else:
        columns = min(32, _power(inner))
        # Eight neighboring float32 are one sector of memory: fewer would be read in vain.
        while columns > 8 and n * columns > TILE:
            columns //= 2
    return Plan(n, inner, slices, min(_power(n), TILE // columns), columns)


def _numbers(x: Tensor, p: Plan) -> Tensor:
    return torch.empty(p.slices, dtype=torch.float64, device=x.device)


def project(x: Tensor, k: Tensor, tau: Tensor, dim: int, want_y: bool) -> tuple[Tensor, Tensor]:
    """y (x itself if it is not wanted) and mu."""
    from hypersimplex.torch.backends.triton import _kernels

    p = plan(x.shape, dim)
    y, mu = torch.empty_like(x) if want_y else x, _numbers(x, p)
    with torch.cuda.device_of(x):
        _kernels.project[p.grid](x, k, tau, y, mu, p.n, p.inner, p.slices, LONG=p.is_long, WRITE=want_y, **p.sizes)
    return y, mu


def pullback(y: Tensor, v: Tensor, tau: Tensor, dim: int) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients to x, k and tau."""
    from hypersimplex.torch.backends.triton import _kernels

    p = plan(y.shape, dim)
    to_x, to_k, to_tau = torch.empty_like(v), _numbers(y, p), _numbers(y, p)
    with torch.cuda.device_of(y):
        _kernels.pullback[p.grid](y, v, tau, to_x, to_k, to_tau, p.n, p.inner, p.slices, **p.sizes)
    return to_x, to_k, to_tau


class Columns(NamedTuple):
    """Logits (samples, classes), targets (class indices or dense), one number for each class, one number in all."""

    x: Tensor
    target: Tensor
    ignored: int
    k: Tensor
    tau: Tensor
    weight: Tensor
    scale: Tensor


def loss(columns: Columns, want_gradient: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Every class's loss, unscaled, the gradient of their scaled sum (x itself if it is not wanted), and mu."""
    from hypersimplex.torch.backends.triton import _kernels

    x, target, ignored, k, tau, weight, scale = columns
    p = plan(x.shape, 0)
    grad, value, mu = torch.empty_like(x) if want_gradient else x, _numbers(x, p), _numbers(x, p)
    with torch.cuda.device_of(x):
        _kernels.loss[p.grid](
            x, target, target, ignored, k, tau, weight, scale, grad, value, mu, p.n, p.slices,
            LABELS=target.dim() == 1, LONG=p.is_long, WRITE=want_gradient, **p.sizes,
        )  # fmt: skip
    return value, grad, mu
