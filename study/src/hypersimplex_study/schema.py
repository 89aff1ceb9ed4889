"""The tables of a store, and whether a file is one."""

import os
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path

VERSION = 1
PATIENCE = 60.0  # seconds for other writers
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
FINISHED = ("done", "diverged")
# "done" is believed of a training that has epochs: a result without them would be none.
STATE = """CASE WHEN t.state='done' AND NOT EXISTS (SELECT 1 FROM epochs x WHERE x.training=t.key) THEN 'failed'
    ELSE t.state END"""
EMPTY = "recorded as done, but without an epoch"


class StoreError(RuntimeError):
    """The file cannot be read or written; the message says why and what to do."""


def read_only_address(path: Path) -> str:
    """An address by which SQLite only reads; in a folder that cannot be written it must not look for its side files."""
    alone = not os.access(path.parent, os.W_OK) and not path.with_name(path.name + "-wal").exists()
    return f"{path.absolute().as_uri()}?mode=ro{'&immutable=1' if alone else ''}"


def tables_of(db: sqlite3.Connection, path: Path) -> set[str]:
    """Return the tables of a store, or none of a new file; anything else is not ours to touch."""
    # Before the version: another process may be making both, in one transaction.
    tables = {r[0] for r in db.execute("SELECT name FROM sqlite_master WHERE type='table'")}
    found = db.execute("PRAGMA user_version").fetchone()[0]
    if tables and not tables >= {"trainings", "runs", "epochs"}:
        raise StoreError(f"{path} is a database of another program; name another file with --store")
    if found not in (0, VERSION):
        raise StoreError(f"{path} was written by another version (schema {found}, this is {VERSION})")
    return tables


def write_ahead(db: sqlite3.Connection) -> None:
    """Switch to WAL mode. Where two processes switch a new file at once, SQLite refuses one of them without waiting."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            db.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def pivot(names: Sequence[str], of_one: bool) -> str:
    """The measures as a table of one row an epoch, of one training or of all."""
    columns = ", ".join(f"MAX(CASE WHEN name='{name}' THEN value END) AS {name}" for name in names)
    which = "WHERE training=?" if of_one else ""
    return f"(SELECT training, epoch, {columns} FROM measures {which} GROUP BY training, epoch)"


def read_as_it_is(db: sqlite3.Connection, tables: set[str], path: Path) -> None:
    """Make do with what is there: a file that is only read gets no new table."""
    if not tables:
        raise StoreError(f"store {path} is empty; `hypersimplex study run` fills it")
    if "measures" not in tables:
        db.execute("CREATE TEMP TABLE measures (training TEXT, epoch INTEGER, name TEXT, value REAL)")


def advice(error: str) -> str:
    """What to do about an error of SQLite."""
    if "full" in error:
        return "; make room and run the same command again: it does what is missing"
    if "not a database" in error or "malformed" in error:
        return "; name another file with --store, or restore this one from an export"
    return ""
