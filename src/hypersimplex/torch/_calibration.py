"""Probabilities from scores, by one number: the sharpness that makes the labels of a calibration most likely.

A calibration reads batches of logits, or of logits and targets; with a group every rank has its own ones.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from hypersimplex.torch import _batch
from hypersimplex.torch._boundary import check_layout

MOST = 10_000  # samples that are kept: one number needs no more
MOST_OF_A_BATCH = 1_000
_STEPS = 40
_LOG_LIMIT = 10.0

_Pair = tuple[Tensor, Tensor | None]
_END = object()


def check(batches: Any) -> Iterable[Any]:
    if isinstance(batches, Tensor) or (isinstance(batches, tuple) and _is_pair(batches)):
        raise TypeError("batches must be an iterable of batches, got a single one: put it into a list")
    return batches  # type: ignore[no-any-return]


def pair(batch: Any) -> _Pair:
    """Logits, and targets if there are some."""
    if not (isinstance(batch, Tensor) or _is_pair(batch)):
        kind = type(batch).__name__
        raise TypeError(f"batches must hold logits or pairs (logits, target), got {kind}")
    logits, target = (batch, None) if isinstance(batch, Tensor) else batch
    check_layout("logits", logits)
    return logits, target


def _is_pair(batch: object) -> bool:
    return isinstance(batch, Sequence) and len(batch) == 2 and all(isinstance(part, Tensor) for part in batch)


def each(begin: Callable[[], Iterable[Any]], read: Callable[[Any], _Pair], ranks: Any) -> Iterator[_Pair]:
    """The batches, as they are read. All ranks raise if one of them fails, or has no batch where another one has."""
    source: Iterator[Any] | None = None

    def tell() -> tuple[_Pair | None, list[int]]:
        nonlocal source
        source = iter(begin()) if source is None else source
        batch = next(source, _END)
        if batch is _END:
            return None, [1, 0, 0]
        found = read(batch)
        return found, [1, 1, int(found[1] is not None)]

    for number in itertools.count():
        found = tell()[0] if ranks is None else _next_of_all(ranks, tell, number)
        if found is None:
            return
        yield found


def _next_of_all(ranks: Any, tell: Callable[[], tuple[_Pair | None, list[int]]], number: int) -> _Pair | None:
    from hypersimplex.torch._ranks import exchange

    found, (there, targets, *_) = exchange(ranks, "calibrate", tell)
    if any(there) and not all(there):
        rank = there.index(0)
        raise ValueError(f"batches must be as many on every rank, got {number} on rank {rank}")
    if any(targets) and not all(targets):
        rank = targets.index(0)
        raise ValueError(f"batches must hold targets on every rank or on none, got logits alone on rank {rank}")
    return found


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
