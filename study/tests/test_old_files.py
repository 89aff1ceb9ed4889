"""Stores and exports that `hypersimplex.study` wrote, before the study was a distribution of its own."""

import csv
import gzip
import io
from pathlib import Path

import pytest

from hypersimplex_study import exchange
from hypersimplex_study.report import gather, render
from hypersimplex_study.store import Store
from test_cli import call

# Twenty-five runs on the digits and on a table, of networks and of boosted trees, tuning runs among them.
OLD = Path(__file__).parent / "old"


@pytest.fixture
def old(tmp_path):
    (tmp_path / "old.sqlite").write_bytes(gzip.decompress((OLD / "store.sqlite.gz").read_bytes()))
    return tmp_path / "old.sqlite"


def test_a_store_opens(old):
    with Store(old) as store:
        runs = store.runs()
        assert [r.state for r in runs] == ["done"] * 25
        assert all(r.config.key() == r.key and r.epochs for r in runs)
        assert {r.config.network for r in runs} == {"mlp", "lightgbm"}
        assert sum(r.tuning for r in runs) == 8


@pytest.mark.parametrize("form", ["csv", "json"])
def test_an_export_is_what_the_store_holds(old, tmp_path, form):
    table = exchange.read_file(OLD / f"runs.{form}.gz")
    with Store(old) as store, Store(tmp_path / "new.sqlite") as new:
        assert exchange.import_rows(new, table)[1:] == (0, 0)
        taken = {r.key: (r.config, r.epochs, r.provenance, r.tuning) for r in new.runs()}
        assert taken == {r.key: (r.config, r.epochs, r.provenance, r.tuning) for r in store.runs()}


def test_a_report_of_a_store_has_its_numbers(old):
    with Store(old) as store:
        found = list(csv.DictReader(io.StringIO(render(gather(store), "csv"))))
    expected = list(csv.DictReader(io.StringIO((OLD / "report.csv").read_text())))
    assert len(found) == len(expected) == 11
    for row, before in zip(found, expected, strict=True):
        for name, value in before.items():
            assert row[name] == value or float(row[name]) == pytest.approx(float(value), rel=1e-9), name


def test_a_study_goes_on_in_a_store(old):
    own = ["--epochs", "2", "--width", "8", "--batch-size", "256", "--tuning-seed", "7", "--lr", "0.01", "--lr", "0.03"]
    own += ["--loss", "cross-entropy", "--loss", "mse", "--loss", "hypersimplex", "--loss", "hypersimplex-argmax"]
    own += ["--evaluation", "recomputed"]  # as it was when the store was written
    seeds = [word for seed in (0, 1, 2, 3) for word in ("--seed", str(seed))]
    with Store(old) as store:
        before = {r.key: r for r in store.runs()}
    call("study", "run", *own, *seeds, "--threads", "1", "--quiet", "--store", old)
    with Store(old) as store:
        after = {r.key: r for r in store.runs()}
    assert {key: after[key] for key in before} == before
    assert [r.config.seed for key, r in after.items() if key not in before] == [3] * 4
