"""The report: its words and numbers, and the page as a browser shows it."""

import csv
import io
import json
import re
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from hypersimplex.study.comparison import Comparison
from hypersimplex.study.config import RunConfig
from hypersimplex.study.console import cell_table
from hypersimplex.study.page import figure_files
from hypersimplex.study.report import gather, render
from hypersimplex.study.speed import Reach
from hypersimplex.study.stats import Result, cells
from hypersimplex.study.store import Store
from hypersimplex.study.verdict import advice, budget, footnotes, needed, next_steps, verdict
from tests.browser import look_at, needs_browser
from tests.study.conftest import epoch

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


def test_the_verdict_says_what_the_corrected_tests_allow():
    def row(loss, batch, seed, accuracy):
        return Result(f"{loss}{batch}{seed}", "d", loss, batch, seed, "lr 1", 0.5, 0, accuracy, accuracy)

    rng = np.random.default_rng(0)
    rows = []
    for batch, gain in ((128, 0.05), (256, -0.05), (512, 0.001)):
        for seed in range(5):
            base = 0.8 + rng.normal(0, 0.003)
            rows.append(row("cross-entropy", batch, seed, base))
            rows.append(row("hypersimplex", batch, seed, base + gain + rng.normal(0, 0.002)))
    text = verdict(cells(rows))
    assert text.startswith(
        "hypersimplex is better than cross-entropy by accuracy on d at batch size 128, +5.00 points (95 % interval "
        "+4.80 to +5.20). hypersimplex is worse than cross-entropy by accuracy on d at batch size 256, -5.01 points"
    )
    assert (
        "The difference of hypersimplex to cross-entropy on d at batch size 512 is +0.14 points (95 % interval " in text
    )
    assert ". If that is its true size, it is less than 0.5 points, which makes no difference in practice" in text
    assert text.endswith("Tested over 5 seeds, at p < 0.05 after Holm's correction over 3 comparisons.")
    assert "cannot be told from" not in text
    assert "3 seeds of both are needed" in verdict(cells([r for r in rows if r.loss == "hypersimplex"]))


def pairs(gains, dataset="d", measure="accuracy", batch=128, losses=("cross-entropy", "hypersimplex"), setting="lr 1"):
    """Results of two losses over seeds, the second better by these."""
    return [
        Result(f"{dataset}{loss}{s}", dataset, loss, batch, s, setting, 0.5, 0, v, v, False, measure)
        for s, gain in enumerate(gains)
        for loss, v in zip(losses, (0.8, 0.8 + gain), strict=True)
    ]


def test_networks_and_trees_in_one_store_are_each_named_with_their_own_baseline_and_measure():
    rows = pairs([0.05, 0.051, 0.052], "digits")
    rows += pairs([0.02, 0.021, 0.022], "adult", "auc", 0, ("binary", "hypersimplex"))
    text = verdict(cells(rows))
    assert "better than cross-entropy by accuracy on digits at batch size 128, +5.10 points" in text
    assert "better than binary by AUC on adult, +0.0210 AUC" in text
    assert "by AUC on digits" not in text


def test_advice_is_one_sentence_that_says_what_to_do():
    rows = pairs([0.05, 0.051, 0.052], "a") + pairs([-0.05, -0.051, -0.052], "b") + pairs([0.03, -0.01, 0.004], "c")
    rows += pairs([0.001, -0.001, 0.002], "d") + pairs([0.05, 0.051, 0.052], "a", batch=256)
    found = cells(rows)
    wanted = needed(next(c for c in found if c.dataset == "c" and c.primary))
    assert advice(found) == (
        "What to do: use hypersimplex with lr 1 on a at batch size 128 and a at batch size 256; "
        "use cross-entropy with lr 1 on b at batch size 128; "
        f"add about {wanted - 3} seeds, for {wanted} in all, to settle the difference on c at batch size 128; "
        "take either loss (a difference below 0.5 points makes no difference in practice) on d at batch size 128."
    )
    steps = next_steps(found, [])
    assert steps[0].startswith("a at batch size 128: use hypersimplex with lr 1; the difference is +5.10 points")
    assert steps[2].startswith("b at batch size 128: use cross-entropy with lr 1; the difference is -5.10 points")
    assert steps[3].startswith(f"c at batch size 128: add about {wanted - 3} seeds, for {wanted} in all")


