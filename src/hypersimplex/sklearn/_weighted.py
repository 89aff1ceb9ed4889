"""The HyperSimplex loss with a weight for every row, for PyTorch."""

import numpy as np
import torch
from torch import Tensor

from hypersimplex.boosting import HyperSimplexObjective


def weighted_loss(logits: Tensor, labels: Tensor, weights: Tensor, tau: float, prior: object) -> Tensor:
    """The mean loss where a row of weight w counts as w rows, in k as well.

    The thresholds come from the boosting objective's search; their dependence on the logits is put back by hand: the
    threshold moves with the weighted mean of the active logits.
    """
    objective = HyperSimplexObjective(tau, prior=prior)  # type: ignore[arg-type]
    shown = logits.detach().cpu().numpy()
    objective.calibrate(labels.cpu().numpy(), shown[:, 0] if shown.shape[1] == 1 else shown, weights.cpu().numpy())
    assert objective.threshold is not None
    mu = torch.as_tensor(np.asarray(objective.threshold), dtype=logits.dtype, device=logits.device)
    scaled = (logits.detach() - mu) / tau
    active = ((scaled > 0) & (scaled < 1)) * weights[:, None]
    share = active / active.sum(0).clamp(min=torch.finfo(logits.dtype).tiny)
    mu = mu + (share * (logits - logits.detach())).sum(0)
    projected = ((logits - mu) / tau).clamp(0, 1)
    classes = torch.arange(1 if logits.shape[1] == 1 else 0, max(logits.shape[1], 2), device=logits.device)
    targets = (labels[:, None] == classes).to(logits.dtype)
    return ((projected - targets).square().sum(1) * weights).sum() / (2 * weights.sum())
