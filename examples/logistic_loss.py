"""A loss of one's own for the study: log loss over the logistic curve, one threshold per class and batch.

    hypersimplex study run --loss cross-entropy --loss hypersimplex --loss logistic_loss:make --lr 0.003 --lr 0.01

For class c the slice is the batch: y_i = sigmoid((x_i - mu)/tau), with mu such that the sum of y is the number k of the
class's labels. The loss is the log loss of y. It has its least value over mu there, so mu adds nothing to the
derivative: the gradient to x is exactly (y - t)/tau.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

STEPS = 60  # halvings of the bracket, which end at single precision


def threshold(x: Tensor, k: Tensor, tau: float) -> Tensor:
    """Return mu of every column of x, such that the sum of sigmoid((x - mu)/tau) is k."""
    # If all entries were the largest, or the smallest, mu would lie this far below them.
    below = tau * torch.logit(k / len(x))
    low, high = x.amin(0) - below, x.amax(0) - below
    for _ in range(STEPS):
        middle = (low + high) / 2
        above = torch.sigmoid((x - middle) / tau).sum(0) > k
        low, high = torch.where(above, middle, low), torch.where(above, high, middle)
    return (low + high) / 2


class LogisticLoss(nn.Module):
    """Without `predict`: the study decides by offsets that it fits, as for cross-entropy."""

    def __init__(self, tau: float = 1.0) -> None:
        super().__init__()
        self.tau = tau

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        t = F.one_hot(target, logits.shape[1]).to(logits.dtype)
        # A class without a label in the batch, or alone in it, has no finite mu.
        k = t.sum(0).clamp(1e-3, len(t) - 1e-3)
        mu = threshold(logits.detach(), k, self.tau)
        return F.binary_cross_entropy_with_logits((logits - mu) / self.tau, t, reduction="sum") / len(t)


def make() -> nn.Module:
    return LogisticLoss()


if __name__ == "__main__":
    torch.manual_seed(0)
    logits = torch.randn(8, 3, requires_grad=True)
    target = torch.arange(8) % 3
    (gradient,) = torch.autograd.grad(LogisticLoss(tau=0.5)(logits, target), logits)
    x, t = logits.detach(), F.one_hot(target, 3).float()
    y = torch.sigmoid((x - threshold(x, t.sum(0), 0.5)) / 0.5)
    print("sum of y per class:", [round(v, 4) for v in y.sum(0).tolist()])
    print("gradient is (y - t)/tau:", torch.allclose(gradient * 8, (y - t) / 0.5, atol=1e-4))
