"""The report of a store: one HTML file that needs nothing else, or its table as markdown, csv or json."""

import csv
import io
import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hypersimplex_study import speed, tabular
from hypersimplex_study.comparison import Comparison, json_rows, tables
from hypersimplex_study.config import about
from hypersimplex_study.console import batch_text, in_words, p_text, visible
from hypersimplex_study.measures import MEASURES, Measure
from hypersimplex_study.schema import FINISHED
from hypersimplex_study.status import seconds
from hypersimplex_study.store import Store
from hypersimplex_study.verdict import answers, footnotes, next_steps


def place_of(store: Path, output: Path | None = None) -> Path:
    """Where the report of a store goes: beside it unless told otherwise, never in its place."""
    path = output or store.with_suffix(".html")
    if path.resolve() == store.resolve() or (path.exists() and path.samefile(store)):
        raise ValueError(f"the report must be another file than the store, got {path}")
    return path


def gather(store: Store, baseline: str | None = None, metric: str | None = None) -> dict[str, Any]:
    """What every form of the report tells."""
    made = Comparison.of_store(store, baseline, metric, False)
    runs, finished, rows = made.runs, made.finished, made.cells
    losses = list(dict.fromkeys(c.loss for c in rows if not c.foil))
    compared = [r for r in finished if not r.tuning]
    measures = list(dict.fromkeys(MEASURES[r.measure].title for r in compared)) or ["accuracy"]
    reached, areas = made.speed
    spent, trainings = seconds(runs)
    records = [r.provenance for r in runs if r.provenance]
    versions = {k: sorted({str(p[k]) for p in records if p.get(k) is not None}) for k in MADE}
    return {
        **made.said(),
        "answers": answers(rows),
        "next_steps": next_steps(rows, reached),
        "reached": reached,
        "areas": areas,
        "baseline": ", ".join(sorted({c.baseline for c in rows})),
        "rule": f"test {' and '.join(measures)} "
        + ("at the epoch the validation split chose" if made.validated else "of the last epoch"),
        "cells": rows,
        "rows": made.rows(),
        "runs": made.by_key,
        "results": {r.key: r for r in finished},
        "losses": {name: about(name) for name in losses},
        "diverged": [r.config.describe() for r in runs if r.state == "diverged"],
        "unfinished": sum(r.state not in FINISHED for r in runs),
        "commands": list(dict.fromkeys(command for _, command in store.commands())),
        "events": store.events(),
        "made": {MADE[k]: ", ".join(v) for k, v in versions.items() if v},
        "time": in_words(spent),
        "trainings": trainings,
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
    "threads": "threads per process",
}


def markdown(content: dict[str, Any]) -> str:
    shown = f"Shown: {content['rule']}, mean ± half of the 95 % interval; differences over the seeds that both losses "
    shown += f"have. {content['budget']} {content['decision']}".rstrip()
    lines = [content["verdict"], "", content["advice"], "", shown, ""]
    for measure, rows in tables(content["rows"]):
        lines += markdown_table(measure, [r for r in rows if not r["foil"]])
    lines += listed("By plain argmax, a footnote and no test", footnotes(content["cells"]))
    lines += reach_table(content["reached"])
    lines += listed("What to do next", content["next_steps"]) + listed("Beware", content["caveats"])
    if any(r["paper_rule_mean"] is not None for r in content["rows"]):
        lines += [
            '"best on test" is the paper\'s rule: the best epoch on the test set itself, which is optimistic.',
            "",
        ]
    notes = [f"{d}: {n}" for d in dict.fromkeys(r["dataset"] for r in content["rows"]) if (n := tabular.note(d))]
    lines += [f"- {n}" for n in notes] + [""] * bool(notes)
    if content["diverged"]:
        lines += [f"Diverged: {'; '.join(content['diverged'])}.", ""]
    lines += [f"{content['trainings']} trainings, {content['time']} of computing."]
    lines += [f"- {name}: {value}" for name, value in content["made"].items()]
    lines += [f"- `{command}`" for command in content["commands"]]
    return "\n".join(lines) + "\n"


