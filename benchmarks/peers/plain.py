"""The projection in a few lines of torch, by a sort and by bisection: what one would write without a kernel."""

import torch
from torch import Tensor


def by_sorting(x: Tensor, k: float, dim: int = -1) -> Tensor:
    """Evaluate the sum at every breakpoint of the sorted slice, then solve on the segment where it passes k."""
    rows = x.movedim(dim, -1)
    with torch.no_grad():
        s = rows.contiguous().sort(dim=-1).values.double()
        sums = torch.nn.functional.pad(s.cumsum(-1), (1, 0))
        mu = torch.cat([s - 1, s], dim=-1)
        zeros, below_one = torch.searchsorted(s, mu, right=True), torch.searchsorted(s, mu + 1)
        total = sums.gather(-1, below_one) - sums.gather(-1, zeros) - mu * (below_one - zeros)
        total += s.shape[-1] - below_one
        after = mu.masked_fill(total >= k, torch.inf).amin(-1, keepdim=True)
        z = rows.double()
    return _finish(rows, k, (z >= after) & (z - 1 < after), z - 1 >= after, after).movedim(-1, dim)


def by_bisection(x: Tensor, k: float, dim: int = -1, steps: int = 40) -> Tensor:
    """Halve an interval that holds the threshold, then solve on the segment it has shrunk to."""
    rows = x.movedim(dim, -1)
    with torch.no_grad():
        low, high = rows.amin(-1, keepdim=True) - 1, rows.amax(-1, keepdim=True)
        for _ in range(steps):
            mu = (low + high) / 2
            enough = (rows - mu).clamp(0, 1).sum(-1, keepdim=True, dtype=torch.float64) >= k
            low, high = torch.where(enough, mu, low), torch.where(enough, high, mu)
    return _finish(rows, k, (rows > low) & (rows - 1 < low), rows - 1 >= low, low).movedim(-1, dim)


def _finish(rows: Tensor, k: float, active: Tensor, ones: Tensor, mu: Tensor) -> Tensor:
    """The threshold from its active set, as a function of the slice that autograd can follow."""
    count = active.sum(-1, keepdim=True)
    total = torch.where(active, rows, 0).sum(-1, keepdim=True, dtype=torch.float64) + ones.sum(-1, keepdim=True) - k
    mu = torch.where(count > 0, total / count.clamp(min=1), mu.double()).to(rows.dtype)
    y = (rows - mu).clamp(0, 1)
    return torch.where(active & (y > 0) & (y < 1), y, y.detach())
