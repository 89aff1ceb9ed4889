"""All runs of a study in one SQLite file.

A training is what costs time; a run is a variant somebody asked for, served by a training. WAL mode and short
transactions let several processes use one file; who works on a training is settled by a file lock (`locks`), which the
operating system releases when a process dies.
"""

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from hypersimplex.study.config import RunConfig, from_mapping

VERSION = 1
SCHEMA = """
CREATE TABLE IF NOT EXISTS trainings (
    key TEXT PRIMARY KEY, config TEXT NOT NULL, state TEXT NOT NULL DEFAULT 'pending',
    attempts INTEGER NOT NULL DEFAULT 0, error TEXT, provenance TEXT NOT NULL DEFAULT '{}',
    started TEXT, finished TEXT);
CREATE TABLE IF NOT EXISTS runs (
    key TEXT PRIMARY KEY, training TEXT NOT NULL REFERENCES trainings(key), config TEXT NOT NULL,
    tuning INTEGER NOT NULL DEFAULT 0);
CREATE TABLE IF NOT EXISTS epochs (
    training TEXT NOT NULL REFERENCES trainings(key), epoch INTEGER NOT NULL, train_loss REAL, lr REAL,
    val_accuracy REAL, test_accuracy REAL, val_argmax REAL, test_argmax REAL, seconds REAL,
    PRIMARY KEY (training, epoch));
CREATE TABLE IF NOT EXISTS measures (
    training TEXT NOT NULL REFERENCES trainings(key), epoch INTEGER NOT NULL, name TEXT NOT NULL, value REAL,
    PRIMARY KEY (training, epoch, name));
CREATE TABLE IF NOT EXISTS events (
    id INTEGER PRIMARY KEY, training TEXT, at TEXT NOT NULL, what TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS commands (
    id INTEGER PRIMARY KEY, at TEXT NOT NULL, command TEXT NOT NULL);
"""
# done: all epochs there. diverged: stopped at a loss that is not finite. failed: an error, tried again by the next run.
STATES = ("pending", "running", "done", "diverged", "failed")


@dataclass(frozen=True)
class Epoch:
    """What one epoch leaves behind; the accuracies by the loss's own decision and by plain argmax."""

    epoch: int
    train_loss: float | None
    lr: float
    val_accuracy: float | None
    test_accuracy: float | None
    val_argmax: float | None
    test_argmax: float | None
    seconds: float
    # Of boosted trees alone: the area under the ROC curve, and the log loss of the test set after calibration on the
    # validation split.
    val_auc: float | None = None
    test_auc: float | None = None
    test_log_loss: float | None = None
    # Of networks alone: the steps since the beginning; the seconds, within `seconds`, of recomputing statistics and
    # thresholds and of evaluating; the share of the test samples that one class, the most frequent, is decided for.
    steps: float | None = None
    recompute_seconds: float | None = None
    evaluate_seconds: float | None = None
    one_class: float | None = None


# Everything after `seconds` is a row of the table `measures`, which stores of the first version do not have.
MEASURES = tuple(f.name for f in fields(Epoch))[8:]
MEASURED = ", ".join(
    f"(SELECT value FROM measures m WHERE m.training=e.training AND m.epoch=e.epoch AND m.name='{name}') AS {name}"
    for name in MEASURES
)


@dataclass(frozen=True)
class Run:
    key: str
    training: str
    config: RunConfig
    tuning: bool
    state: str
    attempts: int
    error: str | None
    provenance: dict[str, Any]
    epochs: tuple[Epoch, ...]

    def accuracies(self) -> list[tuple[float | None, float | None]]:
        """Return (validation, test) accuracy of every epoch by this variant's decision."""
        if self.config.decision == "argmax":
            return [(e.val_argmax, e.test_argmax) for e in self.epochs]
        return [(e.val_accuracy, e.test_accuracy) for e in self.epochs]

    @property
    def measure(self) -> str:
        """Return what runs of this kind are chosen and compared by."""
        return "auc" if self.config.is_trees else "accuracy"

    def scores(self) -> list[tuple[float | None, float | None]]:
        """Return (validation, test) of every epoch by that measure."""
        return [(e.val_auc, e.test_auc) for e in self.epochs] if self.config.is_trees else self.accuracies()


# "done" is believed of a training that has epochs: a result without them would be none.
STATE = """CASE WHEN t.state='done' AND NOT EXISTS (SELECT 1 FROM epochs x WHERE x.training=t.key) THEN 'failed'
    ELSE t.state END"""
EMPTY = "recorded as done, but without an epoch"


