"""The operator and the loss on CUDA tensors by Triton kernels: what to launch for which shape.

Nothing here waits for the device, so bad values give NaN instead of an error.
"""

import functools
import importlib.util
from typing import Any, NamedTuple

import torch
from torch import Tensor

# Entries in a tile: as many as a program holds in registers.
TILE = 8192
# Steps of the search for long slices, each one pass over the array; settled slices skip the rest.
STEPS = 16
# At most so many blocks share a slice, so that adding up their sums stays a small matter.
BLOCKS = 1024


@functools.cache
def is_available() -> bool:
    return importlib.util.find_spec("triton") is not None


class _Plan(NamedTuple):
    """An array as (outer, n, inner), and the tiles that cover it."""

    n: int
    inner: int
    number: int  # of slices
    block_n: int
    block_c: int

    @property
    def short(self) -> bool:
        return self.n <= self.block_n

    @property
    def groups(self) -> int:
        return -(-self.number // self.block_c)

    @property
    def tiles(self) -> int:
        return -(-self.n // (self.block_n * BLOCKS))

    @property
    def blocks(self) -> int:
        return -(-self.n // (self.block_n * self.tiles))

    @property
    def sizes(self) -> dict[str, int]:
        return {"BLOCK_N": self.block_n, "BLOCK_C": self.block_c}


def _power(n: int) -> int:
    return 1 << max(n - 1, 0).bit_length()


def plan(shape: torch.Size, dim: int, tile: int | None = None) -> _Plan:
    tile = tile or TILE
    dim = dim % len(shape)
    n, inner = shape[dim], shape[dim + 1 :].numel()
    columns = min(32, _power(inner))
    # Eight neighbouring float32 are one sector of memory: fewer would be read in vain.
    while columns > 8 and n * columns > tile:
        columns //= 2
    return _Plan(n, inner, shape[:dim].numel() * inner, min(_power(n), tile // columns), columns)


def _numbers(value: Tensor, number: int) -> Tensor:
    """One float64 for each slice, one after the other in memory."""
    value = value.to(torch.float64)
    return (value.expand(number) if value.dim() == 0 else value.reshape(-1)).contiguous()


def _search(p: _Plan, x: Tensor, labels: Tensor | None, ignored: int, k: Tensor, tau: Tensor) -> Tensor:
    """The state of the settled search; its rows are listed in _triton_kernels.start."""
    from hypersimplex.torch import _triton_kernels as kernels

    state = torch.empty((12, p.number), dtype=torch.float64, device=x.device)
    parts = torch.empty((3, p.blocks, p.number), dtype=torch.float64, device=x.device)
    flags: dict[str, Any] = {"LABELS": labels is not None, "WIDE": x.dtype is torch.float64}
    given = x if labels is None else labels
    sampled = min(p.block_n, p.n)
    kernels.start[(p.groups,)](
        x, given, ignored, k, tau, state, p.n, p.inner, p.number, p.n // sampled, sampled, **flags, **p.sizes
    )
    step_flags = {"WIDE": flags["WIDE"], "BLOCK_B": min(128, _power(p.blocks)), "BLOCK_C": p.block_c}
    for step in range(STEPS):
        kernels.look_partly[(p.blocks, p.groups)](
            x, given, ignored, tau, state, parts, p.n, p.inner, p.number, p.tiles, **flags, **p.sizes
        )
        kernels.take_step[(p.groups,)](k, tau, state, parts, p.n, p.number, p.blocks, step, **step_flags)
    kernels.finish_search[(p.groups,)](
        x, given, ignored, k, tau, state, p.n, p.inner, p.number, STEPS, **flags, **p.sizes
    )
    return state


def project(x: Tensor, k: Tensor, tau: Tensor, dim: int, tile: int | None = None) -> tuple[Tensor, Tensor]:
    """y, and of every slice mu and whether it is one of many (`settle` then finds the middle)."""
    from hypersimplex.torch import _triton_kernels as kernels

    x = x.contiguous()
    p = plan(x.shape, dim, tile)
    y, mu = torch.empty_like(x), torch.zeros((2, p.number), dtype=torch.float64, device=x.device)
    if x.numel() == 0:
        return y, mu
    k, tau = _numbers(k, p.number), _numbers(tau, p.number)
    wide = x.dtype is torch.float64
    if p.short:
        kernels.project_tile[(p.groups,)](x, y, k, tau, mu, p.n, p.inner, p.number, WIDE=wide, **p.sizes)
        return y, mu
    state = _search(p, x, None, 0, k, tau)
    kernels.write[(-(-p.n // p.block_n), p.groups)](
        x, y, k, tau, state, mu, p.n, p.inner, p.number, WIDE=wide, **p.sizes
    )
    return y, mu


def settle(x: Tensor, mu: Tensor, tau: Tensor, dim: int) -> Tensor:
    """Thresholds; where an interval of numbers would do, its middle, or its finite end if only one is finite."""
    shape = x.shape[: dim % x.dim()] + x.shape[dim % x.dim() + 1 :]
    at, many = mu[0].reshape(shape), mu[1].reshape(shape) > 0
    if x.numel() == 0:
        return at
    tau = tau.to(torch.float64).expand(shape)
    finite = torch.isfinite(x)
    ones = x > (at + tau / 2).unsqueeze(dim)
    inf = torch.inf
    one = torch.where(finite & ones, x, inf).amin(dim).to(torch.float64)
    zero = torch.where(finite & ~ones, x, -inf).amax(dim).to(torch.float64)
    middle = zero + (one / 2 - zero / 2 - tau / 2)
    lonely = torch.where(zero == -inf, 0.0, zero)
    middle = torch.where(one == inf, lonely, torch.where(zero == -inf, one - tau, middle))
    return torch.where(many, middle, at)


def backward(y: Tensor, v: Tensor, tau: Tensor, dim: int, tile: int | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients to x, k and tau."""
    from hypersimplex.torch import _triton_gradients as kernels

    y, v = y.contiguous(), v.to(y.dtype).contiguous()
    p = plan(y.shape, dim, tile)
    shape = y.shape[: dim % y.dim()] + y.shape[dim % y.dim() + 1 :]
    grad = torch.empty_like(y)
    numbers = torch.zeros((2, p.number), dtype=torch.float64, device=y.device)
    if y.numel():
        tau = _numbers(tau, p.number)
        if p.short:
            kernels.backward_tile[(p.groups,)](y, v, tau, grad, *numbers, p.n, p.inner, p.number, **p.sizes)
        else:
            parts = torch.empty((4, p.blocks, p.number), dtype=torch.float64, device=y.device)
            grid = (p.blocks, p.groups)
            kernels.backward_partly[grid](y, v, parts, p.n, p.inner, p.number, p.tiles, **p.sizes)
            sums = _added(p, parts)
            kernels.backward_write[(-(-p.n // p.block_n), p.groups)](
                y, v, tau, sums, grad, *numbers, p.n, p.inner, p.number, **p.sizes
            )
    return grad, numbers[0].reshape(shape), numbers[1].reshape(shape)


def _added(p: _Plan, parts: Tensor) -> Tensor:
    from hypersimplex.torch import _triton_gradients as kernels

    sums = torch.empty((4, p.number), dtype=torch.float64, device=parts.device)
    kernels.add_up[(p.groups,)](parts, sums, p.number, p.blocks, BLOCK_B=min(128, _power(p.blocks)), BLOCK_C=p.block_c)
    return sums


class Loss(NamedTuple):
    losses: Tensor  # one for each class: weight/2 sum (p - target)^2
    gradient: Tensor  # of their sum times scale, to the logits
    mu: Tensor  # as project returns it


def loss(
    x: Tensor,
    target: Tensor,
    k: Tensor,
    tau: Tensor,
    weight: Tensor,
    scale: Tensor,
    ignored: int = -100,
    tile: int | None = None,
) -> Loss:
    """The loss of (samples, classes) logits and its gradient; target holds class indices, or is of the logits' shape.

    k, tau and weight have one number for each class, scale is one number on the device.
    """
    from hypersimplex.torch import _triton_gradients as kernels

    x, target = x.contiguous(), target.contiguous()
    p = plan(x.shape, 0, tile)
    grad = torch.empty_like(x)
    losses = torch.zeros(p.number, dtype=torch.float64, device=x.device)
    mu = torch.zeros((2, p.number), dtype=torch.float64, device=x.device)
    if x.numel() == 0:
        return Loss(losses, grad, mu)
    k, tau, weight = (_numbers(value, p.number) for value in (k, tau, weight))
    scale = scale.to(torch.float64).reshape(1)
    labels = target if target.dim() == 1 else None
    flags: dict[str, Any] = {"LABELS": labels is not None, "WIDE": x.dtype is torch.float64}
    if p.short:
        kernels.loss_tile[(p.groups,)](
            x, target, target, ignored, k, tau, weight, scale, grad, losses, mu, p.n, p.number, **flags, **p.sizes
        )
        return Loss(losses, grad, mu)
    state = _search(p, x, labels, ignored, k, tau)
    parts = torch.empty((4, p.blocks, p.number), dtype=torch.float64, device=x.device)
    kernels.loss_partly[(p.blocks, p.groups)](
        x, target, target, ignored, k, tau, weight, state, parts, p.n, p.number, p.tiles, **flags, **p.sizes
    )
    sums = _added(p, parts)
    kernels.loss_write[(-(-p.n // p.block_n), p.groups)](
        x, target, target, ignored, k, tau, weight, scale, state, sums, grad, mu, p.n, p.number, **flags, **p.sizes
    )
    return Loss(sums[2], grad, mu)
