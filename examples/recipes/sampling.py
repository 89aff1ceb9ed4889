"""Random choices of k out of n by noise, and how far the gradients of several estimators are from the true one.

The problem is small enough to list every ordered choice of 2 out of 6, so the true expectation and its gradient are
known. Run with `python examples/recipes/sampling.py`; a few seconds.
"""

from collections.abc import Callable
from itertools import permutations

import torch
from torch import Tensor

from hypersimplex.torch import soft_topk

N, K, DRAWS = 6, 2, 100_000
SCORES = torch.tensor([1.0, 0.6, 0.3, 0.0, -0.4, -1.0], dtype=torch.float64)
WORTH = torch.tensor([0.5, -1.0, 2.0, 0.3, 1.5, -0.7], dtype=torch.float64)


def loss(chosen: Tensor) -> Tensor:
    """Not linear: with a linear loss some biases would cancel."""
    return (chosen @ WORTH - 2).square()


def gumbel(like: Tensor) -> Tensor:
    return -torch.empty_like(like).exponential_().log()


def truth(scores: Tensor) -> tuple[Tensor, Tensor]:
    """The expected loss, and how often each entry is chosen: a sum over all ordered choices."""
    orders = torch.tensor(list(permutations(range(N), K)))
    weight = scores.exp()
    left, chance = weight.sum().expand(len(orders)), torch.ones(len(orders), dtype=scores.dtype)
    for step in orders.T:
        chance = chance * weight[step] / left
        left = left - weight[step]
    chosen = torch.zeros(len(orders), N, dtype=scores.dtype).scatter(1, orders, 1.0)
    return (chance * loss(chosen)).sum(), chance @ chosen


def relaxed_subsets(keys: Tensor, temperature: float) -> Tensor:
    """K softmaxes, added up; each lowers what the ones before have taken (Xie and Ermon, 2019)."""
    total = torch.zeros_like(keys)
    for _ in range(K):
        share = (keys / temperature).softmax(-1)
        total = total + share
        keys = keys + (1 - share).clamp(min=1e-12).log()
    return total


def straight_through(soft: Tensor, keys: Tensor) -> Tensor:
    hard = torch.zeros_like(soft).scatter(-1, keys.topk(K).indices, 1.0)
    return hard + (soft - soft.detach())


def with_score_function(scores: Tensor, noise: Tensor) -> Tensor:
    """A loss whose gradient is unbiased for the hard choice: it asks how likely the noise is, not where a gate goes.

    The density of Gumbel noise z is exp(-z - exp(-z)). The mean loss of the other draws is a baseline.
    """
    keys = (scores + noise).detach()
    found = loss(soft_topk(keys, K, hard=True))
    advantage = (found - found.mean()) * DRAWS / (DRAWS - 1)
    z = keys - scores
    return advantage * (-z - (-z).exp()).sum(-1)


ESTIMATORS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "score function": with_score_function,
    "soft_topk hard=True, tau 1": lambda x, z: loss(soft_topk(x + z, K, 1.0, hard=True)),
    "soft_topk hard=True, tau 0.3": lambda x, z: loss(soft_topk(x + z, K, 0.3, hard=True)),
    "soft_topk soft, tau 1": lambda x, z: loss(soft_topk(x + z, K, 1.0)),
    "soft_topk soft, tau 0.3": lambda x, z: loss(soft_topk(x + z, K, 0.3)),
    "subsets hard, temperature 1": lambda x, z: loss(straight_through(relaxed_subsets(x + z, 1.0), x + z)),
    "subsets soft, temperature 1": lambda x, z: loss(relaxed_subsets(x + z, 1.0)),
    "subsets soft, temperature 0.3": lambda x, z: loss(relaxed_subsets(x + z, 0.3)),
    "subsets soft, temperature 0.1": lambda x, z: loss(relaxed_subsets(x + z, 0.1)),
}


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    x = SCORES.clone().requires_grad_()
    expected, often = truth(x)
    (true,) = torch.autograd.grad(expected, x)
    noise = gumbel(SCORES.expand(DRAWS, N))
    sampled = soft_topk(SCORES + noise, K, hard=True)
    print(f"chosen how often, exact    {' '.join(f'{v:.3f}' for v in often.tolist())}")
    print(f"chosen how often, sampled  {' '.join(f'{v:.3f}' for v in sampled.mean(0).tolist())}")
    print(f"expected loss, exact {expected:.3f}, sampled {loss(sampled).mean():.3f}")
    print(f"{'gradient by':34} {'spread':>8} {'bias':>8}")
    for name, estimate in ESTIMATORS.items():
        rows = x.detach().expand(DRAWS, N).clone().requires_grad_()
        (each,) = torch.autograd.grad(estimate(rows, noise).sum(), rows)
        bias = (each.mean(0) - true).norm() / true.norm()
        spread = (each - each.mean(0)).square().sum(1).mean().sqrt() / true.norm()
        print(f"{name:34} {spread:8.2f} {bias:8.2f}")


if __name__ == "__main__":
    main()
