"""Soft top-k of rows of different lengths that lie one after the other, for PyTorch."""

from typing import Any

import torch
from torch import Tensor

from hypersimplex import _checks
from hypersimplex.torch import _operators
from hypersimplex.torch._batch import Number
from hypersimplex.torch._boundary import check_layout, computed, has_batches, is_eager
from hypersimplex.torch._projection import TENSORS, as_tensor, check_input, risen
from hypersimplex.torch.backends import kernel, pick
from hypersimplex.torch.backends.kernel_budgets import segments_pullback


def soft_topk_segments(input: Tensor, k: Number, offsets: Tensor, tau: Number = 1.0, *, curve: str = "ramp") -> Tensor:
    """Compute soft_topk of every segment input[offsets[i]:offsets[i + 1]], for rows of different lengths.

    The result is that of soft_topk for each segment by itself, or for rows padded with -inf.

    Args:
        input: floating-point tensor of one dim; float16 and bfloat16 are computed in float32.
        k: the sum of every segment, from 0 to its size: a number, or a tensor with one number per segment.
        offsets: whole numbers that rise from 0 to the size of the input, one more than there are segments.
        tau: temperature, positive: a number, or a tensor with one number per segment.
        curve: "ramp", "exp", "logistic" or "laplace", as for soft_topk.

    >>> x = torch.tensor([0.1, 1.6, 1.0, 2.0, 2.5])
    >>> soft_topk_segments(x, k=1, offsets=torch.tensor([0, 3, 5]))
    tensor([0.0000, 0.8000, 0.2000, 0.2500, 0.7500])
    """
    _checks.check_curve(curve)
    check_input(input, -1)
    _checks.check_flat("input", input.shape)
    offsets = torch.as_tensor(offsets, device=input.device)
    check_layout("offsets", offsets)
    _checks.check_offsets(offsets.shape, not (offsets.is_floating_point() or offsets.is_complex()), offsets.dtype)
    k, tau = _over_segments("k", k, input, offsets), _over_segments("tau", tau, input, offsets)
    if not (is_eager() and type(input) in TENSORS) or input.is_meta:
        solved = _operators.segments(input.detach(), offsets, k.detach(), tau.detach(), curve)
        return _formula(solved, input, offsets, k, tau, curve)
    if torch.is_grad_enabled() and any(t.requires_grad for t in (input, k, tau)):
        y: Tensor = _Segments.apply(input, offsets, k, tau, curve)  # type: ignore[no-untyped-call]
        return y
    return pick(input, curve).segments(input, offsets, k, tau, curve=curve)


class _Segments(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, input: Tensor, offsets: Tensor, k: Tensor, tau: Tensor, curve: str) -> Tensor:
        y = pick(input, curve).segments(input, offsets, k, tau, curve=curve)
        ctx.curve = curve
        ctx.save_for_backward(y, input, offsets, k, tau)
        return y

    @staticmethod
    def backward(ctx: Any, v: Tensor) -> tuple[Tensor | None, ...]:
        y, input, offsets, k, tau = ctx.saved_tensors
        to_input, _, *rest, _ = ctx.needs_input_grad
        if torch.is_grad_enabled() or has_batches(v) or not is_eager() or pick(input, ctx.curve) is not kernel:
            with torch.enable_grad():
                again = _formula(y.detach(), input, offsets, k, tau, ctx.curve)
            wanted = [t for t, needed in zip((input, k, tau), (to_input, *rest), strict=True) if needed]
            found = iter(torch.autograd.grad(again, wanted, v, create_graph=torch.is_grad_enabled()))
            to_x, to_k, to_tau = (next(found) if needed else None for needed in (to_input, *rest))
        else:
            to_x, to_k, to_tau = segments_pullback(y, v, offsets, tau, (to_input, *rest), ctx.curve)
            to_k, to_tau = (g if g is None or t.dim() else g.sum() for g, t in ((to_k, k), (to_tau, tau)))
        return to_x, None, to_k, to_tau, None


def _over_segments(name: str, value: Number, input: Tensor, offsets: Tensor) -> Tensor:
    value = as_tensor(name, value, input)
    if value.shape == (1,):
        value = value.reshape(())
    if value.dim() and value.shape != (offsets.shape[0] - 1,):
        raise _checks.not_broadcastable(name, (offsets.shape[0] - 1,), value.shape)
    return value


def _formula(y: Tensor, input: Tensor, offsets: Tensor, k: Tensor, tau: Tensor, curve: str) -> Tensor:
    """y with the derivatives of the formula in _projection.py, its sums taken by segment."""
    y = y.to(computed(input.dtype))
    # All sizes are those of offsets: one for each segment may be 1, which an exported graph would take as fixed.
    own = torch.bucketize(torch.arange(y.shape[0], device=y.device), offsets, right=True) - 1
    k, tau = (t[own] if t.dim() else t for t in (k, tau))

    def each(terms: Tensor) -> Tensor:
        """The sum of every segment, for each of its entries."""
        return y.new_zeros(offsets.shape[0]).index_add(0, own, terms.to(y.dtype))[own]

    return (y + risen(y, input, k, tau, each, curve)[0]).to(input.dtype)