def listed(title: str, items: Sequence[str]) -> list[str]:
    return [f"{title}:", "", *(f"- {item}" for item in items), ""] if items else []


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """A table of markdown: words to the left, numbers to the right."""
    marks = ["---" if h in ("data", "loss", "setting", "question") else "---:" for h in head]
    return [*("| " + " | ".join(map(str, row)) + " |" for row in (head, marks, *rows)), ""]


def reach_table(reached: Sequence[speed.Reach]) -> list[str]:
    if not reached:
        return []
    head = ["data", "batch", "reaches", "loss", "steps", "seconds"]
    head += ["times the baseline's steps", "95 % interval", "runs"]
    rows = []
    for r in reached:
        numbers = [_fixed(r.steps, 0), _fixed(r.seconds, 1), _fixed(r.ratio, 2)]
        interval = "" if math.isnan(r.low) else f"{r.low:.2f} to {r.high:.2f}"
        place = [r.dataset, r.batch_size, r.shown_level, r.loss]
        rows.append([*place, *numbers, interval, f"{r.reached} of {r.runs}"])
    return table(head, rows)


def _fixed(value: float, digits: int) -> str:
    return "" if math.isnan(value) else f"{value:.{digits}f}"


def markdown_table(measure: Measure, rows: Sequence[dict[str, Any]]) -> list[str]:
    batches = any(r["batch_size"] for r in rows)
    best = any(r["paper_rule_mean"] is not None for r in rows)
    unit = ", %" if measure.percent else ""
    base = " or ".join(dict.fromkeys(r["baseline"] for r in rows))
    head = ["data", *["batch"] * batches, "loss", "setting", "seeds", f"{measure.title}{unit}", f"vs {base}"]
    head += ["95 % interval", "p", "p Holm", "d", "question", *["best on test"] * best]
    lines = []
    for r in rows:
        shown = [r["dataset"], *[batch_text(r["batch_size"])] * batches, r["loss"], r["setting"], r["seeds"]]
        shown.append(f"{measure.text(r['mean'])} ± {measure.text((r['high'] - r['low']) / 2)}")
        if r["difference"] is None:
            shown += [""] * 6
        else:
            difference, low, high = (measure.with_sign(r[f"difference{end}"]) for end in ("", "_low", "_high"))
            effect = "—" if math.isnan(r["effect"]) else f"{r['effect']:.1f}"
            shown += [difference, f"{low} to {high}", p_text(r["p"]), p_text(r["holm_p"]), effect]
            shown.append("primary" if r["primary"] else "secondary")
        shown += ["" if r["paper_rule_mean"] is None else measure.text(r["paper_rule_mean"])] * best
        lines.append(shown)
    return table(head, lines)


def as_csv(content: dict[str, Any]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(content["rows"][0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(content["rows"])
    return text.getvalue()


def as_json(content: dict[str, Any]) -> str:
    names = ["verdict", "advice", "next_steps", "caveats", "budget", "decision", "baseline", "rule", "losses"]
    names += ["diverged", "unfinished", "commands", "made", "trainings", "time"]
    document: dict[str, Any] = {name: content[name] for name in names}
    document |= {name: json_rows(map(asdict, content[name])) for name in ("reached", "areas")}
    document["rows"] = json_rows(content["rows"])
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def render(content: dict[str, Any], format: str) -> str:
    if format == "html":
        # Drawing is what takes long to import.
        from hypersimplex_study.page import html

        text = html(content)
    else:
        text = {"markdown": markdown, "csv": as_csv, "json": as_json}[format](content)
    # Names of data sets are not ours: what would command a terminal is spelled out; JSON has its own spelling.
    return text if format == "json" else visible(text)
