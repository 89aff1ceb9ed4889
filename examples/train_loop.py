"""The HyperSimplex loss in a plain training loop, on scikit-learn's digits: why a decision needs the thresholds.

Run with `python examples/train_loop.py`; about ten seconds.
"""

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from hypersimplex.torch import HyperSimplexLoss

TRAIN, BATCH, EPOCHS = 1200, 600, 60


def digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    images, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    x, y = torch.tensor(images / 16, dtype=torch.float32)[order], torch.tensor(labels)[order]
    return x[:TRAIN], y[:TRAIN], x[TRAIN:], y[TRAIN:]


def train(criterion: nn.Module, x: Tensor, y: Tensor, seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(x)).split(BATCH):
            optimizer.zero_grad()
            criterion(model(x[batch]), y[batch]).backward()
            optimizer.step()
    return model


@torch.no_grad()
def accuracies(seed: int = 0) -> dict[str, float]:
    """Of the test images: by cross-entropy, and by the HyperSimplex loss with three ways to decide."""
    x, y, test_x, test_y = digits()

    def share(classes: Tensor) -> float:
        return (classes == test_y).double().mean().item()

    with torch.enable_grad():
        other = train(nn.CrossEntropyLoss(), x, y, seed)
        criterion = HyperSimplexLoss(num_classes=10)
        model = train(criterion, x, y, seed)
    criterion.calibrate([(model(x), y)])  # the thresholds of the final weights
    logits = model(test_x)
    plain, decided = share(logits.argmax(1)), share(criterion.predict(logits))
    criterion.fold_into_(model[-1])
    return {
        "cross-entropy, argmax": share(other(test_x).argmax(1)),
        "HyperSimplex, plain argmax of the logits": plain,
        "HyperSimplex, predict": decided,
        "HyperSimplex, argmax of the folded model": share(model(test_x).argmax(1)),
    }


def main() -> None:
    torch.set_num_threads(1)  # several add up in another order, which shows in the last digit
    for name, accuracy in accuracies().items():
        print(f"{name:42} {accuracy:.3f}")


if __name__ == "__main__":
    main()
