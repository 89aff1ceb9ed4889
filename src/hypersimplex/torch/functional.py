"""The operator for PyTorch: gradients to the input, to k and to tau, to any order and under every transform."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from hypersimplex import _checks, _kernel
from hypersimplex.torch import _ops

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
    tensor([0.0000, 0.8000, 0.2000], grad_fn=<_ProjectionBackward>)
    >>> y[1].backward()
    >>> x.grad
    tensor([ 0.0000,  0.5000, -0.5000])
    """
    if _is_eager(input, k, tau):
        return _eager(input, k, tau, dim)
    k, tau = _as_tensors(input, k, tau, dim)
    return _local(input, k, tau, dim % input.dim())[0]


def threshold(input: Tensor, k: Number, tau: Number = 1.0, dim: int = -1) -> Tensor:
    """Return mu, one number for each slice, such that clip((input - mu)/tau, 0, 1) sums to k.

    Where an interval of numbers would do, mu is its middle, or its finite end if only one end is finite.

    >>> threshold(torch.tensor([0.1, 1.6, 1.0]), k=1)
    tensor(0.8000)
    """
    k, tau = _as_tensors(input, k, tau, dim)
    dim = dim % input.dim()
    mu: Tensor = torch.ops.hypersimplex.threshold(input.detach(), k.detach(), tau.detach(), dim)
    if torch.is_grad_enabled() and any(t.requires_grad for t in (input, k, tau)) or not _no_transform():
        # The derivative of the threshold is that of the formula on the active set; the value stays the kernel's.
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
    result: Tensor = torch.ops.hypersimplex.binary(input.detach(), k.detach(), dim % input.dim())
    return result


def _no_transform() -> bool:
    return (
        not torch.compiler.is_compiling()
        and not torch._C._are_functorch_transforms_active()
        and forward_ad._current_level < 0
    )


def _is_eager(input: Tensor, k: Number, tau: Number) -> bool:
    """Whether the fused autograd function will do: a plain CPU tensor, and no transform that must see inside."""
    return (
        type(input) in (Tensor, torch.nn.Parameter)
        and input.device.type == "cpu"
        and not _ops.is_plain()
        and _no_transform()
        and all(type(t) in (float, int, Tensor, torch.nn.Parameter) for t in (k, tau))
    )


def _check_input(input: Tensor, dim: int) -> int:
    if not input.is_floating_point():
        raise _checks.not_floating("input", input.dtype)
    return _checks.check_dim("dim", dim, input.dim())


def _over_slices(name: str, value: Number, slices: tuple[int, ...], device: torch.device) -> Tensor:
    if not isinstance(value, Tensor):
        return torch.as_tensor(_checks.check_number(name, value), dtype=torch.float64, device=device)
    try:
        whole = value.expand(slices)
    except RuntimeError:
        raise _checks.not_broadcastable(name, slices, value.shape) from None
    return whole if device.type == "mps" else whole.to(torch.float64)


def _as_tensors(input: Tensor, k: Number, tau: Number, dim: int) -> tuple[Tensor, Tensor]:
    along = _check_input(input, dim)
    slices = (*input.shape[:along], *input.shape[along + 1 :])
    return _over_slices("k", k, slices, input.device), _over_slices("tau", tau, slices, input.device)


def _eager(input: Tensor, k: Number, tau: Number, dim: int) -> Tensor:
    along = _check_input(input, dim)
    if isinstance(k, Tensor) or isinstance(tau, Tensor):
        slices = (*input.shape[:along], *input.shape[along + 1 :])
        k = _over_slices("k", k, slices, input.device).contiguous() if isinstance(k, Tensor) else k
        tau = _over_slices("tau", tau, slices, input.device).contiguous() if isinstance(tau, Tensor) else tau
    if input.requires_grad or isinstance(k, Tensor) or isinstance(tau, Tensor):
        y: Tensor = _Projection.apply(input, k, tau, dim)
        return y
    return _forward(input, k, tau, dim)


def _forward(input: Tensor, k: Number, tau: Number, dim: int) -> Tensor:
    even = _ops.evenly(input, dim)
    y = torch.empty_like(even)
    _ops.kernel_project(even, k, tau, dim, y.data_ptr(), 0, dim)
    return y if y.dtype is input.dtype else y.to(input.dtype)


