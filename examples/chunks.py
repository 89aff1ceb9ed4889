"""A batch of 1500 in chunks of 50: the exact gradient in the memory of a small batch, on scikit-learn's digits.

Run with `python examples/chunks.py`. It prints how far the gradient is from that of the whole batch, and how far off
adding up the chunks' own losses would be.
"""

import copy

import torch
from sklearn.datasets import load_digits
from torch import nn

from hypersimplex.torch import HyperSimplexLoss, backward_in_chunks, hypersimplex_loss


def gradient(model: nn.Module) -> torch.Tensor:
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


def main() -> None:
    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels)
    x, y, test_x, test_y = x[:1500], y[:1500], x[1500:], y[1500:]
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    criterion = HyperSimplexLoss(num_classes=10)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(40):
        optimizer.zero_grad()
        backward_in_chunks(model, criterion, x, y, chunk_size=50)
        optimizer.step()
    criterion.eval()
    with torch.no_grad():
        accuracy = (criterion.predict(model(test_x)) == test_y).float().mean()
    print(f"accuracy after 40 steps    {accuracy:.3f}")

    model.zero_grad()
    whole, naive = copy.deepcopy(model), copy.deepcopy(model)
    hypersimplex_loss(whole(x), y).backward()
    for part, target in zip(x.split(50), y.split(50), strict=True):
        (hypersimplex_loss(naive(part), target) / 30).backward()
    backward_in_chunks(model, hypersimplex_loss, x, y, chunk_size=50)
    exact = gradient(whole)
    print(f"in chunks, off by          {(gradient(model) - exact).norm() / exact.norm():.1e}")
    print(f"adding up losses, off by   {(gradient(naive) - exact).norm() / exact.norm():.1e}")


if __name__ == "__main__":
    main()
