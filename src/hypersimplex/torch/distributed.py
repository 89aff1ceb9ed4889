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

from hypersimplex import _checks
from hypersimplex.torch import _batch, _own_loss, _rank_search
from hypersimplex.torch._batch import Batch, Outcome, Settings
from hypersimplex.torch._boundary import has_memory, is_eager
from hypersimplex.torch._ranks import DTYPES, Agreement, Ranks, agree, describe, members, refuse_second_order

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


def compute(input: Tensor, target: Tensor, settings: Settings, group: Any) -> Outcome:
    """The loss of all ranks' samples, on every rank; with reduction="none" the losses of this rank's samples."""
    ranks = members(group, input)
    batch, told, error = None, None, None
    try:
        batch = _read(input, target, settings)
        composed = settings.reduction == "none" or settings.label_smoothing > 0 or _needs_more(batch, settings)
        told = describe(batch, target, settings, composed, ranks.device)
    except Exception as found:  # every failure must reach the other ranks before it is raised
        error = found
    agreed = agree(ranks, told, batch, settings, error)
    assert batch is not None
    outcome = _rank_search.compute(input, batch, settings, ranks, agreed) if _searches(batch, agreed) else None
    if outcome is None:
        outcome = _gathered(batch, settings, ranks, agreed)
    return outcome._replace(multilabel=agreed.multilabel)


def fail(error: Exception, input: Tensor, group: Any) -> None:
    """Raise the error, here and in the other ranks' `compute`."""
    agree(members(group, input), None, None, Settings(None, _batch.IGNORED, "mean", None, None, 1.0), error)


def _read(input: Tensor, target: Tensor, settings: Settings) -> Batch:
    if not is_eager():
        raise RuntimeError("group does not work under torch.compile, torch.func or forward mode")
    _batch.check(input, target, settings)
    for name, value in [("input", input), ("target", target), *settings._asdict().items()]:
        if isinstance(value, Tensor) and (value.layout != torch.strided or value.is_meta):
            raise _checks.no_values(name, f"layout {value.layout} on {value.device}")
        if isinstance(value, Tensor):
            has_memory(name, value)
    if input.is_floating_point() and input.dtype not in DTYPES:
        raise TypeError(f"input must be float16, bfloat16, float32 or float64, got {input.dtype}")
    batch = _batch.fit(input, target)
    if input.is_cpu and settings.prior is not None:
        _batch.check_prior(_batch.per_class("prior", settings.prior, batch.classes, input.device))
    if input.is_cpu and batch.dense:
        _batch.check_dense(batch.target)
    return batch


def _needs_more(batch: Batch, settings: Settings) -> bool:
    """Whether something besides the logits wants a gradient."""
    others = (settings.weight, settings.k, settings.prior, settings.tau, batch.target)
    return torch.is_grad_enabled() and any(isinstance(t, Tensor) and t.requires_grad for t in others)


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
        refuse_second_order()
        return torch.cat(ctx.ranks.gather(grad, ctx.rows)) / ctx.ranks.size, None, None


_own: Any = _Own.apply
