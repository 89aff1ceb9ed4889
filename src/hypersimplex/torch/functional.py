"""The operator for PyTorch: gradients to the input, to k and to tau, to any order and under every transform."""

from typing import Any

import torch
from torch import Tensor

from hypersimplex.torch import _operators, _rank_slices, _special
from hypersimplex.torch._batch import Number
from hypersimplex.torch._boundary import is_eager
from hypersimplex.torch._projection import TENSORS, as_tensors, formula, project
from hypersimplex.torch.backends import pick


def soft_binary_argmax(
    input: Tensor, k: Number, tau: Number = 1.0, dim: int = -1, *, hard: bool = False, group: Any = None
) -> Tensor:
    """Solve argmin |y - input/tau|^2 over 0 <= y <= 1, sum(y) = k, for every slice of input along dim.

    y is a soft choice of the k largest entries. It equals clip((input - mu)/tau, 0, 1) with one number mu per slice.
    `soft_topk` is the same function.

    Let A be the entries with 0 < y < 1. The gradient of sum(v * y) to the input is (v - mean_A v)/tau on A and 0
    elsewhere. The gradient to k is mean_A v, the one to tau is -sum_A v (y - mean_A y)/tau.

    Args:
        input: floating-point tensor; float16 and bfloat16 are computed in float32.
        k: the sum of every slice, from 0 to its size: a number, or a tensor that broadcasts over the slices.
        tau: temperature, positive: a number, or a tensor that broadcasts over the slices.
        dim: the dim along which the slices lie.
        hard: return exactly k ones, as binary_argmax does, and keep the gradients of y; k must be whole.

    >>> x = torch.tensor([0.1, 1.6, 1.0], requires_grad=True)
    >>> y = soft_binary_argmax(x, k=1)
    >>> y
    tensor([0.0000, 0.8000, 0.2000], grad_fn=<ProjectionBackward>)
    >>> y[1].backward()
    >>> x.grad
    tensor([ 0.0000,  0.5000, -0.5000])
    >>> soft_topk(x, k=1, hard=True)
    tensor([0., 1., 0.], grad_fn=<AddBackward0>)
    """
    if group is not None:
        return _rank_slices.soft_topk(input, k, tau, dim, hard=hard, curve="ramp", group=group)
    if hard:
        y = soft_binary_argmax(input, k, tau, dim)
        return binary_argmax(input, k, dim) + (y - y.detach())
    if type(input) not in TENSORS and (found := _special.call(soft_binary_argmax, input, k, tau, dim)) is not None:
        return found  # type: ignore[no-any-return]
    return project(input, k, tau, dim)[0]


soft_topk = soft_binary_argmax  # under the name that people search for


def threshold(input: Tensor, k: Number, tau: Number = 1.0, dim: int = -1, *, group: Any = None) -> Tensor:
    """Return mu, one number for each slice, such that clip((input - mu)/tau, 0, 1) sums to k.

    If every number of an interval would do, mu is the middle, or the finite end if only one end is finite.

    >>> threshold(torch.tensor([0.1, 1.6, 1.0]), k=1)
    tensor(0.8000)
    """
    if group is not None:
        return _rank_slices.threshold(input, k, tau, dim, curve="ramp", group=group)
    if type(input) not in TENSORS and (found := _special.call(threshold, input, k, tau, dim)) is not None:
        return found  # type: ignore[no-any-return]
    k, tau = as_tensors(input, k, tau, dim)
    if is_eager() and not (torch.is_grad_enabled() and any(t.requires_grad for t in (input, k, tau))):
        mu: Tensor = pick(input).project(input, k, tau, dim, want_y=False)[1]
    else:
        mu = formula(input, k, tau, dim)[1]
    return mu if input.dtype is torch.float64 else mu.to(torch.float32)


def binary_argmax(input: Tensor, k: Number, dim: int = -1, *, group: Any = None) -> Tensor:
    """Return exactly k ones, at the largest entries of every slice, and zeros elsewhere.

    Of equal entries the one with the lower index is chosen. The result has no gradient.

    >>> binary_argmax(torch.tensor([0.1, 1.6, 1.0, 1.0]), k=2)
    tensor([0., 1., 1., 0.])
    """
    if group is not None:
        return _rank_slices.binary_argmax(input, k, dim, group)
    if type(input) not in TENSORS and (found := _special.call(binary_argmax, input, k, dim)) is not None:
        return found  # type: ignore[no-any-return]
    k, _ = as_tensors(input, k, 1.0, dim)
    result: Tensor = _operators.binary(input.detach(), k.detach(), dim)
    return result
