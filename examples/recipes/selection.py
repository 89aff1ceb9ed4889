"""Choose exactly k features for a whole data set, and exactly k tokens of every sample.

Run with `python examples/recipes/selection.py`; a few seconds.
"""

import torch
from _digits import digits
from sklearn.datasets import load_breast_cancer
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from hypersimplex.torch import soft_topk

FEATURES, TOKENS = 3, 4


def choose_features(steps: int = 300) -> None:
    """One gate per feature, shared by all samples: 3 of the 30 measurements of scikit-learn's breast cancer set."""
    data = load_breast_cancer()
    x, y = torch.tensor(data.data, dtype=torch.float32), torch.tensor(data.target, dtype=torch.float32)
    torch.manual_seed(0)
    train, test = torch.randperm(len(x)).split([400, len(x) - 400])
    x = (x - x[train].mean(0)) / x[train].std(0)

    def fit(gates: Tensor | None) -> tuple[nn.Linear, Tensor | None]:
        model = nn.Linear(30, 1)
        importance = nn.Parameter(torch.zeros(30))
        optimizer = torch.optim.Adam([*model.parameters(), importance], lr=3e-2)
        for step in range(steps):
            tau = 0.1 ** (step / (steps - 1))
            chosen = soft_topk(importance, FEATURES, tau) if gates is None else gates
            optimizer.zero_grad()
            binary_cross_entropy_with_logits(model(x[train] * chosen).squeeze(1), y[train]).backward()
            optimizer.step()
        return model, soft_topk(importance.detach(), FEATURES, hard=True)

    def accuracy(model: nn.Linear, gates: Tensor) -> float:
        return ((model(x[test] * gates).squeeze(1) > 0) == y[test]).double().mean().item()

    _, chosen = fit(None)
    assert chosen is not None
    names = [str(name) for name, gate in zip(data.feature_names, chosen, strict=True) if gate]
    model, _ = fit(chosen)
    everything, _ = fit(torch.ones(30))
    print(f"features: all 30           accuracy {accuracy(everything, torch.ones(30)):.3f}")
    print(f"features: {len(names)} chosen         accuracy {accuracy(model, chosen):.3f}  ({', '.join(names)})")
    others = [accuracy(fit(gates)[0], gates) for gates in (random_gates(30, FEATURES) for _ in range(5))]
    print(f"features: {FEATURES} at random      accuracy {sum(others) / len(others):.3f}  (mean of 5 draws)")


def random_gates(size: int, k: int) -> Tensor:
    return soft_topk(torch.rand(size), k, hard=True)


class Reader(nn.Module):
    """Scores the 16 patches of an image, keeps 4 of them, and classifies by the sum of what it reads in those."""

    def __init__(self, scored: bool) -> None:
        super().__init__()
        self.place = nn.Parameter(torch.randn(16, 32) * 0.1)
        self.read, self.classify = nn.Linear(4, 32), nn.Sequential(nn.ReLU(), nn.Linear(32, 10))
        self.score = nn.Linear(32, 1) if scored else None

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        patches = x.view(-1, 4, 2, 4, 2).transpose(2, 3).reshape(-1, 16, 4)
        tokens = torch.tanh(self.read(patches) + self.place)
        scores = self.score(tokens).squeeze(-1) if self.score else torch.rand(tokens.shape[:2])
        gates = soft_topk(scores, TOKENS, 0.3, hard=True)
        return self.classify((gates.unsqueeze(-1) * tokens).sum(1)), gates


def choose_tokens(steps: int = 400) -> None:
    x, y, test_x, test_y = digits()
    for name, scored in (("chosen", True), ("at random", False)):
        torch.manual_seed(0)
        model = Reader(scored)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        for _ in range(steps):
            batch = torch.randint(len(x), (256,))
            optimizer.zero_grad()
            cross_entropy(model(x[batch])[0], y[batch]).backward()
            optimizer.step()
        with torch.no_grad():
            logits, gates = model(test_x)
        fewest, most = gates.sum(1).min(), gates.sum(1).max()
        accuracy = (logits.argmax(1) == test_y).double().mean()
        print(f"tokens: {fewest:.0f} to {most:.0f} of 16 {name:10} accuracy {accuracy:.3f}")


def main() -> None:
    torch.set_num_threads(1)
    choose_features()
    choose_tokens()


if __name__ == "__main__":
    main()
