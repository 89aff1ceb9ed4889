"""How far a batch should move the running thresholds: test accuracy decided by them, over batch sizes.

Run with `python -m benchmarks.thresholds FOLDER`, where FOLDER holds fashion-mnist (`hypersimplex data get`). One MLP
is trained for each batch size and seed. The thresholds do not change the training, so all ways to follow them watch the
same run; "calibrated" is `calibrate` over 10,000 training images, the yardstick. The table shows the mean over seeds
and over the evaluations of a run, and what each way loses against it, in points.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from hypersimplex.torch import HyperSimplexLoss
from hypersimplex_study.data import load

# The weight of a batch of N samples.
WAYS: dict[str, Callable[[int], float]] = {
    "0.1": lambda n: 0.1,
    "N/1000": lambda n: min(1.0, n / 1000),
    "N/1000, at least 0.1": lambda n: min(max(n / 1000, 0.1), 1.0),
    "1": lambda n: 1.0,
}
SIZES = (32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
IMAGES = 10_000  # of a calibration


def images(folder: Path) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    data = load("fashion-mnist", folder)
    both = [(torch.from_numpy(x).float().flatten(1) / 255 - 0.286) / 0.353 for x in (data.train_x, data.test_x)]
    return both[0], torch.from_numpy(data.train_y).long(), both[1], torch.from_numpy(data.test_y).long()


def accuracy(model: nn.Module, criterion: HyperSimplexLoss, x: Tensor, y: Tensor) -> float:
    with torch.no_grad():
        return float((criterion.predict(model(x)) == y).double().mean())


def calibrated(model: nn.Module, x: Tensor, y: Tensor) -> HyperSimplexLoss:
    with torch.no_grad():
        return HyperSimplexLoss(num_classes=10).calibrate([(model(x[:IMAGES]), y[:IMAGES])])


def train(batch: int, seed: int, epochs: float, data: tuple[Tensor, ...]) -> list[list[float]]:
    """At every half of an epoch the accuracy of each way, then of calibrated thresholds."""
    x, y, x_test, y_test = data
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.Adam(model.parameters(), 1e-3 * max(1.0, batch / 256) ** 0.5)
    ways = [HyperSimplexLoss(num_classes=10, momentum=weight(batch)) for weight in WAYS.values()]
    found, seen, due = [], 0, len(x) / 2
    while seen < epochs * len(x):
        for rows in torch.randperm(len(x)).split(batch):
            logits = model(x[rows])
            loss = ways[0](logits, y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            for way in ways[1:]:
                way(logits.detach().requires_grad_(), y[rows])
            seen += len(rows)
            if seen >= due:
                best = calibrated(model, x, y)
                found.append([accuracy(model, way, x_test, y_test) for way in (*ways, best)])
                due += len(x) / 2
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=float, default=2.0)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    data = images(given.folder)
    print("| batch size | calibrated |", " | ".join(WAYS), "|")
    print("| ---: " * (len(WAYS) + 2) + "|")
    for batch in given.sizes:
        runs = torch.tensor([train(batch, seed, given.epochs, data) for seed in range(given.seeds)]).mean((0, 1)) * 100
        *ways, best = runs.tolist()
        print(f"| {batch:,} | {best:.1f} |", " | ".join(f"{way - best:+.2f}" for way in ways), "|", flush=True)


if __name__ == "__main__":
    main()
