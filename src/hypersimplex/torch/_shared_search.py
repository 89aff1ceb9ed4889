"""The thresholds of a batch that lies on many ranks, found together.

Every rank first solves its own samples with its share of k. The sums over a rank's samples decrease in mu, so the
threshold of all samples lies between the smallest and the largest of the ranks' own: a bracket for one exchange. Then
all ranks take the same Newton steps; at each one five numbers for a class are summed over the ranks: the active
projections, how many are active, the ones, the errors of the active, and the squared errors. The last step's sums are
the loss, and all that the gradient needs from other ranks.
"""

from typing import Any

import torch
from torch import Tensor

from hypersimplex.torch import _batch
from hypersimplex.torch._batch import Batch, Outcome, Settings, result_dtype
from hypersimplex.torch._ranks import Agreement, Ranks, refuse_second_order
from hypersimplex.torch._shares import Share, share_of

MOST_STEPS = 24


def compute(input: Tensor, batch: Batch, settings: Settings, ranks: Ranks, agreed: Agreement) -> Outcome | None:
    """The loss with a gradient to input, or None if the search does not settle (on all ranks alike)."""
    with torch.no_grad():
        device, n = batch.logits.device, agreed.samples
        tau = _batch.per_class("tau", settings.tau, batch.classes, device).detach().contiguous()
        share = share_of(batch, settings.ignore_index, tau)
        given = settings.k is not None or settings.prior is not None
        counts = tau if given else ranks.sum(share.counts())
        k = _batch.wanted(settings, counts, n).detach().contiguous()
        _batch.check_numbers(k, tau, n)  # the same on every rank: all of them raise, or none
        found = _search(share, k, tau, ranks, agreed)
        if found is None:
            return None
        mu, low, sums, threshold = found
        weight = _batch.per_class("weight", 1.0 if settings.weight is None else settings.weight, batch.classes, device)
        total = (weight * sums[4]).sum() / 2
        scale = 1 / n if settings.reduction == "mean" else 1.0
        value = (total * scale).to(result_dtype(batch.logits))
    if torch.is_grad_enabled() and input.requires_grad:
        mean = sums[3] / sums[1].clamp(min=1)
        grad = share.gradient(mu, low, mean, weight.detach().contiguous(), ranks.size * scale)
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


def _search(
    share: Share, k: Tensor, tau: Tensor, ranks: Ranks, agreed: Agreement
) -> tuple[Tensor, Tensor, Tensor, Tensor] | None:
    """mu, low, the sums there, and the thresholds to report; mu + low solves, with more digits than mu alone."""
    n, eps = agreed.samples, torch.finfo(share.dtype).eps
    own = share.solve((k * agreed.kept[ranks.rank] / n).clamp(max=agreed.kept[ranks.rank]))
    ends = ranks.maximum(torch.stack((own, -own)) if own is not None else torch.full((2, *k.shape), -torch.inf).to(k))
    hi, lo = ends[0], -ends[1]
    nothing, everything = k == 0, k == n
    edge = torch.where(nothing, hi, lo)  # the largest entry; the smallest less tau
    # A rank's own threshold is as exact as its precision allows.
    slack = 1e-3 * tau + 4 * eps * torch.maximum(lo.abs(), hi.abs())
    lo, hi = lo - slack, hi + slack
    mu, low = lo + (hi - lo) / 2, torch.zeros_like(k)
    mu = torch.where(nothing, torch.inf, torch.where(everything, -torch.inf, mu))
    sums = torch.empty((5, k.shape[0]), dtype=k.dtype, device=k.device)
    settled = torch.zeros_like(nothing)
    for number in range(MOST_STEPS):
        # Few classes need more than three steps; the others are neither looked at again nor sent.
        sums[:, ~settled] = ranks.sum(share.sums(torch.where(settled, torch.nan, mu), low)[:, ~settled])
        active_sum, active, ones = sums[0], sums[1], sums[2]
        r = active_sum - (k - ones)
        settled |= r.abs() <= (2e-15 if share.dtype == torch.float64 else 2e-7) * active + 1e-16 * k
        if bool(settled.all()):
            flat = _is_flat(active_sum, active, k) & ~nothing & ~everything
            threshold = torch.where(nothing | everything, edge, mu + low)
            if bool(flat.any()):
                at = flat.nonzero().squeeze(1)
                threshold[at] = _middle(share, mu, tau, at, ranks)
            return mu, low, sums, threshold
        up = r > 0
        lo, hi = torch.where(up, mu, lo), torch.where(up, hi, mu)
        step = low + r * tau / active
        newton = mu + step
        # A step to an end of the bracket would go back and forth; steps from one side only would take for ever.
        use = (active > 0) & (newton > lo) & (newton < hi) & (number < 8 or number % 2 == 0)
        back = newton - mu
        rest = (mu - (newton - back)) + (step - back)
        low = torch.where(settled, low, torch.where(use, rest, 0))
        mu = torch.where(settled, mu, torch.where(use, newton, lo + (hi - lo) / 2))
    return None


def _is_flat(active_sum: Tensor, active: Tensor, k: Tensor) -> Tensor:
    """No entry is active but for rounding."""
    return (active == 0) | ((k == k.floor()) & ((active_sum < 0.5) | (active - active_sum < 0.5)))


def _middle(share: Share, mu: Tensor, tau: Tensor, at: Tensor, ranks: Ranks) -> Tensor:
    """Between the largest entry that is 0 and the smallest that is 1 every mu will do: the middle."""
    ends = ranks.maximum(share.gap(mu, at))
    zero, one = ends[0], -ends[1]
    return zero + ((one - zero) - tau[at]) / 2
