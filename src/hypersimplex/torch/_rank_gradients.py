"""The gradients of slices that lie on many ranks: what travels in the backward pass, and in those of its derivatives.

With s the slope of the curve at every entry, W the sum of s and m = (the sum of s v)/W over all ranks, the gradient is
s (v - m)/tau to an entry and m to k. One to mu, u, is as if the sum of s v were less by tau times the sum of u.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from hypersimplex._curves import inverse, slope
from hypersimplex.torch._boundary import computed, has_batches, is_eager
from hypersimplex.torch._ranks import Ranks


class Solved(torch.autograd.Function):
    """y of this rank's entries and mu, as functions of all ranks' entries, of k and of tau."""

    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, k: Tensor, tau: Tensor, solve: Callable[[], tuple[Tensor, Tensor]], ranks: Ranks,
        how: tuple[str, bool],
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        y, mu = solve()
        ctx.save_for_backward(y, tau)
        ctx.ranks, ctx.how = ranks, how  # the curve, and whether tau is learned
        return y, mu

    @staticmethod
    def backward(ctx: Any, v: Tensor, u: Tensor) -> tuple[Tensor | None, ...]:
        y, tau = ctx.saved_tensors
        again = torch.is_grad_enabled()
        odd = type(v) is not Tensor or has_batches(v) or has_batches(u) or not is_eager()
        if odd:  # all ranks must know, and may be waiting for numbers
            v, u = torch.zeros_like(y.detach()), torch.zeros_like(tau.detach())
        with torch.no_grad():
            sums = _sums(y, tau, v, u, *ctx.how)
            totals, agains, odds = _with_flags(ctx.ranks, sums, again, odd)
        if odds:
            raise RuntimeError("with group, the backward pass does not work under torch.func, or for many at once")
        if agains not in (0, ctx.ranks.size):
            raise RuntimeError("create_graph must be the same on every rank of the group")
        if again:  # this time with a graph that leads through all ranks
            tau = _shared(tau, ctx.ranks)
            totals = _total(_sums(y, tau, v, u, *ctx.how), y, ctx.ranks)
        return *_gradients(y, tau, v, totals, ctx.how[0]), None, None, None


def _with_flags(ranks: Ranks, sums: Tensor, *flags: bool) -> tuple[Tensor, int, int]:
    """The sums over the ranks, and on how many of them each flag is set: one message."""
    total = ranks.sum(torch.cat((sums.flatten(), sums.new_tensor(flags))))
    first, second = total[-2:].tolist()
    return total[:-2].reshape(sums.shape), int(first), int(second)


def _sums(y: Tensor, tau: Tensor, v: Tensor, u: Tensor, curve: str, learns_tau: bool) -> Tensor:
    """This rank's part of what the gradients need, with v and u the gradients to y and mu."""
    wide, y = tau.dtype, y.to(computed(y.dtype))
    s = slope(torch, curve, y)
    none = s == 0
    v = torch.where(none, 0, s * v.to(s.dtype))
    rows = [s.sum(-1, dtype=wide), v.sum(-1, dtype=wide) - tau * u.to(wide)]
    if learns_tau:
        t = inverse(torch, curve, torch.where(none, 0.5, y))
        rows += [torch.where(none, 0, s * t).sum(-1, dtype=wide), (v * t).sum(-1, dtype=wide)]
    return torch.stack(rows)


def _gradients(y: Tensor, tau: Tensor, v: Tensor, totals: Tensor, curve: str) -> tuple[Tensor, Tensor, Tensor | None]:
    """To this rank's entries, and whole to k and tau."""
    weight, moved, *more = totals
    m = torch.where(weight == 0, 0, moved / torch.where(weight == 0, 1, weight))
    s = slope(torch, curve, y.to(computed(y.dtype)))
    away = (v.to(s.dtype) - m.to(s.dtype).unsqueeze(-1)) / tau.to(s.dtype).unsqueeze(-1)
    to_tau = -(more[1] - m * more[0]) / tau if more else None
    return torch.where(s == 0, 0, s * away).to(v.dtype), m, to_tau


class _Total(torch.autograd.Function):
    """The sum over the ranks, and so is its gradient. Through the anchor it is in the graph of every rank."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, anchor: Tensor, ranks: Ranks) -> Tensor:
        ctx.ranks = ranks
        ctx.save_for_backward(anchor)
        return ranks.sum(value)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (anchor,) = ctx.saved_tensors
        return _total(grad, anchor, ctx.ranks), None, None


class _Shared(torch.autograd.Function):
    """A number that all ranks have: its gradient is the sum of theirs."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, ranks: Ranks) -> Tensor:
        ctx.ranks = ranks
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _total(grad, grad, ctx.ranks), None


_total: Any = _Total.apply
_shared: Any = _Shared.apply
