"""soft_assignment for PyTorch: rows that sum to k, columns to at most their capacity, and the exact gradient."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from hypersimplex import _checks
from hypersimplex.torch import _operators
from hypersimplex.torch._assignment_rows import column_sums, solve
from hypersimplex.torch._batch import Number
from hypersimplex.torch._boundary import has_batches, is_eager
from hypersimplex.torch._projection import TENSORS, as_tensor, check_input, over_slices, piece
from hypersimplex.torch._ranks import Ranks, members, refuse_second_order
from hypersimplex.torch.backends import Backend, kernel, pick, plain


def soft_assignment(
    input: Tensor, k: Number, capacity: Number, tau: Number = 1.0, *, group: Any = None
) -> tuple[Tensor, Tensor]:
    """Solve argmin |y - input/tau|^2 over 0 <= y <= 1, where rows sum to k and columns to at most their capacity.

    y is a soft assignment of tokens (rows) to experts (columns). It equals clip((input - a_i - b_j)/tau, 0, 1) with
    one number a_i per token and one bias b_j >= 0 per expert. An expert with room left has bias 0.

    Return y and b. The rows of y are `soft_binary_argmax(input - b, k, tau)`. y has exact gradients to input, k,
    capacity and tau. b has no gradient.

    Args:
        input: floating-point tensor of tokens and experts; -inf keeps a token from an expert. float16 and bfloat16 are
            computed in float32.
        k: the sum of every row: a number, or one per token (0 for padding).
        capacity: the largest sum of a column: a number, or one per expert.
        tau: temperature, positive.
        group: process group, or True for the default one, if the tokens are spread over ranks. Then capacity counts
            the tokens of all ranks, and the result is that of one process with all tokens.

    >>> x = torch.tensor([[2.0, 1.0], [3.0, 0.5], [1.5, 1.0], [0.5, 1.0]])
    >>> y, bias = soft_assignment(x, k=1, capacity=2)
    >>> y
    tensor([[0.6250, 0.3750],
            [1.0000, 0.0000],
            [0.3750, 0.6250],
            [0.0000, 1.0000]])
    >>> bias
    tensor([0.7500, 0.0000])
    """
    return assign(input, k, capacity, tau, None, group)


def assign(
    input: Tensor, k: Number, capacity: Number, tau: Number, start: Tensor | None, group: Any
) -> tuple[Tensor, Tensor]:
    """soft_assignment with biases to start from."""
    ranks = None if group is None else members(group, input)
    k, capacity, tau = _as_numbers(input, k, capacity, tau)
    if type(input) in TENSORS and is_eager() and not input.is_meta:
        # With ranks the others may want gradients, and the inverse takes sums over all.
        if ranks is None and not any(t.requires_grad for t in (input, k, capacity, tau)):
            y, bias, _ = solve(input, k, capacity, tau, start, gradients=False)
            return y.to(input.dtype), bias
        y, bias = _apply(input, k, capacity, tau, start, ranks)
        return y, bias
    if ranks is not None:
        raise RuntimeError("with group, soft_assignment cannot be compiled, traced or transformed")
    return _formula(input, k, capacity, tau)


def _as_numbers(input: Tensor, k: Number, capacity: Number, tau: Number) -> tuple[Tensor, Tensor, Tensor]:
    """k for each row, or one; capacity for each column, or one; tau alone."""
    check_input(input, -1)
    if input.dim() != 2:
        raise _checks.not_a_matrix("input", input.shape)
    _checks.check_numbers(k, tau, input.shape[1], "dim -1")
    k = over_slices("k", k, input, 1)
    capacity, tau = (as_tensor(name, value, input) for name, value in (("capacity", capacity), ("tau", tau)))
    if tau.numel() != 1:
        raise ValueError(f"tau must be one number, got shape {tuple(tau.shape)}")
    tau = tau.reshape(())
    if capacity.dim() and capacity.shape not in ((1,), (input.shape[1],)):
        raise _checks.wrong_shape("capacity", (input.shape[1],), capacity.shape)
    return k, capacity, tau


class Assignment(torch.autograd.Function):
    """With P the derivative of the rows' projections and G the inverse of the columns' second derivative:

    the gradient is that of the rows for v - lambda, lambda = G (column sums of P v); to a capacity it is lambda.
    """

    @staticmethod
    def forward(
        ctx: Any, input: Tensor, k: Tensor, capacity: Tensor, tau: Tensor, start: Tensor | None, ranks: Ranks | None
    ) -> tuple[Tensor, Tensor]:
        y, bias, inverse = solve(input, k, capacity, tau, start, ranks)
        ctx.save_for_backward(y, inverse, k, capacity, tau)
        ctx.backend, ctx.ranks, ctx.dtype = pick(input), ranks, input.dtype
        ctx.mark_non_differentiable(bias)
        return y.to(input.dtype), bias

    @staticmethod
    def backward(ctx: Any, v: Tensor, _: Any) -> tuple[Tensor | None, ...]:
        y, inverse, k, capacity, tau = ctx.saved_tensors
        if ctx.ranks is not None:
            refuse_second_order()
        again = torch.is_grad_enabled() or type(v) is not Tensor or has_batches(v) or not is_eager()
        backend: Backend = plain if again else ctx.backend
        if not again:
            tau = tau.detach()
        v = v.to(inverse.dtype)
        pulled = backend.pullback(y, v, tau, 1, (True, False, False))[0]
        sums = column_sums(pulled) if backend is kernel else torch.where(torch.isnan(y), 0, pulled).sum(0)
        if ctx.ranks is not None:
            sums = ctx.ranks.sum(sums)
        shift = inverse @ sums * tau.to(inverse.dtype)
        moved = v - shift if again else torch.sub(v, shift, out=pulled)
        to_x, to_k, to_tau = backend.pullback(
            y, moved, tau, 1, (True, ctx.needs_input_grad[1], ctx.needs_input_grad[3])
        )
        if to_k is not None:
            to_k = to_k.to(k.dtype).sum_to_size(k.shape)
        if to_tau is not None:
            to_tau = to_tau.to(tau.dtype).sum()
        to_capacity = shift.to(capacity.dtype).sum_to_size(capacity.shape)
        return to_x.to(ctx.dtype), to_k, to_capacity, to_tau, None, None


# As in _projection.py: where this is called there are no transforms to check for.
_apply: Callable[..., Any] = super(torch.autograd.Function, Assignment).apply


def _formula(input: Tensor, k: Tensor, capacity: Tensor, tau: Tensor) -> tuple[Tensor, Tensor]:
    """The values of the operator, plus a term that is 0 and has the derivative, by operations any transform knows."""
    y, bias, inverse = _operators.assign(input.detach(), k.detach(), capacity.detach(), tau.detach())
    y = y.to(inverse.dtype)
    active, count = plain.active_entries(y, 1)
    k = k.unsqueeze(1) if k.dim() else k
    z, nu = piece(y, input, k, tau, active, count, lambda terms: terms.sum(1, keepdim=True))
    centered = torch.where(active, z - nu, 0)
    over = torch.where(torch.isnan(y), 0, centered).sum(0) + (y == 1).sum(0) - capacity.to(y.dtype)
    shift = (inverse @ (over - over.detach())).expand_as(y)
    shift = torch.where(active & ~torch.isnan(y), shift, 0)
    change = centered - torch.where(active, shift - shift.sum(1, keepdim=True) / count, 0)
    return (y + (change - change.detach())).to(input.dtype), bias
