"""The box section by torch operations: for devices without a kernel, and as the kernel's second witness."""

from typing import NamedTuple

import torch
from torch import Tensor

from hypersimplex import _checks
from hypersimplex._search import Start, search
from hypersimplex.torch._boundary import widest

_STEPS = 200
_ROUNDING = 2e-15  # of sum(weight * |y|), in a sum


class _Problem(NamedTuple):
    """Slices along the last dim, in the widest dtype; total and tau with a size of 1 there."""

    x: Tensor
    total: Tensor
    lower: Tensor
    upper: Tensor
    weight: Tensor
    tau: Tensor

    def place(self, mu: Tensor, low: Tensor | float = 0.0) -> Tensor:
        return ((self.x - mu * self.weight) - low * self.weight) / self.tau

    def sums(self, mu: Tensor, low: Tensor, error: Tensor) -> Tensor:
        """What `search` asks for: the free entries' sum, their squared weights, and the sum of those at a bound."""
        t = self.place(mu.unsqueeze(-1), low.unsqueeze(-1))
        free, part = (t > self.lower) & (t < self.upper), self.weight * _clip(t, self.lower, self.upper)
        fixed, inside = torch.where(free, 0, part).sum(-1), torch.where(free, part, 0).sum(-1)
        rest = self.total.squeeze(-1) - fixed
        noise = (inside - rest).abs() <= _rounding(mu) * part.abs().sum(-1)
        return torch.stack((torch.where(noise, rest, inside), torch.where(free, self.weight**2, 0).sum(-1), fixed))


def box(
    x: Tensor, total: Tensor, lower: Tensor, upper: Tensor, weight: Tensor, tau: Tensor, at_most: bool
) -> tuple[Tensor, Tensor]:
    wide, slices = widest(x.device), x.shape[:-1]
    total, tau = (t.expand(slices).unsqueeze(-1) for t in (total, tau))
    lower, upper, weight = (t.expand(x.shape) for t in (lower, upper, weight))
    p = _Problem(x.to(wide), total, lower, upper, weight, tau)
    masked, certain = x == -torch.inf, x == torch.inf
    least = _sum(weight * lower)
    most = _sum(weight * torch.where(masked, lower, upper))
    size = _sum(_size(weight * lower) + _size(weight * upper))
    _check(
        p,
        least,
        most,
        4 * torch.finfo(torch.float64 if x.dtype == torch.float64 else torch.float32).eps * size,
        at_most,
    )
    if x.numel() == 0 or x.is_meta:
        return torch.empty_like(x), torch.zeros(slices, dtype=wide, device=x.device)

    # More entries at +inf than there is budget: they share it as equals would.
    crowded = certain.any(-1, keepdim=True) & (least + _sum(torch.where(certain, weight * (upper - lower), 0)) > total)
    p = p._replace(x=torch.where(crowded, torch.where(certain, 0, -torch.inf), p.x).to(wide))
    free = _sum(weight * _clip(p.place(torch.zeros_like(total)), lower, upper))
    slack = ~crowded & (free <= total) if at_most else torch.zeros_like(crowded)
    rounding = _rounding(total) / 2 * size
    bottom, top = ~slack & (total <= least + rounding), ~slack & (total >= most - rounding)
    mu, y = _solve(p._replace(total=torch.where(slack | bottom | top, free, total)))
    mu = torch.where(slack, 0, mu)
    y = torch.where(slack, _clip(p.place(mu), lower, upper), y)
    mu = torch.where(crowded, torch.inf, mu)
    y = torch.where(bottom, lower, torch.where(top, torch.where(p.x == -torch.inf, lower, upper), y))
    good = ~torch.isnan(x).any(-1, keepdim=True) & (tau > 0) & torch.isfinite(tau) & (total >= least - rounding)
    good = good & (at_most | (total <= most + 4 * torch.finfo(torch.float32).eps * size))
    return torch.where(good, y, torch.nan).to(x.dtype), torch.where(good, mu, torch.nan).squeeze(-1)


