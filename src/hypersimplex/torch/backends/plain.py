"""Torch operations alone: for devices without a kernel, and as the kernel's second witness.

No sort and no data-dependent shape. The ceil(k)-th largest entry of a slice, its edge, is found bit by bit. Unless the
slice is saturated the edge has 0 < y < 1, so mu is less than tau below it: measured from there, in units of tau, what
is more than 1 away is 0 or 1 for certain, infinities included, and everything else keeps its digits.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from hypersimplex import _checks, _formulas
from hypersimplex._search import Start, middle, search
from hypersimplex._solve import Slices, loop, solve
from hypersimplex.torch import _columns
from hypersimplex.torch._batch import Batch, Number, Outcome, Settings
from hypersimplex.torch._boundary import as_numbers, computed, is_captured, slices, widest
from hypersimplex.torch.backends.plain_box import box as box


def project(
    x: Tensor,
    k: Number,
    tau: Number,
    dim: int,
    *,
    want_y: bool = True,
    want_mu: bool = True,
    curve: str = "ramp",
) -> tuple[Tensor, Tensor]:
    _checks.check_numbers(k, tau, x.shape[dim], f"dim {dim}")
    k, tau = _each(k, x, dim), _each(tau, x, dim)
    _check(x, k, tau, dim)
    if x.numel() == 0 or x.is_meta:
        return torch.empty_like(x), torch.zeros(slices(x, dim), dtype=k.dtype, device=x.device)
    rows = x.to(computed(x.dtype)).movedim(dim, -1)
    y, mu = _solve(rows, k, tau) if curve == "ramp" else _solve_curve(curve, rows, k, tau)
    return y.movedim(-1, dim).to(x.dtype), mu


def binary(x: Tensor, k: Number, dim: int) -> Tensor:
    k = _each(k, x, dim)
    _check(x, k, torch.ones_like(k), dim, whole=True)
    if x.numel() == 0:
        return torch.empty_like(x)
    return _choose(x.to(computed(x.dtype)).movedim(dim, -1), k).movedim(-1, dim).to(x.dtype)


def segments(
    x: Tensor,
    offsets: Tensor,
    k: Tensor,
    tau: Tensor,
    project: Callable[..., Any] = project,
    *,
    curve: str = "ramp",
) -> Tensor:
    """As rows padded with -inf, by a backend's `project`: for those without a loop over rows of different lengths."""
    sizes = offsets.diff()
    k, tau = k.expand(sizes.shape), tau.expand(sizes.shape)
    # Offsets are worth waiting for a device: nothing is read beyond x.
    _checks.check_segments(offsets.cpu().numpy(), x.numel(), k.numpy() if x.device.type == "cpu" else None)
    if not x.numel():
        return torch.empty_like(x)
    inside = torch.arange(int(sizes.max()), device=x.device) < sizes.unsqueeze(1)
    rows = torch.full(inside.shape, -torch.inf, dtype=x.dtype, device=x.device)
    rows[inside] = x
    y: Tensor = project(rows, k, tau, -1, want_mu=False, curve=curve)[0]
    return y[inside]


