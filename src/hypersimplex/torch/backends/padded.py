"""Segments as rows padded with -inf: for backends without a loop over rows of different lengths."""

from typing import Any

import torch
from torch import Tensor

from hypersimplex import _checks


def segments(project: Any, x: Tensor, offsets: Tensor, k: Tensor, tau: Tensor) -> Tensor:
    """`project` is the backend's own."""
    sizes = offsets.diff()
    k, tau = k.expand(sizes.shape), tau.expand(sizes.shape)
    _check(x, offsets, sizes, k)
    if not x.numel():
        return torch.empty_like(x)
    inside = torch.arange(int(sizes.max()), device=x.device) < sizes.unsqueeze(1)
    rows = torch.full(inside.shape, -torch.inf, dtype=x.dtype, device=x.device)
    rows[inside] = x
    y: Tensor = project(rows, k, tau, -1, want_mu=False)[0]
    return y[inside]


def _check(x: Tensor, offsets: Tensor, sizes: Tensor, k: Tensor) -> None:
    """The kernel's checks. Those of the offsets are worth waiting for a device: nothing is read beyond x."""
    size = x.numel()
    wrong = torch.cat((offsets[:1] != 0, sizes < 0))
    wrong[-1] |= offsets[-1] != size
    if wrong.any():
        raise _checks.bad_offsets(size, int(offsets[wrong][0]))
    bad = ~((k >= 0) & (k <= sizes))
    if x.device.type == "cpu" and bad.any():
        at = int(bad.nonzero()[0])
        raise _checks.bad_k(float(k[at]), int(sizes[at]), f"segment {at}")
