"""soft_assignment for PyTorch: rows that sum to k, columns to at most their capacity, and the exact gradient."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from hypersimplex import _checks, _formulas
from hypersimplex.torch import _operators
from hypersimplex.torch._assignment_rows import column_sums, limits_of, rows_of, solve
from hypersimplex.torch._batch import Number
from hypersimplex.torch._boundary import has_batches, is_eager, kind
from hypersimplex.torch._projection import TENSORS, as_tensor, check_input, over_slices, risen
from hypersimplex.torch._ranks import Ranks, dtype_code, exchange, fingerprint, members, same, same_dtype, same_values
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
    ranks = None if group is None else members(group, input)
    y, bias, _ = assign(lambda: input, k, capacity, tau, None, ranks)
    return y, bias


class Share(NamedTuple):
    """A capacity of so many times the number of tokens, of all ranks."""

    of_tokens: float


def assign(
    scores: Callable[[], Tensor], k: Number, capacity: Number | Share, tau: Number, start: Tensor | None,
    ranks: Ranks | None,
) -> tuple[Tensor, Tensor, Tensor | bool]:  # fmt: skip
    """soft_assignment of what `scores` gives, from biases to start with; and for a Share whether a token has no NaN."""
    if ranks is not None:
        return _over_ranks(scores, k, capacity, tau, start, ranks)
    input = scores()
    known = _has_known(input) if isinstance(capacity, Share) else True
    if isinstance(capacity, Share):
        capacity = capacity.of_tokens * float(input.shape[0])
    k, tau = _as_numbers(input, k, tau)
    capacity = _as_capacity(input, capacity)
    if not _is_plain(input):
        return *_formula(input, k, capacity, tau), known
    rows = rows_of(input, k, tau)
    if not any(t.requires_grad for t in (input, k, capacity, tau)):
        y, bias, _ = solve(rows, input, capacity, start, gradients=False)
        return y.to(input.dtype), bias, known
    return *_apply(input, k, capacity, tau, rows, start, None), known


def _over_ranks(
    scores: Callable[[], Tensor], k: Number, capacity: Number | Share, tau: Number, start: Tensor | None, ranks: Ranks
) -> tuple[Tensor, Tensor, bool]:
    """The same, with the tokens of all ranks. They first tell each other whether they can, and whether they agree."""

    def tell() -> tuple[Any, list[int]]:
        input = scores()
        numbers = _as_numbers(input, k, tau)
        if input.is_meta:
            raise _checks.no_values("input", kind(input))
        if not _is_plain(input):
            raise RuntimeError("with group, soft_assignment cannot be compiled, traced or transformed")
        code = dtype_code(input.dtype)
        rows = rows_of(input, *numbers, ranks)
        rows.project(np.zeros(input.shape[1]))  # a bad row must be told before the others wait for its sums
        of_experts = capacity if isinstance(capacity, Share) else _as_capacity(input, capacity)
        limits = of_experts if isinstance(of_experts, Share) else limits_of(of_experts, input.shape[1])
        first = 0.0 if start is None else start.detach().cpu().double().numpy()
        told = [1, input.shape[1], code, fingerprint(rows.tau), fingerprint(limits), fingerprint(first)]
        return (input, *numbers, of_experts, rows), [*told, input.shape[0], int(_has_known(input))]

    given, (experts, dtypes, taus, limits, starts, tokens, known, *_) = exchange(ranks, "soft_assignment", tell)
    same("input must have the same number of experts", experts)
    same_dtype(dtypes)
    for name, prints in (("tau", taus), ("capacity", limits), ("bias", starts)):
        same_values(name, prints)
    input, of_rows, temperature, of_experts, rows = given
    if isinstance(of_experts, Share):
        of_experts = _as_capacity(input, of_experts.of_tokens * sum(tokens))
    # With gradients, whatever this rank needs: the others may need them, and the inverse takes sums over all.
    return *_apply(input, of_rows, of_experts, temperature, rows, start, ranks), any(known)


def _is_plain(input: Tensor) -> bool:
    return type(input) in TENSORS and is_eager() and not input.is_meta


def _has_known(input: Tensor) -> Tensor:
    """Whether some token is without a NaN."""
    return ~input.isnan().any(1).all()


def _as_numbers(input: Tensor, k: Number, tau: Number) -> tuple[Tensor, Tensor]:
    """k for each row, or one; tau alone."""
    check_input(input, -1)
    if input.dim() != 2:
        raise _checks.not_a_matrix("input", input.shape)
    _checks.check_numbers(k, tau, input.shape[1], "dim -1")
    k, tau = over_slices("k", k, input, 1), as_tensor("tau", tau, input)
    if tau.numel() != 1:
        raise ValueError(f"tau must be one number, got shape {tuple(tau.shape)}")
    return k, tau.reshape(())


def _as_capacity(input: Tensor, capacity: Number) -> Tensor:
    """For each column, or one."""
    capacity = as_tensor("capacity", capacity, input)
    if capacity.dim() and capacity.shape not in ((1,), (input.shape[1],)):
        raise _checks.wrong_shape("capacity", (input.shape[1],), capacity.shape)
    return capacity


class Assignment(torch.autograd.Function):
    """With P the derivative of the rows' projections and G the inverse of the columns' second derivative:

    the gradient is that of the rows for v - lambda, lambda = G (column sums of P v); to a capacity it is lambda.
    """

    @staticmethod
    def forward(
        ctx: Any, input: Tensor, k: Tensor, capacity: Tensor, tau: Tensor, rows: Any, start: Tensor | None,
        ranks: Ranks | None,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        y, bias, inverse = solve(rows, input, capacity, start)
        ctx.save_for_backward(y, inverse, k, capacity, tau)
        ctx.backend, ctx.ranks, ctx.dtype = pick(input), ranks, input.dtype
        ctx.mark_non_differentiable(bias)
        return y.to(input.dtype), bias

    @staticmethod
    def backward(ctx: Any, v: Tensor, _: Any) -> tuple[Tensor | None, ...]:
        y, inverse, k, capacity, tau = ctx.saved_tensors
        again = torch.is_grad_enabled() or type(v) is not Tensor or has_batches(v) or not is_eager()
        backend: Backend = plain if again else ctx.backend
        if not again:
            tau = tau.detach()
        v = v.to(inverse.dtype)
        pulled = backend.pullback(y, v, tau, 1, (True, False, False))[0]
        sums = column_sums(pulled) if backend is kernel else torch.where(torch.isnan(y), 0, pulled).sum(0)
        if ctx.ranks is not None:
            sums = ctx.ranks.sum_unless(torch.is_grad_enabled(), sums)
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
        return to_x.to(ctx.dtype), to_k, to_capacity, to_tau, None, None, None


# As in _projection.py: where this is called there are no transforms to check for.
_apply: Callable[..., Any] = super(torch.autograd.Function, Assignment).apply


def _formula(input: Tensor, k: Tensor, capacity: Tensor, tau: Tensor) -> tuple[Tensor, Tensor]:
    """The values of the operator, plus a term that is 0 and has the derivative, by operations any transform knows."""
    y, bias, inverse = _operators.assign(input.detach(), k.detach(), capacity.detach(), tau.detach())
    y = y.to(inverse.dtype)
    k = k.unsqueeze(1) if k.dim() else k
    rise, _ = risen(y, input, k, tau, _over_rows)
    active = _formulas.slopes(torch, "ramp", y, _over_rows)
    over = torch.where(torch.isnan(y), 0, rise).sum(0) - (capacity - capacity.detach()).to(y.dtype)
    shift = torch.where(torch.isnan(y), 0, (inverse @ over).expand_as(y))
    change = rise - torch.where(active.active, shift - active.mean(torch, shift, _over_rows), 0)
    return (y + change).to(input.dtype), bias


def _over_rows(terms: Tensor) -> Tensor:
    return terms.sum(1, keepdim=True)
