"""Retrieval: an embedding of noisy digits trained for the K nearest by `soft_topk`, beside two common losses.

Run with `python examples/recipes/retrieval.py`; some ten seconds.
"""

from collections.abc import Callable

import torch
from _digits import digits
from torch import Tensor, nn

from hypersimplex.torch import soft_topk

SEEDS, STEPS, SIZE, K = 5, 100, 200, 10
Loss = Callable[[Tensor, Tensor, float], Tensor]


def similar(embedded: Tensor) -> Tensor:
    """Cosine similarities of all pairs; an image does not find itself."""
    itself = torch.eye(len(embedded), dtype=torch.bool)
    return (embedded @ embedded.T).masked_fill(itself, -torch.inf)


def relevance(y: Tensor) -> Tensor:
    return (y[:, None] == y).float().fill_diagonal_(0)


def recall_loss(embedded: Tensor, y: Tensor, tau: float) -> Tensor:
    """One minus the share of the right digit among the K nearest."""
    return 1 - (soft_topk(similar(embedded), K, tau) * relevance(y)).sum(1).mean() / K


def nt_xent(embedded: Tensor, y: Tensor, temperature: float) -> Tensor:
    """Normalized cross-entropy over pairs, as pytorch-metric-learning's NTXentLoss has it."""
    logits, same = similar(embedded) / temperature, relevance(y)
    others = logits.masked_fill(same > 0, -torch.inf).logsumexp(1, keepdim=True)
    each = torch.logaddexp(logits, others) - logits
    return each[same > 0].mean()


def multi_similarity(embedded: Tensor, y: Tensor, base: float) -> Tensor:
    """Soft maxima over pairs that are too far and pairs that are too close (Wang and others, 2019)."""
    scores, same = similar(embedded), relevance(y)
    far = (-2 * (scores - base)).masked_fill(same == 0, -torch.inf)
    close = (50 * (scores - base)).masked_fill(same > 0, -torch.inf)
    zero = torch.zeros(len(y), 1)
    soft = [torch.cat([zero, part], 1).logsumexp(1) / sharp for part, sharp in ((far, 2), (close, 50))]
    return (soft[0] + soft[1]).mean()


LOSSES: dict[str, tuple[Loss, tuple[float, ...]]] = {
    "soft_topk, k = 10": (recall_loss, (0.15, 0.5, 1.5, 5.0)),
    "NT-Xent": (nt_xent, (0.05, 0.15, 0.5, 1.5)),
    "Multi-similarity": (multi_similarity, (0.0, 0.25, 0.5, 0.75)),
}


def train(loss: Loss, setting: float, x: Tensor, y: Tensor, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 16))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(STEPS):
        batch = torch.randperm(len(x))[:SIZE]
        optimizer.zero_grad()
        loss(nn.functional.normalize(model(x[batch])), y[batch], setting).backward()
        optimizer.step()
    return model


@torch.no_grad()
def precision(model: nn.Module, x: Tensor, y: Tensor) -> float:
    """The share of the right digit among the K nearest, in percent."""
    nearest = similar(nn.functional.normalize(model(x))).topk(K).indices
    return 100 * float((y[nearest] == y[:, None]).float().mean())


def main() -> None:
    torch.set_num_threads(1)
    x, y, test_x, test_y = digits()
    noise = torch.Generator().manual_seed(1)
    x, test_x = (part + 0.5 * torch.randn(part.shape, generator=noise) for part in (x, test_x))
    fit, held = slice(0, 900), slice(900, None)
    print(f"the right digit among the {K} nearest, in percent, {SEEDS} seeds")
    for name, (loss, settings) in LOSSES.items():
        tried = {s: precision(train(loss, s, x[fit], y[fit], 100), x[held], y[held]) for s in settings}
        setting = max(settings, key=tried.__getitem__)
        found = [precision(train(loss, setting, x, y, seed), test_x, test_y) for seed in range(SEEDS)]
        print(f"  {name:22} setting {setting:<5g} {min(found):.1f} to {max(found):.1f}, mean {sum(found) / SEEDS:.1f}")
    print(f"  {'the pixels themselves':35} {precision(nn.Identity(), test_x, test_y):.1f}")


if __name__ == "__main__":
    main()