def test_a_small_difference_asks_for_no_seeds_that_only_it_would_need():
    """Differences of 0.17 points, with a spread that would take hundreds of seeds to resolve."""
    rng = np.random.default_rng(1)
    gains = rng.normal(0, 0.01, 10)
    rows = pairs((gains - gains.mean() + 0.0017).tolist())
    found = cells(rows)
    text = verdict(found)
    assert "is +0.17 points (95 % interval " in text
    assert "less than 0.5 points, which makes no difference in practice" in text
    # seeds are counted for the smallest difference of interest
    (wanted,) = {needed(c) for c in found if c.primary}
    assert f"; about {wanted} seeds would tell." in text
    assert 10 < wanted < 60
    assert "take either loss" in advice(found)


def test_nobody_is_told_to_run_hundreds_of_seeds():
    """Differences of 0.6 points, above what matters, that only some hundreds of seeds would find."""
    gains = np.random.default_rng(1).normal(0, 0.06, 10)
    found = cells(pairs((gains - gains.mean() + 0.006).tolist()))
    (wanted,) = {needed(c) for c in found if c.primary}
    assert wanted > 200
    assert f"10 seeds are too few to call it; about {wanted} would do" in verdict(found)
    told = f"take either loss (it would take about {wanted} seeds to tell them apart) on d at batch size 128."
    assert advice(found) == f"What to do: {told}"
    assert "use hypersimplex with lr 1, which reaches 80 %" in advice(found, [reach(0.6, 0.5, 0.7)])


def test_a_difference_that_is_sure_but_small_is_called_so():
    found = cells(pairs([0.001, 0.0011, 0.0012]))
    assert "+0.11 points (95 % interval +0.09 to +0.13). That is less than 0.5 points" in verdict(found)
    assert advice(found).startswith("What to do: take either loss")


@pytest.mark.parametrize("gains", [[0.05, 0.06], [0.05]])
def test_too_few_seeds_are_said_instead_of_tested(gains):
    found = cells(pairs(gains))
    over = f"over {len(gains)} seed{'s' * (len(gains) > 1)}"
    assert f"on d at batch size 128 is {100 * np.mean(gains):+.2f} points" in verdict(found)
    assert f"{over}; a test needs 3 or more" in verdict(found)
    assert advice(found) == "What to do: run 3 seeds or more of both losses on d at batch size 128."


def test_equal_differences_are_said_instead_of_tested():
    found = cells(pairs([0.05, 0.05, 0.05]))
    assert "is +5.00 points, the same for all 3 seeds: nothing to test it by" in verdict(found)
    assert np.isnan([c.holm_p for c in found]).all()
    assert "p < " not in verdict(found)


def reach(ratio, low, high):
    return Reach("d", 128, "hypersimplex", "cross-entropy", "accuracy", 0.8, 3, 3, 10, 1, ratio, low, high, True)


def test_where_the_end_is_the_same_the_faster_loss_is_named():
    found = cells(pairs([0.001, -0.001, 0.002]))
    faster, slower, open_ = (advice(found, [reach(*r)]) for r in ((0.6, 0.5, 0.7), (1.6, 1.5, 1.7), (0.9, 0.8, 1.1)))
    assert "use hypersimplex with lr 1, which reaches 80 % in 0.60 times the steps of cross-entropy" in faster
    assert "use cross-entropy with lr 1 (hypersimplex reaches 80 % in 1.60 times the steps" in slower
    assert "take either loss" in open_


