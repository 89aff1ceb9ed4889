"""The contract of a backend on top of the kernels: layouts, dtypes, the numbers of each class, and what to launch.

There is one kernel for each function, and one program for each group of neighboring slices. The kernels take contiguous
tensors, and k, tau and weight as one float64 for each slice. Triton is imported by the first launch, so that the
self-check sees it fail.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from hypersimplex.torch import _batch, _columns
from hypersimplex.torch._batch import Batch, Number, Outcome, Settings
from hypersimplex.torch._boundary import slices

FLOATS = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})
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


def _even(x: Tensor) -> Tensor:
    """x in a dtype that the kernels load, contiguous; copied only if it must be."""
    return (x if x.dtype in FLOATS else x.float()).detach().contiguous().resolve_neg()


def _numbers(value: Number, x: Tensor, shape: torch.Size) -> Tensor:
    """One float64 for each slice, one after the other in memory."""
    each = torch.as_tensor(value, dtype=torch.float64, device=x.device)
    return each.detach().expand(shape).reshape(-1).contiguous()


def project(
    x: Tensor,
    k: Number,
    tau: Number,
    dim: int,
    *,
    want_y: bool = True,
    want_mu: bool = True,
    curve: str = "ramp",
) -> tuple[Tensor | None, Tensor]:
    shape = slices(x, dim)
    if x.numel() == 0:
        return torch.empty_like(x), torch.zeros(shape, dtype=torch.float64, device=x.device)
    from hypersimplex.torch.backends.triton import _kernels

    p, even, mu = plan(x.shape, dim), _even(x), torch.empty(shape, dtype=torch.float64, device=x.device)
    y = torch.empty_like(even) if want_y else even  # which is not written then
    with torch.cuda.device_of(x):
        _kernels.project[p.grid](
            even, _numbers(k, x, shape), _numbers(tau, x, shape), y, mu, p.n, p.inner, p.slices,
            LONG=p.is_long, WRITE=want_y, **p.sizes,
        )  # fmt: skip
    return y.to(x.dtype) if want_y else None, mu


def pullback(
    y: Tensor,
    v: Tensor,
    tau: Number,
    dim: int,
    needs: tuple[bool, ...] = (True, True, True),
    *,
    curve: str = "ramp",
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    shape, new = slices(y, dim), torch.empty if y.numel() else torch.zeros
    even, v_even = _even(y), _even(v)
    to_x = torch.empty_like(v_even)
    to_k, to_tau = (new(shape, dtype=torch.float64, device=y.device) for _ in range(2))
    if y.numel():
        from hypersimplex.torch.backends.triton import _kernels

        p = plan(y.shape, dim)
        with torch.cuda.device_of(y):
            _kernels.pullback[p.grid](
                even, v_even, _numbers(tau, y, shape), to_x, to_k, to_tau, p.n, p.inner, p.slices, **p.sizes
            )
    # Autograd's `needs` may go on, for arguments of its own.
    return to_x.to(v.dtype) if needs[0] else None, to_k if needs[1] else None, to_tau if needs[2] else None


def _count(batch: Batch, ignored: int) -> tuple[Tensor, Tensor]:
    """The sum of every class's targets, and the samples that count.

    A label that is no class makes every count NaN, and with that the loss.
    """
    x, target, dense, _ = batch
    if dense:
        return target.sum(0, dtype=torch.float64), x.new_full((), x.shape[0], dtype=torch.float64)
    kept = target != ignored
    bad = kept & ((target < 0) | (target >= batch.classes))
    good = kept & ~bad
    counts = _columns.count(torch.where(good, target, 0), good, batch.classes)
    return torch.where(bad.any(), torch.nan, counts), kept.sum()


def loss(batch: Batch, settings: Settings, with_gradient: bool) -> Outcome:
    shape, classes = batch.logits.shape, batch.classes
    x, target, dense, _ = flat = batch.rows()
    counts, samples = _count(flat, settings.ignore_index)
    k = _columns.wanted(settings, counts, samples)
    weight = 1.0 if settings.weight is None else settings.weight
    k, tau, weight = (
        _numbers(_batch.per_class(name, value, classes, x.device), x, torch.Size([classes]))
        for name, value in (("k", k), ("tau", settings.tau), ("weight", weight))
    )
    labelled = None if settings.weight is None or dense else counts
    by = torch.as_tensor(_columns.divisor(weight, labelled, samples)).to(torch.float64)
    scale = 1 / torch.where(by == 0, 1, by) if settings.reduction == "mean" else torch.ones_like(by)
    even = _even(x)
    gradient = torch.empty_like(even) if with_gradient else even  # which is not written then
    losses, mu = (torch.empty_like(k) if x.numel() else torch.zeros_like(k) for _ in range(2))
    if x.numel():
        from hypersimplex.torch.backends.triton import _kernels

        p, target = plan(x.shape, 0), target.contiguous()
        with torch.cuda.device_of(x):
            _kernels.loss[p.grid](
                even, target, target, settings.ignore_index, k, tau, weight, scale.reshape(1), gradient, losses, mu,
                p.n, p.slices, LABELS=not dense, LONG=p.is_long, WRITE=with_gradient, **p.sizes,
            )  # fmt: skip
    value = losses.sum() * scale
    if settings.reduction == "mean":
        value = torch.where(by == 0, torch.nan, value)
    if len(shape) == 3:
        gradient = gradient.reshape(shape[0], shape[2], classes).transpose(1, 2)
    numbers, value = torch.stack((mu, k)), value.to(_batch.result_dtype(x))
    return Outcome(value, numbers, samples, gradient if with_gradient else None)
