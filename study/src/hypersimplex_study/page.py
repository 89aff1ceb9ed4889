"""The report as one HTML file that needs nothing else."""

import re
from collections.abc import Iterable, Sequence
from importlib.resources import files
from itertools import chain, count
from typing import Any

import jinja2

from hypersimplex_study import figures, published, tabular
from hypersimplex_study.comparison import tables
from hypersimplex_study.console import batch_text, p_text, visible
from hypersimplex_study.measures import MEASURES
from hypersimplex_study.records import Run
from hypersimplex_study.stats import Cell
from hypersimplex_study.verdict import footnotes

OWN = ("", "next", "made", "configurations")  # anchors that are the page's; an empty one is none


def slug(*parts: object) -> str:
    return re.sub(r"[\W_]+", "-", " ".join(map(str, parts)).lower()).strip("-")


def anchors(names: Iterable[str]) -> dict[str, str]:
    """A slug for each data set, with a number where another has it already."""
    found: dict[str, str] = {}
    for name in dict.fromkeys(names):
        options = (slug(name, number) for number in chain([""], count(2)))
        found[name] = next(option for option in options if option not in (*OWN, *found.values()))
    return found


def html(content: dict[str, Any]) -> str:
    rows: list[Cell] = content["cells"]
    by_key: dict[str, Run] = content["runs"]
    datasets = []
    ids = anchors(c.dataset for c in rows)
    for dataset in ids:
        here = [c for c in rows if c.dataset == dataset]
        datasets.append(
            {
                "name": dataset,
                "id": ids[dataset],
                "note": tabular.note(dataset),
                "measure": MEASURES[here[0].measure],
                "baseline": here[0].baseline,
                "batches": any(c.batch_size for c in here),
                "figures": dataset_figures(ids[dataset], here, by_key),
                "tables": tables([r for r in content["rows"] if r["dataset"] == dataset and not r["foil"]]),
                "footnotes": footnotes(here),
                "reached": [r for r in content["reached"] if r.dataset == dataset],
                "areas": [a for a in content["areas"] if a.dataset == dataset],
                "published": [p for p in published.table() if p.dataset == dataset.partition(" (")[0]],
            }
        )
    pages = []
    for c in (c for c in rows if not c.foil):
        members = []
        for run in map(by_key.__getitem__, c.keys):
            tests = [t for _, t in run.scores()]
            spark = figures.sparkline(tests, f"seed {run.config.seed}", run.measure)
            members.append({"run": run, "result": content["results"][run.key], "spark": spark})
        shown = {k: v for k, v in by_key[c.keys[0]].config.shown().items() if k not in ("seed", "loss")}
        page = {"id": slug(ids[c.dataset], c.batch_size, c.loss), "cell": c, "members": members, "config": shown}
        pages.append({**page, "measure": MEASURES[c.measure]})
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["fixed"] = lambda v, digits: "—" if v != v else f"{v:.{digits}f}"
    accuracy = MEASURES["accuracy"]
    environment.filters.update(p=p_text, slug=slug, batch=batch_text, points=accuracy.with_sign, percent=accuracy.text)
    source = files("hypersimplex_study").joinpath("templates", "report.html").read_text(encoding="utf-8")
    template = environment.from_string(source)
    return template.render(**content, datasets=datasets, pages=pages, overview=overview(rows))


def dataset_figures(anchor: str, here: Sequence[Cell], by_key: dict[str, Run]) -> dict[str, Any]:
    curves, dataset = {}, here[0].dataset
    for batch in sorted({c.batch_size for c in here}):
        cells = [c for c in here if c.batch_size == batch and not c.foil]
        runs = {c.loss: [by_key[key] for key in c.keys] for c in cells}
        groups = {loss: [r for r in some if r.state == "done" and r.epochs] for loss, some in runs.items()}
        if any(groups.values()):
            curves[batch] = figures.curves_figure(slug("curves", anchor, batch), dataset, batch, groups)
    return {
        "accuracy": figures.accuracy_figure(slug("accuracy", anchor), dataset, here),
        "difference": figures.difference_figure(slug("difference", anchor), dataset, here),
        "curves": curves,
    }


def overview(rows: Sequence[Cell]) -> Any:
    """One figure over all data sets with boosted trees, where there are several."""
    trees = [c for c in rows if not c.batch_size]
    if len({c.dataset for c in trees}) < 2 or not any(c.against for c in trees):
        return None
    return figures.overview_figure("overview-auc", trees)


def figure_files(content: dict[str, Any]) -> dict[str, str]:
    """The figures as files of their own: name and SVG text."""
    rows: list[Cell] = content["cells"]
    found = {"overview": overview(rows)}
    for dataset, anchor in anchors(c.dataset for c in rows).items():
        made = dataset_figures(anchor, [c for c in rows if c.dataset == dataset], content["runs"])
        for kind in ("accuracy", "difference"):
            found[slug(anchor, kind)] = made[kind]
        for batch, curve in made["curves"].items():
            found[slug(anchor, "curves", batch or "")] = curve
    return {f"{name}.svg": visible(str(figure)) + "\n" for name, figure in found.items() if figure is not None}
