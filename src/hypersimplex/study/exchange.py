"""A store as a flat table, one row per run and epoch, and back: a half-done study moves to another machine this way."""

import csv
import io
import json
from dataclasses import asdict, fields
from typing import Any

from hypersimplex.study.config import RunConfig, from_mapping
from hypersimplex.study.store import MEASURES, STATES, Epoch, Run, Store

CONFIG = [f.name for f in fields(RunConfig)]
MEASURED = ["val_accuracy", "test_accuracy"]
BOTH = ["val_accuracy_own", "test_accuracy_own", "val_accuracy_argmax", "test_accuracy_argmax"]
COLUMNS = ["run", *CONFIG, "tuning", "state", "attempts", "error", "epoch", "train_loss", "epoch_lr", *MEASURED]
COLUMNS += [*BOTH, "seconds", "provenance"]
REQUIRED = tuple(COLUMNS)
# What exports of the first version do not have.
COLUMNS += MEASURES


class ExportFileError(ValueError):
    """The file is not an export; the message says where."""


def rows(runs: list[Run]) -> list[dict[str, Any]]:
    """One row per run and epoch; a run without epochs gets one row with an empty epoch, so that nothing is lost."""
    table = []
    for run in runs:
        head = {"run": run.key, **asdict(run.config), "tuning": run.tuning, "state": run.state}
        head |= {"attempts": run.attempts, "error": run.error, "provenance": run.provenance}
        if not run.epochs:
            table.append({c: head.get(c) for c in COLUMNS})
        for e, (validation, test) in zip(run.epochs, run.accuracies(), strict=True):
            both = dict(zip(BOTH, (e.val_accuracy, e.test_accuracy, e.val_argmax, e.test_argmax), strict=True))
            row = head | both | {"epoch": e.epoch, "train_loss": e.train_loss, "epoch_lr": e.lr, "seconds": e.seconds}
            row |= {"val_accuracy": validation, "test_accuracy": test} | {m: getattr(e, m) for m in MEASURES}
            table.append({c: row[c] for c in COLUMNS})
    return table


def to_json(runs: list[Run]) -> str:
    return json.dumps(rows(runs), indent=1) + "\n"


def to_csv(runs: list[Run]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for row in rows(runs):
        writer.writerow(row | {"provenance": json.dumps(row["provenance"])})
    return text.getvalue()


def read(text: str) -> list[dict[str, Any]]:
    """Read either format; which one is seen from the first character."""
    if text.lstrip().startswith("["):
        try:
            table = json.loads(text)
        except json.JSONDecodeError as error:
            raise ExportFileError(f"the file is not whole JSON: {error}") from error
        return [_checked(row, i + 1) for i, row in enumerate(table)]
    reader = csv.DictReader(io.StringIO(text))
    return [_checked(_typed(row, i), i) for i, row in enumerate(reader, 2)]


def _checked(row: Any, line: int) -> dict[str, Any]:
    missing = [c for c in REQUIRED if not isinstance(row, dict) or c not in row]
    if missing:
        raise ExportFileError(f"row {line} must have the columns of an export, {missing[0]!r} is missing")
    if row["state"] not in STATES:
        raise ExportFileError(f"row {line}: state must be one of {', '.join(STATES)}, got {row['state']!r}")
    return {**dict.fromkeys(MEASURES), **row}


TEXT = {"run", "dataset", "label", "network", "loss", "optimizer", "schedule", "precision", "state", "error"}
WHOLE = {"subset", "width", "batch_size", "seed", "epochs", "epoch", "attempts"}


def _typed(row: dict[str, str | None], line: int) -> dict[str, Any]:
    typed: dict[str, Any] = {}
    for name, value in row.items():
        try:
            if value is None or value == "":
                typed[name] = None
            elif name in TEXT:
                typed[name] = value
            elif name in WHOLE:
                typed[name] = int(value)
            elif name in ("augment", "tuning"):
                typed[name] = {"True": True, "False": False}[value]
            elif name == "provenance":
                typed[name] = json.loads(value)
            else:
                typed[name] = float(value)
        except (KeyError, ValueError) as error:
            raise ExportFileError(f"row {line}: {name} cannot be {value!r}") from error
    return typed


def import_rows(store: Store, table: list[dict[str, Any]]) -> tuple[int, int]:
    """Add runs to a store; return how many were new or further along, and how many were left as they are.

    A finished training is never replaced. An unfinished one keeps its epochs to look at, but starts again here: its
    checkpoint stayed on the other machine.
    """
    grouped: dict[str, list[dict[str, Any]]] = {}
    for row in table:
        grouped.setdefault(row["run"], []).append(row)
    taken = kept = 0
    own, plain = BOTH[:2], BOTH[2:]
    for group in grouped.values():
        try:
            config = from_mapping(group[0])
        except (TypeError, ValueError) as error:
            raise ExportFileError(f"run {group[0]['run']}: {error}") from error
        store.add_runs([config], tuning=bool(group[0]["tuning"]))
        key = config.training().key()
        epochs = [
            Epoch(
                *(r[name] for name in ("epoch", "train_loss", "epoch_lr", *own, *plain, "seconds", *MEASURES)),
            )
            for r in group
            if r["epoch"] is not None
        ]
        state = group[0]["state"]
        finished = state in ("done", "diverged")
        if store.state(key) in ("done", "diverged") or (not finished and len(epochs) <= len(store.epochs(key))):
            kept += 1
            continue
        taken += 1
        store.adopt(key, epochs, state if finished else "pending", group[0]["error"], group[0]["provenance"] or {})
    return taken, kept