class StoreError(RuntimeError):
    """The file cannot be read or written; the message says why and what to do."""


def now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def _read_only(path: Path) -> str:
    """An address by which SQLite only reads; in a folder that cannot be written it must not look for its side files."""
    alone = not os.access(path.parent, os.W_OK) and not path.with_name(path.name + "-wal").exists()
    return f"{path.absolute().as_uri()}?mode=ro{'&immutable=1' if alone else ''}"


class Store:
    def __init__(self, path: str | Path, read_only: bool = False) -> None:
        self.path = Path(path)
        with self._explained():
            # Autocommit: a transaction is always written out by `_transaction`. A minute of patience for other writers.
            if read_only:
                self._db = sqlite3.connect(_read_only(self.path), timeout=60, isolation_level=None, uri=True)
            else:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._db = sqlite3.connect(self.path, timeout=60, isolation_level=None)
            try:
                self._db.row_factory = sqlite3.Row
                tables = self._tables()
                if read_only:
                    self._read_as_it_is(tables)
                else:
                    self._prepare(tables)
            except BaseException:
                self._db.close()
                raise

    def _tables(self) -> set[str]:
        """Return the tables of a store, or none of a new file; anything else is not ours to touch."""
        # Before the version: another process may be making both, in one transaction.
        tables = {r[0] for r in self._db.execute("SELECT name FROM sqlite_master WHERE type='table'")}
        found = self._db.execute("PRAGMA user_version").fetchone()[0]
        if tables and not tables >= {"trainings", "runs", "epochs"}:
            raise StoreError(f"{self.path} is a database of another program; name another file with --store")
        if found not in (0, VERSION):
            raise StoreError(f"{self.path} was written by another version (schema {found}, this is {VERSION})")
        return tables

    def _prepare(self, tables: set[str]) -> None:
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=NORMAL")
        # `measures` came later; older programs go on to use a file that has it.
        if "measures" not in tables:
            with self._transaction():
                for statement in SCHEMA.split(";")[:-1]:
                    self._db.execute(statement)
                self._db.execute(f"PRAGMA user_version={VERSION}")

    def _read_as_it_is(self, tables: set[str]) -> None:
        if not tables:
            raise StoreError(f"store {self.path} is empty; `hypersimplex study run` fills it")
        if "measures" not in tables:
            self._db.execute("CREATE TEMP TABLE measures (training TEXT, epoch INTEGER, name TEXT, value REAL)")

    @property
    def work_folder(self) -> Path:
        """Checkpoints and locks live beside the file."""
        return self.path.with_name(self.path.name + ".work")

    def close(self) -> None:
        self._db.close()

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.DatabaseError, OSError) as error:
            text = str(error)
            if "full" in text:
                hint = "; make room and run the same command again: it does what is missing"
            elif "not a database" in text or "malformed" in text:
                hint = "; name another file with --store, or restore this one from an export"
            else:
                hint = ""
            raise StoreError(f"store {self.path}: {text}{hint}") from error

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._explained():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                # SQLite has already rolled back when the disk is full.
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    def add_runs(self, configs: Iterable[RunConfig], tuning: bool = False) -> None:
        """Enter runs that are not there yet. A run asked for as a comparison is no longer only a tuning run."""
        with self._transaction() as db:
            for config in configs:
                training = config.training()
                db.execute(
                    "INSERT OR IGNORE INTO trainings (key, config) VALUES (?, ?)",
                    (training.key(), json.dumps(asdict(training))),
                )
                db.execute(
                    "INSERT INTO runs (key, training, config, tuning) VALUES (?, ?, ?, ?)"
                    " ON CONFLICT (key) DO UPDATE SET tuning = MIN(tuning, excluded.tuning)",
                    (config.key(), training.key(), json.dumps(asdict(config)), int(tuning)),
                )

    def start(self, key: str, provenance: dict[str, Any]) -> None:
        with self._transaction() as db:
            db.execute(
                "UPDATE trainings SET state='running', attempts=attempts+1, error=NULL, provenance=?,"
                " started=COALESCE(started, ?) WHERE key=?",
                (json.dumps(provenance), now(), key),
            )

    def record(self, key: str, epoch: Epoch) -> None:
        self.record_all(key, [epoch])

    def record_all(self, key: str, epochs: Iterable[Epoch], restart: bool = False) -> None:
        """Write epochs; with restart, drop all others first, so that one training's rows come from one history."""
        epochs = list(epochs)
        with self._transaction() as db:
            if restart:
                db.execute("DELETE FROM epochs WHERE training=?", (key,))
                db.execute("DELETE FROM measures WHERE training=?", (key,))
            db.executemany(
                "INSERT OR REPLACE INTO epochs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [(key, *tuple(asdict(e).values())[:8]) for e in epochs],
            )
            db.executemany(
                "INSERT OR REPLACE INTO measures VALUES (?, ?, ?, ?)",
                [(key, e.epoch, m, getattr(e, m)) for e in epochs for m in MEASURES if getattr(e, m) is not None],
            )

    def finish(self, key: str, state: str, error: str | None = None) -> None:
        with self._transaction() as db:
            db.execute("UPDATE trainings SET state=?, error=?, finished=? WHERE key=?", (state, error, now(), key))
            if error:
                db.execute("INSERT INTO events (training, at, what) VALUES (?, ?, ?)", (key, now(), error))

    def adopt(
        self, key: str, epochs: Iterable[Epoch], state: str, error: str | None, provenance: dict[str, Any]
    ) -> None:
        """Take over a training computed elsewhere."""
        self.record_all(key, epochs, restart=True)
        with self._transaction() as db:
            db.execute(
                "UPDATE trainings SET state=?, error=?, provenance=?, finished=? WHERE key=?",
                (state, error, json.dumps(provenance), now(), key),
            )

    def event(self, key: str | None, what: str) -> None:
        with self._transaction() as db:
            db.execute("INSERT INTO events (training, at, what) VALUES (?, ?, ?)", (key, now(), what))

    def events(self) -> list[tuple[str | None, str, str]]:
        with self._explained():
            rows = self._db.execute("SELECT training, at, what FROM events ORDER BY id").fetchall()
        return [tuple(r) for r in rows]

    def add_command(self, command: str) -> None:
        with self._transaction() as db:
            db.execute("INSERT INTO commands (at, command) VALUES (?, ?)", (now(), command))

    def commands(self) -> list[tuple[str, str]]:
        with self._explained():
            return [tuple(r) for r in self._db.execute("SELECT at, command FROM commands ORDER BY id")]

    def state(self, key: str) -> str | None:
        with self._explained():
            row = self._db.execute(f"SELECT {STATE} FROM trainings t WHERE key=?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def fingerprints(self, config: RunConfig) -> set[str]:
        """Return the data fingerprints of the trainings begun on a data set that was read in the same way."""
        query = "SELECT DISTINCT json_extract(provenance, '$.data') FROM trainings"
        query += " WHERE json_extract(config, '$.dataset')=? AND json_extract(config, '$.label') IS ?"
        query += " AND COALESCE(json_extract(config, '$.drop'), '[]')=? AND json_extract(config, '$.resize') IS ?"
        read = (config.dataset, config.label, json.dumps(config.drop, separators=(",", ":")), config.resize)
        with self._explained():
            return {r[0] for r in self._db.execute(query, read) if r[0]}

    def epoch_counts(self) -> dict[str, int]:
        with self._explained():
            return dict(self._db.execute("SELECT training, COUNT(*) FROM epochs GROUP BY training").fetchall())

    def epochs(self, key: str) -> list[Epoch]:
        with self._explained():
            rows = self._db.execute(
                f"SELECT e.*, {MEASURED} FROM epochs e WHERE training=? ORDER BY epoch", (key,)
            ).fetchall()
        return [Epoch(*tuple(r)[1:]) for r in rows]

    def runs(self) -> list[Run]:
        # One statement, so that all rows are of one moment.
        query = (
            f"SELECT r.key AS run, r.training, r.config AS run_config, r.tuning, {STATE} AS state, t.attempts,"
            f" CASE WHEN t.state != {STATE} THEN '{EMPTY}' ELSE t.error END AS error, t.provenance,"
            f" e.*, {MEASURED} FROM runs r JOIN trainings t ON t.key = r.training"
            " LEFT JOIN epochs e ON e.training = t.key ORDER BY r.rowid, e.epoch"
        )
        with self._explained():
            rows = self._db.execute(query).fetchall()
        found: dict[str, tuple[sqlite3.Row, list[Epoch]]] = {}
        for row in rows:
            _, epochs = found.setdefault(row["run"], (row, []))
            if row["epoch"] is not None:
                epochs.append(Epoch(*tuple(row)[9:]))
        return [
            Run(
                row["run"],
                row[1],
                from_mapping(json.loads(row["run_config"])),
                bool(row["tuning"]),
                row["state"],
                row["attempts"],
                row["error"],
                json.loads(row["provenance"]),
                tuple(epochs),
            )
            for row, epochs in found.values()
        ]
