"""A mixture of experts, balanced in four ways: auxiliary loss, loss-free bias, Quantile Balancing, BalancedRouter.

    python examples/recipes/balanced_experts.py --data fashion-mnist --folder DATA --seeds 5

A perceptron with one layer of 8 experts, 2 for each image. Each way is tuned over nine settings on images held back
from the training set, then trained with every seed. At test time each image is routed by itself; an expert drops the
images that come after it has its capacity of a batch.
"""

import argparse
import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from hypersimplex.torch import BalancedRouter, binary_argmax, threshold
from hypersimplex_study.data import load
from hypersimplex_study.formats import DataError

EXPERTS, K, WIDTH, HIDDEN, BATCH = 8, 2, 96, 48, 512
WAYS = {
    "auxiliary loss": (0.01, 0.1, 1.0),
    "loss-free bias": (0.01, 0.1, 1.0),
    "Quantile Balancing": (0.1, 0.3, 1.0),  # weight of the latest batch's bias; 1 keeps nothing of the others
    "BalancedRouter": (0.1, 0.5, 2.5),
}
RATES = (1e-3, 3e-3, 1e-2)


def quantile_bias(scores: Tensor, bias: Tensor, k: int) -> Tensor:
    """The bias at which each expert gets its equal share, if the tokens' cuts stay where `bias` puts them."""
    cut = (scores - bias).topk(k + 1, -1).values[:, -1:]  # what the first expert that a token leaves out scores
    return threshold(scores - cut, k * len(scores) / scores.shape[1], tau=1e-4, dim=0)


class Experts(nn.Module):
    """The sum of K of the experts' answers, weighted by the softmax of their scores."""

    def __init__(self, way: str, strength: float) -> None:
        super().__init__()
        self.way, self.strength = way, strength
        self.score = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.first = nn.Parameter(torch.randn(EXPERTS, WIDTH, HIDDEN) / math.sqrt(WIDTH))
        self.second = nn.Parameter(torch.randn(EXPERTS, HIDDEN, WIDTH) / math.sqrt(HIDDEN))
        self.router = BalancedRouter(EXPERTS, K, tau=strength, hard=True) if way == "BalancedRouter" else None
        self.register_buffer("bias", torch.zeros(EXPERTS))
        self.auxiliary, self.chosen = torch.zeros(()), torch.zeros(0)

    def forward(self, x: Tensor, capacity: float = math.inf) -> Tensor:
        scores = self.score(x)
        chosen = self.router(scores) if self.router else binary_argmax(scores - self.bias, K)
        self.chosen = chosen.detach()
        if self.training:
            self._balance(scores, self.chosen.mean(0))
        kept = self.chosen.cumsum(0) <= capacity
        gates = scores.softmax(-1) * chosen
        gates = gates / gates.sum(-1, keepdim=True) * kept
        answers = torch.einsum("neh,ehw->new", torch.einsum("nw,ewh->neh", x, self.first).relu(), self.second)
        return x + torch.einsum("ne,new->nw", gates, answers)

    def _balance(self, scores: Tensor, load: Tensor) -> None:
        if self.way == "auxiliary loss":
            self.auxiliary = self.strength * EXPERTS * (load / K * scores.softmax(-1).mean(0)).sum()
        elif self.way == "loss-free bias":
            with torch.no_grad():
                self.bias += self.strength * (load - K / EXPERTS).sign()
        elif self.way == "Quantile Balancing":
            with torch.no_grad():
                self.bias.lerp_(quantile_bias(scores, self.bias, K), self.strength)


@dataclass
class Images:
    train: tuple[Tensor, Tensor]
    held: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]


def read(name: str, folder: str | None, most: int) -> tuple[str, Images]:
    """The images, flat and scaled; scikit-learn's digits where the others are not at hand."""
    try:
        data = load(name, folder)
    except DataError:
        data = load("digits")

    def pairs(x: np.ndarray, y: np.ndarray) -> tuple[Tensor, Tensor]:
        flat = torch.from_numpy(x.reshape(len(x), -1).astype(np.float32))
        return (flat - flat.mean()) / flat.std(), torch.from_numpy(y)

    order = np.random.default_rng(0).permutation(len(data.train_x))[:most]
    part = len(order) // 5
    held, train = order[:part], order[part:]
    x, y = data.train_x, data.train_y
    return data.name, Images(pairs(x[train], y[train]), pairs(x[held], y[held]), pairs(data.test_x, data.test_y))


def train(images: tuple[Tensor, Tensor], way: str, strength: float, rate: float, seed: int, epochs: int) -> nn.Module:
    torch.manual_seed(seed)
    x, y = images
    model = nn.Sequential(nn.Linear(x.shape[1], WIDTH), nn.ReLU(), Experts(way, strength), nn.Linear(WIDTH, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    for _ in range(epochs):
        for batch in torch.randperm(len(x)).split(BATCH):
            optimizer.zero_grad()
            loss = cross_entropy(model(x[batch]), y[batch]) + model[2].auxiliary
            loss.backward()
            optimizer.step()
    return model.eval()


@torch.no_grad()
def measure(model: nn.Module, images: tuple[Tensor, Tensor]) -> dict[str, float]:
    """Accuracy, and for each capacity factor the accuracy with drops and the share of dropped choices; in percent."""
    first, relu, experts, last = model
    found: dict[str, list[float]] = {}
    for x, y in zip(*(part.split(BATCH) for part in images), strict=True):
        share = len(x) * K / EXPERTS
        hidden = relu(first(x))
        for factor in (math.inf, 1.0, 1.25):
            right = (last(experts(hidden, factor * share)).argmax(-1) == y).float().mean()
            found.setdefault(f"accuracy {factor}", []).append(100 * float(right))
            over = (experts.chosen.sum(0) - math.floor(min(factor * share, len(x)))).clamp(min=0).sum()
            found.setdefault(f"dropped {factor}", []).append(100 * float(over) / (K * len(x)))
        found.setdefault("overload", []).append(100 * float(experts.chosen.sum(0).max() / share - 1))
    return {name: float(np.mean(values)) for name, values in found.items()}


def tune(images: Images, way: str, epochs: int) -> tuple[float, float]:
    """The setting with the best accuracy on the held-back images when choices beyond capacity factor 1.25 drop."""
    settings = [(strength, rate) for strength in WAYS[way] for rate in RATES]
    scores = [measure(train(images.train, way, *s, seed=100, epochs=epochs), images.held) for s in settings]
    return settings[int(np.argmax([s["accuracy 1.25"] for s in scores]))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="fashion-mnist")
    parser.add_argument("--folder", default=None)
    parser.add_argument("--images", type=int, default=20_000)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--ways", nargs="*", default=list(WAYS), choices=list(WAYS))
    options = parser.parse_args()
    name, images = read(options.data, options.folder, options.images)
    print(f"{name}: {len(images.train[0])} images, {options.epochs} epochs, {options.seeds} seeds")
    print("| way | setting | accuracy | overload | at 1.25: accuracy | dropped | at 1.0: accuracy | dropped |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for way in options.ways:
        strength, rate = tune(images, way, options.epochs)
        runs = [
            measure(train(images.train, way, strength, rate, s, options.epochs), images.test)
            for s in range(options.seeds)
        ]
        columns = ["accuracy inf", "overload", "accuracy 1.25", "dropped 1.25", "accuracy 1.0", "dropped 1.0"]
        numbers = [[run[column] for run in runs] for column in columns]
        cells = [f"{np.mean(v):.1f} ± {np.std(v, ddof=min(1, len(v) - 1)):.1f}" for v in numbers]
        print(f"| {way} | {strength:g}, rate {rate:g} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
