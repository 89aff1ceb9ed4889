"""Whether the rows of an export can be the runs they say they are."""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from hypersimplex.study.config import RunConfig, from_mapping
from hypersimplex.study.records import MEASURES

Row = Mapping[str, Any]
# In every row, so that a file cut anywhere still says how much it should hold.
WHOLENESS = ("export_rows", "export_sha256")
OF_AN_EPOCH = ("epoch", "train_loss", "epoch_lr", "seconds", *MEASURES)
RANGES = ("accuracy", "auc", "f1", "one_class")


class ExportFileError(ValueError):
    """The file is not an export; the message says where."""


def of_an_epoch(name: str) -> bool:
    return name in OF_AN_EPOCH or name.startswith(("val_", "test_"))


def digest(table: Sequence[Row]) -> str:
    """A hash of the content, the same for both formats and for columns that are not there or empty."""
    content = [{k: float(v) if isinstance(v, float | int) else v for k, v in r.items() if v is not None} for r in table]
    for row in content:
        row.pop(WHOLENESS[0], None)
        row.pop(WHOLENESS[1], None)
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def check_count(raw: Sequence[Row]) -> None:
    """Compare the number of rows with the one that every row carries; exports of the first version carry none."""
    counts = {str(row.get(WHOLENESS[0]) or "") for row in raw if isinstance(row, dict)}
    if counts <= {""}:
        return
    wanted = counts.pop()
    if counts or wanted != str(len(raw)):
        raise ExportFileError(f"must have the {wanted} rows it was written with, got {len(raw)}")


def check_content(raw: Sequence[Row], table: Sequence[Row]) -> None:
    hashes = {str(row.get(WHOLENESS[1]) or "") for row in raw}
    if not hashes <= {"", digest(table)}:
        raise ExportFileError("has other content than it was written with, or a newer version wrote it; export it anew")


def check_run(rows: Sequence[Row]) -> None:
    """Check the rows of one run: one run's settings, possible numbers, whole epochs."""
    first = rows[0]
    name = f"run {first['run']}"
    for row in rows[1:]:
        for column, value in row.items():
            if not of_an_epoch(column) and value != first[column] and column not in WHOLENESS:
                raise ExportFileError(
                    f"{name}: {column} must be the same in all rows, got {first[column]!r} and {value!r}"
                )
    try:
        config = from_mapping(first)
    except (TypeError, ValueError) as error:
        raise ExportFileError(f"{name}: {error}") from error
    if config.key() != first["run"]:
        raise ExportFileError(f"{name}: its settings are those of run {config.key()}")
    check_epochs(name, config, [row for row in rows if row["epoch"] is not None], first["state"])


def check_epochs(name: str, config: RunConfig, rows: Sequence[Row], state: str) -> None:
    seen: set[int] = set()
    for row in rows:
        number = row["epoch"]
        if not 0 <= number < config.epochs:
            raise ExportFileError(f"{name}: epoch must be between 0 and {config.epochs - 1}, got {number}")
        if number in seen:
            raise ExportFileError(f"{name}: epoch {number} is there twice")
        seen.add(number)
        for column, value in row.items():
            if of_an_epoch(column) and value is not None:
                check_number(f"{name}, epoch {number}: {column}", column, value)
    # Boosted trees may stop early; a run that diverged or goes on has the epochs before that.
    wanted = config.epochs if state == "done" and not config.is_trees else max(1, len(rows)) if state == "done" else 0
    if len(rows) < wanted:
        raise ExportFileError(f"{name} is done, so it must have all {wanted} epochs, got {len(rows)}")
    if seen != set(range(len(seen))):
        raise ExportFileError(f"{name}: epochs must follow one another from 0, got {len(seen)} up to {max(seen)}")


def check_number(where: str, column: str, value: float) -> None:
    if any(part in column for part in RANGES):
        if not 0 <= value <= 1:
            raise ExportFileError(f"{where} must be between 0 and 1, got {value}")
    elif column == "train_loss":
        if not math.isfinite(value):
            raise ExportFileError(f"{where} must be finite, got {value}")
    elif not 0 <= value < math.inf:
        raise ExportFileError(f"{where} must be finite and not negative, got {value}")
