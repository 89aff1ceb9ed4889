"""The report: its words and numbers, and the page as a browser shows it."""

import csv
import io
import itertools
import json
import re
from dataclasses import replace

import numpy as np
import pytest

from hypersimplex_study.comparison import Comparison
from hypersimplex_study.config import RunConfig
from hypersimplex_study.page import figure_files
from hypersimplex_study.report import gather, reach_table, render
from hypersimplex_study.speed import Reach
from hypersimplex_study.store import Store
from tests.browser import look_at, needs_browser
from trainings import epoch

LOSSES = ("cross-entropy", "mse", "hypersimplex", "hypersimplex-argmax")
NASTY = "<script>alert(1)</script> & co"


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """Two data sets, three batch sizes, three seeds, four losses; one run diverged, one unfinished."""
    rng = np.random.default_rng(0)
    with Store(tmp_path_factory.mktemp("report") / "s.sqlite") as store:
        for dataset in ("fashion-mnist", f"{NASTY}.csv"):
            for batch in (128, 1024, 8192):
                for seed in (0, 42, 1337):
                    for loss in LOSSES:
                        config = RunConfig(dataset=dataset, loss=loss, batch_size=batch, seed=seed, epochs=5, label="y")
                        store.add_runs([config])
                        key = config.training().key()
                        gain = 0.03 if loss.startswith("hyper") else 0.0
                        values = 0.8 + gain + 0.01 * np.arange(5) + rng.normal(0, 0.002, 5)
                        store.start(key, {"torch": "2.13", "commit": "abc", "processor": "a machine", "data": dataset})
                        store.record_all(
                            key, [epoch(i, own=v, argmax=v - 0.2) for i, v in enumerate(values)], restart=True
                        )
                        store.finish(key, "done")
        bad = RunConfig(dataset="fashion-mnist", loss="hinge", batch_size=128, label="y", epochs=5)
        store.add_runs([bad, replace(bad, seed=1)])
        store.finish(bad.key(), "diverged", "the training loss of epoch 0 is nan")
        store.add_command("hypersimplex study run --preset demo")
        yield store


def test_every_format_has_the_same_numbers(filled):
    rows = json.loads(render(gather(filled), "json"))["rows"]
    assert len(rows) == 2 * 3 * (3 + 3) + 1  # each with plain argmax beside it, but for the diverged one
    table = list(csv.DictReader(io.StringIO(render(gather(filled), "csv"))))
    markdown = render(gather(filled), "markdown")
    for row, flat in zip(rows, table, strict=True):
        if row["mean"] is None:
            continue
        assert float(flat["mean"]) == row["mean"]
        shown = f"{100 * row['mean']:.2f} %" if row["foil"] else f"| {100 * row['mean']:.2f} ± "
        assert shown in markdown
    best = next(r for r in rows if r["loss"] == "hypersimplex" and r["dataset"] == "fashion-mnist")
    assert best["difference"] == pytest.approx(0.03, abs=0.005)
    difference, low, high = (f"{100 * best[f'difference{end}']:+.2f}" for end in ("", "_low", "_high"))
    assert f"| {difference} | {low} to {high} |" in markdown
    base = next(r for r in rows if r["loss"] == "cross-entropy" and r["dataset"] == "fashion-mnist")
    assert (base["batch_size"], base["published"]) == (128, 0.9456)
    assert "Diverged: fashion-mnist · hinge" in markdown
    assert "- Not finished: 1 of 74 runs; " in markdown
    assert "over the seeds that both losses have" in markdown


def test_every_row_of_a_markdown_table_has_the_columns_of_its_head(filled):
    lines = render(gather(filled), "markdown").splitlines()
    heads = [i for i, line in enumerate(lines) if line.startswith("| data |")]
    assert heads
    for head in heads:
        rows = list(itertools.takewhile(lambda line: line.startswith("|"), lines[head:]))
        cells = [len(re.split(r"(?<!\\)\|", row)) for row in rows]
        assert len(rows) > 3
        assert set(cells) == {cells[0]}, rows[cells.index(max(cells))]


def test_the_page_needs_nothing_else_and_escapes_what_is_not_ours(filled):
    page = render(gather(filled), "html")
    assert NASTY not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; co" in page
    addresses = set(re.findall(r"""(?:src|href)\s*=\s*["']([^"'#][^"']*)""", page)) | set(
        re.findall(r"@import|url\((?!#)", page)
    )
    assert addresses == {"data:,"}


