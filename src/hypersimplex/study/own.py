"""One's own data: a table with a label column, a folder of images, or a function."""

import importlib
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hypersimplex.study.data import NAMES, Data, stratified
from hypersimplex.study.formats import Array, DataError

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff")


def load(name: str, label: str | None) -> Data:
    path = Path(name).expanduser()
    if path.is_dir():
        return image_folder(path)
    if path.suffix.lower() in (".csv", ".parquet"):
        return table(path, label)
    if is_entry_point(name):
        return entry_point(*name.split(":", 1))
    from hypersimplex.study import tabular

    names = ", ".join((*NAMES, *tabular.SOURCES))
    raise DataError(
        f"dataset must be one of {names}, a .csv or .parquet file, an image folder or module:function, got {name!r}"
    )


def is_entry_point(name: str) -> bool:
    """Whether a data set is a function, `module:function`, to be imported and called."""
    path = Path(name).expanduser()
    module, _, function = name.partition(":")
    return bool(module and function) and not path.is_dir() and path.suffix.lower() not in (".csv", ".parquet")


def table(path: Path, label: str | None) -> Data:
    """Numbers as they are, text as one column a value; a fifth of the rows, the same every time, is the test set."""
    import pandas as pd

    if not path.is_file():
        raise DataError(f"{path} does not exist")
    try:
        frame = pd.read_csv(path) if path.suffix.lower() == ".csv" else pd.read_parquet(path)
    except Exception as error:
        raise DataError(f"{path} cannot be read as {path.suffix[1:]} ({error})") from error
    columns = ", ".join(map(str, frame.columns[:20]))
    if label is None:
        raise DataError(f"label must name the label column of {path}; its columns are {columns}")
    if label not in frame.columns:
        raise DataError(f"label must be a column of {path}, got {label!r}; its columns are {columns}")
    if frame[label].isna().any():
        raise DataError(
            f"{path}: column {label!r} must have a value in every row, {frame[label].isna().sum()} have none"
        )
    classes, y = np.unique(frame[label].astype(str).to_numpy(dtype=object).astype(str), return_inverse=True)
    if not 2 <= len(classes) <= 1000:
        raise DataError(f"{path}: column {label!r} must hold 2 to 1000 classes, got {len(classes)}")
    if len(classes) > len(frame) // 2:
        raise DataError(f"{path}: column {label!r} must repeat its classes, got {len(classes)} in {len(frame)} rows")
    features = frame.drop(columns=[label])
    text = [c for c in features.columns if not pd.api.types.is_numeric_dtype(features[c])]
    wide = [c for c in text if features[c].nunique() > 100]
    if wide:
        raise DataError(f"{path}: text column {wide[0]!r} has more than 100 values; drop it or make it a number")
    features = pd.get_dummies(features, columns=text, dummy_na=False)
    x = features.to_numpy(dtype=np.float32, na_value=np.nan)
    if x.shape[1] == 0:
        raise DataError(f"{path} must have a column beside {label!r}")
    train, test = stratified(y, 0.2, seed=0)
    # Gaps are filled with what is typical of the training rows; the test rows have no say.
    with np.errstate(all="ignore"):
        typical = np.array([np.median(c[np.isfinite(c)]) if np.isfinite(c).any() else 0.0 for c in x[train].T])
    x = np.where(np.isfinite(x), x, typical.astype(np.float32))
    y = y.astype(np.int64)
    return Data(path.stem, x[train], y[train], x[test], y[test], tuple(classes.tolist()))


def image_folder(path: Path) -> Data:
    """`folder/train/<class>/*.png` and `folder/test/<class>/*.png`, or `folder/<class>/*.png` to be split."""
    try:
        from PIL import Image
    except ImportError as error:
        raise DataError("reading an image folder needs Pillow: pip install pillow") from error

    def read(root: Path, classes: list[str]) -> tuple[Array, Array]:
        images, labels = [], []
        for number, name in enumerate(classes):
            files = sorted(f for f in (root / name).rglob("*") if f.suffix.lower() in IMAGES and not hidden(f, root))
            if not files:
                raise DataError(f"{root / name} must hold images ({', '.join(IMAGES)}), found none")
            for file in files:
                try:
                    with Image.open(file) as image:
                        images.append(np.asarray(image.convert("RGB"), dtype=np.uint8))
                except OSError as error:
                    raise DataError(f"{file} cannot be read as an image ({error})") from error
                if images[-1].shape != images[0].shape:
                    raise DataError(
                        f"{file} must be of the first image's size {images[0].shape[:2]}, got {images[-1].shape[:2]}"
                    )
                labels.append(number)
        return np.stack(images), np.asarray(labels, dtype=np.int64)

    def hidden(file: Path, below: Path) -> bool:
        return any(part.startswith(".") for part in file.relative_to(below).parts)

    split = (path / "train").is_dir() and (path / "test").is_dir()
    root = path / "train" if split else path
    classes = sorted(f.name for f in root.iterdir() if f.is_dir() and not hidden(f, root))
    if len(classes) < 2:
        raise DataError(f"{root} must hold one folder a class, at least two, got {len(classes)}")
    x, y = read(root, classes)
    if split:
        return Data(path.name, x, y, *read(path / "test", classes), tuple(classes), padding=x.shape[1] // 8)
    train, test = stratified(y, 0.2, seed=0)
    return Data(path.name, x[train], y[train], x[test], y[test], tuple(classes), padding=x.shape[1] // 8)


def entry_point(module: str, function: str) -> Data:
    """Call the function: it returns a dataset (`Data`, or four arrays) and a callable that makes the model."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    name = f"{module}:{function}"
    try:
        make = getattr(importlib.import_module(module), function)
    except Exception as error:
        raise DataError(f"dataset {name!r} cannot be imported ({type(error).__name__}: {error})") from error
    result: Any = _called(name, make)
    if not (isinstance(result, tuple) and len(result) == 2 and callable(result[1])):
        raise DataError(
            f"{name} must return (dataset, model), model a callable that makes a network, got {type(result).__name__}"
        )
    dataset, model = result
    if hasattr(model, "state_dict"):
        # A network, not a way to make one: made anew for every run, or seeds would share their weights.
        model = lambda: make()[1]  # noqa: E731
    if isinstance(dataset, Data):
        train_y, test_y = _labels(name, dataset.train_y), _labels(name, dataset.test_y)
        return replace(dataset, model=lambda: _called(name, model), train_y=train_y, test_y=test_y)
    try:
        train_x, train_y, test_x, test_y = (np.asarray(a) for a in dataset)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name}: dataset must be Data or (train_x, train_y, test_x, test_y) ({error})") from error
    if train_x.dtype != np.uint8:
        train_x, test_x = train_x.astype(np.float32), test_x.astype(np.float32)
    train_y, test_y = _labels(name, train_y), _labels(name, test_y)
    classes = tuple(str(c) for c in range(int(max(train_y.max(initial=0), test_y.max(initial=0))) + 1))
    return Data(name, train_x, train_y, test_x, test_y, classes, model=lambda: _called(name, model))


def _called(name: str, make: Callable[[], Any]) -> Any:
    try:
        return make()
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{last.filename}, line {last.lineno}"
        raise DataError(f"{name} raised {type(error).__name__}: {error} ({where})") from error


def _labels(name: str, y: Any) -> Array:
    found = np.asarray(y)
    whole = found.dtype.kind in "iub" or (found.dtype.kind == "f" and bool((found == np.floor(found)).all()))
    if found.ndim != 1 or not whole:
        raise DataError(f"{name}: labels must be one whole number a sample, got {found.dtype} of shape {found.shape}")
    return found.astype(np.int64)
