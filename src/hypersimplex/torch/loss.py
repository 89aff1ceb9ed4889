"""The HyperSimplex loss: value and gradient in one kernel call, or composed of the operator where that must be seen."""

from typing import Any

import torch
from torch import Tensor

from hypersimplex.torch import _targets, _triton_loss
from hypersimplex.torch._fused import can_fuse, fused
from hypersimplex.torch._plain import widest
from hypersimplex.torch._targets import Batch, Number, Outcome, Settings, result_dtype
from hypersimplex.torch.functional import _no_transform, soft_binary_argmax, threshold


def hypersimplex_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    *,
    k: Number | None = None,
    prior: Number | None = None,
    tau: Number = 1.0,
    group: Any = None,
) -> Tensor:
    """Project every class's logits over the batch so that they sum to k, and compare them with the labels.

    With p the projection of column c with k_c (see `soft_binary_argmax`), the loss of a sample is one half of the sum
    over classes of weight_c (p - onehot)^2; "sum" adds the samples up, "mean" divides that by their number.

    Args:
        input: logits: (N, C), (N, C, d1, ...), or (N,) for a binary problem.
        target: class indices (N,) or (N, d1, ...), or dense targets of input's shape (multi-label, soft labels).
        weight: one number for each class, a factor of its column.
        ignore_index: class index of samples to leave out, also of k and of the mean.
        reduction: "none", "mean" or "sum".
        k: how many of the batch are positive, a number or one for each class. Default: as many as the targets say.
        prior: the same as a share of the batch.
        tau: temperature of the projection: a number, one for each class, or a tensor to be learned.
        group: a process group (True: the default one) whose ranks' batches form one batch.

    >>> logits = torch.tensor([[2.1, 0.3], [1.6, 1.1], [1.0, 1.9]])
    >>> hypersimplex_loss(logits, torch.tensor([0, 0, 1]))
    tensor(0.0167)
    """
    settings = Settings(weight, ignore_index, reduction, k, prior, tau)
    return compute(input, target, settings, group, thresholds=False).loss


def compute(input: Tensor, target: Tensor, settings: Settings, group: Any = None, thresholds: bool = True) -> Outcome:
    if group is not None:  # before any check: what fails on one rank must reach the others
        from hypersimplex.torch import distributed

        return distributed.compute(input, target, settings, group)
    _targets.check_reduction(settings.reduction)
    if type(input) is not Tensor or type(target) is not Tensor or type(settings.ignore_index) is not int:
        _targets.check_types(input, target, settings)
    if settings.k is not None and settings.prior is not None:
        raise ValueError(f"k and prior must not both be given, got k={settings.k} and prior={settings.prior}")
    if can_fuse(input, target, settings):
        return fused(input, target, settings)
    if input.is_cuda and _triton_loss.can_fuse(input, target, settings):
        return _triton_loss.fused(input, target, settings)
    return composed(_targets.read(input, target), settings, thresholds)


def composed(batch: Batch, settings: Settings, thresholds: bool = True) -> Outcome:
    """The same loss out of the operator and torch operations: any device, any transform, gradients to all arguments."""
    x, classes = batch.logits, batch.classes
    can_read = x.device.type == "cpu" and _no_transform()
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    counting = widest(x.device)  # float32 counts to 2^24 only
    columns = x.to(wide).transpose(0, 1).reshape(classes, -1)  # one row for each class: samples and positions
    tau = _targets.per_class("tau", settings.tau, classes, x.device)
    weight = None
    if settings.weight is not None:
        weight = _targets.per_class("weight", settings.weight, classes, x.device).to(wide)
    if batch.labels is not None:
        labels = batch.labels.reshape(-1)
        kept = labels != settings.ignore_index
        safe = torch.where(kept, labels, 0)
        if can_read:
            _targets.check_labels(safe, classes)
        samples: Tensor | int = kept.sum()
        columns = torch.where(kept, columns, -torch.inf)  # an ignored sample is a masked entry
        counts = torch.zeros(classes, dtype=counting, device=x.device).index_add(0, safe, kept.to(counting))
    else:
        assert batch.dense is not None
        if can_read:
            _targets.check_dense(batch.dense)
        dense = batch.dense.to(wide).transpose(0, 1).reshape(classes, -1)
        kept, samples = None, columns.shape[1]
        counts = dense.sum(1, dtype=counting)
    k = _wanted(settings, counts, samples, classes, x.device)
    if can_read:
        _targets.check_numbers(k, tau, int(samples))
    p = soft_binary_argmax(columns, k, tau, dim=1)
    error = p - dense if kept is None else p.scatter_add(0, safe.unsqueeze(0), -kept.to(wide).unsqueeze(0))
    each = error.square() if weight is None else weight.unsqueeze(1) * error.square()
    losses = each.sum(0) / 2
    if settings.reduction == "none":
        result = losses.reshape(batch.shape)
    else:
        result = losses.sum() if settings.reduction == "sum" else _mean(losses, samples)
    mu = threshold(columns.detach(), k.detach(), tau.detach(), dim=1) if thresholds else None
    return Outcome(result.to(result_dtype(x)), mu, k.detach(), samples)


def _mean(losses: Tensor, samples: Tensor | int) -> Tensor:
    """The mean of no sample at all is NaN, and its gradient zero, as in nn.CrossEntropyLoss."""
    if not isinstance(samples, Tensor):
        return losses.sum() / samples if samples else losses.sum() + torch.nan
    return losses.sum() / samples.clamp(min=1) + torch.where(samples > 0, 0.0, torch.nan).to(losses.dtype)


def _wanted(settings: Settings, counts: Tensor, samples: Tensor | int, classes: int, device: torch.device) -> Tensor:
    if settings.k is not None:
        return _targets.per_class("k", settings.k, classes, device)
    if settings.prior is not None:
        prior = _targets.per_class("prior", settings.prior, classes, device)
        if device.type == "cpu" and _no_transform():
            _targets.check_prior(prior)
        return prior * samples
    return counts
