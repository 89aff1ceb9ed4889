"""Numbers out of the columns of one's own table: numbers, dates, texts and categories; IDs are named."""

import re
import shlex
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from hypersimplex_study.formats import Array, DataError

WIDE = 100  # values of a text column, each of which becomes a column of numbers
SHARE = 0.9  # a column in which so many cells are numbers, or dates, was meant to hold nothing else
FEW = 20  # different numbers; a column with fewer may hold codes, some of which are digits
DATE = re.compile(r"(?:\d{4}([-/.])\d{1,2}\1\d{1,2}|(\d{1,2})([-/.])\d{1,2}\3\d{4})(?:[ T]\d.*)?")
# What pandas calls them, and what a column is called.
PARTS = {"year": "year", "month": "month", "day": "day", "day_of_week": "weekday", "hour": "hour", "minute": "minute"}


def as_numbers(path: Path, features: Any) -> tuple[list[str], Array, list[str], tuple[str, ...]]:
    """The names of the columns, their numbers, which are codes of categories, and notes for the owner.

    A number stays as it is. A date becomes its parts, a text one column per value; with more than WIDE values it
    becomes one column of codes, which only boosted trees can use.
    """
    import pandas as pd

    text = [c for c in features.columns if not pd.api.types.is_numeric_dtype(features[c])]
    notes, wide, ids, made = [], [], [], {}
    for c in text:
        different = _different(path, features[c])
        dates = _dates(path, features[c])
        if dates is not None:
            made[c] = _parts(c, dates)
            notes.append(f"{path}: column {c!r} is read as a date: {', '.join(made[c]) or 'the same in every row'}")
            continue
        _refuse_few_texts(path, features[c])
        if different > max(WIDE, len(features) // 2):
            ids.append((c, different))
        elif different > WIDE:
            wide.append(c)
    _refuse_ids(path, ids, len(features))
    notes += _looks_like_an_id(path, features)
    columns = [pd.DataFrame(made[c]) if c in made else _column(features[c], c in wide) for c in features.columns]
    whole = pd.concat([part.set_axis(features.index) for part in columns], axis=1)
    numbers = pd.get_dummies(whole, columns=[c for c in text if c not in made and c not in wide], dummy_na=False)
    for c in wide:
        notes.append(f"{path}: column {c!r} has {features[c].nunique()} values; only network lightgbm can use it")
    x = numbers.to_numpy(dtype=np.float64, na_value=np.nan)
    _refuse_large(path, numbers.columns, x)
    return [str(c) for c in numbers.columns], x, [str(c) for c in wide], tuple(notes)


def _column(column: Any, is_wide: bool) -> Any:
    """As it is, or the codes of its categories in alphabetical order; a gap stays one."""
    if not is_wide:
        return column.to_frame()
    codes = column.astype(str).where(column.notna()).astype("category").cat.codes.astype(np.float64)
    return codes.where(codes >= 0).to_frame(column.name)


def _dates(path: Path, column: Any) -> Any:
    """The column as dates, or None where it does not hold dates."""
    import pandas as pd

    if pd.api.types.is_datetime64_any_dtype(column):
        return column
    text = column.dropna().astype(str).str.strip()
    matches = text.map(DATE.fullmatch)
    if text.empty or matches.notna().mean() < SHARE:
        return None
    # 13/02/2026 can only have the day first, and so can the other rows; 13.02.2026 is written so.
    day_first = any(m and m[2] and (m[3] == "." or int(m[2]) > 12) for m in matches)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # about a format that differs from row to row
        dates = pd.to_datetime(text, errors="coerce", dayfirst=day_first, format="mixed", utc=True)
    _refuse_cells(path, column, dates[matches.isna() | dates.isna()].index, "a date")
    return dates.reindex(column.index)


def _parts(name: str, dates: Any) -> dict[str, Any]:
    """The parts that are not the same in every row."""
    parts = {shown: getattr(dates.dt, part).astype(np.float64) for part, shown in PARTS.items()}
    return {f"{name} {shown}": values for shown, values in parts.items() if values.nunique() > 1}


def _refuse_few_texts(path: Path, column: Any) -> None:
    """A column of numbers in which some cells are none, as "€ 12" is: as text each number would be a category."""
    import pandas as pd

    numbers = pd.to_numeric(column.dropna().astype(str).str.strip(), errors="coerce")
    if numbers.notna().mean() >= SHARE and numbers.nunique() >= FEW:
        _refuse_cells(path, column, numbers[numbers.isna()].index, "a number")


def _refuse_cells(path: Path, column: Any, rows: Any, kind: str) -> None:
    if len(rows):
        shown = ", ".join(f"{column[row]!r} in row {column.index.get_loc(row) + 1}" for row in rows[:3])
        more = f" and {len(rows) - 3} more" if len(rows) > 3 else ""
        raise DataError(
            f"{path}: column {column.name!r} must hold {kind} in every row, got {shown}{more} (rows below the header "
            f"are counted from 1); correct them, or leave the column out with --drop {shlex.quote(str(column.name))}"
        )


def _refuse_ids(path: Path, ids: list[tuple[Any, int]], rows: int) -> None:
    """Texts that hardly repeat tell rows apart, not classes."""
    if ids:
        said = ", ".join(f"{c!r} with {count} values" for c, count in ids)
        leave = " ".join(f"--drop {shlex.quote(str(c))}" for c, _ in ids)
        raise DataError(
            f"{path}: a text column must repeat its values, got {said} in {rows} rows, as IDs and names have; "
            f"leave out with {leave}"
        )


def _different(path: Path, column: Any) -> int:
    try:
        return int(column.nunique())
    except TypeError as error:
        kind = type(column.dropna().iloc[0]).__name__
        raise DataError(
            f"{path}: column {column.name!r} must hold a number or a text in every row, got {kind}; "
            f"leave it out with --drop {shlex.quote(str(column.name))}"
        ) from error


def _refuse_large(path: Path, names: Any, x: Array) -> None:
    """Trained on are numbers in single precision, in which larger ones are infinite."""
    largest = float(np.finfo(np.float32).max)
    for row, i in np.argwhere(np.isfinite(x) & (np.abs(x) > largest))[:1]:
        raise DataError(
            f"{path}: column {names[i]!r} must hold numbers between {-largest:.2g} and {largest:.2g}, got "
            f"{x[row, i]:g}; leave it out with --drop {shlex.quote(str(names[i]))}"
        )


def _looks_like_an_id(path: Path, features: Any) -> Iterator[str]:
    """A whole number that is another in every row is a row's name: a network can only learn it by heart."""
    for c in features.columns:
        column = features[c]
        if column.dtype.kind in "iu" and len(column) >= 20 and column.nunique() == len(column):
            yield (
                f"{path}: column {c!r} looks like an ID, {len(column)} different whole numbers in as many rows; "
                f"leave it out with --drop {shlex.quote(str(c))}"
            )
