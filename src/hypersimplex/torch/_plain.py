"""The operator in torch operations alone: for devices without a kernel, and as the kernel's second witness.

No sort and no data-dependent shape. The ceil(k)-th largest entry of a slice, its edge, is found bit by bit. Unless the
slice is saturated the edge has 0 < y < 1, so mu is less than tau below it: measured from there, in units of tau, what
is more than 1 away is 0 or 1 for certain, infinities included, and everything else keeps its digits.
"""

import torch
from torch import Tensor

from hypersimplex._search import Start, middle, search


def widest(device: torch.device) -> torch.dtype:
    """MPS has no float64."""
    return torch.float32 if device.type == "mps" else torch.float64


def project(x: Tensor, k: Tensor, tau: Tensor) -> tuple[Tensor, Tensor]:
    """Return y and mu for slices along the last dim; k and tau have the slices' shape. A bad slice is NaN."""
    wide = widest(x.device)
    k, tau = k.to(wide).unsqueeze(-1), tau.to(wide).unsqueeze(-1)
    edge = torch.where(k > 0, _largest(x, k.ceil()).to(wide), torch.inf)
    dtype, x = x.dtype, x.to(wide)
    below = torch.where(x < edge, x, -torch.inf).amax(-1, keepdim=True)
    flat = (k == k.floor()) & (_count(x >= edge) <= k) & (edge - below >= tau)

    z = ((x - edge) / tau).clamp(-1, 1)
    nu = _search(z, k)
    y = torch.where(flat, (x >= edge).to(wide), (z - nu).clamp(0, 1))
    mu = torch.where(flat, middle(torch, below, edge, tau), edge + nu * tau)

    above = _count(x == torch.inf)
    share = k / above.clamp(min=1)
    y = torch.where(above > k, torch.where(x == torch.inf, share, 0), y)
    mu = torch.where(above > k, torch.inf, mu)
    good = (k >= 0) & (k <= _count(x > -torch.inf)) & (tau > 0) & torch.isfinite(tau) & ~_count(torch.isnan(x)).bool()
    return torch.where(good, y, torch.nan).to(dtype), torch.where(good, mu, torch.nan).squeeze(-1)


def binary(x: Tensor, k: Tensor) -> Tensor:
    """Exactly k ones along the last dim, ties to the lower index. A slice with a NaN is NaN."""
    k = k.unsqueeze(-1)
    edge = torch.where(k > 0, _largest(x, k), torch.inf)
    above, ties = x > edge, x == edge
    y = above | (ties & (ties.cumsum(-1) <= k - _count(above)))
    return torch.where(_count(torch.isnan(x)) > 0, torch.nan, (y & (k > 0)).to(x.dtype))


def _count(mask: Tensor) -> Tensor:
    return mask.sum(-1, keepdim=True)


def _largest(x: Tensor, k: Tensor) -> Tensor:
    """The k-th largest entry: the bits of a float, read as a whole number, are in the order of the floats."""
    bits, integer = (64, torch.int64) if x.dtype == torch.float64 else (32, torch.int32)
    key = _turn_negatives((x + 0.0).contiguous().view(integer))  # + 0.0 makes -0.0 and 0.0 one number
    k = k.to(torch.int64).clamp(1, x.shape[-1])
    lo, hi = key.amin(-1, keepdim=True), key.amax(-1, keepdim=True)
    for _ in range(bits):  # the largest key with at least k entries at or above it
        middle = (lo & hi) + ((lo ^ hi) >> 1) + ((lo ^ hi) & 1)
        enough = _count(key >= middle) >= k
        lo, hi = torch.where(enough, middle, lo), torch.where(enough, hi, torch.maximum(middle - 1, lo))
    return _turn_negatives(lo).view(x.dtype)


def _turn_negatives(key: Tensor) -> Tensor:
    return torch.where(key < 0, key ^ torch.iinfo(key.dtype).max, key)


def _search(z: Tensor, k: Tensor) -> Tensor:
    """Solve sum(clip(z - nu, 0, 1)) = k for nu between -1 and 0."""

    def sums(nu: Tensor, low: Tensor, error: Tensor) -> tuple[Tensor, ...]:
        t = z - nu
        active = (t > 0) & (t < 1)
        return torch.where(active, t, 0).sum(-1, keepdim=True), _count(active), _count(t >= 1)

    lo, hi = -torch.ones_like(k), torch.zeros_like(k)
    tolerance = 2 * torch.finfo(z.dtype).eps
    nu: Tensor = search(torch, sums, k, 1.0, Start(lo / 2, lo, hi), tolerance, 64, look_every=4).mu
    return nu
