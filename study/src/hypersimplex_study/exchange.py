"""A store as a flat table, one row per run and epoch, and back: a half-done study moves to another machine this way."""

import csv
import io
import json
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from reprlib import repr as short_repr
from typing import Any

from hypersimplex_study.config import LATER, RunConfig, from_mapping, is_a, kinds_of
from hypersimplex_study.exchange_checks import (
    LARGEST,
    WHOLENESS,
    ExportFileError,
    Row,
    check_content,
    check_count,
    check_provenance,
    check_run,
    digest,
)
from hypersimplex_study.formats import read_bytes
from hypersimplex_study.own_losses import check_code
from hypersimplex_study.records import MEASURES, Epoch, Run
from hypersimplex_study.schema import FINISHED, STATES
from hypersimplex_study.store import Store

CONFIG = [f.name for f in fields(RunConfig) if f.name not in LATER]
MEASURED = ["val_accuracy", "test_accuracy"]
BOTH = ["val_accuracy_own", "test_accuracy_own", "val_accuracy_argmax", "test_accuracy_argmax"]
COLUMNS = ["run", *CONFIG, "tuning", "state", "attempts", "error", "epoch", "train_loss", "epoch_lr", *MEASURED]
COLUMNS += [*BOTH, "seconds", "provenance"]
REQUIRED = tuple(COLUMNS)
# What exports of the first version do not have.
COLUMNS += [*LATER, *MEASURES]
# What a column holds; all others hold numbers.
KINDS: dict[str, type] = {"run": str, "state": str, "error": str, "tuning": bool, "attempts": int, "epoch": int}
KINDS |= kinds_of(RunConfig) | {"drop": list, "provenance": dict}
NEEDED = {"run", "tuning", "state", "attempts", *CONFIG} - {"label", "subset", "tau", "prior"}


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
    whole = dict(zip(WHOLENESS, (len(table), digest(table)), strict=True))
    return [row | whole for row in table]


def to_json(runs: list[Run]) -> str:
    return json.dumps(rows(runs), indent=1) + "\n"


def to_csv(runs: list[Run]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, [*COLUMNS, *WHOLENESS], lineterminator="\n")
    writer.writeheader()
    for row in rows(runs):
        writer.writerow(row | {name: json.dumps(row[name]) for name in ("provenance", "drop")})
    return text.getvalue()


