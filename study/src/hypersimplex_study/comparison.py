"""The comparison of a study's runs: for a person, and for a program."""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any

from hypersimplex_study import published, speed, verdict
from hypersimplex_study.caveats import caveats
from hypersimplex_study.config import one_of
from hypersimplex_study.console import Terminal, cell_table
from hypersimplex_study.measures import MEASURES, OTHERS, Measure
from hypersimplex_study.records import Run
from hypersimplex_study.results import beside, results
from hypersimplex_study.stats import Cell, Paired, Result, cells
from hypersimplex_study.store import Store


@dataclass(frozen=True)
class Comparison:
    runs: Sequence[Run]
    baseline: str | None = None
    paper_rule: bool = False

    @classmethod
    def of_store(cls, store: Store, baseline: str | None, metric: str | None, paper_rule: bool) -> "Comparison":
        runs = store.runs(metric and metric.replace("-", "_"))
        losses = sorted({r.config.loss for r in [*runs, *beside(runs)] if r.state == "done"})
        if not losses:
            raise ValueError(f"store {store.path} has no finished run yet; `hypersimplex study run` makes them")
        if baseline is not None:
            one_of("baseline", baseline, losses)
        # Runs of earlier versions have accuracy alone, and no run has a log loss without a validation split.
        tests = [t for r in runs if r.state == "done" for _, t in r.scores()]
        if metric is not None and tests and all(t is None for t in tests):
            raise ValueError(f"metric must be one that these runs recorded, got {metric.replace('_', '-')}")
        made = cls(runs, baseline, paper_rule)
        if all(r.tuning for r in made.finished):
            raise ValueError(
                f"store {store.path} has tuning runs alone; the same `study run` goes on to the compared ones"
            )
        return made

    @cached_property
    def finished(self) -> list[Result]:
        return results([*self.runs, *beside(self.runs)])

    @property
    def validated(self) -> bool:
        """Whether the validation split chose the epoch of every run; one that diverged has none to choose."""
        return all(r.validation is not None or math.isnan(r.score) for r in self.finished if not r.tuning)

    @property
    def rule(self) -> str:
        if self.paper_rule:
            return "best epoch on the test set: the paper's rule, optimistic"
        return f"test set, at the {'epoch the validation split chose' if self.validated else 'last epoch'}"

    @cached_property
    def cells(self) -> list[Cell]:
        """By the measure that runs are chosen by."""
        return cells(self.finished, self.baseline, self.paper_rule)

    @cached_property
    def others(self) -> list[Cell]:
        """By the other measures that are shown beside it."""
        names = [] if self.paper_rule else [n for n in OTHERS if all(n != r.measure for r in self.finished)]
        return [c for name in names for c in cells(self.finished, self.baseline, other=name)]

    @property
    def by_key(self) -> dict[str, Run]:
        return {r.key: r for r in [*self.runs, *beside(self.runs)]}

    @cached_property
    def speed(self) -> tuple[list[speed.Reach], list[speed.Area]]:
        return speed.compare(self.cells, self.by_key)

    @cached_property
    def caveats(self) -> list[str]:
        return caveats(self.runs, self.finished, self.cells, self.speed[0])

    def said(self) -> dict[str, Any]:
        """What the comparison comes to, in sentences."""
        reached = self.speed[0]
        found: dict[str, Any] = {"verdict": verdict.verdict(self.cells), "advice": verdict.advice(self.cells, reached)}
        found |= {"budget": verdict.budget(self.finished), "decision": verdict.decision(self.runs)}
        return found | {"caveats": self.caveats}

    def rows(self) -> list[dict[str, Any]]:
        """The cells of all measures, flat, for every format."""
        return table_rows([*self.cells, *self.others], cells(self.finished, self.baseline, paper_rule=True))

    def show(self, console: Terminal, quiet: bool = False, yardsticks: Iterable[str] = ()) -> None:
        """Print the tables, what to hold against them, and last what they say and what to do."""
        rows = self.cells
        if quiet:
            console.print(verdict.verdict(rows))
            return
        diverged = [r.config.describe() for r in self.runs if r.state == "diverged"]
        if diverged:
            console.print(f"diverged: {'; '.join(diverged[:10])}{' …' * (len(diverged) > 10)}", style="yellow")
        shown = [*rows, *self.others]
        for part in dict.fromkeys((c.dataset, c.measure) for c in shown):
            here = [c for c in shown if (c.dataset, c.measure) == part]
            console.print(cell_table([c for c in here if not c.foil], self.rule, console.width))
            if notes := verdict.footnotes(here):
                console.print(f"By plain argmax: {'; '.join(notes)}.", style="dim")
        for line in yardsticks:
            console.print(line, soft_wrap=True)
        if rows and not self.paper_rule:
            if len(set(verdict.settings_tried(self.finished).values())) > 1:
                console.print(verdict.budget(self.finished))
            if decision := verdict.decision(self.runs):
                console.print(decision, style="dim")
            reached = self.speed[0]
            for warning in self.caveats:
                console.print(f"warning: {warning}", style="yellow")
            for line in verdict.answers(rows) + verdict.speeds(rows, reached, verdict.advice(rows, reached)):
                console.print(line)
            console.print("\n".join(verdict.advice_lines(rows, reached)), style="bold")

    def as_json(self) -> str:
        document: dict[str, Any] = {"rule": self.rule}
        if not self.paper_rule:
            document |= self.said() | {"reached": json_rows(map(asdict, self.speed[0]))}
        return json.dumps(document | {"rows": json_rows(self.rows())}, indent=1, allow_nan=False) + "\n"


