"""A mixture of eight experts of which every sample uses exactly two.

Run with `python examples/recipes/experts.py`; a few seconds.
"""

import torch
from _digits import digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from hypersimplex.torch import soft_topk

EXPERTS, K, STEPS = 8, 2, 200


class Mixture(nn.Module):
    """Experts are computed only for the samples that are routed to them."""

    def __init__(self, inputs: int = 64, hidden: int = 8, outputs: int = 10) -> None:
        super().__init__()
        self.router = nn.Linear(inputs, EXPERTS)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, outputs)) for _ in range(EXPERTS)
        )
        self.outputs, self.tau = outputs, 1.0

    def gates(self, x: Tensor) -> Tensor:
        # Between 0 and 1, with sum K; in evaluation exactly K ones.
        return soft_topk(self.router(x), K, self.tau, hard=not self.training)

    def forward(self, x: Tensor) -> Tensor:
        gates = self.gates(x)
        mixed = x.new_zeros(len(x), self.outputs)
        for number, expert in enumerate(self.experts):
            rows = gates[:, number].nonzero().squeeze(1)
            mixed = mixed.index_add(0, rows, gates[rows, number, None] * expert(x[rows]))
        return mixed / K


def train(x: Tensor, y: Tensor, last_tau: float) -> Mixture:
    torch.manual_seed(0)
    model = Mixture()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
    for step in range(STEPS):
        model.tau = last_tau ** (step / (STEPS - 1))  # from 1 down, by the same factor every step
        batch = torch.randint(len(x), (256,))
        optimizer.zero_grad()
        cross_entropy(model(x[batch]), y[batch]).backward()
        optimizer.step()
    return model


@torch.no_grad()
def active_and_accuracy(model: Mixture, x: Tensor, y: Tensor) -> tuple[float, float]:
    active = (model.gates(x) > 0).sum(1).double().mean().item()
    return active, (model(x).argmax(1) == y).double().mean().item()


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    logits = torch.randn(10_000, EXPERTS)
    print("Active experts per sample, router logits drawn from a normal distribution")
    for tau in (1.0, 0.5, 0.1, 0.01):
        print(f"  tau {tau:<16} {(soft_topk(logits, K, tau) > 0).sum(1).double().mean():.2f}")
    x, y, test_x, test_y = digits()
    print("After training: active experts per sample, accuracy on the test images")
    for name, last_tau in (("tau 1", 1.0), ("tau from 1 to 0.1", 0.1)):
        model = train(x, y, last_tau)
        for kind, training in (("soft gates", True), ("exactly 2", False)):
            active, accuracy = active_and_accuracy(model.train(training), test_x, test_y)
            print(f"  {name:20} {kind:12} {active:.2f}  {accuracy:.3f}")


if __name__ == "__main__":
    main()
