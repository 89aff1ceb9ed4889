"""All runs of a study in one SQLite file.

A training is what costs time; a run is a variant somebody asked for, served by a training. WAL mode and short
transactions let several processes use one file; who works on a training is settled by a file lock (`locks`), which the
operating system releases when a process dies.
"""

import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from hypersimplex_study import schema
from hypersimplex_study.config import RunConfig, from_mapping
from hypersimplex_study.records import MEASURES, Epoch, Run
from hypersimplex_study.schema import StoreError

MEASURED = ", ".join(f"m.{name}" for name in MEASURES)


def now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


class Store:
    def __init__(self, path: str | Path, read_only: bool = False) -> None:
        self.path = Path(path)
        with self._explained():
            if not read_only:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            address = schema.read_only_address(self.path) if read_only else self.path
            # Autocommit: a transaction is always begun by `_transaction`.
            self._db = sqlite3.connect(address, timeout=schema.PATIENCE, isolation_level=None, uri=read_only)
            try:
                self._db.row_factory = sqlite3.Row
                tables = schema.tables_of(self._db, self.path)
                if read_only:
                    schema.read_as_it_is(self._db, tables, self.path)
                else:
                    self._prepare(tables)
            except BaseException:
                self._db.close()
                raise

    def _prepare(self, tables: set[str]) -> None:
        schema.write_ahead(self._db)
        self._db.execute("PRAGMA synchronous=NORMAL")
        # `measures` came later; older programs go on to use a file that has it.
        if "measures" not in tables:
            with self._transaction():
                for statement in schema.SCHEMA.split(";")[:-1]:
                    self._db.execute(statement)
                self._db.execute(f"PRAGMA user_version={schema.VERSION}")

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
            raise StoreError(f"store {self.path}: {error}{schema.advice(str(error))}") from error

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._explained(), self._db:  # which commits, or rolls back what an error leaves
            self._db.execute("BEGIN IMMEDIATE")
            yield self._db

    def _rows(self, query: str, *values: object) -> list[sqlite3.Row]:
        with self._explained():
            return self._db.execute(query, values).fetchall()

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
        return [tuple(r) for r in self._rows("SELECT training, at, what FROM events ORDER BY id")]

    def add_command(self, command: str) -> None:
        with self._transaction() as db:
            db.execute("INSERT INTO commands (at, command) VALUES (?, ?)", (now(), command))

    def commands(self) -> list[tuple[str, str]]:
        return [tuple(r) for r in self._rows("SELECT at, command FROM commands ORDER BY id")]

    def state(self, key: str) -> str | None:
        found = self._rows(f"SELECT {schema.STATE} FROM trainings t WHERE key=?", key)
        return str(found[0][0]) if found else None

    def fingerprints(self, config: RunConfig) -> set[str]:
        """Return the data fingerprints of the trainings begun on a data set that was read in the same way."""
        query = "SELECT DISTINCT json_extract(provenance, '$.data') FROM trainings"
        query += " WHERE json_extract(config, '$.dataset')=? AND json_extract(config, '$.label') IS ?"
        query += " AND COALESCE(json_extract(config, '$.drop'), '[]')=? AND json_extract(config, '$.resize') IS ?"
        read = (config.dataset, config.label, json.dumps(config.drop, separators=(",", ":")), config.resize)
        return {r[0] for r in self._rows(query, *read) if r[0]}

    def codes(self, loss: str) -> set[str]:
        """Return the hashes of the code that trainings of one's own loss were entered with."""
        query = "SELECT DISTINCT json_extract(config, '$.code') FROM trainings WHERE json_extract(config, '$.loss')=?"
        return {r[0] for r in self._rows(query, loss) if r[0]}

    def epoch_counts(self) -> dict[str, int]:
        return dict(map(tuple, self._rows("SELECT training, COUNT(*) FROM epochs GROUP BY training")))

    def epochs(self, key: str) -> list[Epoch]:
        own = schema.pivot(MEASURES, True)
        query = f"SELECT e.*, {MEASURED} FROM epochs e LEFT JOIN {own} m USING (epoch) WHERE e.training=?"
        return [Epoch(*tuple(r)[1:]) for r in self._rows(f"{query} ORDER BY epoch", key, key)]

    def runs(self, metric: str | None = None) -> list[Run]:
        """Return all runs, to be chosen and compared by a metric, or by what is usual for their kind."""
        # One statement, so that all rows are of one moment.
        query = (
            f"SELECT r.key AS run, r.training, r.config AS run_config, r.tuning, {schema.STATE} AS state, t.attempts,"
            f" CASE WHEN t.state != {schema.STATE} THEN '{schema.EMPTY}' ELSE t.error END AS error, t.provenance,"
            f" e.*, {MEASURED} FROM runs r JOIN trainings t ON t.key = r.training"
            f" LEFT JOIN epochs e ON e.training = t.key LEFT JOIN {schema.pivot(MEASURES, False)} m"
            " ON m.training = e.training AND m.epoch = e.epoch ORDER BY r.rowid, e.epoch"
        )
        found: dict[str, tuple[sqlite3.Row, list[Epoch]]] = {}
        for row in self._rows(query):
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
                metric,
            )
            for row, epochs in found.values()
        ]
