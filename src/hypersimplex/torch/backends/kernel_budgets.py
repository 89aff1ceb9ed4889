"""Box sections and segments of CPU tensors by the compiled kernel."""

from typing import Any

import torch
from torch import Tensor

from hypersimplex import _checks, _kernel
from hypersimplex.torch._boundary import FLOATS, alike, doubles, even, memory

_DOUBLE = torch.float64


def box(
    x: Tensor, total: Tensor, lower: Tensor, upper: Tensor, weight: Tensor, tau: Tensor, at_most: bool
) -> tuple[Tensor, Tensor]:
    slices, n = x.shape[:-1], x.shape[-1]
    rows = memory("input", x, x.dtype if x.dtype in FLOATS else torch.float32).reshape(slices.numel(), n).contiguous()
    y, mu = torch.empty_like(rows), torch.empty(slices.numel(), dtype=_DOUBLE, device="cpu")
    numbers: dict[str, Any] = {
        "total": doubles("total", total, slices).reshape(-1).numpy(),
        "tau": doubles("tau", tau, slices).reshape(-1).numpy(),
        "lower": _over_rows("lower", lower, slices),
        "upper": _over_rows("upper", upper, slices),
        "weight": _over_rows("weight", weight, slices),
    }
    failure = _kernel.box(
        rows.numpy(), y.numpy(), mu.numpy(), **numbers, at_most=at_most, threads=torch.get_num_threads()
    )
    if failure:
        _checks.raise_box_failure(failure, rows.numpy(), at_most, **numbers)
    return y.reshape(x.shape).to(x.dtype), mu.reshape(slices)


def _over_rows(name: str, value: Tensor, slices: torch.Size) -> Any:
    """Numbers for the entries of rows: of all rows or of 1, of all entries or of 1."""
    value = memory(name, value, _DOUBLE)
    last = value.shape[-1] if value.dim() else 1
    if value.shape[:-1].numel() != 1:
        value = value.expand(*slices, last)
    return value.reshape(-1, last).contiguous().numpy()


def segments(x: Tensor, offsets: Tensor, k: Tensor, tau: Tensor) -> Tensor:
    dtype, rows = x.dtype, offsets.shape[0] - 1
    x = even("input", x)
    y, offsets = torch.empty_like(x), memory("offsets", offsets, torch.int64).contiguous()
    ks, taus = doubles("k", k, (rows,)), doubles("tau", tau, (rows,))
    failure = _kernel.segments(
        x.numpy(), offsets.numpy(), 0.0, 0.0, y=y.numpy(), ks=ks.numpy(), taus=taus.numpy(),
        threads=torch.get_num_threads(),
    )  # fmt: skip
    if failure:
        at = min(failure[1], rows - 1)
        numbers = (float(ks[at]), float(taus[at])) if rows else (0.0, 0.0)
        _checks.raise_segment_failure(failure, *numbers, x.numel(), int(offsets.diff()[at]) if rows else 0)
    return y.to(dtype)


def segments_pullback(
    y: Tensor, v: Tensor, offsets: Tensor, tau: Tensor, needs: tuple[bool, ...]
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    dtype, rows = v.dtype, (offsets.shape[0] - 1,)
    y = even("y", y.to(dtype))
    v, offsets = alike("v", v, y), memory("offsets", offsets, torch.int64).contiguous()
    to_x = torch.empty_like(y) if needs[0] else None
    to_k, to_tau = (torch.empty(rows, dtype=_DOUBLE, device="cpu") if need else None for need in needs[1:])
    taus = doubles("tau", tau, rows)
    _kernel.segments(
        y.numpy(), offsets.numpy(), 0.0, 0.0, y=_view(to_x), v=v.numpy(), taus=taus.numpy(), grad_k=_view(to_k),
        grad_tau=_view(to_tau), threads=torch.get_num_threads(),
    )  # fmt: skip
    return to_x if to_x is None else to_x.to(dtype), to_k, to_tau


def _view(value: Tensor | None) -> Any:
    return None if value is None else value.numpy()
