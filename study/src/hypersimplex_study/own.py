"""One's own data: a table with a label column, a folder of images, or a function."""

import difflib
import importlib
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hypersimplex_study.formats import Array, DataError
from hypersimplex_study.own_columns import as_numbers
from hypersimplex_study.samples import Data, set_aside, with_test_set

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff")
FAR = 1e4  # standard deviations from zero: single precision keeps three digits of a difference there


def load(name: str, label: str | None, drop: tuple[str, ...] = (), resize: int | None = None) -> Data | None:
    """Load by file, folder or function; None where the name is none of them."""
    path = Path(name).expanduser()
    if path.is_dir():
        return image_folder(path, resize)
    if path.suffix.lower() in (".csv", ".parquet"):
        return table(path, label, drop)
    if is_entry_point(name):
        return entry_point(*name.split(":", 1))
    return None


def is_entry_point(name: str) -> bool:
    """Whether a data set is a function, `module:function`, to be imported and called."""
    path = Path(name).expanduser()
    module, _, function = name.partition(":")
    return bool(module and function) and not path.is_dir() and path.suffix.lower() not in (".csv", ".parquet")


def table(path: Path, label: str | None, drop: tuple[str, ...] = ()) -> Data:
    """Columns as `own_columns` reads them; a fifth of the rows, the same every time, is the test set."""
    frame = _read_frame(path)
    if label is None:
        raise DataError(f"label must name the label column of {path}; its columns are {_listed(frame)}")
    for option, name in (("label", label), *(("drop", name) for name in drop)):
        if name not in frame.columns:
            hint = _did_you_mean(name, frame)
            raise DataError(
                f"{option} must be a column of {path}, got {name!r}{hint}; its columns are {_listed(frame)}"
            )
    if label in drop:
        raise DataError(f"drop must leave the label column, got {label!r}")
    classes, y = _classes(path, frame[label])
    features = frame.drop(columns=[label, *drop])
    if features.shape[1] == 0:
        raise DataError(f"{path} must have a column beside {label!r}, got none that is not dropped")
    names, x, categories, notes = as_numbers(path, features)
    train, test = set_aside(path.stem, y)
    train_x, test_x = _single(x[train], x[test])
    # Gaps are filled with what is typical of the training rows; the test rows have no say.
    with np.errstate(all="ignore"):
        typical = np.array([np.median(c[np.isfinite(c)]) if np.isfinite(c).any() else 0.0 for c in train_x.T])
    typical[[names.index(name) for name in categories]] = np.nan  # LightGBM keeps a gap among categories
    train_x, test_x = (np.where(np.isfinite(x), x, typical.astype(np.float32)) for x in (train_x, test_x))
    found = {name: names.index(name) for name in categories}
    return Data(path.stem, train_x, y[train], test_x, y[test], classes, notes=notes, categories=found)


def _single(train: Array, test: Array) -> tuple[Array, Array]:
    """Both parts in single precision. A column far from zero, as a date in seconds is, is moved to zero first.

    Single precision would round its differences away. Standardization makes up for any shift.
    """
    train, test = train.astype(np.float64), test.astype(np.float64)
    columns = train.reshape(len(train), -1)
    shift = np.zeros(columns.shape[1])
    with np.errstate(over="ignore"):
        for i, column in enumerate(columns.T):
            seen = column[np.isfinite(column)]
            if len(seen) and seen.min() < seen.max() and abs(seen.mean()) > FAR * seen.std():
                shift[i] = np.median(seen)  # which, unlike a mean, has the same bits on every machine
        first, second = (x - shift.reshape(train.shape[1:]) for x in (train, test))
        return first.astype(np.float32), second.astype(np.float32)


def _read_frame(path: Path) -> Any:
    import pandas as pd

    if not path.is_file():
        raise DataError(f"{path} does not exist")
    try:
        return pd.read_csv(path) if path.suffix.lower() == ".csv" else pd.read_parquet(path)
    except Exception as error:
        raise DataError(f"{path} cannot be read as {path.suffix[1:]} ({error})") from error


