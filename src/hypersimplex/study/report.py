"""The report of a store: one HTML file that needs nothing else, or its table as markdown, csv or json."""

import csv
import io
import json
import math
import re
from collections import defaultdict
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import jinja2

from hypersimplex.study import figures, published, tabular
from hypersimplex.study.comparison import check_recorded
from hypersimplex.study.config import DESCRIPTIONS, one_of
from hypersimplex.study.console import batch_text, in_words, p_text, visible
from hypersimplex.study.measures import MEASURES, OTHERS, Measure
from hypersimplex.study.results import dataset_names, result, results
from hypersimplex.study.stats import Cell, cells
from hypersimplex.study.store import Run, Store
from hypersimplex.study.verdict import budget, verdict


def table_rows(rows: Sequence[Cell], by_paper_rule: Sequence[Cell]) -> list[dict[str, Any]]:
    """One flat row per cell, for every format."""
    paper = {(c.dataset, c.batch_size, c.loss): c for c in by_paper_rule}
    flat = []
    for c in rows:
        # The paper's rule is about the measure that runs are chosen by.
        against, other = c.against, paper.get((c.dataset, c.batch_size, c.loss)) if c.measure not in OTHERS else None
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
                "difference": against.difference if against else None,
                "difference_low": against.low if against else None,
                "difference_high": against.high if against else None,
                "bootstrap_low": against.bootstrap_low if against else None,
                "bootstrap_high": against.bootstrap_high if against else None,
                "t": against.t if against else None,
                "p": against.p if against else None,
                "holm_p": c.holm_p if against else None,
                "effect": against.effect if against else None,
                "baseline": c.baseline,
                "paper_rule_mean": other.summary.mean if other else None,
                "paper_rule_difference": other.against.difference if other and other.against else None,
                "paper_rule_p": other.against.p if other and other.against else None,
                "published": published.mean(c.dataset.partition(" (")[0], c.loss, c.batch_size) if other else None,
            }
        )
    return flat


def gather(store: Store, baseline: str | None, metric: str | None = None) -> dict[str, Any]:
    runs = store.runs(metric)
    check_recorded(runs, metric)
    finished = results(runs)
    losses = sorted({r.loss for r in finished})
    if not losses:
        raise ValueError(f"store {store.path} has no finished run to report; `hypersimplex study run` makes them")
    if baseline is not None:
        one_of("baseline", baseline, losses)
    rows, paper = cells(finished, baseline), cells(finished, baseline, paper_rule=True)
    compared = [r for r in finished if not r.tuning]
    validated = all(r.validation is not None or math.isnan(r.score) for r in compared)
    measures = list(dict.fromkeys(MEASURES[r.measure].title for r in compared)) or ["accuracy"]
    more = [c for name in OTHERS if name != metric for c in cells(finished, baseline, other=name)]
    seconds = {r.training: sum(e.seconds for e in r.epochs) for r in runs}
    made = [r.provenance for r in runs if r.provenance]
    versions = {k: sorted({str(p[k]) for p in made if p.get(k) is not None}) for k in MADE}
    return {
        "verdict": verdict(rows),
        "budget": budget(finished),
        "baseline": ", ".join(sorted({c.baseline for c in rows})),
        "rule": f"test {' and '.join(measures)} "
        + ("at the epoch the validation split chose" if validated else "of the last epoch"),
        "cells": rows,
        "rows": table_rows([*rows, *more], paper),
        "runs": runs,
        "losses": {name: DESCRIPTIONS[name] for name in DESCRIPTIONS if name in losses},
        "diverged": [r.config.describe() for r in runs if r.state == "diverged"],
        "unfinished": sum(r.state not in ("done", "diverged") for r in runs),
        "commands": store.commands(),
        "events": store.events(),
        "made": {MADE[k]: ", ".join(v) for k, v in versions.items() if v},
        "time": in_words(sum(seconds.values())),
        "trainings": len(seconds),
    }


MADE = {
    "commit": "commit",
    "hypersimplex": "hypersimplex",
    "torch": "torch",
    "lightgbm": "LightGBM",
    "python": "Python",
    "system": "system",
    "processor": "processor",
    "device": "device",
    "threads": "threads a process",
}


