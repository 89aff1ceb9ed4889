"""The HyperSimplex loss, of one process or of all ranks of a group."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from hypersimplex.torch import _own_loss, _special
from hypersimplex.torch._batch import Number, Outcome, Settings, plain
from hypersimplex.torch._projection import TENSORS


def hypersimplex_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    *,
    k: Number | None = None,
    prior: Number | None = None,
    tau: Number = 1.0,
    group: Any = None,
    label_smoothing: float = 0.0,
) -> Tensor:
    """Project every class's logits over the batch so that they sum to k, and compare them with the labels.

    Let p be the projection of column c with k_c (see `soft_binary_argmax`). The loss of a sample is one half of the
    sum over the classes of weight_c (p - onehot)^2. "sum" adds up the samples, "mean" divides by their number.

    Args:
        input: logits: (N, C), (N, C, d1, ...), or (N,) for a binary problem; (C,) with one class index.
        target: class indices (N,) or (N, d1, ...), or dense targets of input's shape (multi-label, soft labels).
        weight: one number per class, a factor for its column. With class indices "mean" divides by the sum of the
            samples' weights, as nn.CrossEntropyLoss does.
        ignore_index: class index of samples to leave out, also from k and from the mean; not for dense targets.
        reduction: "none", "mean" or "sum".
        k: how many samples of the batch are positive: a number, or one per class. Default: the sum of the targets.
        prior: the same as a share of the batch.
        tau: temperature of the projection: a number, one per class, or a tensor to be learned.
        group: a process group, or True for the default one. The batches of its ranks form one batch.
        label_smoothing: the share of every target that is spread evenly over the classes, from 0 to 1. One column
            counts as two classes: with 0.1, targets of 1 and 0 become 0.95 and 0.05.

    >>> import torch
    >>> logits = torch.tensor([[2.1, 0.3], [1.6, 1.1], [1.0, 1.9]])
    >>> hypersimplex_loss(logits, torch.tensor([0, 0, 1]))
    tensor(0.0167)
    """
    settings = Settings(weight, ignore_index, reduction, k, prior, tau, label_smoothing)
    return compute(input, target, settings, group).loss


def compute(
    input: Tensor, target: Tensor, settings: Settings, group: Any = None, check: Callable[..., None] | None = None
) -> Outcome:
    """`check` is for a group: what else all ranks must know, because it may raise on one of them."""
    if type(input) not in TENSORS and _special.is_dtensor(input):
        outcome: Outcome = _special.loss(input, target, settings, group, compute)
        return outcome
    if group is None:
        return _own_loss.compute(input, target, plain(settings))
    from hypersimplex.torch import distributed  # before any check: what fails on one rank must reach the others

    return distributed.compute(input, target, settings, group, check)
