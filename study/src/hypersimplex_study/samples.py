"""What a data set is to the study: arrays of training and of test samples."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from hypersimplex_study.formats import Array, DataError


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
    model: Callable[[], Any] | None = None  # makes the network, for one's own entry point
    # The publisher's own split, taken instead of a part of the training set.
    validation: tuple[Any, Array] | None = None
    # Columns whose numbers stand for categories, too many for a network: by name, where each is.
    categories: Mapping[str, int] = field(default_factory=dict)
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


def stratified(y: Array, part: float, seed: int) -> tuple[Array, Array]:
    """Split indices in two, the second holding about `part` of every class."""
    rng = np.random.default_rng(seed)
    second = []
    for c in np.unique(y):
        members = rng.permutation(np.flatnonzero(y == c))
        second.append(members[: round(len(members) * part)])
    held = np.sort(np.concatenate(second)) if second else np.zeros(0, dtype=np.int64)
    return np.setdiff1d(np.arange(len(y)), held), held


def set_aside(name: str, y: Array, part: float = 0.2) -> tuple[Array, Array]:
    """Split indices in training and test set, the same for every run."""
    train, test = stratified(y, part, seed=0)
    if len(test) == 0:
        least, most = int(0.5 / part) + 1, np.bincount(y).max(initial=0)
        raise DataError(
            f"{name}: a class must have at least {least} samples, so that one is for the test set, got {most} at most"
        )
    return train, test


def with_test_set(name: str, x: Array, y: Array, classes: tuple[str, ...], part: float = 0.2, **more: Any) -> Data:
    """Set a part of the samples aside as the test set."""
    train, test = set_aside(name, y, part)
    return Data(name, x[train], y[train], x[test], y[test], classes, **more)
