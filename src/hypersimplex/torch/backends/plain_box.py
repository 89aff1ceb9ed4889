"""The box section by torch operations: for devices without a kernel, and as the kernel's second witness."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from hypersimplex import _box_formula, _checks
from hypersimplex._box_formula import Problem
from hypersimplex._search import Start, search
from hypersimplex.torch._boundary import computed, widest

_STEPS = 200


def box(
    x: Tensor, total: Tensor, lower: Tensor, upper: Tensor, weight: Tensor, tau: Tensor, at_most: bool
) -> tuple[Tensor, Tensor]:
    wide, slices, own = widest(x.device), x.shape[:-1], computed(x.dtype)
    room = _checks.box_room(torch.finfo(own).eps)
    total, tau = (t.expand(slices) for t in (total, tau))
    lower, upper, weight = (t.expand(x.shape) for t in (lower, upper, weight))
    if x.device.type == "cpu":  # elsewhere values cannot be read without waiting
        rows = (slices.numel(), x.shape[-1])
        entries = (t.detach().to(wide).reshape(rows).numpy() for t in (x, lower, upper, weight))
        each = (t.detach().reshape(-1).numpy() for t in (total, tau))
        _checks.check_box(room, at_most, *entries, *each)
    if x.numel() == 0 or x.is_meta:
        return torch.empty_like(x, dtype=own), torch.zeros(slices, dtype=wide, device=x.device)
    given = (x.to(wide), total.unsqueeze(-1), lower, upper, weight, tau.unsqueeze(-1))
    y, mu = _box_formula.solve(torch, given, at_most, _rounding(given[0]) / 2, room, _excess, _search)
    return y.to(own), mu.squeeze(-1)


def _rounding(like: Tensor) -> float:
    """Of sum(weight * |y|), in a sum."""
    return 2e-15 if like.dtype == torch.float64 else 1e-6


def _excess(p: Problem) -> Any:
    return (p.weight * p.clip(p.place(0.0))).sum(-1, keepdim=True) - p.total


def _sums(p: Problem, mu: Tensor, low: Tensor, error: Tensor) -> Tensor:
    """What `search` asks for: the free entries' sum, their squared weights, and the sum of those at a bound."""
    t = p.place(mu.unsqueeze(-1), low.unsqueeze(-1))
    free, part = (t > p.lower) & (t < p.upper), p.weight * p.clip(t)
    fixed, inside = torch.where(free, 0, part).sum(-1), torch.where(free, part, 0).sum(-1)
    rest = p.total.squeeze(-1) - fixed
    noise = (inside - rest).abs() <= _rounding(mu) * part.abs().sum(-1)
    return torch.stack((torch.where(noise, rest, inside), torch.where(free, p.weight**2, 0).sum(-1), fixed))


def _search(p: Problem, settled: Tensor) -> tuple[Tensor, Tensor]:
    total, tau, settled, mu, width = (t.squeeze(-1) for t in (p.total, p.tau, settled, *p.start()))
    ends = torch.full_like(mu, torch.inf)
    begin, look = Start(mu, -ends, ends, width), 1 if p.ratio.device.type == "cpu" else 8
    sums = partial(_sums, p)
    found = search(torch, sums, total, tau, begin, 0.0, _STEPS, settled=settled, two_parts=True, look_every=look)
    mu, low = found.mu.unsqueeze(-1), found.low.unsqueeze(-1)
    t = torch.where(found.exact.unsqueeze(-1), p.place(mu, low), p.between(mu)[0])
    free = torch.where((t > p.lower) & (t < p.upper), p.weight**2, 0).sum(-1, keepdim=True)
    bulk = (p.weight * p.clip(t)).abs().sum(-1, keepdim=True)
    room = p.weight * torch.where(free > 0, _rounding(mu) / 2 * bulk / free.clamp(min=1e-300), 0)
    return p.snap(t, room), mu + low
