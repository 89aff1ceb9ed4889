"""The report of a store: one HTML file that needs nothing else, or its table as markdown, csv or json."""

import csv
import io
import json
import math
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from importlib.resources import files
from typing import Any

import jinja2

from hypersimplex.study import figures, published
from hypersimplex.study.config import DESCRIPTIONS, one_of
from hypersimplex.study.console import p_text, percent
from hypersimplex.study.estimate import in_words
from hypersimplex.study.results import dataset_names, result, results
from hypersimplex.study.stats import Cell, cells
from hypersimplex.study.store import Run, Store

LEVEL = 0.05


def verdict(rows: Sequence[Cell], baseline: str) -> str:
    """Say in a sentence for each data set what the corrected tests allow to say."""
    sentences = []
    for dataset in dict.fromkeys(c.dataset for c in rows):
        here = [c for c in rows if c.dataset == dataset]
        for loss in dict.fromkeys(c.loss for c in here):
            tested = [c for c in here if c.loss == loss and c.against is not None and not math.isnan(c.holm_p)]
            if not loss.startswith("hypersimplex") or not tested:
                continue
            sizes: dict[str, list[str]] = {"is better than": [], "is worse than": [], "cannot be told from": []}
            for c in tested:
                assert c.against is not None
                clear = c.holm_p < LEVEL
                word = (
                    ("is better than" if c.against.difference > 0 else "is worse than")
                    if clear
                    else "cannot be told from"
                )
                sizes[word].append(str(c.batch_size))
            parts = [f"{word} {baseline} at batch size {', '.join(s)}" for word, s in sizes.items() if s]
            seeds = min(c.against.n for c in tested if c.against)
            sentences.append(f"On {dataset}, {loss} {'; it '.join(parts)} ({seeds} seeds, Holm-corrected p < {LEVEL}).")
    return (
        " ".join(sentences) or f"No HyperSimplex run can be compared with {baseline} yet: two seeds of both are needed."
    )


def table_rows(rows: Sequence[Cell], by_paper_rule: Sequence[Cell]) -> list[dict[str, Any]]:
    """One flat row per cell, for every format."""
    paper = {(c.dataset, c.batch_size, c.loss): c for c in by_paper_rule}
    flat = []
    for c in rows:
        against, other = c.against, paper[c.dataset, c.batch_size, c.loss]
        flat.append(
            {
                "dataset": c.dataset,
                "batch_size": c.batch_size,
                "loss": c.loss,
                "setting": c.setting,
                "seeds": c.summary.n,
                "accuracy": c.summary.mean,
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
                "paper_rule_accuracy": other.summary.mean,
                "paper_rule_difference": other.against.difference if other.against else None,
                "paper_rule_p": other.against.p if other.against else None,
                "published": published.mean(c.dataset.partition(" (")[0], c.loss, c.batch_size),
            }
        )
    return flat


