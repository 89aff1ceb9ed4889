"""The losses of a study. Each is a module with a value, and with its own way to decide a class.

Squared errors are means over samples and classes, in HyperSimplex as in MSE, as in the paper's released code.
"""

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


class LabelSmoothing(Argmax):
    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(logits, target, label_smoothing=0.1)


class Squentropy(Argmax):
    """Cross-entropy and the mean square of the wrong classes' logits (Hui, Belkin, Wright, 2023)."""

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        squares = logits.square()
        wrong = squares.sum(1) - squares.gather(1, target[:, None])[:, 0]
        return F.cross_entropy(logits, target) + wrong.mean() / (logits.shape[1] - 1)


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

    def scores(self, logits: Tensor) -> Tensor:
        found: Tensor = self.loss.scores(logits)
        return found

    def calibrate(self, logits: Tensor, target: Tensor) -> None:
        self.loss.calibrate([(logits, target)])


PLAIN = {
    "cross-entropy": CrossEntropy,
    "cross-entropy-warmup": CrossEntropy,
    "label-smoothing": LabelSmoothing,
    "squentropy": Squentropy,
    "hinge": Hinge,
    "mse": SquaredError,
}


def make_loss(config: RunConfig) -> nn.Module:
    name = config.training().loss
    if config.tau is None:
        return PLAIN[name]()
    return HyperSimplex(config.tau, config.prior)