def _listed(frame: Any) -> str:
    return ", ".join(map(str, frame.columns))


def _did_you_mean(name: str, frame: Any) -> str:
    by_lower = {str(c).strip().lower(): str(c) for c in frame.columns}
    close = difflib.get_close_matches(name.strip().lower(), by_lower, n=1)
    return f" (did you mean {by_lower[close[0]]!r}?)" if close else ""


def _classes(path: Path, column: Any) -> tuple[tuple[str, ...], Array]:
    """The names of the classes, and the class of every row."""
    label = column.name
    if column.isna().any():
        raise DataError(
            f"{path}: column {label!r} must have a value in every row, {column.isna().sum()} have none; "
            "the texts NA, None and null of a CSV file are none either"
        )
    classes, y = np.unique(column.astype(str).to_numpy(dtype=object).astype(str), return_inverse=True)
    if not 2 <= len(classes) <= 1000:
        raise DataError(f"{path}: column {label!r} must hold 2 to 1000 classes, got {len(classes)}")
    if len(classes) > len(column) // 2:
        raise DataError(f"{path}: column {label!r} must repeat its classes, got {len(classes)} in {len(column)} rows")
    return tuple(classes.tolist()), y.astype(np.int64)


def image_folder(path: Path, resize: int | None = None) -> Data:
    """`folder/train/<class>/*.png` and `folder/test/<class>/*.png`, or `folder/<class>/*.png` to be split."""
    split = (path / "train").is_dir() and (path / "test").is_dir()
    root = path / "train" if split else path
    classes = sorted(f.name for f in root.iterdir() if f.is_dir() and not _hidden(f, root))
    if len(classes) < 2:
        raise DataError(f"{root} must hold one folder a class, at least two, got {len(classes)}")
    x, y = _read_images(root, classes, resize)
    if split:
        other = _read_images(path / "test", classes, resize)
        return Data(path.name, x, y, *other, tuple(classes), padding=x.shape[1] // 8)
    return with_test_set(path.name, x, y, tuple(classes), padding=x.shape[1] // 8)


def _hidden(file: Path, below: Path) -> bool:
    return any(part.startswith(".") for part in file.relative_to(below).parts)


def _read_images(root: Path, classes: list[str], resize: int | None) -> tuple[Array, Array]:
    try:
        from PIL import Image
    except ImportError as error:
        raise DataError("reading an image folder needs Pillow: pip install pillow") from error
    images: list[Array] = []
    labels = []
    for number, name in enumerate(classes):
        files = sorted(f for f in (root / name).rglob("*") if f.suffix.lower() in IMAGES and not _hidden(f, root))
        if not files:
            raise DataError(f"{root / name} must hold images ({', '.join(IMAGES)}), found none")
        for file in files:
            try:
                with Image.open(file) as image:
                    whole = image.convert("RGB")
            except OSError as error:
                raise DataError(f"{file} cannot be read as an image ({error})") from error
            if resize is not None and whole.size != (resize, resize):
                whole = whole.resize((resize, resize), Image.Resampling.BILINEAR)
            images.append(np.asarray(whole, dtype=np.uint8))
            if images[-1].shape != images[0].shape:
                raise DataError(
                    f"{file} must be of the first image's size {images[0].shape[:2]}, got {images[-1].shape[:2]}; "
                    "--resize 32, say, makes all of one size"
                )
            labels.append(number)
    return np.stack(images), np.asarray(labels, dtype=np.int64)


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
    train_y, test_y = _labels(name, train_y), _labels(name, test_y)
    classes = tuple(str(c) for c in range(int(max(train_y.max(initial=0), test_y.max(initial=0))) + 1))
    found = Data(name, train_x, train_y, test_x, test_y, classes, model=lambda: _called(name, model))
    if found.is_image:
        return found
    train_x, test_x = _single(train_x, test_x)
    return replace(found, train_x=train_x, test_x=test_x)


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
