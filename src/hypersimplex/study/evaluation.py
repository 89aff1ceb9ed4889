"""What a network decides: by statistics and thresholds recomputed for its present weights, or by running averages.

Running averages lag behind the weights: after few steps they hide what a network has learned, under every loss.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

# The part of the training samples that statistics and thresholds are recomputed over, and how many pass at a time.
PART = 4096
AT_A_TIME = 512
# The same part for every seed and loss.
PART_SEED = 20262


def part_of(rows: Tensor) -> Tensor:
    """Return a fixed part of the training rows."""
    generator = torch.Generator().manual_seed(PART_SEED)
    return rows[torch.randperm(len(rows), generator=generator)[:PART]]


def averages(model: nn.Module) -> list[nn.modules.batchnorm._BatchNorm]:
    """The layers that keep running statistics."""
    kept = (m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm))
    return [m for m in kept if m.track_running_stats]


@contextmanager
def _measuring(model: nn.Module) -> Iterator[None]:
    """BatchNorm measures anew, as a plain average over the batches; everything else, dropout too, is as in use."""
    layers = averages(model)
    momenta = [layer.momentum for layer in layers]
    model.eval()
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None
        layer.train()
    try:
        yield
    finally:
        for layer, momentum in zip(layers, momenta, strict=True):
            layer.momentum = momentum
        model.eval()


@torch.no_grad()
def recompute(model: nn.Module, loss: nn.Module, logits: Callable[[Tensor], Tensor], rows: Tensor, y: Tensor) -> None:
    """Set BatchNorm's statistics and the loss's thresholds from one pass over these rows.

    `logits` computes a network's output for some rows. No random number is drawn, and training goes on as if nothing
    had happened: in training mode neither is used.
    """
    calibrate = getattr(loss, "calibrate", None)
    if calibrate is None and not averages(model):
        return
    parts = torch.tensor_split(rows, math.ceil(len(rows) / AT_A_TIME))
    with _measuring(model):
        found = torch.cat([logits(part) for part in parts])
    if calibrate is not None:
        calibrate(found, y[rows])
