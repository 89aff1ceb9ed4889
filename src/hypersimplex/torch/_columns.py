"""A batch as columns, one for each class, and the loss of them, composed of a projection and torch operations."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hypersimplex.torch import _batch
from hypersimplex.torch._batch import Batch, Outcome, Settings, check_labels, fit, is_readable, per_class
from hypersimplex.torch._boundary import computed, has_memory, is_compiling, is_eager, widest


class Columns(NamedTuple):
    """A batch with one row for each class, samples and positions along it, in float32 or float64."""

    logits: Tensor  # an ignored sample is a masked entry
    target: Tensor  # dense, or labels: 0 where ignored
    kept: Tensor | None  # with labels: which are not ignored
    counts: Tensor  # the sum of every class's targets
    samples: Tensor | int  # that count
    labelled: Tensor | None = None  # with labels: how many samples each class has
    smoothing: float = 0.0  # of the labels; dense targets come smoothed

    def errors(self, p: Tensor) -> Tensor:
        """p minus the targets."""
        if self.kept is None:
            return p - self.target
        kept = self.kept.to(p.dtype).unsqueeze(0)
        if self.smoothing:
            p = p - kept * spread(self.smoothing, p.shape[0])
        # Samples first, as most batches lie in memory: scatter_add would lay the others out anew.
        less = (kept * (self.smoothing - 1)).transpose(0, 1)
        return p.transpose(0, 1).scatter_add(1, self.target.unsqueeze(1), less).transpose(0, 1)


def columns(batch: Batch, ignore_index: int, smoothing: float = 0.0) -> Columns:
    x, classes = batch.logits, batch.classes
    can_read = is_readable(x)
    wide = computed(x.dtype)
    if not is_compiling():
        has_memory("target", batch.target)
    logits = x.to(wide).transpose(0, 1).reshape(classes, -1)
    if batch.dense:
        if can_read:
            _batch.check_dense(batch.target)
        dense = batch.target.to(wide).transpose(0, 1).reshape(classes, -1)
        return Columns(logits, dense, None, dense.sum(1, dtype=widest(x.device)), logits.shape[1])
    labels = batch.target.reshape(-1)
    kept = labels != ignore_index
    safe = torch.where(kept, labels, 0)
    if can_read:
        check_labels(safe, classes)
    counts, samples = count(safe, kept, classes), kept.sum()
    wanted = counts
    if smoothing:
        wanted = (1 - smoothing) * counts + spread(smoothing, classes) * samples.to(counts)
    return Columns(torch.where(kept, logits, -torch.inf), safe, kept, wanted, samples, counts, smoothing)


def count(labels: Tensor, kept: Tensor, classes: int) -> Tensor:
    """How many samples of each class are kept; the others may have any class. float32 would count to 2^24 only."""
    counting = widest(labels.device)
    zeros = torch.zeros(classes, dtype=counting, device=labels.device)
    return zeros.index_add(0, labels, kept.to(counting))


def spread(share: float, classes: int) -> float:
    """What each class gets of a share. One column is two classes, of which the other is not written out."""
    return share / max(classes, 2)


def smoothed(input: Tensor, target: Tensor, settings: Settings) -> tuple[Tensor, Settings]:
    """Dense targets of input's shape, a share of each spread over the classes. Labels stay where some are ignored, or
    where the mean needs their weights.
    """
    if is_eager():
        has_memory("target", target)
    batch, share = fit(input, target), settings.label_smoothing
    even = spread(share, batch.classes)
    if batch.dense:
        return target.to(computed(input.dtype)) * (1 - share) + even, settings._replace(label_smoothing=0.0)
    if (
        input.dim() == 1
        or settings.weight is not None
        or not is_readable(input)
        or bool((target == settings.ignore_index).any())
    ):
        return target, settings
    check_labels(batch.target, batch.classes)
    dense = torch.full_like(batch.logits, even, dtype=widest(input.device), requires_grad=False)
    dense.scatter_(1, batch.target.unsqueeze(1), 1 - share + even)
    return dense.reshape(input.shape), settings._replace(label_smoothing=0.0)


def divisor(weight: Tensor | None, labelled: Tensor | None, samples: Tensor | int) -> Tensor | int:
    """What the mean divides by, as in nn.CrossEntropyLoss: the samples; with labels, the weights of their classes."""
    return samples if weight is None or labelled is None else (weight * labelled).sum()


def reduced(losses: Tensor, divisor: Tensor | int, reduction: str) -> Tensor:
    """The mean of no sample at all is NaN, and its gradient zero, as in nn.CrossEntropyLoss."""
    if reduction == "sum":
        return losses.sum()
    if not isinstance(divisor, Tensor):
        return losses.sum() / divisor if divisor else losses.sum() + torch.nan
    some = divisor != 0
    mean = losses.sum() / torch.where(some, divisor, 1) + torch.where(some, 0.0, torch.nan)
    return mean.to(losses.dtype)


def wanted(settings: Settings, counts: Tensor, samples: Tensor | int) -> Tensor:
    """k of every class: as given, as a share of the samples, or as many as the targets say."""
    classes, device = counts.shape[0], counts.device
    if settings.k is not None:
        return per_class("k", settings.k, classes, device)
    if settings.prior is not None:
        prior = per_class("prior", settings.prior, classes, device)
        if is_readable(prior):
            _batch.check_prior(prior)
        return prior * samples
    return counts


class Composed(NamedTuple):
    """The loss of a batch, and what its gradient is made of."""

    outcome: Outcome
    p: Tensor  # the projections, a row for each class
    error: Tensor  # p minus the targets
    tau: Tensor
    weight: Tensor | None
    divisor: Tensor | int


def compose(batch: Batch, settings: Settings, project: Callable[..., Any]) -> Composed:
    """By any `project`: on any device, under any transform, and with gradients to all arguments if that has them."""
    x, classes = batch.logits, batch.classes
    c = columns(batch, settings.ignore_index, settings.label_smoothing)
    tau = per_class("tau", settings.tau, classes, x.device)
    k = wanted(settings, c.counts, c.samples)
    if is_readable(x):
        _batch.check_numbers(k, tau, int(c.samples))
    p, mu = project(c.logits, k, tau, 1, want_mu=True)
    error, weight = c.errors(p), None
    each = error.square()
    if settings.weight is not None:
        weight = per_class("weight", settings.weight, classes, x.device)
        each = weight.to(p.dtype).unsqueeze(1) * each
    losses, by = each.sum(0) / 2, divisor(weight, c.labelled, c.samples)
    none = settings.reduction == "none"
    value = losses.reshape(batch.shape) if none else reduced(losses, by, settings.reduction)
    mu_and_k = torch.stack((mu, k.detach().to(mu.dtype)))
    outcome = Outcome(value.to(_batch.result_dtype(x)), mu_and_k, c.samples)
    return Composed(outcome, p, error, tau, weight, by)
