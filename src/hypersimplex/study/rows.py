"""The comparison as flat rows, for every format."""

import math
from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any

from hypersimplex.study import published
from hypersimplex.study.measures import MEASURES, Measure
from hypersimplex.study.stats import Cell, Paired
from hypersimplex.study.verdict import LEVEL, needed


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
                "seeds_needed": needed(c) if against and not c.foil and not c.holm_p < LEVEL else None,
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


def finite(value: Any) -> Any:
    """A number as JSON can hold it."""
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value