def table_rows(rows: Sequence[Cell], by_paper_rule: Sequence[Cell]) -> list[dict[str, Any]]:
    """One flat row per cell."""
    # The paper's rule is about the measure that runs are chosen by.
    paper = {(c.dataset, c.batch_size, c.loss, c.measure): c for c in by_paper_rule}
    flat = []
    for c in rows:
        against, other = c.against, paper.get((c.dataset, c.batch_size, c.loss, c.measure))
        tested = asdict(against) if against else dict.fromkeys(f.name for f in fields(Paired))
        flat.append(
            {
                "dataset": c.dataset,
                "batch_size": c.batch_size,
                "loss": c.loss,
                "setting": c.setting,
                "seeds": c.summary.n,
                "measure": c.measure,
                "mean": c.summary.mean,
                "sd": c.summary.sd,
                "low": c.summary.low,
                "high": c.summary.high,
                "difference": tested["difference"],
                "difference_low": tested["low"],
                "difference_high": tested["high"],
                **{name: tested[name] for name in ("bootstrap_low", "bootstrap_high", "t", "p")},
                "holm_p": c.holm_p if against else None,
                "effect": tested["effect"],
                "baseline": c.baseline,
                "primary": c.primary,
                "foil": c.foil,
                "comparisons": c.comparisons,
                "seeds_needed": verdict.needed(c) if against and not c.foil and not c.holm_p < verdict.LEVEL else None,
                "paper_rule_mean": other.summary.mean if other else None,
                "paper_rule_difference": other.against.difference if other and other.against else None,
                "paper_rule_p": other.against.p if other and other.against else None,
                "published": published.mean(c.dataset.partition(" (")[0], c.loss, c.batch_size) if other else None,
            }
        )
    return flat


def tables(rows: Sequence[dict[str, Any]]) -> list[tuple[Measure, list[dict[str, Any]]]]:
    """The rows of each measure, the one that runs are chosen by first."""
    return [(MEASURES[m], [r for r in rows if r["measure"] == m]) for m in dict.fromkeys(r["measure"] for r in rows)]


def json_rows(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows with numbers as JSON can hold them."""

    def finite(value: Any) -> Any:
        if isinstance(value, float) and not math.isfinite(value):
            return None if math.isnan(value) else str(value)
        return value

    return [{k: finite(v) for k, v in row.items()} for row in rows]
