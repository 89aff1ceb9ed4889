"""A loss of one's own for the study: log loss over the logistic curve, one threshold per class and batch.

    hypersimplex study run --loss cross-entropy --loss hypersimplex --loss logistic_loss:make --lr 0.003 --lr 0.01

For class c the slice is the batch: y_i = sigmoid((x_i - mu)/tau), with mu such that the sum of y is the number k of the
class's labels. The loss is the log loss of y. It has its least value over mu there, so mu adds nothing to the
derivative: the gradient to x is exactly (y - t)/tau.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from hypersimplex.torch import threshold


class LogisticLoss(nn.Module):
    """Without `predict`: the study decides by offsets that it fits, as for cross-entropy."""

    def __init__(self, tau: float = 1.0) -> None:
        super().__init__()
        self.tau = tau

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        t = F.one_hot(target, logits.shape[1]).to(logits.dtype)
        # A class without a label in the batch, or alone in it, has no finite mu.
        k = t.sum(0).clamp(1e-3, len(t) - 1e-3)
        mu = threshold(logits.detach(), k, self.tau, 0, curve="logistic")
        return F.binary_cross_entropy_with_logits((logits - mu) / self.tau, t, reduction="sum") / len(t)


def make() -> nn.Module:
    return LogisticLoss()


if __name__ == "__main__":
    torch.manual_seed(0)
    logits = torch.randn(8, 3, requires_grad=True)
    target = torch.arange(8) % 3
    (gradient,) = torch.autograd.grad(LogisticLoss(tau=0.5)(logits, target), logits)
    x, t = logits.detach(), F.one_hot(target, 3).float()
    y = torch.sigmoid((x - threshold(x, t.sum(0), 0.5, 0, curve="logistic")) / 0.5)
    print("sum of y per class:", [round(v, 4) for v in y.sum(0).tolist()])
    print("gradient is (y - t)/tau:", torch.allclose(gradient * 8, (y - t) / 0.5, atol=1e-4))
