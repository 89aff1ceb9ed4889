"""The losses of a study. Each is a module with a value, and with its own way to decide a class.

Squared errors are means over samples and classes, in HyperSimplex as in MSE, as in the paper's released code.
"""

from collections.abc import Callable
from functools import partial

from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from hypersimplex.torch import HyperSimplexLoss
from hypersimplex_study.config import RunConfig


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


class HyperSimplex(HyperSimplexLoss):
    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        # The library's mean is of one half of the sum over the classes.
        return super().forward(input, target) * (2 / input.shape[1])


def make_loss(config: RunConfig) -> nn.Module:
    if config.tau is None:
        return Argmax(PLAIN[config.training().loss])
    return HyperSimplex(tau=config.tau, prior=config.prior)
