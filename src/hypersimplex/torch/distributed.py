"""The loss of a batch that lies on many ranks: value and gradient are those of one process with the joined batch.

The loss couples all samples of the batch, so the mean of the ranks' own losses is another loss. Two ways are exact:

    gather    every rank receives all logits and computes the whole loss. Small batches, and every odd case.
    search    every rank keeps its samples; the ranks look for the thresholds together, five numbers for each class and
              step travel. Large batches; see _rank_search.py.

Which one is taken depends on numbers all ranks know. The backward pass exchanges nothing, except with reduction="none".

What a rank's gradient is. Data-parallel training averages the ranks' gradients, so the gradient of a rank's own logits
comes multiplied by the number of ranks: the average is then the gradient of the joined batch. Without DDP or FSDP,
average the parameters' gradients over the ranks yourself. Gradients to weight, k, prior and tau are whole on each rank.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from hypersimplex.torch import _own_loss, _rank_search
from hypersimplex.torch._agreement import Agreement, Check, agree
from hypersimplex.torch._batch import Batch, Outcome, Settings
from hypersimplex.torch._ranks import Ranks, members, refuse_second_order, second_order

# Joined logits up to this size are gathered: see docs/large-batches.md for the measurements.
GATHER_BYTES = 4 << 20

_forced: str | None = None


@contextmanager
def forced(way: str) -> Iterator[None]:
    """Take "gather" or "search" whatever the size; for tests and measurements, on all ranks alike."""
    global _forced
    before, _forced = _forced, way
    try:
        yield
    finally:
        _forced = before


def compute(input: Tensor, target: Tensor, settings: Settings, group: Any, check: Check | None = None) -> Outcome:
    """The loss of all ranks' samples, on every rank; with reduction="none" the losses of this rank's samples.

    `check` is a module's own: what it raises on one rank all ranks must know.
    """
    ranks = members(group, input)
    batch, settings, agreed = agree(ranks, input, target, settings, check)
    outcome = _rank_search.compute(input, batch, settings, ranks, agreed) if _searches(batch, agreed) else None
    if outcome is None:
        outcome = _gathered(batch, settings, ranks, agreed)
    return outcome._replace(multilabel=agreed.multilabel)


def _searches(batch: Batch, agreed: Agreement) -> bool:
    if agreed.composed or not agreed.finite or agreed.samples == 0 or batch.classes == 0:
        return False
    if _forced is not None:
        return _forced == "search"
    return sum(agreed.rows) * batch.classes * batch.logits.element_size() > GATHER_BYTES


def _gathered(batch: Batch, settings: Settings, ranks: Ranks, agreed: Agreement) -> Outcome:
    rows, rank = agreed.rows, ranks.rank
    own, target, dense, _ = batch.rows()
    logits, targets = ranks.gather(own, rows), ranks.gather(target, rows)
    logits[rank] = scaled(own, ranks.size)
    if dense:
        targets[rank] = scaled(target, ranks.size)
    outcome = _own_loss.compute(torch.cat(logits), torch.cat(targets), settings)
    if settings.reduction != "none":
        return outcome
    losses = _own(outcome.loss, ranks, rows).reshape(batch.shape)
    return outcome._replace(loss=losses)


class _Scaled(torch.autograd.Function):
    """The same tensor; its gradient times a number."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, size: float) -> Tensor:
        ctx.size = size
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        refuse_second_order()
        return grad * ctx.size, None


scaled: Any = _Scaled.apply


class _Own(torch.autograd.Function):
    """One's own rows of what all ranks computed. The gradient is that of the average of the ranks' objectives."""

    @staticmethod
    def forward(ctx: Any, losses: Tensor, ranks: Ranks, rows: list[int]) -> Tensor:
        ctx.ranks, ctx.rows = ranks, rows
        first = sum(rows[: ranks.rank])
        return losses[first : first + rows[ranks.rank]].clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        refused = torch.is_grad_enabled()
        more = torch.cat((grad.detach(), grad.new_full((1,), refused)))
        parts = ctx.ranks.gather(more, [count + 1 for count in ctx.rows])
        if refused or any(bool(part[-1]) for part in parts):  # all ranks raise, or none
            raise second_order()
        return torch.cat([part[:-1] for part in parts]) / ctx.ranks.size, None, None


_own: Any = _Own.apply
