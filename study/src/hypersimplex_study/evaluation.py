"""What a network decides, by recomputed statistics and offsets or by running averages, and how good that is.

Running averages lag behind the weights: after few steps they hide what a network has learned, under every loss.
"""

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from scipy.special import log_softmax
from torch import Tensor, nn

from hypersimplex_study.formats import Array

# The part of the training samples that statistics and thresholds are recomputed over, and how many pass at a time.
PART = 4096
AT_A_TIME = 512
# The same part for every seed and loss.
PART_SEED = 20262
# The widest temperatures that calibration tries, as logarithms.
LIMIT = 7.0


def part_of(rows: Tensor) -> Tensor:
    """Return a fixed part of the training rows."""
    generator = torch.Generator().manual_seed(PART_SEED)
    return rows[torch.randperm(len(rows), generator=generator)[:PART]]


def averages(model: nn.Module) -> list[nn.modules.batchnorm._BatchNorm]:
    """The layers that keep running statistics."""
    kept = (m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm))
    return [m for m in kept if m.track_running_stats]


@contextmanager
def _measuring(model: nn.Module) -> Iterator[None]:
    """BatchNorm measures anew, as a plain average over the batches; everything else, dropout too, is as in use."""
    layers = averages(model)
    momenta = [layer.momentum for layer in layers]
    model.eval()
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None
        layer.train()
    try:
        yield
    finally:
        for layer, momentum in zip(layers, momenta, strict=True):
            layer.momentum = momentum
        model.eval()


@torch.no_grad()
def recompute(model: nn.Module, loss: nn.Module, logits: Callable[[Tensor], Tensor], rows: Tensor, y: Tensor) -> None:
    """Set BatchNorm's statistics and the loss's thresholds or offsets from one pass over these rows.

    `logits` computes a network's output for some rows. No random number is drawn, and training goes on as if nothing
    had happened: in training mode neither is used.
    """
    calibrate = getattr(loss, "calibrate", None)
    if calibrate is None and not averages(model):
        return
    parts = torch.tensor_split(rows, math.ceil(len(rows) / AT_A_TIME))
    with _measuring(model):
        found = torch.cat([logits(part) for part in parts])
    if calibrate is not None:
        calibrate([(found, y[rows])])


def by_decision(y: Array, decided: Array) -> dict[str, float]:
    """Balanced accuracy (the mean over the classes of the part found) and F1 (its mean over the classes)."""
    from sklearn.metrics import balanced_accuracy_score, f1_score

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # about classes that no sample has
        balanced = float(balanced_accuracy_score(y, decided))
    return {"balanced_accuracy": balanced, "f1": float(f1_score(y, decided, average="macro", zero_division=0.0))}


def area(mine: Array, scores: Array) -> float:
    """The area under the ROC curve of some samples against the others; NaN where one of the two is empty.

    By ranks: scikit-learn's takes twenty times as long for small data, more than the epoch that is measured.
    """
    from scipy.stats import rankdata

    count, others = int(mine.sum()), int((~mine).sum())
    if not count or not others:
        return float("nan")
    return float((rankdata(scores)[mine].sum() - count * (count + 1) / 2) / (count * others))


def auc(y: Array, scores: Array) -> float:
    """The area of each class against the others, averaged over the classes that are there."""
    found = log_softmax(scores, axis=1)
    there = [c for c in range(scores.shape[1]) if 0 < np.count_nonzero(y == c) < len(y)]
    return float(np.mean([area(y == c, found[:, c]) for c in there])) if there else float("nan")


def log_loss(y: Array, scores: Array, temperature: float) -> float:
    return float(-log_softmax(scores / temperature, axis=1)[np.arange(len(y)), y].mean())


def temperature(y: Array, scores: Array) -> float:
    """The one number that makes probabilities of the scores: no loss is held to the scale it was trained at.

    It is fitted as if one more sample were of every class in equal parts: of samples that are all decided right, the
    likeliest temperature is zero, and then the first wrong decision elsewhere costs without bound.
    """
    from scipy.optimize import minimize_scalar

    def cost(t: float) -> float:
        found = log_softmax(scores / np.exp(t), axis=1)
        return float(-found[np.arange(len(y)), y].sum() - found.mean())

    found = minimize_scalar(cost, bounds=(-LIMIT, LIMIT), method="bounded")
    return float(np.exp(found.x))


def fit_offsets(y: Array, logits: Array) -> tuple[float, Array]:
    """Return the scale and the offset of every class that make the log loss of these samples least.

    Fitted with one more sample of every class in equal parts, as `temperature` is. Logits that are not all finite have
    no fit: the scale is then 1 and the offsets are 0.
    """
    from scipy.optimize import minimize

    n, classes = logits.shape
    spread = float(logits.std())
    if not 0 < spread < math.inf:
        return 1.0, np.zeros(classes)
    x = logits / spread
    target = np.full((n, classes), 1 / (n * classes))
    target[np.arange(n), y] += 1

    def cost(parameters: Array) -> tuple[float, Array]:
        scale = np.exp(parameters[0])
        found = log_softmax(scale * x + parameters[1:], axis=1)
        slope = np.exp(found) * (1 + 1 / n) - target
        return -float((target * found).sum()) / n, np.r_[scale * (slope * x).sum(), slope.sum(0)] / n

    found = minimize(cost, np.zeros(classes + 1), jac=True, bounds=[(-LIMIT, LIMIT)] + [(None, None)] * classes).x
    return float(np.exp(found[0])) / spread, found[1:]


def measures(loss: Any, parts: dict[str, tuple[Array, Tensor]]) -> dict[str, Any]:
    """All measures of the parts "test" and, if there is one, "val", each labels and logits, as the fields of an epoch.

    By the loss's own decision, and where that is another than plain argmax, by that too. The log loss is after
    calibration on the validation split, so it needs one.
    """

    def decide(x: Tensor, plain: bool) -> Array:
        return np.asarray(x.argmax(1) if plain else loss.predict(x))

    found: dict[str, Any] = dict.fromkeys(("val_accuracy", "val_argmax"))
    for name, (y, x) in parts.items():
        for field, plain in (("accuracy", False), ("argmax", True)):
            found[f"{name}_{field}"] = float(np.mean(decide(x, plain) == y))
    decided = decide(parts["test"][1], False)
    found["one_class"] = int(np.bincount(decided).max()) / len(decided)
    own = hasattr(loss, "scores")
    for end, plain in (("", not own), *((("_argmax", True),) if own else ())):
        scores = {name: (x if plain else loss.scores(x)).double().numpy() for name, (_, x) in parts.items()}
        fitted = temperature(parts["val"][0], scores["val"]) if "val" in parts else None
        for name, (y, x) in parts.items():
            some = by_decision(y, decide(x, plain)) | {"auc": auc(y, scores[name])}
            if fitted is not None:
                some["log_loss"] = log_loss(y, scores[name], fitted)
            found |= {f"{name}_{measure}{end}": value for measure, value in some.items()}
    return found
