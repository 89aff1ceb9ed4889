"""The box section for PyTorch: gradients to every argument, to any order and under every transform."""

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor

from hypersimplex import _checks
from hypersimplex._box_formula import correction
from hypersimplex.torch import _operators
from hypersimplex.torch._batch import Number
from hypersimplex.torch._boundary import has_batches, is_eager
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
    if not (is_eager() and type(input) in TENSORS):
        y, mu = _operators.box(*fixed, at_most)
        return _with_derivatives(y, mu, arguments, at_most).to(input.dtype).movedim(-1, along)
    if torch.is_grad_enabled() and any(t.requires_grad for t in arguments):
        y = cast(Tensor, _Box.apply(at_most, *arguments))  # type: ignore[no-untyped-call]
    else:
        y = _solve(fixed, at_most)[0]
    return y.movedim(-1, along)


def _solve(arguments: Sequence[Tensor], at_most: bool) -> tuple[Tensor, Tensor]:
    x, total, lower, upper, weight, tau = arguments
    return pick(x).box(x, total, lower, upper, weight, tau, at_most)


class _Box(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, at_most: bool, *arguments: Tensor) -> Tensor:
        y, mu = _solve([t.detach() for t in arguments], at_most)
        ctx.save_for_backward(y, mu, *arguments)
        ctx.at_most = at_most
        return y

    @staticmethod
    def backward(ctx: Any, v: Tensor) -> tuple[Tensor | None, ...]:
        y, mu, *arguments = ctx.saved_tensors
        needs, again = ctx.needs_input_grad[1:], torch.is_grad_enabled()
        if needs[0] and not (again or any(needs[1:]) or has_batches(v) or not is_eager()):
            return None, _to_input(y, mu, v, ctx.at_most, *arguments), *[None] * 5
        with torch.enable_grad():
            moved = _with_derivatives(y.detach(), mu, tuple(arguments), ctx.at_most).to(y.dtype)
        wanted = [t for t, needed in zip(arguments, needs, strict=True) if needed]
        found = iter(torch.autograd.grad(moved, wanted, v, create_graph=again))
        return None, *(next(found) if needed else None for needed in needs)


def _to_input(y: Tensor, mu: Tensor, v: Tensor, at_most: bool, *arguments: Tensor) -> Tensor:
    """The gradient to the input alone: (v - w m)/tau on the free entries."""
    _, _, lower, upper, weight, tau = arguments
    wide = torch.float64 if y.dtype == torch.float64 else torch.float32
    y, v, lower, upper, weight, tau = (t.to(wide) for t in (y, v, lower, upper, weight, tau))
    free = ~((y <= lower) | (y >= upper))
    own, v = free * weight, torch.where(free, v, 0)
    m = (own * v).sum(-1, keepdim=True) / (own * own).sum(-1, keepdim=True).clamp(min=torch.finfo(wide).tiny)
    if at_most:
        m = torch.where(mu.unsqueeze(-1) == 0, 0, m)
    inverse = (1 / tau).clamp(max=torch.finfo(wide).max)
    return ((v - own * m) * (inverse.unsqueeze(-1) if inverse.dim() else inverse)).to(arguments[0].dtype)


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
