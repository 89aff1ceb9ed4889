"""Columns of categories: pandas' own as codes, and which columns the trees split as categories."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from hypersimplex.sklearn._calibration import Array


class Categories:
    """The categories of a frame's columns in the order of their codes, and whether that order means anything."""

    def __init__(self, frame: Any) -> None:
        columns = {i: frame.iloc[:, i].cat for i in _where(frame)}
        self.values: dict[int, Array] = {i: np.asarray(column.categories) for i, column in columns.items()}
        self.unordered = [i for i, column in columns.items() if not column.ordered]

    def encode(self, frame: Any) -> Any:
        """The frame with codes for categories, NaN for those that are missing or were not in the first frame."""
        where = _where(frame)
        if where != list(self.values):
            raise ValueError(
                f"X must have pandas categories in the columns that had them in fit, {list(self.values)}, got {where}"
            )
        if where:
            frame = frame.copy(deep=False)
        for i, values in self.values.items():
            codes = frame.iloc[:, i].cat.set_categories(values).cat.codes.to_numpy()
            frame.isetitem(i, np.where(codes < 0, np.nan, codes))
        return frame

    def split_as_such(self, given: Any, names: Sequence[str], features: int) -> list[int]:
        """Indices of the columns in `categorical_feature`; "auto" means pandas' unordered categories."""
        if isinstance(given, str) and given == "auto":
            return self.unordered
        places: dict[Any, int] = {**{i: i for i in range(features)}, **{name: i for i, name in enumerate(names)}}
        for column in [given] if isinstance(given, str) else given:
            if isinstance(given, str) or column not in places:
                raise ValueError(f"categorical_feature must be 'auto' or columns of X, got {column!r}")
        return sorted({places[column] for column in given})


def first_text(x: Any) -> tuple[Any, str] | None:
    """The first column that holds text which is no number: its name or index, and the text."""
    cells = np.asarray(x, dtype=object)
    names = getattr(x, "columns", None)
    for i, column in enumerate(cells.T if cells.ndim == 2 else ()):
        for value in column:
            try:
                float(value) if isinstance(value, str) else 0.0
            except ValueError:
                return i if names is None else names[i], str(value)
    return None


def _where(frame: Any) -> list[int]:
    """Which columns of a pandas frame are categories; none of anything else."""
    if not hasattr(frame, "isetitem"):
        return []
    return [i for i, dtype in enumerate(frame.dtypes) if str(dtype) == "category"]
