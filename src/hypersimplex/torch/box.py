"""The box section for PyTorch: gradients to every argument, to any order and under every transform."""

from typing import Any

import torch
from torch import Tensor

from hypersimplex import _checks
from hypersimplex._box_formula import correction
from hypersimplex.torch import _operators
from hypersimplex.torch._batch import Number
from hypersimplex.torch._boundary import is_eager
from hypersimplex.torch._projection import TENSORS, as_tensor, check_input, over_slices
from hypersimplex.torch.backends import pick


def box_section(
    input: Tensor,
    total: Number,
    lower: Number = 0.0,
    upper: Number = 1.0,
    weight: Number | None = None,
    tau: Number = 1.0,
    dim: int = -1,
    *,
    at_most: bool = False,
) -> Tensor:
    """Solve argmin |y - input/tau|^2 over lower <= y <= upper, sum(weight * y) = total, for every slice along dim.

    The solution is y = clip(input/tau - nu * weight, lower, upper) with one number nu per slice.

    Let A be the entries strictly between their bounds, w the weights, and m = sum_A(w v)/sum_A(w w). The gradient of
    sum(v * y) to the input is (v - w m)/tau on A, the one to the total is m. An entry on a bound passes v - w m to
    that bound.

    Bounds that cannot meet the total raise an error on the CPU. On other devices the slice is NaN.

    Args:
        input: floating-point tensor; float16 and bfloat16 are computed in float32.
        total: what every slice sums to: a number, or a tensor that broadcasts over the slices.
        lower, upper: bounds, possibly infinite: numbers, or tensors that broadcast to the input's shape.
        weight: positive: a number, or a tensor that broadcasts to the input's shape. None means 1.
        tau: temperature, positive: a number, or a tensor that broadcasts over the slices.
        dim: the dim along which the slices lie.
        at_most: allow a sum below the total.

    >>> x = torch.tensor([0.1, 1.6, 1.0], requires_grad=True)
    >>> y = box_section(x, total=1.75, upper=torch.tensor([1.0, 0.75, 1.0]))
    >>> y.detach()
    tensor([0.0500, 0.7500, 0.9500])
    >>> y[2].backward()
    >>> x.grad
    tensor([-0.5000,  0.0000,  0.5000])
    """
    along = check_input(input, dim)
    numbers = [over_slices(name, value, input, along) for name, value in (("total", total), ("tau", tau))]
    named = (("lower", lower), ("upper", upper), ("weight", 1.0 if weight is None else weight))
    bounds = [_over_entries(name, value, input, along) for name, value in named]
    x = input.movedim(along, -1)
    arguments = (x, numbers[0], *bounds, numbers[1])
    fixed = [t.detach() for t in arguments]
    eager = is_eager() and type(input) in TENSORS
    solve: Any = pick(x).box if eager else _operators.box
    y, mu = solve(*fixed, at_most)
    if eager and not (torch.is_grad_enabled() and any(t.requires_grad for t in arguments)):
        return torch.movedim(y, -1, along)
    return _with_derivatives(y, mu, arguments, at_most).to(input.dtype).movedim(-1, along)


def _over_entries(name: str, value: Number, input: Tensor, along: int) -> Tensor:
    value = as_tensor(name, value, input)
    if not value.dim():
        return value
    try:
        value.expand(input.shape)
    except RuntimeError:
        raise _checks.not_over_entries(name, input.shape, value.shape) from None
    return value.reshape(*[1] * (input.dim() - value.dim()), *value.shape).movedim(along, -1)


def _with_derivatives(y: Tensor, mu: Tensor, arguments: tuple[Tensor, ...], at_most: bool) -> Tensor:
    x, total, lower, upper, weight, tau = arguments
    wide = torch.float64 if y.dtype == torch.float64 else torch.float32
    y, mu = y.to(wide), mu.unsqueeze(-1).to(wide)
    total, tau = (t.unsqueeze(-1) if t.dim() else t for t in (total, tau))
    inverse = (1 / tau.detach()).clamp(max=torch.finfo(wide).max)
    rest = (t.to(wide) for t in (x, total, lower, upper, weight, inverse, tau.detach() / tau))
    change: Tensor = correction(torch, Tensor.detach, y, mu, at_most, *rest)
    return y + change
