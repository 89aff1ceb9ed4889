"""The operator in torch operations alone: for devices without a kernel, and as the kernel's second witness.

No sort and no data-dependent shape; the search is the kernel's, one step for all slices at once.
"""

import torch
from torch import Tensor

_STEPS = 160


def project(x: Tensor, k: Tensor, tau: Tensor) -> tuple[Tensor, Tensor]:
    """Return y and mu for slices along the last dim; k and tau have the slices' shape."""
    # MPS has no float64.
    wide = torch.float32 if x.device.type == "mps" else torch.float64
    k, tau = k.to(wide).unsqueeze(-1), tau.to(wide).unsqueeze(-1)
    finite = torch.isfinite(x)
    above = (x == torch.inf).sum(-1, keepdim=True)
    usable = finite.sum(-1, keepdim=True) + above
    rest = k - above
    top = torch.where(finite, x, -torch.inf).amax(-1, keepdim=True).to(wide)
    bottom = torch.where(finite, x, torch.inf).amin(-1, keepdim=True).to(wide)

    mu = _search(x.to(wide), finite, rest, tau, bottom - tau, top)
    # Measured from mu, the entries near it keep all their digits: one more exact step, then the projection.
    origin = mu.to(x.dtype)
    z = ((x - origin).to(wide) / tau).clamp(-2, 3)
    shift = (mu - origin.to(wide)) / tau
    for _ in range(2):
        total, active = _sums(z - shift, finite)
        shift = torch.where(active > 0, shift + (total - rest) / active.clamp(min=1), shift)
    mu = origin.to(wide) + shift * tau
    y = (z - shift).clamp(0, 1)

    total, active = _sums(z - shift, finite)
    partial = torch.where(finite & (z > shift) & (z - shift < 1), z - shift, 0).sum(-1, keepdim=True)
    flat = (active == 0) | ((rest == rest.floor()) & ((partial < 0.5) | (active - partial < 0.5)))
    y, mu = _settle_flat(x, y, mu, z - shift > 0.5, finite, flat & (rest > 0), tau)
    none, full, shared = rest == 0, rest == usable - above, rest < 0
    y = torch.where(none, 0, torch.where(full, 1, y))
    mu = torch.where(none, torch.where(top > -torch.inf, top, 0), torch.where(full & (rest > 0), bottom - tau, mu))
    mu = torch.where(shared, torch.inf, mu)
    at_top = torch.where(shared, k / above.clamp(min=1), torch.ones_like(k))
    y = torch.where(x == torch.inf, at_top, torch.where(finite & ~shared, y, 0))
    broken = torch.isnan(x).any(-1, keepdim=True) | (k > usable) | torch.isnan(k + tau)
    y, mu = torch.where(broken, torch.nan, y), torch.where(broken, torch.nan, mu)
    return y.to(x.dtype), mu.squeeze(-1)


def _sums(t: Tensor, finite: Tensor) -> tuple[Tensor, Tensor]:
    active = (finite & (t > 0) & (t < 1)).sum(-1, keepdim=True)
    return torch.where(finite, t.clamp(0, 1), 0).sum(-1, keepdim=True), active


def _search(x: Tensor, finite: Tensor, k: Tensor, tau: Tensor, lo: Tensor, hi: Tensor) -> Tensor:
    """A threshold whose active set is right, or almost: Newton steps inside a bracket, halved when they fail."""
    mu = lo + (hi - lo) / 2
    for step in range(_STEPS):
        total, active = _sums((x - mu) / tau, finite)
        r = total - k
        lo, hi = torch.where(r >= 0, mu, lo), torch.where(r <= 0, mu, hi)
        newton = mu + r * tau / active.clamp(min=1)
        middle = lo + (hi - lo) / 2
        inside = (active > 0) & (newton >= lo) & (newton <= hi)
        # Newton steps alone may shrink the bracket from one side only.
        following = torch.where(inside & (step % 3 != 2), newton, middle)
        settled = (r.abs() <= 1e-9 * active.clamp(min=1)) | (following == mu) | ~torch.isfinite(following)
        mu = torch.where(settled, mu, following)
        if step % 8 == 7 and bool(settled.all()):
            break
    return mu


def _settle_flat(
    x: Tensor, y: Tensor, mu: Tensor, ones: Tensor, finite: Tensor, flat: Tensor, tau: Tensor
) -> tuple[Tensor, Tensor]:
    """Where no entry is active every mu between two entries will do: take the middle, or the finite end."""
    one = torch.where(finite & ones, x, torch.inf).amin(-1, keepdim=True).to(mu.dtype)
    zero = torch.where(finite & ~ones, x, -torch.inf).amax(-1, keepdim=True).to(mu.dtype)
    middle = zero + ((one - zero) - tau) / 2
    middle = torch.where(one == torch.inf, zero, torch.where(zero == -torch.inf, one - tau, middle))
    return torch.where(flat, ones.to(y.dtype), y), torch.where(flat, middle, mu)


def binary(x: Tensor, k: Tensor) -> Tensor:
    """Exactly k ones along the last dim: the k-th largest entry is found bit by bit, in order of the numbers."""
    bits, integer = (64, torch.int64) if x.dtype == torch.float64 else (32, torch.int32)
    raw = (x + 0.0).contiguous().view(integer).to(torch.int64)  # + 0.0 makes -0.0 and 0.0 one number
    key = torch.where(raw < 0, raw ^ (2 ** (bits - 1) - 1), raw)
    k = k.to(torch.int64).unsqueeze(-1)
    lo, hi = key.amin(-1, keepdim=True), key.amax(-1, keepdim=True)
    for _ in range(bits):  # the largest key with at least k entries at or above it
        middle = (lo & hi) + ((lo ^ hi) >> 1) + ((lo ^ hi) & 1)
        enough = (key >= middle).sum(-1, keepdim=True) >= k
        lo, hi = torch.where(enough, middle, lo), torch.where(enough, hi, torch.maximum(middle - 1, lo))
    above = key > lo
    ties = key == lo
    y = above | (ties & (ties.cumsum(-1) <= k - above.sum(-1, keepdim=True)))
    return torch.where(torch.isnan(x).any(-1, keepdim=True), torch.nan, (y & (k > 0)).to(x.dtype))
