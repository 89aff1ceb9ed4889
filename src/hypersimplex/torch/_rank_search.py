"""The thresholds of slices that lie on many ranks, found together; and the loss of a batch, whose slices are classes.

Every rank first solves its own entries with its part of k. The sums over a rank's entries decrease in mu, so the
threshold of all entries lies between the smallest and the largest of the ranks' own: a bracket for one exchange. Then
all ranks take the same Newton steps; at each one a few numbers per slice are summed over the ranks: the active
projections, how many are active, the ones, and for a loss the errors of the active and the squared errors. The last
step's sums are the loss, and all that the gradient needs from other ranks.
"""

from typing import Any, Protocol

import torch
from torch import Tensor

from hypersimplex._search import ACTIVE, ACTIVE_SUM, Found, Start, is_flat, middle, search
from hypersimplex.torch import _batch, _columns
from hypersimplex.torch._agreement import Agreement
from hypersimplex.torch._batch import Batch, Outcome, Settings, result_dtype
from hypersimplex.torch._boundary import computed
from hypersimplex.torch._ranks import Ranks, refuse_second_order
from hypersimplex.torch.backends import pick

MOST_STEPS = 24
ERRORS, SQUARES = 3, 4  # rows of sums, behind those of the search


def compute(input: Tensor, batch: Batch, settings: Settings, ranks: Ranks, agreed: Agreement) -> Outcome | None:
    """The loss with a gradient to input, or None if the search does not settle (on all ranks alike)."""
    with torch.no_grad():
        device, n = batch.logits.device, agreed.samples
        tau = _batch.per_class("tau", settings.tau, batch.classes, device).detach().contiguous()
        part = Part(batch, settings.ignore_index, tau)
        given = settings.k is not None or settings.prior is not None
        by_weight = settings.weight is not None and not batch.dense and settings.reduction == "mean"
        counts = tau if given and not by_weight else ranks.sum(part.counts())
        k = _columns.wanted(settings, counts, n).detach().contiguous()
        _batch.check_numbers(k, tau, n)  # the same on every rank: all of them raise, or none
        searched = _search(part, k, tau, ranks, agreed)
        if searched is None:
            return None
        found, threshold = searched
        weight = _batch.per_class("weight", 1.0 if settings.weight is None else settings.weight, batch.classes, device)
        total = (weight * found.sums[SQUARES]).sum() / 2
        by = float(_columns.divisor(weight, counts if by_weight else None, n)) or torch.nan
        scale = 1 / by if settings.reduction == "mean" else 1.0
        value = (total * scale).to(result_dtype(batch.logits))
    if torch.is_grad_enabled() and input.requires_grad:
        grad = part.gradient(found, weight.detach() * (ranks.size * scale))
        apply: Any = _Loss.apply
        value = apply(input, value, grad)
    return Outcome(value, torch.stack((threshold, k)), n)


class _Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, input: Tensor, value: Tensor, grad: Tensor) -> Tensor:
        ctx.grad = grad.to(input.dtype).reshape(input.shape)
        return value.clone()

    @staticmethod
    def backward(ctx: Any, v: Tensor) -> tuple[Tensor, None, None]:
        refuse_second_order()
        return (ctx.grad * v).to(ctx.grad.dtype), None, None


class Part:
    """One rank's samples."""

    def __init__(self, batch: Batch, ignore_index: int, tau: Tensor) -> None:
        self.backend, self.tau, self.ignored = pick(batch.logits), tau, ignore_index
        detached = batch._replace(logits=batch.logits.detach(), target=batch.target.detach())
        self.batch = self.backend.prepare(detached)
        self.dtype = computed(batch.logits.dtype)
        self.kept = None if batch.dense else (batch.target != ignore_index).reshape(-1)

    def counts(self) -> Tensor:
        """The sum of every class's targets."""
        target = self.batch.target
        if self.kept is None:
            return target.sum([d for d in range(target.dim()) if d != 1], dtype=torch.float64)
        return _columns.count(torch.where(self.kept, target.reshape(-1), 0), self.kept, self.batch.classes)

    def solve(self, k: Tensor) -> Tensor | None:
        """The thresholds of this rank's samples alone, or None without samples."""
        if self.batch.logits.numel() == 0 or (self.kept is not None and not bool(self.kept.any())):
            return None
        return self.backend.loss(self.batch, Settings(None, self.ignored, "sum", k, None, self.tau), False).mu_and_k[0]

    def sums(self, mu: Tensor, low: Tensor, error: Tensor) -> Tensor:
        return self.backend.sums(self.batch, self.ignored, self.tau, mu, low)

    def gradient(self, found: Found, factor: Tensor) -> Tensor:
        mean = found.sums[ERRORS] / found.sums[ACTIVE].clamp(min=1)
        return self.backend.gradient(self.batch, self.ignored, self.tau, found.mu, found.low, mean, factor)

    def gap(self, mu: Tensor, at: Tensor) -> Tensor:
        x = self.batch.logits[:, at].movedim(1, 0).flatten(1).to(self.dtype)
        return gap(x, mu[at], self.tau[at], False if self.kept is None else ~self.kept)