class _Projection(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, input: Tensor, k: Number, tau: Number, dim: int) -> Tensor:
        y = _forward(input, k, tau, dim)
        ctx.dim = dim
        ctx.tau = tau
        ctx.save_for_backward(y, *(t for t in (tau,) if isinstance(t, Tensor)))
        return y

    @staticmethod
    def backward(ctx: Any, v: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:  # type: ignore[override]
        y, *rest = ctx.saved_tensors
        tau = rest[0] if rest else ctx.tau
        needs_x, needs_k, needs_tau, _ = ctx.needs_input_grad
        if torch.is_grad_enabled():
            return *_vjp(y, v, tau, ctx.dim), None
        dtype = y.dtype
        dim = ctx.dim
        y = _ops.evenly(y, dim)
        v = v.to(y.dtype) if v.dtype is not y.dtype else v
        if v.stride() != y.stride() or v.is_neg():
            v = torch.empty_like(y).copy_(v)
        slices = [s for d, s in enumerate(y.shape) if d != dim % y.dim()]
        grad = torch.empty_like(y) if needs_x else None
        to_k = torch.empty(slices, dtype=torch.float64) if needs_k else None
        to_tau = torch.empty(slices, dtype=torch.float64) if needs_tau else None
        _kernel.backward_at(
            y.dtype is torch.float64, y.data_ptr(), v.data_ptr(),
            *(0 if t is None else t.data_ptr() for t in (grad, to_k, to_tau)),
            y.shape, y.stride(), dim, *_ops.address(tau), torch.get_num_threads(),
        )  # fmt: skip
        if grad is not None and grad.dtype is not dtype:
            grad = grad.to(dtype)
        return grad, to_k, to_tau, None


def _active(y: Tensor) -> Tensor:
    return (y > 0) & (y < 1)


def _vjp(y: Tensor, v: Tensor, tau: Number, dim: int) -> tuple[Tensor, Tensor, Tensor]:
    """The derivative in torch operations, so that it can be differentiated again."""
    wide = torch.float64 if y.dtype == torch.float64 else torch.float32
    active = _active(y.detach())
    count = active.sum(dim, keepdim=True).clamp(min=1)
    each = tau.unsqueeze(dim) if isinstance(tau, Tensor) and tau.dim() else tau

    def mean(t: Tensor) -> Tensor:
        return torch.where(active, t, 0).sum(dim, keepdim=True) / count

    z, w = y.to(wide), v.to(wide)
    broken = torch.isnan(z.detach()).any(dim, keepdim=True)
    centred = torch.where(active, w - mean(w), 0)
    to_x = torch.where(broken, torch.nan, (centred / each)).to(v.dtype)
    to_k = torch.where(broken, torch.nan, mean(w)).squeeze(dim).to(torch.float64)
    to_tau = -(torch.where(active, w * (z - mean(z)), 0).sum(dim, keepdim=True) / each)
    return to_x, to_k, torch.where(broken, torch.nan, to_tau).squeeze(dim).to(torch.float64)


def _local(input: Tensor, k: Tensor, tau: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """y and mu by the formula that holds while the active set stays as it is: differentiable by any transform.

    On A: mu = mean_A x - tau (k - ones)/|A| and y = (x - mu)/tau, with A and the ones taken from the operator.
    """
    y0: Tensor = torch.ops.hypersimplex.project(input.detach(), k.detach(), tau.detach(), dim)
    wide = torch.float64 if input.dtype == torch.float64 else torch.float32
    y0w = y0.to(wide)
    active = _active(y0w)
    count = active.sum(dim, keepdim=True).clamp(min=1)
    kw = (k.to(wide) if k.dim() == 0 else k.to(wide).unsqueeze(dim))
    tw = (tau.to(wide) if tau.dim() == 0 else tau.to(wide).unsqueeze(dim))
    # x measured from mu, so that no digit is lost; an infinite x would give inf - inf.
    moving = active & torch.isfinite(input.detach())
    x = input.to(wide)
    z = torch.where(active, tw.detach() * y0w, 0) + torch.where(moving, x - x.detach(), 0)
    mean = z.sum(dim, keepdim=True) / count
    ones = (y0w == 1).sum(dim, keepdim=True)
    share = (kw - ones) / count
    y = torch.where(active, (z - mean) / tw + share, y0w)
    mu = torch.where(active.any(dim, keepdim=True), mean - tw * share, 0).squeeze(dim)
    return y.to(input.dtype), mu