def _solve(p: _Problem) -> tuple[Tensor, Tensor]:
    finite = torch.isfinite(p.x)
    x = torch.where(finite, p.x, 0)
    squares = _sum(torch.where(finite, p.weight**2, 0)).clamp(min=torch.finfo(x.dtype).tiny)
    mean = _sum(p.weight * x) / squares
    spread = torch.where(finite, x - mean * p.weight, 0).square().sum(-1, keepdim=True) / squares
    start = torch.nan_to_num(mean - p.tau * p.total / squares, nan=0.0)
    ends = torch.full_like(start, torch.inf).squeeze(-1)
    begin = Start(start.squeeze(-1), -ends, ends, (p.tau + torch.nan_to_num(spread).sqrt() / 4).squeeze(-1))
    look = 1 if p.x.device.type == "cpu" else 8
    found = search(
        torch, p.sums, p.total.squeeze(-1), p.tau.squeeze(-1), begin, 0.0, _STEPS, two_parts=True, look_every=look
    )
    mu, low = found.mu.unsqueeze(-1), found.low.unsqueeze(-1)
    t = torch.where(found.exact.unsqueeze(-1), p.place(mu, low), _between(p, mu))
    # What rounding keeps from a bound is put there: an entry that is not free must not look so.
    eps, part = 4 * torch.finfo(t.dtype).eps, p.weight * _clip(t, p.lower, p.upper)
    free = _sum(torch.where((t > p.lower) & (t < p.upper), p.weight**2, 0))
    room = p.weight * torch.where(free > 0, _rounding(mu) / 2 * _sum(part.abs()) / free.clamp(min=1e-300), 0)
    t = torch.where(t >= p.upper - (eps * _size(p.upper) + room), p.upper, t)
    t = torch.where(t <= p.lower + (eps * _size(p.lower) + room), p.lower, t)
    return mu + low, _clip(t, p.lower, p.upper)


def _between(p: _Problem, mu: Tensor) -> Tensor:
    """Where the sum steps over the total from one number to the next: as much of either side as makes the total."""
    ends = torch.full_like(mu, torch.inf)
    more, less = (_clip(p.place(torch.nextafter(mu, end)), p.lower, p.upper) for end in (-ends, ends))
    most, least = _sum(p.weight * more), _sum(p.weight * less)
    share = torch.where(most > least, (p.total - least) / (most - least), 0).clamp(0, 1)
    return torch.where(more == less, more, less + share * (more - less))


def _rounding(like: Tensor) -> float:
    return _ROUNDING if like.dtype == torch.float64 else 1e-6


def _clip(t: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    return torch.minimum(torch.maximum(t, lower), upper)


def _sum(t: Tensor) -> Tensor:
    return t.sum(-1, keepdim=True)


def _size(t: Tensor) -> Tensor:
    return torch.where(torch.isfinite(t), t.abs(), 0)


def _check(p: _Problem, least: Tensor, most: Tensor, room: Tensor, at_most: bool) -> None:
    """The kernel's checks, where the values can be read without waiting for a device."""
    if p.x.device.type != "cpu":
        return
    n = max(p.x.shape[-1], 1)
    broken = torch.isnan(p.x).any(-1, keepdim=True)
    enough = at_most | broken | (p.total <= most + room)
    wrong = {
        "tau": ~((p.tau > 0) & torch.isfinite(p.tau)),
        "weight": ~((p.weight > 0) & torch.isfinite(p.weight)),
        "bounds": ~(p.lower <= p.upper),
        "total": ~((p.total >= least - room) & enough),
    }
    shape = (p.total.numel(), p.x.shape[-1])
    rows = [t.reshape(shape).numpy() for t in (p.lower, p.upper, p.weight)]
    for what, bad in wrong.items():
        if bad.any():
            at = int(bad.flatten().nonzero()[0])
            row, entry = divmod(at, n) if what in ("weight", "bounds") else (at, 0)
            x = p.x.reshape(shape).numpy()
            each = (p.total.flatten().numpy(), p.tau.flatten().numpy())
            _checks.raise_box_failure((what, row, entry), x, at_most, *each, *rows)
