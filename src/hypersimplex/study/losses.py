"""The losses of a study. Each is a module with a value, and with its own way to decide a class.

Squared errors are means over samples and classes, in HyperSimplex as in MSE, as in the paper's released code.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from hypersimplex.study.config import RunConfig
from hypersimplex.torch import HyperSimplexLoss


class Argmax(nn.Module):
    def predict(self, logits: Tensor) -> Tensor:
        return logits.argmax(1)


class CrossEntropy(Argmax):
    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(logits, target)


class Hinge(Argmax):
    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        # torch divides the sum over the wrong classes by the number of classes.
        return F.multi_margin_loss(logits, target) * logits.shape[1]


class SquaredError(Argmax):
    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        return F.mse_loss(logits.softmax(1), F.one_hot(target, logits.shape[1]).to(logits.dtype))


class HyperSimplex(nn.Module):
    def __init__(self, tau: float, prior: float | None) -> None:
        super().__init__()
        self.loss = HyperSimplexLoss(tau=tau, prior=prior)

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        # The library's mean is of one half of the sum over the classes.
        value: Tensor = self.loss(logits, target)
        return value * (2 / logits.shape[1])

    def predict(self, logits: Tensor) -> Tensor:
        decided: Tensor = self.loss.predict(logits)
        return decided


def make_loss(config: RunConfig) -> nn.Module:
    name = config.training().loss
    if config.tau is None:
        return {"cross-entropy": CrossEntropy, "hinge": Hinge, "mse": SquaredError}[name]()
    return HyperSimplex(config.tau, config.prior)


def correct(loss: nn.Module, logits: Tensor, target: Tensor) -> Tensor:
    """Return how many samples are right by the loss's own decision and by plain argmax."""
    own = loss.predict(logits)  # type: ignore[operator]
    return torch.stack([(own == target).sum(), (logits.argmax(1) == target).sum()])
