"""The operator for PyTorch: gradients to the input, to k and to tau, to any order and under every transform."""

from typing import Any

import torch
from torch import Tensor

from hypersimplex import _checks
from hypersimplex.torch import _contiguous, _ops, _plain, _triton

Number = Tensor | float


def soft_binary_argmax(input: Tensor, k: Number, tau: Number = 1.0, dim: int = -1) -> Tensor:
    """Solve argmin |y - input/tau|^2 over 0 <= y <= 1, sum(y) = k, for every slice of input along dim.

    The solution is y = clip((input - mu)/tau, 0, 1) with one number mu per slice: a soft choice of the k largest
    entries. With A = {0 < y < 1} the gradient of sum(v * y) is (v - mean_A v)/tau on A and 0 elsewhere; to k it is
    mean_A v, to tau -sum_A v (y - mean_A y)/tau.

    Args:
        input: floating-point tensor; float16 and bfloat16 are computed in float32.
        k: the sum of every slice, from 0 to its size: a number, or a tensor that broadcasts over the slices.
        tau: temperature, positive: a number, or a tensor that broadcasts over the slices.
        dim: the dim along which the slices lie.

    >>> x = torch.tensor([0.1, 1.6, 1.0], requires_grad=True)
    >>> y = soft_binary_argmax(x, k=1)
    >>> y
    tensor([0.0000, 0.8000, 0.2000], grad_fn=<ProjectionBackward>)
    >>> y[1].backward()
    >>> x.grad
    tensor([ 0.0000,  0.5000, -0.5000])
    """
    if _is_eager(input, k, tau):
        return _eager(input, k, tau, dim)
    return _local(input, *_as_tensors(input, k, tau, dim), dim)[0]


def threshold(input: Tensor, k: Number, tau: Number = 1.0, dim: int = -1) -> Tensor:
    """Return mu, one number for each slice, such that clip((input - mu)/tau, 0, 1) sums to k.

    Where an interval of numbers would do, mu is its middle, or its finite end if only one end is finite.

    >>> threshold(torch.tensor([0.1, 1.6, 1.0]), k=1)
    tensor(0.8000)
    """
    k, tau = _as_tensors(input, k, tau, dim)
    mu: Tensor = torch.ops.hypersimplex.threshold(input.detach(), k.detach(), tau.detach(), dim)
    if not _ops.no_transform() or (torch.is_grad_enabled() and any(t.requires_grad for t in (input, k, tau))):
        # The derivative is that of the formula on the active set; the value stays the operator's.
        formula = _local(input, k, tau, dim)[1]
        mu = mu + (formula - formula.detach())
    return mu


def binary_argmax(input: Tensor, k: Number, dim: int = -1) -> Tensor:
    """Return exactly k ones, at the largest entries of every slice, and zeros elsewhere; ties go to the lower index.

    The result is piecewise constant and carries no gradient.

    >>> binary_argmax(torch.tensor([0.1, 1.6, 1.0, 1.0]), k=2)
    tensor([0., 1., 1., 0.])
    """
    k, _ = _as_tensors(input, k, 1.0, dim)
    result: Tensor = torch.ops.hypersimplex.binary(input.detach(), k.detach(), dim)
    return result


_no_transform = _ops.no_transform
_TENSORS = frozenset({Tensor, torch.nn.Parameter})
_VALUES = frozenset({float, int, Tensor, torch.nn.Parameter})


def _is_eager(input: Tensor, k: Number, tau: Number) -> bool:
    """Whether the autograd function will do: plain tensors, and no transform that must see inside."""
    return _ops.no_transform() and type(input) in _TENSORS and type(k) in _VALUES and type(tau) in _VALUES


def _check_input(input: Tensor, dim: int) -> int:
    if not isinstance(input, Tensor):
        raise TypeError(f"input must be a tensor, got {type(input).__name__}")
    if not input.is_floating_point():
        raise _checks.not_floating("input", input.dtype)
    return _checks.check_dim("dim", dim, input.dim())


def _over_slices(name: str, value: Number, input: Tensor, along: int) -> Tensor:
    dtype = _plain.widest(input.device)
    if not isinstance(value, Tensor):
        try:
            value = torch.as_tensor(value, dtype=dtype, device=input.device)
        except (TypeError, ValueError, RuntimeError):
            raise _checks.not_a_number(name, value) from None
        if not value.dim():
            return value
    slices = (*input.shape[:along], *input.shape[along + 1 :])
    try:
        return value.expand(slices).to(input.device, dtype)
    except RuntimeError:
        raise _checks.not_broadcastable(name, slices, value.shape) from None


def _as_tensors(input: Tensor, k: Number, tau: Number, dim: int) -> tuple[Tensor, Tensor]:
    along = _check_input(input, dim)
    if input.device.type != "cpu" or not input.numel():
        # On the CPU the operator reads the values of every slice; elsewhere numbers are all that can be read without
        # waiting.
        _checks.check_numbers(k, tau, input.shape[along], f"dim {dim}")
    return _over_slices("k", k, input, along), _over_slices("tau", tau, input, along)


