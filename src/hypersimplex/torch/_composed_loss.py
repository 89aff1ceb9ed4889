"""The loss, composed of the projection and torch operations: any device, any transform, gradients to all arguments."""

import torch
from torch import Tensor

from hypersimplex.torch import _batch, _columns
from hypersimplex.torch._batch import Batch, Outcome, Settings
from hypersimplex.torch._projection import project


def compose(batch: Batch, settings: Settings) -> Outcome:
    x, classes = batch.logits, batch.classes
    columns = _columns.columns(batch, settings.ignore_index, settings.label_smoothing)
    tau = _batch.per_class("tau", settings.tau, classes, x.device)
    k = _columns.wanted(settings, columns.counts, columns.samples)
    if _batch.is_readable(x):
        _batch.check_numbers(k, tau, int(columns.samples))
    p, mu = project(columns.logits, k, tau, 1, want_mu=True)
    assert mu is not None
    each, weight = columns.errors(p).square(), None
    if settings.weight is not None:
        weight = _batch.per_class("weight", settings.weight, classes, x.device)
        each = weight.to(p.dtype).unsqueeze(1) * each
    losses = each.sum(0) / 2
    if settings.reduction == "none":
        value = losses.reshape(batch.shape)
    else:
        by = _columns.divisor(weight, columns.labelled, columns.samples)
        value = _columns.reduced(losses, by, settings.reduction)
    mu_and_k: Tensor = torch.stack((mu, k.detach().to(mu.dtype)))
    return Outcome(value.to(_batch.result_dtype(x)), mu_and_k, columns.samples)