def read_file(path: Path) -> list[dict[str, Any]]:
    """Read an export, packed by gzip or not; `-` is standard input."""
    name = "standard input" if str(path) == "-" else str(path)
    try:
        raw = sys.stdin.buffer.read() if str(path) == "-" else read_bytes(path)
        return read(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ExportFileError(f"{name} must be text in UTF-8 ({error.reason} at byte {error.start})") from error
    except ExportFileError as error:
        raise ExportFileError(f"{name}{' ' if str(error).startswith(('must', 'has')) else ': '}{error}") from error


def read(text: str) -> list[dict[str, Any]]:
    """Read either format; which one is seen from the first character."""
    if text.lstrip().startswith("["):
        raw, first, typed = _from_json(text), 1, _known
    else:
        reader = csv.DictReader(io.StringIO(text))
        try:
            _has_columns(reader.fieldnames or (), 1)
            raw = list(reader)
        except csv.Error as error:
            raise ExportFileError(f"the file is not CSV: {error}") from error
        first, typed = 2, _parsed
    if not raw:
        raise ExportFileError("the file must hold at least one run, got none")
    check_count(raw, first)
    table = [_checked(row, i, typed) for i, row in enumerate(raw, first)]
    for group in by_run(table).values():
        check_run(group)
    check_content(raw, table)
    return table


def _from_json(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ExportFileError(f"the file is not whole JSON: {error}") from error
    except RecursionError:
        raise ExportFileError("the file is not an export: its JSON is nested too deep") from None
    except ValueError as error:
        raise ExportFileError("the file is not an export: a number has more digits than Python reads") from error


def by_run(table: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in table:
        groups.setdefault(row["run"], []).append(row)
    return groups


def _has_columns(names: Collection[str], line: int) -> None:
    missing = [c for c in REQUIRED if c not in names]
    if missing:
        raise ExportFileError(f"row {line} must have the columns of an export, {missing[0]!r} is missing")


def _checked(row: Any, line: int, typed: Callable[[str, Any], Any]) -> dict[str, Any]:
    _has_columns(row if isinstance(row, dict) else (), line)
    found: dict[str, Any] = dict.fromkeys(MEASURES)
    needed = NEEDED | (set() if row["epoch"] in (None, "") else {"epoch_lr", "seconds"})
    for name in COLUMNS:
        value = row.get(name)
        try:
            found[name] = None if value is None or value == "" else typed(name, value)
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
            raise ExportFileError(f"row {line}: {name} cannot be {short_repr(value)}") from error
        if found[name] is None and name in needed:
            raise ExportFileError(f"row {line}: {name} must have a value, got none")
    if found["state"] not in STATES:
        raise ExportFileError(f"row {line}: state must be one of {', '.join(STATES)}, got {found['state']!r}")
    check_provenance(f"row {line}: provenance", found["provenance"] or {})
    return found


def _parsed(name: str, value: str) -> Any:
    """A cell of CSV as what its column holds."""
    kind = KINDS.get(name, float)
    if kind is bool:
        return {"True": True, "False": False}[value]
    return _known(name, json.loads(value) if kind in (dict, list) else kind(value))


def _known(name: str, value: Any) -> Any:
    """A value of JSON, if it is what its column holds and a store can hold it."""
    kind = KINDS.get(name, float)
    if not is_a(value, kind):
        raise TypeError(name)
    if kind is int and not -LARGEST <= value <= LARGEST:
        raise OverflowError(name)
    if kind is float:
        float(value)  # an OverflowError for a whole number that is too large
    else:
        json.dumps(value, ensure_ascii=False).encode()  # a ValueError for half of a pair of surrogates
    return value


def check_data(store: Store, groups: Iterable[Sequence[Row]]) -> None:
    """Refuse to mix runs on different content under one name."""
    known: dict[tuple[object, ...], set[str]] = {}
    for first, *_ in groups:
        config, found = from_mapping(first), (first["provenance"] or {}).get("data")
        read = (config.dataset, config.label, config.drop, config.resize)
        if read not in known:
            known[read] = store.fingerprints(config)
        known[read] |= {found} if found else set()
        if len(known[read]) > 1:
            raise ExportFileError(
                f"dataset {config.dataset} must have one content in all runs of a store, with this file {store.path} "
                f"would have {', '.join(sorted(known[read]))}; name another file with --store"
            )


def import_rows(store: Store, table: list[dict[str, Any]]) -> tuple[int, int, int]:
    """Add runs to a store; return how many were taken over, how many were finished here, and how many are to do.

    A finished training is never replaced. An unfinished one keeps its epochs to look at, but starts again here: its
    checkpoint stayed on the other machine.
    """
    check_data(store, by_run(table).values())
    check_code(store, map(from_mapping, table))
    kept = left = 0
    taken: list[str] = []
    names = ("epoch", "train_loss", "epoch_lr", *BOTH, "seconds", *MEASURES)
    for group in by_run(table).values():
        config = from_mapping(group[0])
        store.add_runs([config], tuning=bool(group[0]["tuning"]))
        key = config.training().key()
        epochs = [Epoch(*(row[name] for name in names)) for row in group if row["epoch"] is not None]
        state = group[0]["state"]
        finished, made = state in FINISHED, group[0]["provenance"] or {}
        if key in taken:  # by another decision of the same training
            taken.append(key)
        elif store.state(key) in FINISHED:
            kept += 1
        elif finished:
            taken.append(key)
            store.adopt(key, epochs, state, group[0]["error"], made)
        else:
            left += 1
            if len(epochs) > len(store.epochs(key)):
                store.adopt(key, epochs, "pending", group[0]["error"], made)
    return len(taken), kept, left
