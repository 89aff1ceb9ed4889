"""The networks of a study: the paper's, with a width, and two small ones."""

import math

import numpy as np
import torch
from torch import nn

from hypersimplex_study import speedrun
from hypersimplex_study.batches import Images, moments
from hypersimplex_study.config import one_of
from hypersimplex_study.formats import DataError
from hypersimplex_study.samples import Data

NETWORKS = ("mlp", "cnn", "paper", "speedrun")


def make_network(name: str, width: int, data: Data) -> nn.Module:
    """Make the network for a data set; one's own entry point brings its own."""
    if data.model is not None:
        model = data.model()
        if not isinstance(model, nn.Module):
            raise DataError(f"{data.name}: model() must return a torch.nn.Module, got {type(model).__name__}")
        return model
    one_of("network", name, NETWORKS)
    shape, classes = data.train_x.shape[1:], len(data.classes)
    if name == "mlp":
        return mlp(math.prod(shape), classes, width)
    if not data.is_image:
        raise ValueError(f"network must be mlp for {data.name}, whose samples are rows of numbers, got {name}")
    height, columns, channels = shape
    if min(height, columns) < 4:
        raise ValueError(f"network {name} pools twice: images must be at least 4 x 4, got {height} x {columns}")
    if name == "speedrun":
        if min(height, columns) < speedrun.LEAST:
            raise ValueError(f"network speedrun needs images of at least 16 x 16, got {height} x {columns}")
        return speedrun.network(_some(data), classes, width)
    if name == "cnn":
        return cnn(channels, classes, width)
    return paper(channels, (height // 4) * (columns // 4), classes, width)


def _some(data: Data) -> torch.Tensor:
    """The first training images, normalized as for training."""
    images = Images(data.train_x[: speedrun.IMAGES], 0, *moments(data, data.train_x), torch.device("cpu"))
    return images.batch(torch.arange(min(speedrun.IMAGES, len(data.train_x))))


@torch.no_grad()
def outputs(network: nn.Module, data: Data, device: str) -> int:
    """Return how many numbers the network gives for a sample, tried on two."""
    x = torch.from_numpy(np.ascontiguousarray(data.train_x[:2])).float().to(device)
    try:
        made = network.to(device).eval()(x.permute(0, 3, 1, 2) if data.is_image else x)
    except Exception as error:
        shape, text = tuple(data.train_x.shape[1:]), str(error).partition("\n")[0]
        raise DataError(f"{data.name}: the network cannot take samples of shape {shape} ({text})") from error
    return int(made[0].numel()) if isinstance(made, torch.Tensor) and made.ndim else 0


def mlp(inputs: int, classes: int, width: int) -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, classes)
    )


def cnn(channels: int, classes: int, width: int) -> nn.Module:
    """Two convolutions and an average over the image: any image size."""
    return nn.Sequential(
        nn.Conv2d(channels, width, 3, padding=1),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(width, 2 * width, 3, padding=1),
        nn.BatchNorm2d(2 * width),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(2 * width, classes),
    )


def paper(channels: int, pixels: int, classes: int, width: int = 64) -> nn.Module:
    """The paper's network. Width 64 is the paper's; the hidden layer, 512 there, keeps its proportion."""

    def block(inputs: int, pool: bool) -> list[nn.Module]:
        layers: list[nn.Module] = [nn.Conv2d(inputs, width, 3, padding=1), nn.BatchNorm2d(width)]
        return [*layers, nn.MaxPool2d(2), nn.ReLU()] if pool else [*layers, nn.ReLU()]

    return nn.Sequential(
        *block(channels, False),
        *block(width, True),
        *block(width, False),
        *block(width, True),
        nn.Flatten(),
        nn.Linear(width * pixels, 8 * width),
        nn.ReLU(),
        nn.Linear(8 * width, classes),
    )
