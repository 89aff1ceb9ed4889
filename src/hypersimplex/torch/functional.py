"""The operator for PyTorch: gradients to the input, to k and to tau, to any order and under every transform."""

import torch
from torch import Tensor

from hypersimplex import _checks
from hypersimplex.torch import _operators, _special
from hypersimplex.torch._batch import Number
from hypersimplex.torch._boundary import is_eager
from hypersimplex.torch._projection import TENSORS, as_tensors, formula, project
from hypersimplex.torch.backends import pick


def soft_topk(
    input: Tensor, k: Number, tau: Number = 1.0, dim: int = -1, *, hard: bool = False, curve: str = "ramp"
) -> Tensor:
    """Choose the k largest entries of every slice along dim, softly: y from 0 to 1 with sum k, differentiable.

    The third positional argument is tau: pass dim by name. `soft_binary_argmax` is the same function under the name
    that the paper gives it for the default curve.

    y equals S((input - mu)/tau) with one number mu per slice. `curve` names S, which rises from 0 to 1:

        "ramp"      clip(t, 0, 1). y has exact zeros and ones; at k=1 it is sparsemax. It solves
                    argmin |y - input/tau|^2 over 0 <= y <= 1, sum(y) = k.
        "exp"       min(1, e^t). At k=1 it is softmax.
        "logistic"  1/(1 + e^-t). Every entry has a gradient; known as LML.
        "laplace"   e^t/2 below 0, 1 - e^-t/2 above. Every entry has a gradient; known as LapSum.

    With s the slope of S at each entry and m the mean of v weighted by s, the gradient of sum(v * y) to the input is
    s (v - m)/tau. The gradient to k is m, the one to tau is -sum s (v - m) t/tau with t = (input - mu)/tau.

    Args:
        input: floating-point tensor; float16 and bfloat16 are computed in float32.
        k: the sum of every slice, from 0 to its size: a number, or a tensor that broadcasts over the slices.
        tau: temperature, positive: a number, or a tensor that broadcasts over the slices. A smaller one is harder.
        dim: the dim along which the slices lie.
        hard: return exactly k ones, as binary_argmax does, and keep the gradients of y; k must be whole.
        curve: "ramp", "exp", "logistic" or "laplace".

    >>> x = torch.tensor([0.1, 1.6, 1.0], requires_grad=True)
    >>> y = soft_topk(x, k=1)
    >>> y
    tensor([0.0000, 0.8000, 0.2000], grad_fn=<ProjectionBackward>)
    >>> y[1].backward()
    >>> x.grad
    tensor([ 0.0000,  0.5000, -0.5000])
    >>> soft_topk(x, k=1, hard=True)
    tensor([0., 1., 0.], grad_fn=<AddBackward0>)
    >>> soft_topk(x.detach(), k=2, curve="exp")
    tensor([0.2891, 1.0000, 0.7109])
    """
    if curve != "ramp":
        _checks.check_curve(curve)
    if hard:
        y = soft_topk(input, k, tau, dim, curve=curve)
        return binary_argmax(input, k, dim) + (y - y.detach())
    if type(input) not in TENSORS and (found := _special.call(soft_topk, input, k, tau, dim, curve=curve)) is not None:
        return found  # type: ignore[no-any-return]
    return project(input, k, tau, dim, False, curve)[0]


soft_binary_argmax = soft_topk  # under the paper's name


def threshold(input: Tensor, k: Number, tau: Number = 1.0, dim: int = -1, *, curve: str = "ramp") -> Tensor:
    """Return mu, one number for each slice, such that S((input - mu)/tau) sums to k; S is the curve of soft_topk.

    The third positional argument is tau: pass dim by name. If every number of an interval would do, mu is the middle,
    or the finite end if only one end is finite. Where no finite number would do it is infinite.

    >>> threshold(torch.tensor([0.1, 1.6, 1.0]), k=1)
    tensor(0.8000)
    """
    _checks.check_curve(curve)
    if type(input) not in TENSORS and (found := _special.call(threshold, input, k, tau, dim, curve=curve)) is not None:
        return found  # type: ignore[no-any-return]
    k, tau = as_tensors(input, k, tau, dim)
    if is_eager() and not (torch.is_grad_enabled() and any(t.requires_grad for t in (input, k, tau))):
        mu: Tensor = pick(input, curve).project(input, k, tau, dim, want_y=False, curve=curve)[1]
    else:
        mu = formula(input, k, tau, dim, curve)[1]
    return mu if input.dtype is torch.float64 else mu.to(torch.float32)


def binary_argmax(input: Tensor, k: Number, dim: int = -1) -> Tensor:
    """Return exactly k ones, at the largest entries of every slice, and zeros elsewhere.

    Of equal entries the one with the lower index is chosen. The result has no gradient.

    >>> binary_argmax(torch.tensor([0.1, 1.6, 1.0, 1.0]), k=2)
    tensor([0., 1., 1., 0.])
    """
    if type(input) not in TENSORS and (found := _special.call(binary_argmax, input, k, dim)) is not None:
        return found  # type: ignore[no-any-return]
    k, _ = as_tensors(input, k, 1.0, dim)
    result: Tensor = _operators.binary(input.detach(), k.detach(), dim)
    return result
