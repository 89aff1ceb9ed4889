"""The box section for PyTorch: gradients to every argument, to any order and under every transform."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from hypersimplex import _checks
from hypersimplex._box_formula import centered, correction
from hypersimplex.torch import _operators
from hypersimplex.torch._batch import Number
from hypersimplex.torch._boundary import FLOATS, computed, has_batches, is_eager
from hypersimplex.torch._projection import TENSORS, as_tensor, check_input, over_slices
from hypersimplex.torch.backends import kernel, kernel_budgets, pick


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
    eager = type(input) in TENSORS and is_eager()
    backend: Any = pick(input)
    as_given = eager and backend is kernel
    whole = input.shape
    last = along == len(whole) - 1
    x = input if last else input.movedim(along, -1)
    slices = x.shape[:-1]
    arguments: Any = (
        x,
        _over_slices("total", total, input, along, slices, as_given),
        _over_entries("lower", lower, input, along, last, as_given),
        _over_entries("upper", upper, input, along, last, as_given),
        _over_entries("weight", 1.0 if weight is None else weight, input, along, last, as_given),
        _over_slices("tau", tau, input, along, slices, as_given),
    )
    if not eager:
        y, mu = _operators.box(*(t.detach() for t in arguments), at_most)
        return _with_derivatives(y, mu, arguments, at_most).to(input.dtype).movedim(-1, along)
    if torch.is_grad_enabled() and any(type(t) is not float and t.requires_grad for t in arguments):
        solved = _apply(backend, at_most, *arguments)
    else:
        solved = backend.box(*arguments, at_most)[0]
    if solved.dtype is not input.dtype:  # rounded here: backward must know which entries sit on a bound
        solved = solved.to(input.dtype)
    return solved if x is input else solved.movedim(-1, along)


class _Box(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, backend: Any, at_most: bool, *arguments: Any) -> Any:
        y, mu = backend.box(*arguments, at_most)
        ctx.numbers = [t if type(t) is float else None for t in arguments]
        ctx.save_for_backward(y, mu, *[t for t in arguments if type(t) is not float])
        ctx.at_most, ctx.backend = at_most, backend
        return y

    @staticmethod
    def backward(ctx: Any, v: Tensor) -> tuple[Tensor | None, ...]:
        y, mu, *saved = ctx.saved_tensors
        tensors = iter(saved)
        arguments = tuple(next(tensors) if number is None else number for number in ctx.numbers)
        needs, again = ctx.needs_input_grad[2:], torch.is_grad_enabled()
        once = not (again or type(v) is not Tensor or has_batches(v) or not is_eager())
        if once and ctx.backend is kernel:
            pulled = kernel_budgets.box_pullback(y, mu, v, arguments[2:], ctx.at_most, needs)
            return None, None, *(t if t is None else _like(t, a) for t, a in zip(pulled, arguments, strict=True))
        arguments = tuple(t if isinstance(t, Tensor) else torch.tensor(t, dtype=torch.float64) for t in arguments)
        if once and needs[0] and not any(needs[1:]):
            wide = computed(y.dtype)
            v, y, lower, upper, weight, tau = (t.to(wide) for t in (v, y, *arguments[2:]))
            mu, tau = mu.unsqueeze(-1), tau.unsqueeze(-1).clamp(min=torch.finfo(wide).tiny)
            to_input = centered(torch, v, y, mu, lower, upper, weight, tau, ctx.at_most)
            return None, None, to_input.to(arguments[0].dtype), *[None] * 5
        with torch.enable_grad():
            moved = _with_derivatives(y.detach(), mu, arguments, ctx.at_most).to(y.dtype)
        wanted = [t for t, needed in zip(arguments, needs, strict=True) if needed]
        found = iter(torch.autograd.grad(moved, wanted, v, create_graph=again))
        return None, None, *(next(found) if needed else None for needed in needs)


# Without the checks for transforms that Function.apply makes: where this is called, there are none.
_apply: Callable[..., Tensor] = super(torch.autograd.Function, _Box).apply


def _like(gradient: Tensor, argument: Tensor) -> Tensor:
    """The gradient to an argument that was broadcast."""
    if gradient.shape != argument.shape:
        gradient = gradient.sum_to_size(argument.shape)
    return gradient if gradient.dtype is argument.dtype else gradient.to(argument.dtype)


def _as_given(name: str, value: Any, input: Tensor) -> Any:
    """A number or a tensor that the kernel takes as it is, or a tensor made of it."""
    if type(value) is float or (type(value) is int and abs(value) <= 2**53):
        return float(value)
    if type(value) in TENSORS and value.is_cpu and value.dtype in FLOATS and value.layout is torch.strided:
        return value
    return as_tensor(name, value, input)


def _over_slices(name: str, value: Any, input: Tensor, along: int, shape: Sequence[int], as_given: bool) -> Any:
    value = _as_given(name, value, input) if as_given else as_tensor(name, value, input)
    if type(value) is float or value.shape == shape or not value.dim():
        return value
    return over_slices(name, value, input, along)


def _over_entries(name: str, value: Any, input: Tensor, along: int, last: bool, as_given: bool) -> Any:
    value = _as_given(name, value, input) if as_given else as_tensor(name, value, input)
    if type(value) is float or (last and value.shape == input.shape) or not value.dim():
        return value
    try:
        value.expand(input.shape)
    except RuntimeError:
        raise _checks.not_over_entries(name, input.shape, value.shape) from None
    return value.reshape(*[1] * (input.dim() - value.dim()), *value.shape).movedim(along, -1)


def _with_derivatives(y: Tensor, mu: Tensor, arguments: tuple[Tensor, ...], at_most: bool) -> Tensor:
    x, total, lower, upper, weight, tau = arguments
    wide = computed(y.dtype)
    y, mu = y.to(wide), mu.unsqueeze(-1).to(wide)
    total, tau = (t.unsqueeze(-1) if t.dim() else t for t in (total, tau))
    inverse = (1 / tau.detach()).clamp(max=torch.finfo(wide).max)
    rest = (t.to(wide) for t in (x, total, lower, upper, weight, inverse, tau.detach() / tau))
    change: Tensor = correction(torch, Tensor.detach, y, mu, at_most, *rest)
    return y + change
