"""What a store holds: for a person, and for a program."""

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rich.table import Table

from hypersimplex_study.console import Terminal, batch_text, in_words, narrow_table
from hypersimplex_study.locks import is_claimed
from hypersimplex_study.records import Run
from hypersimplex_study.store import Store

STATES = ("done", "running", "interrupted", "pending", "diverged", "failed")


def show(store: Store, quiet: bool = False) -> None:
    console, runs = Terminal(), present(store)
    states = Counter(r.state for r in runs)
    summary = ", ".join(f"{states[s]} {s}" for s in STATES if states[s])
    if not quiet:
        for table in tables(runs):
            console.print(table)
    spent, trainings = seconds(runs)
    console.print(f"{len(runs)} runs, {trainings} trainings, {in_words(spent)} of computing: {summary}", soft_wrap=True)
    if quiet:
        return
    for r in runs:
        if r.state in ("failed", "diverged"):
            print_failure(console, r)
    for _, at, what in store.events()[-10:]:
        console.print(f"{at}  {what}", style="dim")


def as_json(store: Store) -> str:
    runs = present(store)
    spent, trainings = seconds(runs)
    lost = [r for r in runs if r.state in ("failed", "diverged")]
    document: dict[str, Any] = {
        "runs": len(runs),
        "trainings": trainings,
        "seconds": spent if math.isfinite(spent) else None,
        "groups": groups(runs),
        "without_result": [{"run": r.config.describe(), "state": r.state, "error": r.error} for r in lost],
        "events": [{"at": at, "what": what} for _, at, what in store.events()],
    }
    return json.dumps(document, indent=1) + "\n"


def present(store: Store) -> list[Run]:
    """The runs in their present states: one marked running that nobody holds was interrupted."""
    runs = store.runs()
    left = {r.training for r in runs if r.state == "running" and not is_claimed(store.work_folder, r.training)}
    return [replace(r, state="interrupted") if r.training in left else r for r in runs]


def seconds(runs: Sequence[Run]) -> tuple[float, int]:
    """Return the seconds of all trainings, each once, and their number."""
    each = {r.training: sum(e.seconds for e in r.epochs) for r in runs}
    return sum(each.values()), len(each)


def groups(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """The runs by data set, loss and batch size: their states, and how far they are."""
    found: dict[tuple[str, str, int], list[Run]] = {}
    for r in runs:
        found.setdefault((r.config.dataset, r.config.loss, r.config.batch_size), []).append(r)
    return [
        {
            "dataset": dataset,
            "loss": loss,
            "batch_size": batch,
            "states": dict(Counter(r.state for r in group)),
            "epochs_done": sum(len(r.epochs) for r in group),
            "epochs": sum(r.config.epochs for r in group),
        }
        for (dataset, loss, batch), group in found.items()
    ]


def tables(runs: Sequence[Run]) -> list[Table]:
    """For each data set its runs by loss and batch size."""
    everywhere = {r.state for r in runs}
    states = [s for s in STATES if s in everywhere]
    made: dict[str, Table] = {}
    for g in groups(runs):
        if g["dataset"] not in made:
            made[g["dataset"]] = narrow_table(g["dataset"], ("loss", "batch", *states, "epochs"), ("loss",))
        counts = [str(g["states"].get(s, "")) for s in states]
        made[g["dataset"]].add_row(g["loss"], batch_text(g["batch_size"]), *counts, f"{g['epochs_done']}/{g['epochs']}")
    return list(made.values())


def print_failure(console: Terminal, run: Run) -> None:
    console.print(f"{run.state}: {run.config.describe()}: {run.error}", style="red", soft_wrap=True)