def pullback(
    y: Tensor,
    v: Tensor,
    tau: Number,
    dim: int,
    needs: tuple[bool, ...] = (True, True, True),
    *,
    curve: str = "ramp",
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Can be differentiated again."""
    wide = computed(v.dtype)
    each = tau.unsqueeze(dim) if isinstance(tau, Tensor) and tau.dim() else tau

    def total(terms: Tensor) -> Tensor:
        return terms.sum(dim, keepdim=True)

    to_x, to_k, to_tau = _formulas.pullback(torch, curve, y.to(wide), v.to(wide), each, total)
    found = (to_x.to(v.dtype), to_k.squeeze(dim), to_tau.squeeze(dim))
    return found[0] if needs[0] else None, found[1] if needs[1] else None, found[2] if needs[2] else None


def loss(batch: Batch, settings: Settings, with_gradient: bool) -> Outcome:
    outcome, p, pull, tau, weight, by = _columns.compose(batch, settings, project)
    if not with_gradient:
        return outcome
    if weight is not None:
        pull = weight.to(p.dtype).unsqueeze(1) * pull
    if settings.reduction == "mean":
        by = as_numbers(by, widest(p.device), p.device)
        pull = (pull / torch.where(by == 0, 1, by)).to(p.dtype)
    to_x = pullback(p, pull, tau, 1)[0]
    assert to_x is not None
    samples, classes, *rest = batch.logits.shape
    return outcome._replace(gradient=to_x.reshape(classes, samples, *rest).transpose(0, 1))


def prepare(batch: Batch) -> Batch:
    return batch


def sums(batch: Batch, ignore_index: int, tau: Tensor, mu: Tensor, low: Tensor) -> Tensor:
    t, p, e = _errors(batch, ignore_index, tau, mu, low)
    ones, active = t >= 1, (t > 0) & (t < 1)
    rows = (torch.where(active, p, 0), active, ones, torch.where(active, e, 0), e.square())
    return torch.stack([torch.where(mu.isnan(), 0, row.sum(1, dtype=mu.dtype)) for row in rows])


def gradient(
    batch: Batch, ignore_index: int, tau: Tensor, mu: Tensor, low: Tensor, mean: Tensor, factor: Tensor
) -> Tensor:
    t, p, e = _errors(batch, ignore_index, tau, mu, low)
    scale = (factor / tau).to(p.dtype).unsqueeze(1)
    grad = torch.where((t > 0) & (t < 1), (e - mean.to(p.dtype).unsqueeze(1)) * scale, 0)
    samples, classes, *rest = batch.logits.shape
    return grad.reshape(classes, samples, *rest).transpose(0, 1)


def _errors(batch: Batch, ignore_index: int, tau: Tensor, mu: Tensor, low: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(x - mu)/tau, the projection, and its errors; an ignored entry is 0 everywhere."""
    c = _columns.columns(batch, ignore_index)
    t = over_threshold(c.logits, mu, low, tau)
    if c.kept is not None:  # -inf less -inf is NaN
        t = torch.where(c.kept, t, -torch.inf)
    p = t.clamp(0, 1)
    return t, p, c.errors(p)


def over_threshold(x: Tensor, mu: Tensor, low: Tensor, tau: Tensor) -> Tensor:
    """(x - mu - low)/tau for slices along the last of two dims, with all digits."""
    high = mu.to(x.dtype)
    rest = torch.where(mu.isfinite(), (mu - high.to(mu.dtype)) + low, 0).to(high.dtype)
    return ((x - high.unsqueeze(1)) - rest.unsqueeze(1)) / tau.to(high.dtype).unsqueeze(1)


def _each(value: Number, x: Tensor, dim: int) -> Tensor:
    return as_numbers(value, widest(x.device), x.device).expand(slices(x, dim))


def _check(x: Tensor, k: Tensor, tau: Tensor, dim: int, whole: bool = False) -> None:
    """The kernel's checks, where the values can be read without waiting for a device."""
    if x.device.type != "cpu":
        return
    usable = (x != -torch.inf).sum(dim).flatten()
    check_values(k.flatten(), tau.flatten(), x.shape[dim], usable, torch.isnan(x).any(dim).flatten(), dim, whole)


def check_values(k: Tensor, tau: Tensor, n: int, usable: Tensor, nan: Tensor, dim: int, whole: bool) -> None:
    """Raise the error of the first bad slice: of n entries, so many of them usable, and whether one is NaN."""
    wrong = {
        "tau": ~((tau > 0) & torch.isfinite(tau)),
        "k": ~((k >= 0) & (k <= n)) | (whole & (k != k.floor())),
        "masked": (k > usable) & ~nan,
    }
    for what, bad in wrong.items():
        if bad.any():
            at = int(bad.nonzero()[0])
            _checks.raise_failure((what, at, int(usable[at])), k, tau, n, f"dim {dim}")


def _solve(x: Tensor, k: Tensor, tau: Tensor) -> tuple[Tensor, Tensor]:
    """Return y and mu for slices along the last dim; k and tau have the slices' shape. A bad slice is NaN."""
    wide = widest(x.device)
    k, tau = k.to(wide).unsqueeze(-1), tau.to(wide).unsqueeze(-1)
    edge = torch.where(k > 0, _largest(x, k.ceil()).to(wide), torch.inf)
    dtype, x = x.dtype, x.to(wide)
    below = torch.where(x < edge, x, -torch.inf).amax(-1, keepdim=True)
    flat = (k == k.floor()) & (_count(x >= edge) <= k) & (edge - below >= tau)

    z = ((x - edge) / tau).clamp(-1, 1)
    nu = _search(z, k)
    y = torch.where(flat, (x >= edge).to(wide), (z - nu).clamp(0, 1))
    mu = torch.where(flat, middle(torch, below, edge, tau), edge + nu * tau)

    above = _count(x == torch.inf)
    share = k / above.clamp(min=1)
    y = torch.where(above > k, torch.where(x == torch.inf, share, 0), y)
    mu = torch.where(above > k, torch.inf, mu)
    good = (k >= 0) & (k <= _count(x > -torch.inf)) & (tau > 0) & torch.isfinite(tau) & ~_count(torch.isnan(x)).bool()
    return torch.where(good, y, torch.nan).to(dtype), torch.where(good, mu, torch.nan).squeeze(-1)


def _solve_curve(curve: str, x: Tensor, k: Tensor, tau: Tensor) -> tuple[Tensor, Tensor]:
    """The same for another curve than the ramp."""
    wide = widest(x.device)

    def largest(_: Tensor, place: Tensor) -> Tensor:
        return _largest(x, place).to(wide)

    find = loop(add, torch.finfo(wide).eps, look_every=4)
    slices = Slices(add, lambda entries: entries.amax(-1, keepdim=True), largest, find)
    y, mu = solve(torch, curve, x.to(wide), k.to(wide).unsqueeze(-1), tau.to(wide).unsqueeze(-1), slices)
    return y.to(x.dtype), mu.squeeze(-1)


def add(terms: Tensor) -> Tensor:
    return terms.sum(-1, keepdim=True)


def _choose(x: Tensor, k: Tensor) -> Tensor:
    """Exactly k ones along the last dim, ties to the lower index. A slice with a NaN is NaN."""
    k, key = k.unsqueeze(-1), order(x)
    edge = kth_largest(key, k)[0]
    y = at_least(key, edge, k - _count(key > edge)) & (k > 0)
    return torch.where(_count(torch.isnan(x)) > 0, torch.nan, y.to(x.dtype))


def at_least(key: Tensor, edge: Tensor, ties: Tensor) -> Tensor:
    """Which keys are above the edge, or among the first so many that are equal to it."""
    equal = key == edge
    return (key > edge) | (equal & (equal.cumsum(-1) <= ties))


def _count(mask: Tensor) -> Tensor:
    return mask.sum(-1, keepdim=True)


def _largest(x: Tensor, k: Tensor) -> Tensor:
    """The k-th largest entry."""
    return _turn_negatives(kth_largest(order(x), k)[0]).view(x.dtype)


def order(x: Tensor) -> Tensor:
    """Whole numbers in the order of the floats: their bits."""
    integer = torch.int64 if x.dtype == torch.float64 else torch.int32
    return _turn_negatives((x + 0.0).contiguous().view(integer))  # + 0.0 makes -0.0 and 0.0 one number


def kth_largest(
    key: Tensor, k: Tensor, total: Callable[[Tensor], Tensor] | None = None, digit: int = 1
) -> tuple[Tensor, Tensor]:
    """The k-th largest key along the last dim, found `digit` bits at a time, and how many are at least as large.

    `total` adds up the counts of all ranks. With it the key may lie anywhere above the next smaller one: where
    exactly k keys are at least as large, nothing more is asked.
    """
    info = torch.iinfo(key.dtype)
    k = k.to(torch.int64).clamp(min=1)
    found = torch.full(k.shape, info.min, dtype=key.dtype, device=key.device)
    count = torch.full_like(k, key.shape[-1])
    for shift in range(info.bits - digit, -1, -digit):
        # The bits of the smallest number with the next digit in place of its zeros; of a signed number the first is 1.
        steps = [(d << shift) - (d >> (digit - 1) << info.bits if shift == info.bits - digit else 0)
                 for d in range(1, 1 << digit)]  # fmt: skip
        counts = torch.stack([_count(key >= (found ^ step)) for step in steps])
        counts = counts if total is None else total(counts)
        start = found
        for step, enough in zip(steps, counts, strict=True):
            found = torch.where(enough >= k, start ^ step, found)
            count = torch.where(enough >= k, enough, count)
        if total is not None and bool((count == k).all()):
            break
    return found, count


def _turn_negatives(key: Tensor) -> Tensor:
    return torch.where(key < 0, key ^ torch.iinfo(key.dtype).max, key)


def _search(z: Tensor, k: Tensor) -> Tensor:
    """Solve sum(clip(z - nu, 0, 1)) = k for nu between -1 and 0."""

    def sums(nu: Tensor, low: Tensor, error: Tensor) -> tuple[Tensor, ...]:
        t = z - nu
        active = (t > 0) & (t < 1)
        return torch.where(active, t, 0).sum(-1, keepdim=True), _count(active), _count(t >= 1)

    lo, hi = -torch.ones_like(k), torch.zeros_like(k)
    tolerance = 2 * torch.finfo(z.dtype).eps
    look_every = 65 if is_captured(z) else 4  # a graph cannot wait for an answer
    nu: Tensor = search(torch, sums, k, 1.0, Start(lo / 2, lo, hi), tolerance, 64, look_every=look_every).mu
    return nu