def slug(*parts: object) -> str:
    return re.sub(r"[^a-z0-9]+", "-", " ".join(map(str, parts)).lower()).strip("-")


def html(content: dict[str, Any]) -> str:
    rows: list[Cell] = content["cells"]
    by_key: dict[str, Run] = {r.key: r for r in content["runs"]}
    names = dataset_names([r.config for r in content["runs"] if r.state in ("done", "diverged")])
    datasets = []
    for dataset in dict.fromkeys(c.dataset for c in rows):
        here = [c for c in rows if c.dataset == dataset]
        datasets.append(
            {
                "name": dataset,
                "note": tabular.note(dataset),
                "measure": MEASURES[here[0].measure],
                "baseline": here[0].baseline,
                "batches": any(c.batch_size for c in here),
                "figures": dataset_figures(dataset, here, by_key),
                "tables": tables([r for r in content["rows"] if r["dataset"] == dataset]),
                "published": [p for p in published.table() if p.dataset == dataset.partition(" (")[0]],
            }
        )
    pages = []
    for c in rows:
        members = []
        for run in map(by_key.__getitem__, c.keys):
            tests = [t for _, t in run.scores()]
            spark = figures.sparkline(tests, f"seed {run.config.seed}", run.measure)
            members.append({"run": run, "result": result(run, names[run.key]), "spark": spark})
        shown = {k: v for k, v in by_key[c.keys[0]].config.shown().items() if k not in ("seed", "loss")}
        page = {"id": slug(c.dataset, c.batch_size, c.loss), "cell": c, "members": members, "config": shown}
        pages.append({**page, "measure": MEASURES[c.measure]})
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(p=p_text, slug=slug, batch=batch_text)
    environment.filters["points"] = lambda v: MEASURES["accuracy"].with_sign(v)
    environment.filters["percent"] = lambda v: MEASURES["accuracy"].text(v)
    source = files("hypersimplex.study").joinpath("templates", "report.html").read_text(encoding="utf-8")
    template = environment.from_string(source)
    return template.render(**content, datasets=datasets, pages=pages, overviews=overviews(rows))


def tables(rows: Sequence[dict[str, Any]]) -> list[tuple[Measure, list[dict[str, Any]]]]:
    """The rows of each measure, the one that runs are chosen by first."""
    return [(MEASURES[m], [r for r in rows if r["measure"] == m]) for m in dict.fromkeys(r["measure"] for r in rows)]


def dataset_figures(dataset: str, here: Sequence[Cell], by_key: dict[str, Run]) -> dict[str, Any]:
    curves = []
    for batch in sorted({c.batch_size for c in here}):
        groups: dict[str, list[Run]] = defaultdict(list)
        for c in here:
            if c.batch_size == batch:
                groups[c.loss] = [r for r in map(by_key.__getitem__, c.keys) if r.state == "done" and r.epochs]
        if any(groups.values()):
            curves.append(figures.curves_figure(slug("curves", dataset, batch), dataset, batch, groups))
    return {
        "accuracy": figures.accuracy_figure(slug("accuracy", dataset), dataset, here),
        "difference": figures.difference_figure(slug("difference", dataset), dataset, here),
        "curves": curves,
    }


def overviews(rows: Sequence[Cell]) -> list[Any]:
    """One figure over all data sets with boosted trees, where there are several."""
    trees = [c for c in rows if not c.batch_size]
    if len({c.dataset for c in trees}) < 2 or not any(c.against for c in trees):
        return []
    return [figures.overview_figure("overview-auc", trees)]


def figure_files(store: Store, baseline: str | None = None, metric: str | None = None) -> dict[str, str]:
    """The report's figures as files of their own: name and SVG text."""
    content = gather(store, baseline, metric)
    rows: list[Cell] = content["cells"]
    by_key: dict[str, Run] = {r.key: r for r in content["runs"]}
    found = {}
    for number, figure in enumerate(overviews(rows)):
        found[f"overview{number or ''}"] = figure
    for dataset in dict.fromkeys(c.dataset for c in rows):
        made = dataset_figures(dataset, [c for c in rows if c.dataset == dataset], by_key)
        for kind in ("accuracy", "difference"):
            found[slug(dataset, kind)] = made[kind]
        for number, curve in enumerate(made["curves"]):
            found[slug(dataset, "curves", number or "")] = curve
    return {f"{name}.svg": visible(str(figure)) + "\n" for name, figure in found.items()}


