"""Quantiles of any size: exact ones and their gradients by `threshold`, for more entries than torch.quantile takes.

Run with `python examples/recipes/quantiles.py`; a few seconds.
"""

import torch
from torch import Tensor

from hypersimplex.torch import threshold

MOST = 2**24  # entries that torch.quantile takes
Q = 0.9


def quantile(x: Tensor, q: float, tau: float = 1e-6) -> Tensor:
    """The q-quantile of all entries, within tau: NumPy's method "averaged_inverted_cdf"."""
    # Not (1 - q) * n, which rounds 0.1 * 1000 to 99.99999999999997.
    return threshold(x.flatten(), x.numel() - q * x.numel(), tau) + tau / 2


def largest_distance(size: int, tau: float) -> float:
    """From the average of the two neighbors where q * n is whole, and from the one entry where it is not."""
    worst = 0.0
    for seed in range(20):
        x = torch.randn(size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        place, ordered = Q * size, x.sort().values
        below, above = (ordered[int(place) - 1], ordered[int(place)])
        right = (below + above) / 2 if place == int(place) else above
        worst = max(worst, float((quantile(x, Q, tau) - right).abs()))
    return worst


def active(x: Tensor, q: float, tau: float) -> int:
    """How many entries the gradient of the quantile reaches."""
    x = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(quantile(x, q, tau), x)
    return int((gradient > 0).sum())


def main() -> None:
    torch.set_num_threads(1)
    print("largest distance from the exact quantile, as a multiple of tau")
    for tau in (1e-2, 1e-4, 1e-8):
        distances = ", ".join(f"{size} numbers {largest_distance(size, tau) / tau:.2f}" for size in (1000, 1001))
        print(f"  tau {tau:<7g} {distances}")
    x = torch.randn(MOST + 1, generator=torch.Generator().manual_seed(0))
    try:
        torch.quantile(x, Q)
    except RuntimeError as error:
        print(f"2^24 + 1 entries, torch.quantile: {error}")
    cut = quantile(x, Q)
    print(f"2^24 + 1 entries, threshold: {cut:.4f}, share below {(x < cut).double().mean():.6f}")
    few = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    print("entries of 1,000 with a gradient")
    for q in (0.9, 0.9005):
        for tau in (0.3, 1e-6):
            print(f"  q {q:<6} tau {tau:<6} {active(few, q, tau):4}")


if __name__ == "__main__":
    main()
