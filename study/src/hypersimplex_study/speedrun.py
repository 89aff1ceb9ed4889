"""A network in the spirit of airbench94 (Keller Jordan): quick to train on small images, by large steps.

A frozen first layer whitens patches of the images. Three groups of convolutions follow, of which only the weights and
the biases of BatchNorm are trained.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

PATCH = 2  # pixels, and the stride: what follows sees a quarter of them
IMAGES = 5000  # whose patches are whitened; their labels are not looked at
EPSILON = 5e-4
HEAD = 1 / 9  # the scale of the logits
LEAST = 16  # pixels


class Scale(nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor


def whitening(images: Tensor) -> nn.Conv2d:
    """A frozen convolution whose outputs over these images (N, C, H, W) are uncorrelated, each beside its negative."""
    channels = images.shape[1]
    size = channels * PATCH * PATCH
    patches = nn.functional.unfold(images, PATCH, stride=PATCH).transpose(1, 2).reshape(-1, size).double()
    values, vectors = torch.linalg.eigh(patches.T @ patches / len(patches))
    weight = (vectors / (values + EPSILON).sqrt()).T.reshape(size, channels, PATCH, PATCH).float()
    layer = nn.Conv2d(channels, 2 * size, PATCH, stride=PATCH, bias=False)
    layer.weight.data = torch.cat([weight, -weight])
    return layer.requires_grad_(False)


def norm(channels: int) -> nn.BatchNorm2d:
    layer = nn.BatchNorm2d(channels, eps=1e-12, momentum=0.4)
    layer.weight.requires_grad_(False)
    return layer


def group(inputs: int, outputs: int) -> list[nn.Module]:
    first, second = (nn.Conv2d(n, outputs, 3, padding=1, bias=False) for n in (inputs, outputs))
    for layer in (first, second):
        nn.init.dirac_(layer.weight.data[: layer.in_channels])
    return [first, nn.MaxPool2d(2), norm(outputs), nn.GELU(), second, norm(outputs), nn.GELU()]


def network(images: Tensor, classes: int, width: int) -> nn.Module:
    """Make it for images of this kind, of which these are some; width 64 is airbench94's, with 256 in two groups."""
    first = whitening(images)
    layers = [first, nn.GELU(), *group(first.out_channels, width), *group(width, 4 * width)]
    layers += [*group(4 * width, 4 * width), nn.AdaptiveMaxPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(4 * width, classes, bias=False), Scale(HEAD))


def groups(model: nn.Module, lr: float, bias_rate: float, weight_decay: float) -> list[dict[str, object]]:
    """The trained parameters in two groups: BatchNorm's biases with a rate of their own, and the others.

    Decay is decoupled from the rate at its height: a step takes off `weight_decay` times the schedule's part of it.
    """
    biases = [m.bias for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    mine = {id(p) for p in biases}
    rest = [p for p in model.parameters() if p.requires_grad and id(p) not in mine]
    found = [(rest, lr), (biases, lr * bias_rate)] if biases else [(rest, lr)]
    return [{"params": p, "lr": rate, "weight_decay": weight_decay / rate} for p, rate in found]


def petaflops(model: nn.Module, shape: Sequence[int], samples: float) -> float:
    """What training on so many samples takes, forward and backward, by torch's count of one sample."""
    counter = FlopCounterMode(display=False)
    with counter:
        model(torch.zeros(2, *shape)).sum().backward()
    return counter.get_total_flops() / 2 * samples / 1e15
