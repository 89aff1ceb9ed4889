"""The HyperSimplex loss with a weight for every row, for PyTorch."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from hypersimplex.boosting import HyperSimplexObjective
from hypersimplex.sklearn._calibration import Array


def thresholds(target: Array, raw: Array, weights: Array | None, tau: Any, prior: Any) -> Array:
    """The loss of all columns of raw scores. The target holds classes (n,), or 0 and 1 in one column per class."""
    if target.ndim == 1:
        return np.asarray(HyperSimplexObjective(tau, prior=prior).calibrate(target, raw, weights).threshold)
    each = [np.broadcast_to(value, raw.shape[1:]) for value in (tau, prior)]
    columns = zip(target.T, raw.T, *each, strict=True)
    return np.concatenate(
        [HyperSimplexObjective(t, prior=p).calibrate(y, x, weights).threshold for y, x, t, p in columns]
    )


def weighted_loss(logits: Tensor, target: Tensor, weights: Tensor, tau: Any, prior: Any) -> Tensor:
    """The mean loss where a row of weight w counts as w rows, in k as well.

    The thresholds come from the boosting objective's search; their dependence on the logits is put back by hand: the
    threshold moves with the weighted mean of the active logits.
    """
    labels, shown, given = (part.detach().cpu().numpy() for part in (target, logits, weights))
    mu = torch.as_tensor(thresholds(labels, shown, given, tau, prior), dtype=logits.dtype, device=logits.device)
    tau = torch.as_tensor(tau, dtype=logits.dtype, device=logits.device)
    scaled = (logits.detach() - mu) / tau
    active = ((scaled > 0) & (scaled < 1)) * weights[:, None]
    share = active / active.sum(0).clamp(min=torch.finfo(logits.dtype).tiny)
    mu = mu + (share * (logits - logits.detach())).sum(0)
    projected = ((logits - mu) / tau).clamp(0, 1)
    if target.ndim == 1:
        target = torch.nn.functional.one_hot(target, logits.shape[1])
    errors: Tensor = (projected - target).square().sum(1)
    return (errors * weights).sum() / (2 * weights.sum())
