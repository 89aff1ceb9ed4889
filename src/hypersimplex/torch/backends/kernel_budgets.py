"""Box sections and segments of CPU tensors by the compiled kernel."""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hypersimplex import _checks, _kernel
from hypersimplex._curves import CURVES
from hypersimplex.torch._batch import Number
from hypersimplex.torch._boundary import FLOATS, alike, doubles, even, memory, view

_DOUBLE = torch.float64
_NAMES = ("total", "tau", "lower", "upper", "weight")


def box(
    x: Tensor, total: Number, lower: Number, upper: Number, weight: Number, tau: Number, at_most: bool
) -> tuple[Tensor, Tensor]:
    dtype, slices, n = x.dtype, x.shape[:-1], x.shape[-1]
    rows = slices.numel()
    if dtype not in FLOATS or not _is_ready(x):
        x = memory("input", x, dtype if dtype in FLOATS else torch.float32).contiguous()
    y, mu = torch.empty_like(x), x.new_empty(slices, dtype=_DOUBLE)
    given = _Given(x.shape, total, lower, upper, weight, tau)
    failure = _kernel.box_at(
        x.dtype is _DOUBLE, (rows, n), x.data_ptr(), y.data_ptr(), mu.data_ptr(), given.addresses, given.kinds,
        given.numbers, at_most, torch.get_num_threads(),
    )  # fmt: skip
    if failure:
        _checks.raise_box_failure(failure, x.detach().reshape(rows, n).numpy(), at_most, **given.arrays(rows))
    return y, mu


def box_pullback(
    y: Tensor, mu: Tensor, v: Tensor, arguments: Any, at_most: bool, needs: tuple[bool, ...]
) -> list[Tensor | None]:
    """The gradients of sum(v * y) to x, total, lower, upper, weight and tau, of y's shape or of the slices'."""
    if v.shape != y.shape:
        raise _checks.not_as_saved(v.shape, y.shape)
    dtype = y.dtype if y.dtype in FLOATS else torch.float32
    if not (y.dtype is dtype and _is_ready(y)):
        y = memory("y", y, dtype).contiguous()
    one = v.dtype is dtype and _is_ready(v, one=True)
    if not (one or (v.dtype is dtype and _is_ready(v))):
        v = memory("v", v, dtype).contiguous()
    if not (mu.dtype is _DOUBLE and mu.shape == y.shape[:-1] and _is_ready(mu)):
        mu = doubles("mu", mu, y.shape[:-1])
    given = _Given(y.shape, 0.0, *arguments)
    wide = [torch.empty_like(y) if need else None for need in (needs[0], *needs[2:5])]
    slim = [torch.empty_like(mu) if need else None for need in (needs[1], needs[5])]
    _kernel.box_backward_at(
        dtype is _DOUBLE, (mu.numel(), y.shape[-1]), y.data_ptr(), v.data_ptr(), mu.data_ptr(), given.addresses,
        given.kinds, given.numbers, [0 if t is None else t.data_ptr() for t in (*wide, *slim)], at_most,
        torch.get_num_threads(), one,
    )  # fmt: skip
    return [wide[0], slim[0], *wide[1:], slim[1]]


def _is_ready(value: Tensor, one: bool = False) -> bool:
    """Whether a tensor of numbers is memory that the kernel reads as it is; `memory` looks closer, and copies.

    With `one`: whether all entries are the same place in memory, as in the gradient of a sum.
    """
    return (
        type(value) is Tensor
        and value.is_cpu
        and (not any(value.stride()) and value.numel() > 1 if one else value.is_contiguous())
        and value.data_ptr() != 0
        and not value.is_neg()
    )


