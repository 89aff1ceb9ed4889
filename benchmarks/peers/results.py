"""Rows in CSV files, one file for each part of the comparison. A part measured again replaces its own rows."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]

# The columns that tell one row from another.
KEYS = {
    "peers": ["peer"],
    "exact": ["peer"],
    "probe": ["threads", "shape", "dim", "peer"],
    "times": ["threads", "shape", "dim", "peer"],
    "growth": ["peer", "n"],
    "memory": ["n", "peer"],
    "edges": ["peer", "edge"],
    "run": ["part"],
}


def read(folder: Path, part: str) -> list[Row]:
    path = folder / f"{part}.csv"
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def merge(folder: Path, part: str, rows: Sequence[Mapping[str, object]], *, forget: str | None = None) -> None:
    """Write the rows over those of the same key; `forget` names a peer all of whose old rows go."""
    if not rows:
        return
    text = [{name: _cell(value) for name, value in row.items()} for row in rows]
    kept = {_key(part, row): row for row in read(folder, part) if row.get("peer") != forget or forget is None}
    kept.update({_key(part, row): row for row in text})
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{part}.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(text[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(kept.values())


def _key(part: str, row: Row) -> tuple[str, ...]:
    return tuple(row[name] for name in KEYS[part])


def _cell(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
