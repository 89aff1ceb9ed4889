"""Probabilities from scores, by one number: the sharpness that makes the labels of a calibration most likely."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from hypersimplex.torch import _batch

MOST = 10_000  # samples that are kept: one number needs no more
MOST_OF_A_BATCH = 1_000
_STEPS = 40
_LOG_LIMIT = 10.0


def probabilities(scores: Tensor, sharpness: Tensor, independent: bool) -> Tensor:
    """The probability of each class, or of each decision where there are several."""
    if independent:
        return torch.sigmoid(sharpness * (scores - 0.5))
    return torch.softmax(sharpness * scores, 0 if scores.dim() == 1 else 1)


class Samples:
    """Logits (samples, classes) and their targets, dense."""

    def __init__(self) -> None:
        self.logits: list[Tensor] = []
        self.targets: list[Tensor] = []
        self.room = MOST

    def add(self, input: Tensor, target: Tensor, ignore_index: int) -> None:
        rows, targets, dense, _ = _batch.fit(input.detach(), target.detach()).rows()
        if not dense:
            kept = targets != ignore_index
            rows, targets = rows[kept], torch.nn.functional.one_hot(targets[kept], rows.shape[1])
        step = max(1, math.ceil(rows.shape[0] / max(1, min(self.room, MOST_OF_A_BATCH))))
        if self.room > 0:
            self.logits.append(rows[::step])
            self.targets.append(targets[::step])
            self.room -= self.logits[-1].shape[0]


def sharpness(scores: Tensor, targets: Tensor, independent: bool, total: Callable[[Tensor], Tensor] | None) -> float:
    """The factor of the scores under which the targets are most likely; `total` adds up over ranks.

    The logarithm of the likelihood is concave in the factor: its slope is searched for the sign change.
    """
    finite = torch.isfinite(scores).all(1)
    scores, targets = scores[finite].double(), targets[finite].double()
    values = scores - 0.5 if independent else scores
    low, high = -_LOG_LIMIT, _LOG_LIMIT
    for _ in range(_STEPS):
        middle = (low + high) / 2
        expected = probabilities(scores, torch.tensor(math.exp(middle), device=scores.device), independent)
        slope = ((targets - expected) * values).sum()
        rises = float(slope if total is None else total(slope)) > 0
        low, high = (middle, high) if rises else (low, middle)
    return math.exp((low + high) / 2)
