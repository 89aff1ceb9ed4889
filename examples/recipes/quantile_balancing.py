"""Quantile Balancing of a mixture of experts: how fast its bias evens out the load, beside other ways to find a bias.

The scores are random, and some experts are liked better. Each way moves a bias after each batch, and routes the next
batch by it. Run with `python examples/recipes/quantile_balancing.py`; a few seconds.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from hypersimplex.torch import binary_argmax, soft_assignment, threshold

TOKENS, EXPERTS, K, BATCHES, TAU = 4096, 64, 8, (1, 2, 4, 8, 16), 1e-3


def quantile_bias(scores: Tensor, bias: Tensor) -> Tensor:
    """Raise or lower each expert's bias until k/E of the tokens would choose it, at the cuts that they have now."""
    cut = (scores - bias).topk(K + 1, -1).values[:, -1:]  # what a token's first unchosen expert scores
    return threshold(scores - cut, K / EXPERTS * len(scores), TAU, dim=0)


def loss_free(scores: Tensor, bias: Tensor) -> Tensor:
    """Move the bias by a fixed step toward an even load."""
    return bias + 0.01 * (binary_argmax(scores - bias, K).mean(0) - K / EXPERTS).sign()


def assigned(scores: Tensor, bias: Tensor) -> Tensor:
    """The bias at which all experts of this batch have their equal share: cuts and biases found together."""
    return soft_assignment(scores, K, K / EXPERTS * len(scores), tau=0.05)[1]


WAYS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "loss-free bias": loss_free,
    "Quantile Balancing": quantile_bias,
    "soft_assignment": assigned,
}


def batch(seed: int) -> Tensor:
    random = torch.Generator().manual_seed(seed)
    return (torch.randn(TOKENS, EXPERTS, generator=random) + torch.linspace(0, 3, EXPERTS)).sigmoid()


def overload(scores: Tensor, bias: Tensor) -> float:
    """How far the fullest expert is above the equal share, in percent."""
    load = binary_argmax(scores - bias, K).mean(0)
    return 100 * float(load.max() / load.mean() - 1)


def main() -> None:
    torch.set_num_threads(1)
    print(f"{'batches seen':28}" + "".join(f"{count:>8}" for count in (0, *BATCHES)))
    for name, move in WAYS.items():
        bias, found = torch.zeros(EXPERTS), [overload(batch(0), torch.zeros(EXPERTS))]
        for seed in range(max(BATCHES)):
            bias = move(batch(seed), bias)
            if seed + 1 in BATCHES:
                found.append(overload(batch(seed + 1), bias))
        print(f"{name:28}" + "".join(f"{value:7.1f}%" for value in found))


if __name__ == "__main__":
    main()
