"""The comparison of a study's runs: for a person, and for a program."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hypersimplex.study import speed
from hypersimplex.study.caveats import caveats
from hypersimplex.study.config import one_of
from hypersimplex.study.console import Terminal, cell_table
from hypersimplex.study.measures import OTHERS
from hypersimplex.study.records import Run
from hypersimplex.study.results import results
from hypersimplex.study.rows import finite, table_rows
from hypersimplex.study.stats import Cell, Result, cells
from hypersimplex.study.store import Store
from hypersimplex.study.verdict import advice, advice_lines, answers, budget, footnotes, settings_tried, speeds, verdict


@dataclass(frozen=True)
class Comparison:
    runs: Sequence[Run]
    finished: Sequence[Result]
    baseline: str | None
    paper_rule: bool

    @classmethod
    def of_store(cls, store: Store, baseline: str | None, metric: str | None, paper_rule: bool) -> "Comparison":
        runs = store.runs(metric)
        losses = sorted({r.config.loss for r in runs if r.state == "done"})
        if not losses:
            raise ValueError(f"store {store.path} has no finished run yet; `hypersimplex study run` makes them")
        if baseline is not None:
            one_of("baseline", baseline, losses)
        # Runs of earlier versions have accuracy alone, and no run has a log loss without a validation split.
        tests = [t for r in runs if r.state == "done" for _, t in r.scores()]
        if metric is not None and tests and all(t is None for t in tests):
            raise ValueError(f"metric must be one that these runs recorded, got {metric.replace('_', '-')}")
        finished = results(runs)
        if all(r.tuning for r in finished):
            raise ValueError(
                f"store {store.path} has tuning runs alone; the same `study run` goes on to the compared ones"
            )
        return cls(runs, finished, baseline, paper_rule)

    @property
    def rule(self) -> str:
        if self.paper_rule:
            return "best epoch on the test set: the paper's rule, optimistic"
        validated = all(r.validation is not None for r in self.finished)
        return "test set, at the epoch the validation split chose" if validated else "test set, at the last epoch"

    def cells(self) -> list[Cell]:
        """By the measure that runs are chosen by."""
        return cells(self.finished, self.baseline, self.paper_rule)

    def others(self) -> list[Cell]:
        """By the other measures that are shown beside it."""
        names = [] if self.paper_rule else [n for n in OTHERS if all(n != r.measure for r in self.finished)]
        return [c for name in names for c in cells(self.finished, self.baseline, other=name)]

    def reached(self, rows: Sequence[Cell]) -> list[speed.Reach]:
        return speed.compare(rows, {r.key: r for r in self.runs})[0]

    def show(self, console: Terminal, quiet: bool = False, yardsticks: Iterable[str] = ()) -> None:
        """Print the tables, what to hold against them, and last what they say and what to do."""
        rows = self.cells()
        if quiet:
            console.print(verdict(rows))
            return
        diverged = [r.config.describe() for r in self.runs if r.state == "diverged"]
        if diverged:
            console.print(f"diverged: {'; '.join(diverged[:10])}{' …' * (len(diverged) > 10)}", style="yellow")
        shown = [*rows, *self.others()]
        for part in dict.fromkeys((c.dataset, c.measure) for c in shown):
            here = [c for c in shown if (c.dataset, c.measure) == part]
            console.print(cell_table([c for c in here if not c.foil], self.rule, console.width))
            if notes := footnotes(here):
                console.print(f"By plain argmax: {'; '.join(notes)}.", style="dim")
        for line in yardsticks:
            console.print(line, soft_wrap=True)
        if rows and not self.paper_rule:
            if len(set(settings_tried(self.finished).values())) > 1:
                console.print(budget(self.finished))
            reached = self.reached(rows)
            for warning in caveats(self.runs, self.finished, rows, reached):
                console.print(f"warning: {warning}", style="yellow")
            for line in answers(rows) + speeds(rows, reached, advice(rows, reached)):
                console.print(line)
            console.print("\n".join(advice_lines(rows, reached)), style="bold")

    def as_json(self) -> str:
        rows = self.cells()
        document: dict[str, Any] = {"rule": self.rule}
        if not self.paper_rule:
            reached = self.reached(rows)
            document |= {"verdict": verdict(rows), "advice": advice(rows, reached), "budget": budget(self.finished)}
            document["caveats"] = caveats(self.runs, self.finished, rows, reached)
            document["reached"] = [{k: finite(v) for k, v in asdict(r).items()} for r in reached]
        by_paper_rule = cells(self.finished, self.baseline, paper_rule=True)
        flat = table_rows([*rows, *self.others()], by_paper_rule)
        document["rows"] = [{k: finite(v) for k, v in row.items()} for row in flat]
        return json.dumps(document, indent=1, allow_nan=False) + "\n"
