"""Data sets as arrays: the embedded digits, Fashion-MNIST, CIFAR-10, the tables of `tabular`, and one's own."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from hypersimplex.study.catalog import CIFAR, CIFAR_PYTHON_FOLDERS, FASHION, data_folder, find_file, missing
from hypersimplex.study.config import RunConfig
from hypersimplex.study.formats import BATCHES, Array, DataError, read_cifar_binary, read_cifar_python, read_idx

NAMES = ("digits", "fashion-mnist", "cifar-10")


@dataclass(frozen=True, eq=False)
class Data:
    """A training and a test set.

    Images are uint8 (N, H, W, C) with C of 1 or 3; anything else is float32 features (N, F), for boosted trees also
    a sparse matrix. Labels are 0 to C-1.
    """

    name: str
    train_x: Array
    train_y: Array
    test_x: Array
    test_y: Array
    classes: tuple[str, ...]
    mean: tuple[float, ...] | None = None  # of a channel, in 0 to 1; None: computed from the training images
    std: tuple[float, ...] | None = None
    padding: int = 0  # of the augmentation's crop
    model: Callable[[], Any] | None = field(default=None, compare=False)  # makes the network, for one's own entry point
    validation: tuple[Any, Array] | None = (
        None  # the publisher's own split, taken instead of a part of the training set
    )
    notes: tuple[str, ...] = ()  # what its owner should look at
    digest: str | None = None  # of the content, where it is known without reading all of it

    def __post_init__(self) -> None:
        for part, x, y in (("train", self.train_x, self.train_y), ("test", self.test_x, self.test_y)):
            if x.shape[0] != len(y) or len(y) == 0:
                raise DataError(f"{self.name}: {part} set must have one label a sample, got {x.shape[0]} and {len(y)}")
            if y.min() < 0 or y.max() >= len(self.classes):
                raise DataError(
                    f"{self.name}: {part} labels must be 0 to {len(self.classes) - 1}, got {y.min()} to {y.max()}"
                )
        if self.is_image and (self.train_x.ndim != 4 or self.train_x.shape[3] not in (1, 3)):
            raise DataError(f"{self.name}: images must be (N, H, W, 1 or 3), got {self.train_x.shape}")
        if self.train_x.shape[1:] != self.test_x.shape[1:]:
            raise DataError(
                f"{self.name}: training and test samples must have one shape, got {self.train_x.shape[1:]} and "
                f"{self.test_x.shape[1:]}"
            )

    @property
    def is_image(self) -> bool:
        return self.train_x.dtype == np.uint8

    @cached_property
    def fingerprint(self) -> str:
        """Return a hash of the content, so that a run never goes on with other data than it began with."""
        if self.digest is not None:
            return self.digest
        digest = hashlib.sha256()
        for array in (self.train_x, self.train_y, self.test_x, self.test_y):
            digest.update(f"{array.dtype}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()[:16]


@lru_cache(maxsize=2)
def load_cached(
    name: str, folder: str | None, label: str | None, drop: tuple[str, ...] = (), resize: int | None = None
) -> Data:
    """Load once a process: the runs of a study share their data."""
    return load(name, folder, label, drop, resize)


def load_for(config: RunConfig, folder: str | None) -> Data:
    return load_cached(config.dataset, folder, config.label, config.drop, config.resize)


def load(
    name: str,
    folder: str | Path | None = None,
    label: str | None = None,
    drop: tuple[str, ...] = (),
    resize: int | None = None,
) -> Data:
    """Load a data set by name, by file (CSV, Parquet), by image folder, or by `module:function`."""
    if name == "digits":
        return digits()
    if name == "fashion-mnist":
        return fashion_mnist(data_folder(folder))
    if name == "cifar-10":
        return cifar_10(data_folder(folder))
    from hypersimplex.study import own, tabular

    if name in tabular.SOURCES:
        return tabular.load(name, data_folder(folder))
    return own.load(name, label, drop, resize)


def stratified(y: Array, part: float, seed: int) -> tuple[Array, Array]:
    """Split indices in two, the second holding about `part` of every class."""
    rng = np.random.default_rng(seed)
    second = []
    for c in np.unique(y):
        members = rng.permutation(np.flatnonzero(y == c))
        second.append(members[: round(len(members) * part)])
    held = np.sort(np.concatenate(second)) if second else np.zeros(0, dtype=np.int64)
    return np.setdiff1d(np.arange(len(y)), held), held


def digits() -> Data:
    """scikit-learn's digits: 1,797 real scans of 8 x 8; a fifth, the same for every run, is the test set."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    images = x.reshape(-1, 8, 8, 1).astype(np.uint8)
    train, test = stratified(y, 0.2, seed=0)
    y = y.astype(np.int64)
    return Data("digits", images[train], y[train], images[test], y[test], tuple("0123456789"), padding=1)


def fashion_mnist(root: Path) -> Data:
    parts = []
    for file in FASHION.content:
        path = find_file(root, FASHION.folders, file)
        if path is None:
            raise missing("fashion-mnist", root, f"{FASHION.folders[0]}/{file}[.gz]")
        parts.append(read_idx(path))
    train_x, train_y, test_x, test_y = parts
    if train_x.ndim != 3 or test_x.ndim != 3 or train_y.ndim != 1 or test_y.ndim != 1:
        raise DataError(f"fashion-mnist in {root}: images and labels are mixed up; fetch it again")
    classes = ("t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot")
    return Data(
        "fashion-mnist",
        train_x[..., None],
        train_y.astype(np.int64),
        test_x[..., None],
        test_y.astype(np.int64),
        classes,
        (0.2860,),
        (0.3530,),
        padding=3,
    )


def cifar_10(root: Path) -> Data:
    """Read the binary batches, or the python ones where only those are there."""
    batches = []
    for name in (*BATCHES, "test_batch"):
        binary = find_file(root, CIFAR.folders, f"{name}.bin")
        python = None if binary else find_file(root, CIFAR_PYTHON_FOLDERS, name)
        if binary:
            batches.append(read_cifar_binary(binary))
        elif python:
            batches.append(read_cifar_python(python))
        else:
            raise missing("cifar-10", root, f"{CIFAR.folders[0]}/{name}.bin and {CIFAR_PYTHON_FOLDERS[0]}/{name}")
    classes = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
    return Data(
        "cifar-10",
        np.concatenate([x for x, _ in batches[:-1]]),
        np.concatenate([y for _, y in batches[:-1]]),
        *batches[-1],
        classes,
        (0.4914, 0.4822, 0.4465),
        (0.247, 0.243, 0.261),
        padding=4,
    )
