"""A sparse autoencoder with one budget for the whole batch (BatchTopK), and a threshold in its place afterwards.

Run with `python examples/recipes/sparse_autoencoder.py`; a few seconds.
"""

import torch
from _digits import digits
from torch import Tensor, nn

from hypersimplex.torch import soft_topk, threshold

FEATURES, PER_SAMPLE, TAU, STEPS = 128, 6, 0.1, 500


class SparseAutoencoder(nn.Module):
    cut: Tensor

    def __init__(self, inputs: int = 64) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Linear(inputs, FEATURES), nn.Linear(FEATURES, inputs)
        self.register_buffer("cut", torch.tensor(0.0))  # saved with the weights

    def features(self, x: Tensor, batch_budget: bool = True) -> Tensor:
        values = self.encoder(x).relu()
        if not self.training:
            return values * (values > self.cut)
        if batch_budget:
            flat, k = values.flatten(), PER_SAMPLE * len(x)
            chosen = soft_topk(flat, k, TAU, hard=True).view_as(values)
            # A gate is above one half, and so counts as chosen, where the value is above this.
            cut = threshold(flat.detach(), k, TAU) + TAU / 2
            self.cut.lerp_(cut, 0.02)
        else:
            chosen = soft_topk(values, PER_SAMPLE, TAU, hard=True)
        return values * chosen

    def forward(self, x: Tensor, batch_budget: bool = True) -> Tensor:
        restored: Tensor = self.decoder(self.features(x, batch_budget))
        return restored


def train(x: Tensor, batch_budget: bool) -> SparseAutoencoder:
    torch.manual_seed(0)
    model = SparseAutoencoder()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(STEPS):
        batch = x[torch.randint(len(x), (256,))]
        optimizer.zero_grad()
        (model(batch, batch_budget) - batch).square().mean().backward()
        optimizer.step()
    return model


@torch.no_grad()
def report(name: str, model: SparseAutoencoder, x: Tensor, batch_budget: bool = True) -> None:
    active = (model.features(x, batch_budget) > 0).sum(1).double()
    missing = (model(x, batch_budget) - x).square().mean() / (x - x.mean(0)).square().mean()
    print(f"{name:37} {active.mean():6.2f} {active.min():5.0f} to {active.max():<4.0f} {1 - missing:8.3f}")


def main() -> None:
    torch.set_num_threads(1)
    x, _, test, _ = digits()
    x, test = x - x.mean(0), test - x.mean(0)
    print(f"{'':37} {'active features':>19} {'explained':>10}")
    model = train(x, batch_budget=True)
    report("budget for the batch, training", model, x[:256])
    report("budget for the batch, test, threshold", model.eval(), test)
    report("6 for every sample, test", train(x, batch_budget=False), test, batch_budget=False)


if __name__ == "__main__":
    main()
