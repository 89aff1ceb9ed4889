"""Prediction sets that hold the right class 95 % of the time, and a network trained to make them small.

Run with `python examples/recipes/conformal.py`; a few seconds.
"""

import math

import torch
from _digits import digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from hypersimplex.torch import threshold

COVERAGE, TAU, STEPS, SEEDS = 0.95, 4.0, 300, 3


def true_scores(scores: Tensor, y: Tensor) -> Tensor:
    return scores.gather(1, y[:, None]).squeeze(1)


def set_size(logits: Tensor, y: Tensor) -> Tensor:
    """Mean size of the sets of one half of the batch, with the threshold that covers the other half."""
    scores = logits.log_softmax(1)
    half = len(scores) // 2
    mu = threshold(true_scores(scores[:half], y[:half]), COVERAGE * half, TAU)  # a quantile with a gradient
    return ((scores[half:] - mu) / TAU).clamp(0, 1).sum(1).mean()


def train(x: Tensor, y: Tensor, seed: int, weight: float) -> nn.Module:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, weight_decay=1e-3)
    for _ in range(STEPS):
        batch = torch.randint(len(x), (400,))
        logits = model(x[batch])
        loss = cross_entropy(logits, y[batch])
        if weight:
            loss = loss + weight * set_size(logits, y[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


@torch.no_grad()
def evaluate(model: nn.Module, x: Tensor, y: Tensor, splits: int = 50) -> tuple[float, float]:
    """Split conformal prediction: the exact quantile of one half of the held-out samples, sets for the other half."""
    scores = model(x).log_softmax(1)
    covered, sizes = [], []
    for _ in range(splits):
        calibrate, rest = torch.randperm(len(x)).chunk(2)
        rank = math.floor((1 - COVERAGE) * (len(calibrate) + 1))
        cut = true_scores(scores[calibrate], y[calibrate]).kthvalue(rank).values
        sets = scores[rest] >= cut
        covered.append(true_scores(sets, y[rest]).double().mean().item())
        sizes.append(sets.sum(1).double().mean().item())
    return sum(covered) / splits, sum(sizes) / splits


def main() -> None:
    torch.set_num_threads(1)
    x, y, test_x, test_y = digits()
    noise = torch.Generator().manual_seed(1)  # without noise nearly every set has one class
    x, test_x = (part + 0.4 * torch.randn(part.shape, generator=noise) for part in (x, test_x))
    print(f"{'mean of 3 seeds':32} {'covered':>8} {'classes per set':>16}")
    for name, weight in (("cross-entropy", 0.0), ("cross-entropy + set size", 4.0)):
        found = torch.tensor([evaluate(train(x, y, seed, weight), test_x, test_y) for seed in range(SEEDS)])
        covered, size = found.mean(0).tolist()
        print(f"{name:32} {covered:8.3f} {size:16.2f}")


if __name__ == "__main__":
    main()