def test_what_is_tested_beside_the_question_is_secondary_and_the_foil_a_footnote():
    rows = pairs([0.05, 0.051, 0.052]) + pairs([-0.3, -0.31, -0.32], losses=("cross-entropy", "hypersimplex-argmax"))
    rows += pairs([0.01, 0.02, 0.015], losses=("cross-entropy", "mse"))
    found = {c.loss: c for c in cells(list({r.key: r for r in rows}.values()))}
    assert [loss for loss, c in found.items() if c.primary] == ["hypersimplex"]
    assert [loss for loss, c in found.items() if c.foil] == ["hypersimplex-argmax"]
    # one primary comparison: nothing beside it costs power
    assert (found["hypersimplex"].comparisons, found["mse"].comparisons) == (1, 1)
    assert found["hypersimplex"].holm_p == found["hypersimplex"].against.p
    assert np.isnan(found["hypersimplex-argmax"].holm_p)
    assert footnotes(list(found.values())) == [
        "hypersimplex-argmax on d at batch size 128: 49.00 % (-31.00 to cross-entropy)"
    ]
    text = verdict(list(found.values()))
    assert "argmax" not in text
    assert "mse" not in text
    best = next_steps(list(found.values()), [])
    assert len(best) == 1  # the best loss is the one that was asked about


def rows_of(loss, settings, measure="accuracy", others=(), batch=128):
    return [
        Result(f"{loss}{i}{seed}", "d", loss, batch, seed, setting, 0.5 - i, 0, 0.8, 0.8, False, measure, dict(others))
        for i, setting in enumerate(settings)
        for seed in range(2)
    ]


def test_an_uneven_budget_is_said():
    fair = [*rows_of("cross-entropy", ["lr 1", "lr 2"]), *rows_of("hypersimplex", ["lr 1", "lr 2"])]
    assert budget(fair).startswith("Every loss got the same budget")
    unfair = [*rows_of("cross-entropy", ["lr 1"]), *rows_of("hypersimplex", ["lr 1", "lr 1, tau 0.5", "lr 1, tau 3"])]
    expected = "The losses did not get the same budget: settings tried on the validation split: "
    assert budget(unfair) == expected + "cross-entropy 1, hypersimplex 3."


@pytest.mark.parametrize("setting", ["lr 0.001", "lr 0.001, tau 0.5"])
@pytest.mark.parametrize("other", ["log_loss", None])
def test_eighty_columns_hold_every_number(other, setting):
    losses = ("binary", "hypersimplex-paper") if other else ("cross-entropy", "hypersimplex-half-argmax")
    kind, batch = ("auc", 0) if other else ("accuracy", 65536)
    rows = []
    for i, name in enumerate(losses):
        rows += rows_of(name, [setting], kind, {"log_loss": 0.5 + i / 100}, batch)
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(cell_table(cells(rows, other=other), "test set"))
    text = console.export_text()
    assert "…" not in text
    assert "p Holm" in text  # the last column is whole
    assert f"difference to {losses[0]}" in " ".join(text.split())
    assert ("+0.0100" if other else "+0.00") in text


def test_every_format_has_the_same_numbers(filled):
    rows = json.loads(render(gather(filled), "json"))["rows"]
    assert len(rows) == 2 * 3 * 4 + 1
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
    # for each data set: accuracy, difference, three curves; and a small one for every run with epochs, foils too
    assert sum('class="figure"' in p for p in pictures) == 2 * 5
    assert sum('class="spark"' in p for p in pictures) == 2 * 3 * 3 * 4
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
    assert page.count("<details") == page.count("<summary>") == 2 * 3 * 4 + 1
    assert "Not in table or figures, by plain argmax: hypersimplex-argmax on fashion-mnist at batch size 128" in page
    compared = "".join(re.findall(r'<table class="compared">.*?</table>', page, re.DOTALL))
    assert "hypersimplex-argmax" not in compared
    assert re.findall(r"<th[^>]*>([^<]*)</th>", compared)[:3] == ["loss", "accuracy, %", "vs cross-entropy"]


def test_a_command_that_was_repeated_is_shown_once(filled):
    filled.add_command("hypersimplex study run --preset demo")
    assert render(gather(filled), "html").count("<pre>") == 1


def test_figures_are_named_by_the_batch_size(filled):
    names = set(figure_files(gather(filled)))
    assert {f"fashion-mnist-curves-{batch}.svg" for batch in (128, 1024, 8192)} < names


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
    assert seen["found"] == 10 + 72
    assert seen["overflow"] <= 0
    assert seen["wide"] == []
    assert seen["background"] == ("rgb(20, 23, 26)" if dark else "rgb(255, 255, 255)")
