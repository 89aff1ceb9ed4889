"""What the terminal shows fits it, from 60 to 120 columns."""

import io
import re

import numpy as np
import pytest

from hypersimplex_study.config import RunConfig
from hypersimplex_study.console import Live, Terminal, cell_table, narrow_table
from hypersimplex_study.records import Run
from hypersimplex_study.stats import Result, cells
from hypersimplex_study.status import tables
from trainings import epoch

WIDTHS = [60, 70, 79, 80, 100, 120]
LONG = RunConfig(dataset="a/rather/long/path/to/some/table.parquet", loss="hypersimplex-half-argmax", batch_size=65536)


def shown(width, *things):
    console = Terminal(width=width, file=io.StringIO(), force_terminal=True, color_system=None)
    for thing in things:
        console.print(thing)
    return console.file.getvalue()


def fits(text, width):
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text


@pytest.mark.parametrize("width", WIDTHS)
def test_the_comparison(width):
    rng = np.random.default_rng(0)
    rows = [
        Result(f"{loss}{seed}", "d", loss, 65536, seed, "lr 0.001, tau 0.5", 0.5, 0, v, v)
        for loss in ("cross-entropy", "hypersimplex-half-argmax")
        for seed, v in enumerate(rng.random(3))
    ]
    text = shown(width, cell_table(cells(rows), "test set", width))
    fits(text, width)
    assert "p Holm" in text
    assert "difference to cross-entropy over the seeds that both have" in " ".join(text.split())
    for c in cells(rows):
        assert f"{100 * c.summary.mean:.2f} ± " in text


@pytest.mark.parametrize("width", WIDTHS)
def test_the_status(width):
    states = ("done", "interrupted", "pending", "diverged", "failed")
    runs = [Run(f"{i}", f"{i}", LONG, False, s, 1, None, {}, (epoch(0),) * 12345) for i, s in enumerate(states)]
    fits(shown(width, *tables(runs)), width)


@pytest.mark.parametrize("width", WIDTHS)
def test_the_grid(width):
    columns = ("", "batch", "losses", "settings", "seeds", "number", "epochs", "each", "all")
    table = narrow_table("trainings on d", columns, columns[:1])
    table.add_row("compared", "65536", "10", "12", "10", "1200", "600", "12 h 30 min", "123 days")
    fits(shown(width, table), width)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["runs", "tuning"])
def test_the_bar(width, name):
    console = Terminal(width=width, file=io.StringIO(), force_terminal=True, color_system=None)
    live = Live(console)
    with live:
        live.phase(name, 123456)
        for i in range(3):
            live.epoch(LONG, epoch(i))
        text = shown(width, live)
    line = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).rstrip("\n")
    assert "\n" not in line
    assert len(line) <= width
    assert re.search(r"\s3/123456 epochs \d:\d\d:\d\d (-:--:--|\d+:\d\d:\d\d)", line), line
    if width >= 100:
        assert "· 0.500" in line
