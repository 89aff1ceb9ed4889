"""Batches on the device of the model: crops, flips and normalization of a whole batch at once, in plain torch."""

import shlex
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from hypersimplex_study.formats import Array
from hypersimplex_study.own_columns import WIDE
from hypersimplex_study.samples import Data, stratified


class Images:
    """Images kept padded and flat, a pixel one number, so that crop and flip of a batch are one `index_select`.

    Three channels are packed into an int32 with a spare byte: gathering 4-byte pixels is what makes this fast.
    """

    def __init__(self, x: Array, padding: int, mean: Tensor, std: Tensor, device: torch.device) -> None:
        self.height, self.width, self.channels = x.shape[1:]
        self.padding = padding
        if padding >= min(self.height, self.width):
            raise ValueError(f"padding must be below the image's size {x.shape[1:3]}, got {padding}")
        if padding:
            x = np.pad(x, ((0, 0), (padding, padding), (padding, padding), (0, 0)), mode="reflect")
        self.row = x.shape[2]
        self.size = x.shape[1] * x.shape[2]
        if self.channels == 3:
            packed = np.zeros((*x.shape[:3], 4), np.uint8)
            packed[..., :3] = x
            x = packed.view(np.int32)
        self.pixels = torch.from_numpy(np.ascontiguousarray(x).reshape(-1)).to(device)
        index = torch.int32 if self.pixels.numel() < 2**31 else torch.int64
        self.rows = (torch.arange(self.height, device=device, dtype=index) * self.row)[:, None]
        self.columns = torch.arange(self.width, device=device, dtype=index)
        self.scale = (1 / (255 * std)).to(device)
        self.shift = (-mean / std).to(device)

    def batch(self, indices: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Return normalized images (B, C, H, W); with a generator cropped and flipped at random."""
        kind, device = self.rows.dtype, self.pixels.device
        start = indices.to(device=device, dtype=kind) * self.size
        columns = self.columns[None, :]
        if generator is None:
            start = start + self.padding * (self.row + 1)
        else:
            n = len(indices)
            moves = torch.randint(0, 2 * self.padding + 1, (2, n), generator=generator).to(device=device, dtype=kind)
            flips = torch.randint(0, 2, (n, 1), generator=generator).to(device=device, dtype=torch.bool)
            start = start + moves[0] * self.row + moves[1]
            columns = torch.where(flips, self.columns.flip(0), self.columns)
        positions = start[:, None, None] + self.rows + columns[:, None, :]
        pixels = self.pixels.index_select(0, positions.reshape(-1))
        if self.channels == 3:
            shaped = pixels.view(torch.uint8).view(-1, self.height, self.width, 4)[..., :3]
        else:
            shaped = pixels.view(-1, self.height, self.width, 1)
        return torch.addcmul(self.shift, shaped.float(), self.scale).permute(0, 3, 1, 2)


class Features:
    """Rows of numbers, standardized by the training rows."""

    def __init__(self, x: Array, mean: Tensor, std: Tensor, device: torch.device) -> None:
        self.rows = ((torch.from_numpy(np.ascontiguousarray(x)) - mean) / std).to(device)

    def batch(self, indices: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return self.rows.index_select(0, indices.to(self.rows.device))


# The split is the same for every seed and loss: what a seed changes is weights, order and augmentation.
SPLIT_SEED = 20260


def split(data: Data, subset: int | None, validation: float) -> tuple[Array, Array]:
    """Return the rows of the training set to train on and to validate on."""
    rows = np.arange(len(data.train_y))
    if subset is not None:
        if subset > len(rows):
            raise ValueError(f"subset must be at most {len(rows)} (the training set of {data.name}), got {subset}")
        if subset < len(rows):
            rows = stratified(data.train_y, 1 - subset / len(rows), SPLIT_SEED)[0]
    train, held = stratified(data.train_y[rows], validation, SPLIT_SEED + 1)
    if len(train) == 0:
        raise ValueError(f"validation must leave training samples, got {validation} of {len(rows)}")
    if len(held) == 0 and validation > 0:
        raise ValueError(f"validation must leave at least one sample, got {validation} of {len(rows)}")
    return rows[train], rows[held]


@dataclass(frozen=True, eq=False)
class Prepared:
    """A data set on a device, split, normalized by its training rows."""

    train: Images | Features
    test: Images | Features
    train_rows: Tensor
    validation_rows: Tensor
    train_y: Tensor
    test_y: Tensor


@lru_cache(maxsize=2)
def prepare(data: Data, subset: int | None, validation: float, augment: bool, device: torch.device) -> Prepared:
    """Prepare once a process: the runs of a study share it."""
    train, held = split(data, subset, validation)
    first, second = _sources(data, train, augment, device)
    labels = [torch.from_numpy(y).to(device) for y in (data.train_y, data.test_y)]
    return Prepared(first, second, torch.from_numpy(train), torch.from_numpy(held), *labels)


def _has_gaps(data: Data) -> bool:
    return bool(np.isnan(data.train_x).any() or np.isnan(data.test_x).any())


def check_rows(data: Data) -> None:
    """Refuse what only boosted trees can be trained on."""
    if data.is_image:
        return
    for name in data.categories:
        raise ValueError(
            f"network must be lightgbm or lightgbm-paper for {data.name}, whose text column {name!r} has more than "
            f"{WIDE} values; or leave it out with --drop {shlex.quote(name)}"
        )
    what = "are sparse" if sparse.issparse(data.train_x) else "have gaps" if _has_gaps(data) else None
    if what:
        raise ValueError(f"network must be lightgbm or lightgbm-paper for {data.name}, whose rows {what}")


def _sources(
    data: Data, train: Array, augment: bool, device: torch.device
) -> tuple[Images, Images] | tuple[Features, Features]:
    if not data.is_image:
        check_rows(data)
        rows = torch.from_numpy(data.train_x[train]).double()
        mean, std = rows.mean(0).float(), rows.std(0, unbiased=False).float()
        std[std == 0] = 1.0
        return Features(data.train_x, mean, std, device), Features(data.test_x, mean, std, device)
    mean, std = moments(data, data.train_x[train])
    padding = data.padding if augment else 0
    return Images(data.train_x, padding, mean, std, device), Images(data.test_x, 0, mean, std, device)


def moments(data: Data, images: Array) -> tuple[Tensor, Tensor]:
    """Return mean and standard deviation of every channel: the published ones, or those of these images."""
    if data.mean is not None and data.std is not None:
        return torch.tensor(data.mean), torch.tensor(data.std)
    seen = images.astype(np.float64) / 255
    mean, std = seen.mean((0, 1, 2)), np.maximum(seen.std((0, 1, 2)), 1e-6)
    return torch.tensor(mean, dtype=torch.float32), torch.tensor(std, dtype=torch.float32)