class Entries(Protocol):
    """One rank's entries of all slices."""

    dtype: torch.dtype  # that they are computed in

    def solve(self, k: Tensor) -> Tensor | None:
        """The thresholds of these entries alone, NaN for a slice without any; None if no slice has any."""

    def sums(self, mu: Tensor, low: Tensor, error: Tensor) -> Tensor:
        """Rows of sums at the thresholds mu + low, as `search` asks for them."""

    def gap(self, mu: Tensor, at: Tensor) -> Tensor:
        """The largest entry that is 0 at mu, and minus the smallest that is 1, of the slices `at`."""


def gap(x: Tensor, mu: Tensor, tau: Tensor, lost: Tensor | bool) -> Tensor:
    """`Entries.gap` for slices along the last dim of x; lost entries have no part in it."""
    above = x - mu[:, None] > tau[:, None] / 2
    # A rank without entries has no largest one.
    none = x.new_full((len(x), 1), -torch.inf)
    ends = (torch.where(above | lost, -torch.inf, x), torch.where(~above | lost, -torch.inf, -x))
    return torch.stack([torch.cat((end, none), 1).amax(1).to(torch.float64) for end in ends])


def find(
    part: Entries, k: Tensor, tau: Tensor, ranks: Ranks, n: Tensor | int, own: Tensor | int, most_steps: int,
    settled: Tensor | None = None,
) -> tuple[Found, Tensor]:  # fmt: skip
    """The solution, and the largest entry of slices with k = 0, the smallest less tau of those with k = n.

    n is the number of entries of a slice, own that of this rank; settled slices are left as they are.
    """
    alone = part.solve((k * own / n).clamp(max=own))
    ends = torch.full((2, *k.shape), torch.nan).to(k) if alone is None else torch.stack((alone, -alone))
    ends = ranks.maximum(torch.where(ends.isnan(), -torch.inf, ends))
    hi, lo = ends[0], -ends[1]
    nothing, everything = k == 0, k == n
    edge = torch.where(nothing, hi, lo)
    # A rank's own threshold is as exact as its precision allows.
    slack = 1e-3 * tau + 4 * torch.finfo(part.dtype).eps * torch.maximum(lo.abs(), hi.abs())
    lo, hi = lo - slack, hi + slack
    mu = torch.where(nothing, torch.inf, torch.where(everything, -torch.inf, lo / 2 + hi / 2))
    tolerance = 2e-15 if part.dtype == torch.float64 else 2e-7
    found = search(
        torch, part.sums, k, tau, Start(mu, lo, hi), tolerance, most_steps,
        reduce=ranks.sum, settled=settled, two_parts=True,
    )  # fmt: skip
    return found, edge


def flat_slices(found: Found, k: Tensor, n: Tensor | int) -> Tensor:
    """Which slices have every entry at 0 or 1, some at each, so that an interval of thresholds would do."""
    # Counts are whole numbers, and so is the sum of the active entries where k is.
    whole = torch.where(k == k.floor(), 0.5, 0.0)
    flat: Tensor = is_flat(torch, found.sums[ACTIVE_SUM], found.sums[ACTIVE], whole) & (k != 0) & (k != n)
    return flat


def thresholds(
    part: Entries, found: Found, edge: Tensor, k: Tensor, tau: Tensor, ranks: Ranks, n: Tensor | int, flat: Tensor
) -> Tensor:
    """The thresholds to report: of an interval that would do, the middle, or the finite end."""
    threshold: Tensor = torch.where((k == 0) | (k == n), edge, found.mu + found.low)
    if bool(flat.any()):
        at = flat.nonzero().squeeze(1)
        zero, one = ranks.maximum(part.gap(found.mu, at))
        threshold[at] = middle(torch, zero, -one, tau[at])
    return threshold


def _search(part: Part, k: Tensor, tau: Tensor, ranks: Ranks, agreed: Agreement) -> tuple[Found, Tensor] | None:
    """The solution, and the thresholds to report."""
    n = agreed.samples
    found, edge = find(part, k, tau, ranks, n, agreed.kept[ranks.rank], MOST_STEPS)
    if not bool(found.exact.all()):
        return None
    return found, thresholds(part, found, edge, k, tau, ranks, n, flat_slices(found, k, n))