class _Given:
    """The numbers of a box section as the kernel takes them; holds the memory that the addresses are of."""

    def __init__(
        self, shape: torch.Size, total: Number, lower: Number, upper: Number, weight: Number, tau: Number
    ) -> None:
        self.addresses, self.kinds, self.numbers = [0] * 5, [0] * 3, [0.0] * 5
        self.held: list[Any] = [None] * 5
        slices = shape[:-1]
        for i, value in enumerate((total, tau, lower, upper, weight)):
            if type(value) is float:
                self.numbers[i] = value
                continue
            held: Tensor = value  # type: ignore[assignment]
            if i < 2:
                if type(held) is Tensor and held.numel() == 1 and held.is_cpu:
                    self.numbers[i] = held.item()
                    continue
                if not (held.dtype is _DOUBLE and held.shape == slices and _is_ready(held)):
                    held = doubles(_NAMES[i], held, slices)
            elif held.shape == shape and held.dtype in FLOATS and _is_ready(held):
                self.kinds[i - 2] = 3 if held.dtype is _DOUBLE else 7
            else:
                held = self._entries(i - 2, _NAMES[i], held, shape)
            self.addresses[i], self.held[i] = held.data_ptr(), held

    def _entries(self, at: int, name: str, value: Tensor, whole: torch.Size) -> Tensor:
        """Numbers for the entries of rows: of all rows or of 1, of all entries or of 1."""
        value = memory(name, value.detach(), value.dtype if value.dtype in FLOATS else _DOUBLE)
        shape = value.shape
        if len(shape) and shape[-1] != 1:
            self.kinds[at] = 2
            if shape[-1] != whole[-1]:
                raise _checks.not_over_entries(name, whole, shape)
        if shape[:-1].numel() != 1:
            self.kinds[at] += 1
            value = value.expand(*whole[:-1], shape[-1])
        self.kinds[at] += 4 * (value.dtype is not _DOUBLE)
        return value.contiguous()

    def arrays(self, rows: int) -> dict[str, Any]:
        """As `raise_box_failure` reads them."""
        found: dict[str, Any] = {}
        for i, name in enumerate(_NAMES):
            array = np.array(self.numbers[i]) if self.held[i] is None else self.held[i].detach().numpy()
            array = np.atleast_1d(array)
            wide = array.reshape(math.prod(array.shape[:-1]), array.shape[-1]).astype(np.float64)
            found[name] = wide if i > 1 else np.broadcast_to(array.reshape(-1), rows)
        return found


def segments(x: Tensor, offsets: Tensor, k: Tensor, tau: Tensor, *, curve: str = "ramp") -> Tensor:
    dtype, rows = x.dtype, offsets.shape[0] - 1
    x = even("input", x)
    y, offsets = torch.empty_like(x), memory("offsets", offsets, torch.int64).contiguous()
    ks, taus = doubles("k", k, (rows,)), doubles("tau", tau, (rows,))
    failure = _kernel.segments(
        x.numpy(), offsets.numpy(), 0.0, 0.0, y=y.numpy(), ks=ks.numpy(), taus=taus.numpy(),
        threads=torch.get_num_threads(), curve=CURVES.index(curve),
    )  # fmt: skip
    if failure:
        at = min(failure[1], rows - 1)
        numbers = (float(ks[at]), float(taus[at])) if rows else (0.0, 0.0)
        _checks.raise_segment_failure(failure, *numbers, x.numel(), int(offsets.diff()[at]) if rows else 0)
    return y.to(dtype)


def segments_pullback(
    y: Tensor, v: Tensor, offsets: Tensor, tau: Tensor, needs: tuple[bool, ...], curve: str
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    dtype, rows = v.dtype, (offsets.shape[0] - 1,)
    y = even("y", y.to(dtype))
    v, offsets = alike("v", v, y), memory("offsets", offsets, torch.int64).contiguous()
    to_x = torch.empty_like(y) if needs[0] else None
    to_k, to_tau = (torch.empty(rows, dtype=_DOUBLE, device="cpu") if need else None for need in needs[1:])
    taus = doubles("tau", tau, rows)
    _kernel.segments(
        y.numpy(), offsets.numpy(), 0.0, 0.0, y=view(to_x), v=v.numpy(), taus=taus.numpy(), grad_k=view(to_k),
        grad_tau=view(to_tau), threads=torch.get_num_threads(), curve=CURVES.index(curve),
    )  # fmt: skip
    return to_x if to_x is None else to_x.to(dtype), to_k, to_tau
