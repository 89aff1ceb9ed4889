"""The common case, as lean as Python allows: a contiguous CPU tensor, k and tau numbers.

At small sizes the arithmetic takes two microseconds; everything else is the interpreter. So the conditions are tested
once, and nothing is called that a number or a contiguous tensor does not need.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from hypersimplex import _kernel
from hypersimplex.torch import _ops

_DTYPES = frozenset({torch.float32, torch.float64})
_no_transform = _ops.no_transform
_is_batched = torch._C._functorch.is_legacy_batchedtensor


def fits(input: Tensor, k: object, tau: object) -> bool:
    return (
        not isinstance(k, Tensor)
        and not isinstance(tau, Tensor)
        and input.is_cpu
        and input.dtype in _DTYPES
        and input.is_contiguous()
        and not input.is_neg()
        and not _ops.is_plain()
    )


def project(input: Tensor, k: float, tau: float, dim: int) -> Tensor:
    y = torch.empty_like(input)
    failure = _kernel.project_at(
        input.dtype is torch.float64, input.data_ptr(), y.data_ptr(), 0, input.shape, input.stride(), dim,
        0, k, 0, tau, 0, torch.get_num_threads(),
    )  # fmt: skip
    if failure:
        _ops.fail(failure, k, tau, input.shape[dim], dim)
    return y


class Projection(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, input: Tensor, k: float, tau: float, dim: int) -> Tensor:
        y = project(input, k, tau, dim)
        ctx.save_for_backward(y)
        ctx.tau, ctx.dim = tau, dim
        return y

    @staticmethod
    def backward(ctx: Any, v: Tensor) -> tuple[Tensor, None, None, None]:
        (y,) = ctx.saved_tensors
        if (
            type(v) is not Tensor
            or v.dtype is not y.dtype
            or not v.is_contiguous()
            or v.is_neg()
            or _is_batched(v)
            or torch.is_grad_enabled()
            or not _no_transform()
        ):
            from hypersimplex.torch.functional import vjp

            return vjp(y, v, ctx.tau, ctx.dim)[0], None, None, None
        grad = torch.empty_like(y)
        _kernel.backward_at(
            y.dtype is torch.float64, y.data_ptr(), v.data_ptr(), grad.data_ptr(), 0, 0, y.shape, y.stride(), ctx.dim,
            0, ctx.tau, torch.get_num_threads(),
        )  # fmt: skip
        return grad, None, None, None


# Without the checks for transforms that Function.apply makes: where this is called, there are none.
projection: Callable[[Tensor, float, float, int], Tensor] = super(torch.autograd.Function, Projection).apply
