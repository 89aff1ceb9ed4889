"""Prune a network to 5 % of its weights, with one budget over all layers.

Run with `python examples/recipes/pruning.py`; a few seconds.
"""

from collections.abc import Callable

import torch
from _digits import digits
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from hypersimplex.torch import binary_argmax, soft_topk

SHARE, STEPS = 0.05, 300
Masks = dict[str, Tensor]


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))


def weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: value for name, value in model.named_parameters() if value.dim() == 2}


def split_like(flat: Tensor, like: dict[str, Tensor]) -> Masks:
    parts = flat.split([value.numel() for value in like.values()])
    return {name: part.view_as(like[name]) for name, part in zip(like, parts, strict=True)}


def masked(model: nn.Module, masks: Masks) -> dict[str, Tensor]:
    return {name: value * masks[name] for name, value in weights(model).items()}


def train(model: nn.Module, masks: Callable[[], Masks], x: Tensor, y: Tensor, extra: tuple[Tensor, ...] = ()) -> None:
    optimizer = torch.optim.Adam([*model.parameters(), *extra], lr=3e-3)
    for _ in range(STEPS):
        batch = torch.randint(len(x), (128,))
        optimizer.zero_grad()
        cross_entropy(functional_call(model, masked(model, masks()), (x[batch],)), y[batch]).backward()
        optimizer.step()


def by_magnitude(model: nn.Module, one_budget: bool) -> Masks:
    sizes = {name: value.detach().abs() for name, value in weights(model).items()}
    if not one_budget:
        return {
            name: binary_argmax(size.flatten(), round(SHARE * size.numel())).view_as(size)
            for name, size in sizes.items()
        }
    flat = torch.cat([size.flatten() for size in sizes.values()])
    return split_like(binary_argmax(flat, round(SHARE * len(flat))), sizes)


def learned(model: nn.Module, x: Tensor, y: Tensor) -> Masks:
    """Weights and their scores trained together: exactly k weights are used in every step."""
    own = weights(model)
    scores = torch.cat([value.detach().abs().flatten() for value in own.values()]).requires_grad_()
    k = round(SHARE * scores.numel())
    train(model, lambda: split_like(soft_topk(scores, k, 0.1, hard=True), own), x, y, (scores,))
    return split_like(binary_argmax(scores.detach(), k), own)


def main() -> None:
    torch.set_num_threads(1)
    x, y, test_x, test_y = digits()
    dense = network()
    train(dense, lambda: {name: torch.ones_like(value) for name, value in weights(dense).items()}, x, y)
    start = dense.state_dict()

    def report(name: str, model: nn.Module, masks: Masks) -> None:
        with torch.no_grad():
            logits = functional_call(model, masked(model, masks), (test_x,))
        kept = [int(mask.sum()) for mask in masks.values()]
        accuracy = (logits.argmax(1) == test_y).double().mean()
        print(f"{name:34} {sum(kept):6} {' + '.join(map(str, kept)):>20} {accuracy:9.3f}")

    print(f"{'':34} {'kept':>6} {'by layer':>20} {'accuracy':>9}")
    report("dense", dense, {name: torch.ones_like(value) for name, value in weights(dense).items()})
    for name, one_budget in (("largest weights, 5 % of each layer", False), ("largest weights, one budget", True)):
        model = network()
        model.load_state_dict(start)
        masks = by_magnitude(model, one_budget)
        train(model, lambda masks=masks: masks, x, y)  # type: ignore[misc]
        report(name, model, masks)
    model = network()
    model.load_state_dict(start)
    report("learned scores, one budget", model, learned(model, x, y))


if __name__ == "__main__":
    main()