def gather(store: Store, baseline: str) -> dict[str, Any]:
    runs = store.runs()
    finished = results(runs)
    losses = sorted({r.loss for r in finished})
    if not losses:
        raise ValueError(f"store {store.path} has no finished run to report; `hypersimplex study run` makes them")
    one_of("baseline", baseline, losses)
    rows, paper = cells(finished, baseline), cells(finished, baseline, paper_rule=True)
    compared = [r for r in finished if not r.tuning]
    validated = all(r.validation is not None or math.isnan(r.accuracy) for r in compared)
    seconds = {r.training: sum(e.seconds for e in r.epochs) for r in runs}
    made = [r.provenance for r in runs if r.provenance]
    versions = {k: sorted({str(p[k]) for p in made if p.get(k) is not None}) for k in MADE}
    return {
        "verdict": verdict(rows, baseline),
        "baseline": baseline,
        "rule": (
            "test accuracy at the epoch the validation split chose" if validated else "test accuracy of the last epoch"
        ),
        "cells": rows,
        "rows": table_rows(rows, paper),
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
    names = dataset_names([r.config for r in content["runs"]])
    datasets = []
    for dataset in dict.fromkeys(c.dataset for c in rows):
        here = [c for c in rows if c.dataset == dataset]
        curves = []
        for batch in sorted({c.batch_size for c in here}):
            groups: dict[str, list[Run]] = defaultdict(list)
            for c in here:
                if c.batch_size == batch:
                    groups[c.loss] = [r for r in map(by_key.__getitem__, c.keys) if r.state == "done" and r.epochs]
            if any(groups.values()):
                curves.append(figures.curves_figure(slug("curves", dataset, batch), dataset, batch, groups))
        datasets.append(
            {
                "name": dataset,
                "accuracy": figures.accuracy_figure(slug("accuracy", dataset), dataset, here),
                "difference": figures.difference_figure(
                    slug("difference", dataset), dataset, here, content["baseline"]
                ),
                "curves": curves,
                "rows": [r for r in content["rows"] if r["dataset"] == dataset],
                "published": [p for p in published.table() if p.dataset == dataset.partition(" (")[0]],
            }
        )
    pages = []
    for c in rows:
        members = []
        for run in map(by_key.__getitem__, c.keys):
            tests = [t for _, t in run.accuracies()]
            spark = figures.sparkline(tests, f"seed {run.config.seed}")
            members.append({"run": run, "result": result(run, names[run.key]), "spark": spark})
        config = asdict(by_key[c.keys[0]].config)
        shown = {k: v for k, v in config.items() if k not in ("seed", "loss") and v is not None}
        pages.append({"id": slug(c.dataset, c.batch_size, c.loss), "cell": c, "members": members, "config": shown})
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(percent=percent, p=p_text, slug=slug, points=lambda v: f"{100 * v:+.2f}")
    source = files("hypersimplex.study").joinpath("templates", "report.html").read_text(encoding="utf-8")
    return environment.from_string(source).render(**content, datasets=datasets, pages=pages)


def markdown(content: dict[str, Any]) -> str:
    base = content["baseline"]
    lines = [content["verdict"], "", f"Accuracy: {content['rule']}, mean ± half of the 95 % interval, in percent.", ""]
    lines.append(f"| data | batch | loss | setting | seeds | accuracy | vs {base} | p | p Holm | d | best on test |")
    lines.append("| --- | ---: | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for r in content["rows"]:
        half = percent((r["high"] - r["low"]) / 2)
        tested = r["difference"] is not None
        difference = f"{100 * r['difference']:+.2f}" if tested else ""
        values = [p_text(r["p"]), p_text(r["holm_p"]), f"{r['effect']:.1f}"] if tested else ["", "", ""]
        cells_ = [r["dataset"], r["batch_size"], r["loss"], r["setting"], r["seeds"]]
        cells_ += [f"{percent(r['accuracy'])} ± {half}", difference, *values, percent(r["paper_rule_accuracy"])]
        lines.append("| " + " | ".join(map(str, cells_)) + " |")
    lines += [
        "",
        '"best on test" is the paper\'s rule: the best epoch on the test set itself, which is optimistic.',
        "",
    ]
    if content["diverged"]:
        lines += [f"Diverged: {'; '.join(content['diverged'])}.", ""]
    if content["unfinished"]:
        lines += [f"{content['unfinished']} runs are not finished.", ""]
    lines += [f"{content['trainings']} trainings, {content['time']} of computing."]
    lines += [f"- {name}: {value}" for name, value in content["made"].items()]
    lines += [f"- `{command}`" for command in dict.fromkeys(c for _, c in content["commands"])]
    return "\n".join(lines) + "\n"


def as_csv(content: dict[str, Any]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(content["rows"][0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(content["rows"])
    return text.getvalue()


def as_json(content: dict[str, Any]) -> str:
    def finite(value: Any) -> Any:
        if isinstance(value, float) and not math.isfinite(value):
            return None if math.isnan(value) else str(value)
        return value

    names = ("verdict", "baseline", "rule", "losses", "diverged", "unfinished", "made", "trainings", "time")
    document: dict[str, Any] = {name: content[name] for name in names}
    document["commands"] = [command for _, command in content["commands"]]
    document["rows"] = [{k: finite(v) for k, v in row.items()} for row in content["rows"]]
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def render(store: Store, format: str, baseline: str = "cross-entropy") -> str:
    return {"html": html, "markdown": markdown, "csv": as_csv, "json": as_json}[format](gather(store, baseline))
