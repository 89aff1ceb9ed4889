"""Data sets as arrays: the embedded digits, Fashion-MNIST, CIFAR-10, the tables of `tabular`, and one's own."""

from functools import lru_cache
from pathlib import Path

import numpy as np

from hypersimplex_study import own, tabular
from hypersimplex_study.catalog import CIFAR, CIFAR_PYTHON_FOLDERS, FASHION, data_folder, find_file, missing
from hypersimplex_study.config import RunConfig
from hypersimplex_study.formats import DataError, read_cifar_binary, read_cifar_python, read_idx
from hypersimplex_study.samples import Data, with_test_set

__all__ = ["Data", "load", "load_cached", "load_for"]
NAMES = ("digits", "fashion-mnist", "cifar-10")


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
    if name in tabular.SOURCES:
        return tabular.load(name, data_folder(folder))
    found = own.load(name, label, drop, resize)
    if found is None:
        names = ", ".join((*NAMES, *tabular.SOURCES))
        raise DataError(
            f"dataset must be one of {names}, a .csv or .parquet file, an image folder or module:function, got {name!r}"
        )
    return found


# Once a process: the runs of a study share their data.
load_cached = lru_cache(maxsize=2)(load)


def load_for(config: RunConfig, folder: str | None) -> Data:
    return load_cached(config.dataset, folder, config.label, config.drop, config.resize)


def digits() -> Data:
    """scikit-learn's digits: 1,797 real scans of 8 x 8; a fifth, the same for every run, is the test set."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    images = x.reshape(-1, 8, 8, 1).astype(np.uint8)
    return with_test_set("digits", images, y.astype(np.int64), tuple("0123456789"), padding=1)


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
    for file in CIFAR.content:
        name = file.removesuffix(".bin")
        binary = find_file(root, CIFAR.folders, file)
        python = None if binary else find_file(root, CIFAR_PYTHON_FOLDERS, name)
        if binary:
            batches.append(read_cifar_binary(binary))
        elif python:
            batches.append(read_cifar_python(python))
        else:
            raise missing("cifar-10", root, f"{CIFAR.folders[0]}/{file} and {CIFAR_PYTHON_FOLDERS[0]}/{name}")
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
