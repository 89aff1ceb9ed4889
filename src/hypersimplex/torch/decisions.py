"""From logits to decisions: scores measured from each class's threshold, and the same folded into the last layer."""

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.nn.utils.parametrize import is_parametrized

from hypersimplex.torch._boundary import check_layout


def wide(logits: Tensor) -> Tensor:
    """Logits in a dtype to decide in: rounded to half, different scores may be equal."""
    if not isinstance(logits, Tensor):
        raise TypeError(f"logits must be a tensor, got {type(logits).__name__}")
    check_layout("logits", logits)
    return logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits


def over_classes(values: Tensor, logits: Tensor) -> Tensor:
    """One number for each class, shaped to meet logits (N, C, ...), (N,) or (C,)."""
    classes = values.shape[0]
    if logits.dim() < 2:
        fits = classes == 1 or tuple(logits.shape) == (classes,)
        shape = [-1] if logits.dim() else []
    else:
        fits = logits.shape[1] == classes
        shape = [1, -1] + [1] * (logits.dim() - 2)
    if not fits:
        raise ValueError(f"logits must have {classes} classes, got shape {tuple(logits.shape)}")
    return values.reshape(shape)


def scores(logits: Tensor, threshold: Tensor, tau: Tensor) -> Tensor:
    """(logit - mu)/tau: what the projection would give before it is clipped."""
    x = wide(logits)
    mu, each = (over_classes(v.to(x.dtype), logits) for v in (threshold, tau))
    return ((x - mu) / each).to(logits.dtype)


def decide(values: Tensor, independent: bool) -> Tensor:
    """The class with the highest score; for a binary or multi-label problem, 1 where the score exceeds one half."""
    if independent:
        return (values > 0.5).long()
    return values.argmax(0 if values.dim() == 1 else 1)


def is_multilabel(target: Tensor) -> Tensor:
    """Whether dense targets are labels of their own, and not one class's share each, which sum to 1."""
    if target.dim() < 2:
        return torch.zeros((), dtype=torch.bool, device=target.device)
    rounding = torch.finfo(target.dtype).eps if target.is_floating_point() else 0.0
    return ((target.detach().to(torch.float32).sum(1) - 1).abs() > 1e-3 + rounding).any()


@torch.no_grad()
def fold_(linear: nn.Module, threshold: Tensor, tau: Tensor) -> None:
    """Change the layer's weight and bias so that it puts out scores."""
    name, classes = type(linear).__name__, threshold.shape[0]
    # Of other layers the first dim of the weight need not be the outputs.
    if not isinstance(linear, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d):
        raise TypeError(f"linear must be nn.Linear or nn.Conv, got {name}")
    weight, bias = linear.weight, linear.bias
    if is_lazy(weight):
        raise ValueError(f"linear must have its weight: call it once before, got {name} without one")
    if is_parametrized(linear) or not isinstance(weight, nn.Parameter):  # the weight is computed anew in every call
        raise ValueError(f"linear must hold its weight itself: remove the parametrization first, got {name} with one")
    if not isinstance(bias, Tensor):
        raise ValueError(f"linear must have a bias to hold the thresholds, got {name} without one")
    if weight.shape[0] != classes or bias.shape != (classes,):
        raise ValueError(f"linear must have {classes} outputs, one for each threshold, got {weight.shape[0]}")
    mu, each = threshold.to(bias), tau.to(bias)
    bias.copy_((bias - mu) / each)
    weight.div_(each.to(weight).reshape(-1, *[1] * (weight.dim() - 1)))