def test_every_figure_has_a_text_alternative(filled):
    page = render(gather(filled), "html")
    pictures = re.findall(r"<svg[^>]*>", page)
    # for each data set: accuracy, difference, three curves; and a small one for every run with epochs
    assert sum('class="figure"' in p for p in pictures) == 2 * 5
    assert sum('class="spark"' in p for p in pictures) == 2 * 3 * 3 * 3
    for picture in pictures:
        label = re.search(r'aria-labelledby="(\S+) (\S+)"', picture)
        assert 'role="img"' in picture
        assert "aria-label=" in picture or all(f'id="{name}"' in page for name in label.groups())
    ids = re.findall(r'\sid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    targets = set(re.findall(r'href="#([^"]+)"', page)) | set(re.findall(r"url\(#([^)]+)\)", page))
    assert targets <= set(ids)


FIGURES = """document.querySelectorAll("details").forEach(d => d.open = true);
return [...document.querySelectorAll("svg")].filter(s => {
  const box = s.getBoundingClientRect(); return box.width > 20 && box.height > 10; }).length"""


def test_the_page_has_contents_and_says_what_to_do_next(filled):
    page = render(gather(filled), "html")
    listed = re.search(r"<nav.*?</nav>", page, re.DOTALL).group()
    headings = set(re.findall(r'<h2 id="([^"]+)"', page))
    assert set(re.findall(r'href="#([^"]+)"', listed)) == headings
    assert {"next", "made", "configurations", "fashion-mnist"} <= headings
    assert "use hypersimplex with lr 0.001" in page
    # every run's table is behind its summary
    assert page.count("<details") == page.count("<summary>") == 2 * 3 * 3 + 1
    assert "Not in table or figures, by plain argmax: cross-entropy-argmax on fashion-mnist at batch size 128" in page
    compared = "".join(re.findall(r'<table class="compared">.*?</table>', page, re.DOTALL))
    assert "hypersimplex-argmax" not in compared
    assert re.findall(r"<th[^>]*>([^<]*)</th>", compared)[:3] == ["loss", "accuracy, %", "vs cross-entropy"]


def test_a_command_that_was_repeated_is_shown_once(filled):
    filled.add_command("hypersimplex study run --preset demo")
    assert render(gather(filled), "html").count("<pre>") == 1


def test_figures_are_named_by_the_batch_size(filled):
    names = set(figure_files(gather(filled)))
    assert {f"fashion-mnist-curves-{batch}.svg" for batch in (128, 1024, 8192)} < names


def unique(found):
    assert len(found) == len(set(found))
    return found


def test_no_two_data_sets_share_an_anchor_or_a_figure(store):
    names = ("данные.csv", "数据.csv", "A b.csv", "a-b.csv", "!!.csv", "??.csv", "next", "made")
    for name in names:
        for loss in ("cross-entropy", "hypersimplex"):
            config = RunConfig(dataset=name, loss=loss, epochs=2)
            store.add_runs([config])
            store.record_all(config.key(), [epoch(0), epoch(1)])
            store.finish(config.key(), "done")
    page = render(gather(store), "html")
    ids = unique(re.findall(r'\sid="([^"]+)"', page))
    targets = set(re.findall(r'href="#([^"]+)"', page)) | set(re.findall(r"url\(#([^)]+)\)", page))
    assert targets <= set(ids)
    unique(re.findall(r'<h2 id="([^"]+)"', page))
    files = figure_files(gather(store))
    assert len({name.lower() for name in files}) == 3 * len(names)
    assert {"данные-csv-accuracy.svg", "a-b-csv-accuracy.svg", "a-b-csv-2-accuracy.svg"} <= set(files)


def test_a_score_to_reach_is_written_as_its_measure_is():
    row = ("d", 128, "hypersimplex", "cross-entropy")
    numbers = (0.95, 3, 3, 10, 1, 0.6, 0.5, 0.7, True)
    for measure, shown in (("accuracy", "95 %"), ("auc", "0.95")):
        found = Reach(*row, measure, *numbers)
        assert f"| {shown} |" in "".join(reach_table([found]))
        assert found.sentence.startswith(f"reaches {shown} in 0.60 times the steps")


def test_tuning_runs_alone_are_no_report(store):
    config = RunConfig(epochs=1)
    store.add_runs([config], tuning=True)
    store.record(config.key(), epoch(0))
    store.finish(config.key(), "done")
    for kind in ("html", "markdown", "csv", "json"):
        with pytest.raises(ValueError, match="has tuning runs alone; the same `study run` goes on to"):
            render(gather(store), kind)
    with pytest.raises(ValueError, match="has tuning runs alone; the same `study run` goes on to"):
        Comparison.of_store(store, None, None, False)


FIRST_COLUMNS = """return [...document.querySelectorAll("table.compared tr:not(.group)")].map(r =>
  r.children[2].getBoundingClientRect().right)"""


@needs_browser
def test_on_a_phone_accuracy_and_difference_are_seen_without_scrolling(filled, tmp_path):
    seen = look_at(render(gather(filled), "html"), tmp_path, 390, False, FIRST_COLUMNS)
    assert max(seen["found"]) <= 390


@needs_browser
@pytest.mark.parametrize(("width", "dark"), [(390, False), (390, True), (1280, False)])
def test_a_browser_shows_it(filled, tmp_path, width, dark):
    seen = look_at(render(gather(filled), "html"), tmp_path, width, dark, FIGURES)
    assert seen["found"] == 10 + 54
    assert seen["overflow"] <= 0
    assert seen["wide"] == []
    assert seen["background"] == ("rgb(20, 23, 26)" if dark else "rgb(255, 255, 255)")