def _eager(input: Tensor, k: Number, tau: Number, dim: int) -> Tensor:
    along = _check_input(input, dim)
    if _contiguous.fits(input, k, tau):
        run = _contiguous.projection if input.requires_grad else _contiguous.project
        simple: Tensor = run(input, k, tau, dim)  # type: ignore[arg-type]
        return simple
    if not input.is_cpu or _ops.is_plain():
        k, tau = _as_tensors(input, k, tau, dim)
    else:
        k = _over_slices("k", k, input, along).contiguous() if isinstance(k, Tensor) else k
        tau = _over_slices("tau", tau, input, along).contiguous() if isinstance(tau, Tensor) else tau
    if input.requires_grad or isinstance(k, Tensor) or isinstance(tau, Tensor):
        y: Tensor = _Projection.apply(input, k, tau, dim)  # type: ignore[no-untyped-call]
        return y
    return _forward(input, k, tau, dim)


def _forward(input: Tensor, k: Number, tau: Number, dim: int) -> Tensor:
    if not input.is_cpu or _ops.is_plain():
        result: Tensor = torch.ops.hypersimplex.project(input, k, tau, dim)
        return result
    even = _ops.evenly(input, dim)
    y = torch.empty_like(even)
    _ops.kernel_project(even, k, tau, dim, y.data_ptr(), 0)
    return y if y.dtype is input.dtype else y.to(input.dtype)


class _Projection(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, input: Tensor, k: Number, tau: Number, dim: int) -> Tensor:
        y = _forward(input, k, tau, dim)
        ctx.dim = dim
        if isinstance(tau, Tensor):
            ctx.save_for_backward(y, tau)
        else:
            ctx.tau = tau
            ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, v: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        y, *rest = ctx.saved_tensors
        tau = rest[0] if rest else ctx.tau
        needs = ctx.needs_input_grad
        if y.is_cpu and not torch.is_grad_enabled() and not _ops.is_plain() and _has_memory(v) and _ops.no_transform():
            return *_ops.kernel_backward(y, v, tau, ctx.dim, needs), None
        if y.is_cuda and not torch.is_grad_enabled() and _ops.uses_triton() and _has_memory(v) and _ops.no_transform():
            to_x, to_k, to_tau = _triton.backward(y, v, torch.as_tensor(tau, device=y.device), ctx.dim)
        else:
            to_x, to_k, to_tau = vjp(y, v, tau, ctx.dim)
        return to_x if needs[0] else None, to_k if needs[1] else None, to_tau if needs[2] else None, None


def _has_memory(v: Tensor) -> bool:
    """False for the many gradients in one of torch.autograd.grad(is_grads_batched=True)."""
    return not torch._C._functorch.is_legacy_batchedtensor(v)


def _active(y: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """A = {0 < y < 1} and its size, at least 1. A slice with a NaN is NaN as a whole, and so is its size of A:
    the gradients, being means over A, follow."""
    broken = torch.isnan(y)
    active = (y > 0) & (y < 1)
    count = active.sum(dim, keepdim=True).clamp(min=1).to(y.dtype)
    return active | broken, torch.where(broken.any(dim, keepdim=True), torch.nan, count)


def vjp(y: Tensor, v: Tensor, tau: Number, dim: int) -> tuple[Tensor, Tensor, Tensor]:
    """The derivative in torch operations, so that it can be differentiated again."""
    wide = torch.float64 if y.dtype == torch.float64 else torch.float32
    y, w = y.to(wide), v.to(wide)
    each = tau.unsqueeze(dim) if isinstance(tau, Tensor) and tau.dim() else tau
    active, count = _active(y.detach(), dim)

    def mean(t: Tensor) -> Tensor:
        return torch.where(active, t, 0).sum(dim, keepdim=True) / count

    to_k = mean(w)
    to_x = torch.where(active, (w - to_k) / each, 0)
    to_tau = -torch.where(active, w * (y - mean(y)), 0).sum(dim, keepdim=True) / each
    return to_x.to(v.dtype), to_k.squeeze(dim), to_tau.squeeze(dim)


def _local(input: Tensor, k: Tensor, tau: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """y, and how mu moves, by the formula that holds while the active set stays: differentiable by any transform.

    On A, with x measured from mu: y = (x - mean_A x)/tau + (k - ones)/|A| and mu = mean_A x - tau (k - ones)/|A|.
    """
    y: Tensor = torch.ops.hypersimplex.project(input.detach(), k.detach(), tau.detach(), dim)
    wide = torch.float64 if y.dtype == torch.float64 else torch.float32
    y = y.to(wide)
    kw, tw = (t.to(wide).unsqueeze(dim) if t.dim() else t.to(wide) for t in (k, tau))
    active, count = _active(y, dim)
    # An infinite x would give inf - inf.
    x = input.to(wide)
    moved = torch.where(torch.isfinite(x.detach()), x - x.detach(), 0)
    z = torch.where(active, tw.detach() * y + moved, 0)
    mean = z.sum(dim, keepdim=True) / count
    share = (kw - (y == 1).sum(dim, keepdim=True)) / count
    formula = torch.where(active, z - mean, 0) / tw + share
    y = torch.where(active, y + (formula - formula.detach()), y)
    mu = torch.where(active.any(dim, keepdim=True), mean - tw * share, 0)
    return y.to(input.dtype), mu.squeeze(dim)
