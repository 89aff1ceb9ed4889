"""Nested tensors of the layout torch.jagged, whose slices are the rows of different lengths along their ragged dim."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from hypersimplex import _checks
from hypersimplex.torch._boundary import kind
from hypersimplex.torch.segments import soft_topk_segments


def is_jagged(value: object) -> bool:
    return isinstance(value, Tensor) and value.is_nested and value.layout is torch.jagged


def call(function: Callable[..., Tensor], input: Any, *rest: Any, **how: Any) -> Tensor:
    """What soft_topk, threshold or binary_argmax gives: rest is (k, tau, dim), or (k, dim) of the choice."""
    along = _checks.check_dim("dim", rest[-1], input.dim())
    if along != 1 or input.values().shape[1:] != input.shape[2:]:
        raise ValueError(f"dim must be 1, the ragged dim of a nested tensor, got {rest[-1]}")
    if not input.is_floating_point():
        raise _checks.not_floating("input", input.dtype)
    if input.lengths() is not None:
        raise _checks.no_values("input", f"{kind(input)} with gaps between its rows")
    if function.__name__ == "soft_topk":
        return _by_segments(input, *rest[:2], **how)
    return _padded(function, input, *rest[:-1], **how)


def _by_segments(input: Any, k: Any, tau: Any, curve: str) -> Tensor:
    """The rows one after the other, for every place behind the ragged dim."""
    values, offsets = input.values(), input.offsets()
    size, count = len(values), math.prod(values.shape[1:])
    starts = offsets[:-1] + size * torch.arange(count, device=offsets.device).unsqueeze(1)
    ends = torch.cat((starts.reshape(-1), offsets.new_tensor([size * count])))
    x = values.reshape(size, count).t().reshape(-1)
    k, tau = (_over_rows(name, value, input) for name, value in (("k", k), ("tau", tau)))
    y = soft_topk_segments(x, k, ends, tau, curve=curve)
    return _as(input, y.reshape(count, size).t().reshape(values.shape))


def _padded(function: Callable[..., Tensor], input: Any, *numbers: Any, **how: Any) -> Tensor:
    """By rows that are padded with -inf."""
    rows = torch.nested.to_padded_tensor(input, -torch.inf)
    found = function(rows, *numbers, 1, **how)
    if found.dim() < rows.dim():
        return found
    inside = torch.arange(rows.shape[1], device=rows.device) < input.offsets().diff().unsqueeze(1)
    return _as(input, found[inside])


def _over_rows(name: str, value: Any, input: Any) -> Any:
    """One number, or one for every segment."""
    if not isinstance(value, Tensor) or not value.dim():
        return value
    shape = torch.Size([input.shape[0], *input.shape[2:]])
    try:
        return value.expand(shape).reshape(shape[0], -1).t().reshape(-1)
    except RuntimeError:
        raise _checks.not_broadcastable(name, shape, value.shape) from None


def _as(input: Any, values: Tensor) -> Tensor:
    found: Tensor = torch.nested.nested_tensor_from_jagged(values, offsets=input.offsets())
    return found
