"""What an export must be before anything of it is taken: whole, unchanged, of possible numbers."""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from reprlib import repr as short_repr
from typing import Any

from hypersimplex_study.config import RunConfig, from_mapping, is_a
from hypersimplex_study.records import MEASURES

# In every row, so that a file cut anywhere still says how much it should hold.
WHOLENESS = ("export_rows", "export_sha256")
OF_AN_EPOCH = ("epoch", "train_loss", "epoch_lr", "seconds", *MEASURES)
LARGEST = 2**63 - 1  # whole number of a store
RANGES = ("accuracy", "auc", "f1", "one_class")
Row = Mapping[str, Any]


class ExportFileError(ValueError):
    """The file is not an export; the message says where."""


def digest(table: Sequence[Row]) -> str:
    """A hash of the content, the same for both formats and for columns that are not there or empty."""
    content = [{k: float(v) if isinstance(v, float | int) else v for k, v in r.items() if v is not None} for r in table]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def check_count(raw: Sequence[Row], first: int) -> None:
    """Compare the number of rows with the one that every row carries; exports of the first version carry none."""
    rows = [row if isinstance(row, dict) else {} for row in raw]
    for name in WHOLENESS:
        if not any(name in row for row in rows):
            continue
        said = [str(row.get(name) or "") for row in rows]
        wanted = max(said, key=lambda text: (text != "", said.count(text)))
        if name == WHOLENESS[0] and wanted not in ("", str(len(raw))):
            raise ExportFileError(f"must have the {wanted} rows it was written with, got {len(raw)}")
        for line, text in enumerate(said, first):
            if not text or text != wanted:
                raise ExportFileError(f"row {line} is cut short: {name} must be that of all rows, got {text!r}")


def check_content(raw: Sequence[Row], table: Sequence[Row]) -> None:
    if raw[0].get(WHOLENESS[1]) not in (None, digest(table)):
        raise ExportFileError("has other content than it was written with, or a newer version wrote it; export it anew")


def _of_an_epoch(name: str) -> bool:
    return name in OF_AN_EPOCH or name.startswith(("val_", "test_"))


def check_run(rows: Sequence[Row]) -> None:
    """Check the rows of one run: one run's settings, possible numbers, whole epochs."""
    first = rows[0]
    name = f"run {first['run']}"
    for row in rows[1:]:
        for column, value in row.items():
            if not _of_an_epoch(column) and value != first[column]:
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
            if _of_an_epoch(column) and value is not None:
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


def check_provenance(where: str, made: Row) -> None:
    """What is read of a provenance must be of its kind; the rest is only shown."""
    data, samples = made.get("data"), made.get("samples") or {}
    if not isinstance(data, str | None):
        raise ExportFileError(f"{where} must have a text as the hash of data, got {short_repr(data)}")
    if not isinstance(samples, dict) or not all(is_a(v, int) and 0 <= v <= LARGEST for v in samples.values()):
        raise ExportFileError(f"{where} must have whole numbers of samples, got {short_repr(samples)}")