def markdown(content: dict[str, Any]) -> str:
    shown = f"Shown: {content['rule']}, mean ± half of the 95 % interval. {content['budget']}"
    lines = [content["verdict"], "", shown, ""]
    for measure, rows in tables(content["rows"]):
        lines += markdown_table(measure, rows)
    if any(r["paper_rule_mean"] is not None for r in content["rows"]):
        lines += [
            '"best on test" is the paper\'s rule: the best epoch on the test set itself, which is optimistic.',
            "",
        ]
    notes = [f"{d}: {n}" for d in dict.fromkeys(r["dataset"] for r in content["rows"]) if (n := tabular.note(d))]
    lines += [f"- {n}" for n in notes] + [""] * bool(notes)
    if content["diverged"]:
        lines += [f"Diverged: {'; '.join(content['diverged'])}.", ""]
    if content["unfinished"]:
        lines += [f"{content['unfinished']} runs are not finished.", ""]
    lines += [f"{content['trainings']} trainings, {content['time']} of computing."]
    lines += [f"- {name}: {value}" for name, value in content["made"].items()]
    lines += [f"- `{command}`" for command in dict.fromkeys(c for _, c in content["commands"])]
    return "\n".join(lines) + "\n"


def markdown_table(measure: Measure, rows: Sequence[dict[str, Any]]) -> list[str]:
    batches = any(r["batch_size"] for r in rows)
    best = any(r["paper_rule_mean"] is not None for r in rows)
    unit = ", %" if measure.percent else ""
    base = " or ".join(dict.fromkeys(r["baseline"] for r in rows))
    head = ["data", *["batch"] * batches, "loss", "setting", "seeds", f"{measure.title}{unit}", f"vs {base}"]
    head += ["p", "p Holm", "d", *["best on test"] * best]
    lines = ["| " + " | ".join(head) + " |"]
    lines.append("| " + " | ".join("---" if h in ("data", "loss", "setting") else "---:" for h in head) + " |")
    for r in rows:
        tested = r["difference"] is not None
        difference = measure.with_sign(r["difference"]) if tested else ""
        values = [p_text(r["p"]), p_text(r["holm_p"]), f"{r['effect']:.1f}"] if tested else ["", "", ""]
        shown = [r["dataset"], *[batch_text(r["batch_size"])] * batches, r["loss"], r["setting"], r["seeds"]]
        shown += [f"{measure.text(r['mean'])} ± {measure.text((r['high'] - r['low']) / 2)}", difference, *values]
        shown += [measure.text(r["paper_rule_mean"])] * best if r["paper_rule_mean"] is not None else [""] * best
        lines.append("| " + " | ".join(map(str, shown)) + " |")
    return [*lines, ""]


def as_csv(content: dict[str, Any]) -> str:
    if not content["rows"]:
        raise ValueError("only tuning runs are finished, none is compared; `hypersimplex study run` goes on with them")
    text = io.StringIO()
    writer = csv.DictWriter(text, list(content["rows"][0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(content["rows"])
    return text.getvalue()


def finite(value: Any) -> Any:
    """A number as JSON can hold it."""
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value


def as_json(content: dict[str, Any]) -> str:
    names = ("verdict", "budget", "baseline", "rule", "losses", "diverged", "unfinished", "made", "trainings", "time")
    document: dict[str, Any] = {name: content[name] for name in names}
    document["commands"] = [command for _, command in content["commands"]]
    document["rows"] = [{k: finite(v) for k, v in row.items()} for row in content["rows"]]
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def render(store: Store, format: str, baseline: str | None = None, metric: str | None = None) -> str:
    text = {"html": html, "markdown": markdown, "csv": as_csv, "json": as_json}[format](gather(store, baseline, metric))
    # Names of data sets are not ours: what would command a terminal is spelled out; JSON has its own spelling.
    return text if format == "json" else visible(text)
