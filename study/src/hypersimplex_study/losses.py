"""The losses of a study. Each is a module with a value, and with its own way to decide a class.

HyperSimplex decides by its thresholds. The other losses have as much help: offsets fitted on the same training samples.

Squared errors are means over samples and classes, in HyperSimplex as in MSE, as in the paper's released code.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from hypersimplex.torch import HyperSimplexLoss
from hypersimplex_study import own_losses
from hypersimplex_study.config import RunConfig, is_own, trained
from hypersimplex_study.evaluation import fit_offsets


def squentropy(logits: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy and the mean square of the wrong classes' logits (Hui, Belkin, Wright, 2023)."""
    squares = logits.square()
    wrong = squares.sum(1) - squares.gather(1, target[:, None])[:, 0]
    return F.cross_entropy(logits, target) + wrong.mean() / (logits.shape[1] - 1)


def hinge(logits: Tensor, target: Tensor) -> Tensor:
    # torch divides the sum over the wrong classes by the number of classes.
    return F.multi_margin_loss(logits, target) * logits.shape[1]


def squared_error(logits: Tensor, target: Tensor) -> Tensor:
    return F.mse_loss(logits.softmax(1), F.one_hot(target, logits.shape[1]).to(logits.dtype))


PLAIN: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cross-entropy": F.cross_entropy,
    "cross-entropy-warmup": F.cross_entropy,
    "label-smoothing": partial(F.cross_entropy, label_smoothing=0.1),
    "squentropy": squentropy,
    "hinge": hinge,
    "mse": squared_error,
}


class Argmax(nn.Module):
    """A loss without thresholds: the largest logit decides."""

    def __init__(self, value: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.value = value

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        return self.value(logits, target)

    def predict(self, logits: Tensor) -> Tensor:
        return logits.argmax(1)


class Offsets(Argmax):
    """The same with one offset per class and one scale, fitted by log loss: their scores decide."""

    offset: Tensor
    scale: Tensor

    def __init__(self, value: Callable[[Tensor, Tensor], Tensor], classes: int) -> None:
        super().__init__(value)
        self.register_buffer("offset", torch.zeros(classes))
        self.register_buffer("scale", torch.ones(()))

    def calibrate(self, batches: Iterable[tuple[Tensor, Tensor]]) -> None:
        logits, target = (torch.cat(parts) for parts in zip(*batches, strict=True))
        scale, offset = fit_offsets(target.cpu().numpy(), logits.double().cpu().numpy())
        self.scale, self.offset = self.scale.new_tensor(scale), self.offset.new_tensor(offset)

    def scores(self, logits: Tensor) -> Tensor:
        return logits * self.scale + self.offset

    def predict(self, logits: Tensor) -> Tensor:
        return self.scores(logits).argmax(1)


class HyperSimplex(HyperSimplexLoss):
    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        # The library's mean is of one half of the sum over the classes.
        return super().forward(input, target) * (2 / input.shape[1])


class TwoPhases(nn.Module):
    """One loss for a share of the steps, another after it; whichever is at work decides in its own way."""

    later: Tensor
    first: nn.Module
    second: nn.Module

    def __init__(self, first: nn.Module, second: nn.Module, share: float) -> None:
        super().__init__()
        self.first, self.second, self.share = first, second, share
        self.register_buffer("later", torch.zeros((), dtype=torch.bool))

    @property
    def active(self) -> Any:
        return self.second if self.later else self.first

    def begin_step(self, progress: float) -> None:
        """Take the loss of a step before which this share of all steps was taken."""
        self.later.fill_(progress >= self.share)

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        value: Tensor = self.active(logits, target)
        return value

    def calibrate(self, batches: Iterable[tuple[Tensor, Tensor]]) -> None:
        if hasattr(self.active, "calibrate"):
            self.active.calibrate(batches)

    def scores(self, logits: Tensor) -> Tensor:
        return self.active.scores(logits) if hasattr(self.active, "scores") else logits

    def predict(self, logits: Tensor) -> Tensor:
        found: Tensor = self.active.predict(logits)
        return found


PHASES = {"hypersimplex-first-quarter": 0.25, "hypersimplex-first-half": 0.5}


def make_loss(config: RunConfig, classes: int) -> nn.Module:
    name = trained(config.loss)
    if config.tau is None or name in PHASES:
        value: Any = own_losses.make(config) if is_own(name) else PLAIN.get(name, F.cross_entropy)
        if config.smoothing:
            value = partial(F.cross_entropy, label_smoothing=config.smoothing)
        if hasattr(value, "predict"):
            own: nn.Module = value
            return own
        loss = Offsets(value, classes) if config.evaluation == "offsets" else Argmax(value)
        return loss if config.tau is None else TwoPhases(HyperSimplex(tau=config.tau), loss, PHASES[name])
    return HyperSimplex(tau=config.tau, prior=config.prior)
