"""The projection with its gradients: by a backend where tensors are what they seem, by a formula everywhere else."""

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hypersimplex import _checks, _formulas
from hypersimplex.torch import _operators
from hypersimplex.torch._batch import Number
from hypersimplex.torch._boundary import as_numbers, check_layout, computed, has_batches, is_eager, kind, slices, widest
from hypersimplex.torch.backends import Backend, pick, plain

TENSORS = frozenset({Tensor, torch.nn.Parameter})
_is_exporting: Callable[[], bool] = getattr(torch.compiler, "is_exporting", bool)
_NUMBERS = frozenset({float, int, Tensor, torch.nn.Parameter})


def project(
    input: Tensor, k: Number, tau: Number, dim: int, want_mu: bool = False, curve: str = "ramp"
) -> tuple[Tensor, Tensor | None]:
    """y, with gradients to input, k and tau, and mu, without."""
    if not (type(input) in TENSORS and type(k) in _NUMBERS and type(tau) in _NUMBERS and is_eager()):
        y, mu = formula(input, *as_tensors(input, k, tau, dim), dim, curve)
        return y, mu.detach()
    backend = pick(input, curve)
    needs_gradient = input.requires_grad
    if type(k) in TENSORS or type(tau) in TENSORS:
        k, tau = as_tensors(input, k, tau, dim)
        needs_gradient = needs_gradient or k.requires_grad or tau.requires_grad
    else:
        check_input(input, dim)
    if not needs_gradient:
        return backend.project(input, k, tau, dim, want_mu=want_mu, curve=curve)
    found = _apply(input, k, tau, (backend, dim, want_mu, curve))
    return found if want_mu else (found, None)


class Projection(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, input: Tensor, k: Number, tau: Number, how: tuple[Backend, int, bool, str]) -> Any:
        backend, dim, want_mu, curve = how
        y, mu = backend.project(input, k, tau, dim, want_mu=want_mu, curve=curve)
        if isinstance(tau, Tensor):  # then so is k
            ctx.how = backend, dim, None, curve
            ctx.save_for_backward(y, tau)
        else:
            ctx.how = backend, dim, tau, curve
            ctx.save_for_backward(y)
        if not want_mu:
            return y
        ctx.mark_non_differentiable(mu)
        return y, mu

    @staticmethod
    def backward(ctx: Any, v: Tensor, _: Tensor | None = None) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors
        backend, dim, tau, curve = ctx.how
        needs = (True, False, False)
        if tau is None:
            tau, needs = saved[1], ctx.needs_input_grad
        if torch.is_grad_enabled() or type(v) is not Tensor or has_batches(v) or not is_eager():
            backend = plain  # to be differentiated again, or many at once
        to_input, to_k, to_tau = backend.pullback(saved[0], v, tau, dim, needs, curve=curve)
        return to_input, to_k, to_tau, None


# Without the checks for transforms that Function.apply makes: where this is called, there are none.
_apply: Callable[..., Any] = super(torch.autograd.Function, Projection).apply


def formula(input: Tensor, k: Tensor, tau: Tensor, dim: int, curve: str = "ramp") -> tuple[Tensor, Tensor]:
    """y and mu, differentiable by any transform.

    The values are the operator's; what the formula adds is 0 and has the derivative. An exported graph can do without.
    """
    if _is_exporting() and not (torch.is_grad_enabled() and any(t.requires_grad for t in (input, k, tau))):
        return _operators.project(input, k, tau, dim, curve)  # type: ignore[no-any-return]
    y, mu = _operators.project(input.detach(), k.detach(), tau.detach(), dim, curve)
    y = y.to(computed(y.dtype))
    k, each = (t.unsqueeze(dim) if t.dim() else t for t in (k, tau))
    rise, nu = risen(y, input, k, each, lambda terms: terms.sum(dim, keepdim=True), curve)
    return (y + rise).to(input.dtype), mu + (nu.to(mu.dtype) * each.detach().to(mu.dtype)).squeeze(dim)


def risen(
    y: Tensor, input: Tensor, k: Tensor, tau: Tensor, total: Callable[[Tensor], Tensor], curve: str = "ramp"
) -> tuple[Tensor, Tensor]:
    """What y and mu/tau rise by with the arguments: 0, with the derivative. `total` sums up the terms of a slice."""
    # An infinite x would give inf - inf, and a tau that the dtype of x does not hold inf or 0.
    x = input.to(y.dtype)
    moved = torch.where(torch.isinf(x.detach()), 0, x - x.detach())
    inverse = (1 / tau.detach()).clamp(max=torch.finfo(y.dtype).max).to(y.dtype)
    ratio, more = (tau / tau.detach()).to(y.dtype), (k - k.detach()).to(y.dtype)
    return _formulas.by_newton_steps(torch, curve, y, moved * inverse, ratio, more, total)


def check_input(input: Tensor, dim: int) -> int:
    """Return dim as a non-negative number."""
    check_entries(input)
    return _checks.check_dim("dim", dim, input.dim())


def check_entries(input: Tensor) -> None:
    if not isinstance(input, Tensor):
        raise TypeError(f"input must be a tensor, got {type(input).__name__}")
    if not input.is_floating_point():
        raise _checks.not_floating("input", input.dtype)
    check_layout("input", input)


def as_tensors(input: Tensor, k: Number, tau: Number, dim: int) -> tuple[Tensor, Tensor]:
    """k and tau as the operators take them."""
    along = check_input(input, dim)
    if input.device.type != "cpu" or not input.numel():
        # On the CPU the operator reads the values of every slice; elsewhere numbers are all that can be read without
        # waiting.
        _checks.check_numbers(k, tau, input.shape[along], f"dim {operator.index(dim)}")
    return over_slices("k", k, input, along), over_slices("tau", tau, input, along)


def over_slices(name: str, value: Number, input: Tensor, along: int) -> Tensor:
    shape = slices(input, along)
    value = as_tensor(name, value, input)
    try:
        return value if not value.dim() else value.expand(shape)
    except RuntimeError:
        raise _checks.not_broadcastable(name, shape, value.shape) from None


def as_tensor(name: str, value: Number, input: Tensor) -> Tensor:
    """Numbers on input's device, in its widest dtype."""
    dtype = widest(input.device)
    if not isinstance(value, Tensor):
        if not isinstance(value, float | int):  # torch would take these without a word, and drop half of them
            if np.iscomplexobj(value):
                raise _checks.not_real(name, getattr(value, "dtype", "complex"))
            if isinstance(value, np.ma.MaskedArray):
                raise _checks.masked_array(name)
        try:
            value = as_numbers(value, dtype, input.device)
        except OverflowError:
            raise _checks.too_large(name) from None
        except (TypeError, ValueError, RuntimeError):
            if isinstance(value, int):
                _checks.check_number(name, value)
            raise _checks.not_a_number(name, value) from None
        return value
    if value.is_complex():
        raise _checks.not_real(name, value.dtype)
    check_layout(name, value)
    if value.is_meta and not input.is_meta:
        raise _checks.no_values(name, kind(value))
    return value.to(input.device, dtype)
