"""Columns of one's own table: numbers that single precision cannot hold as they are, gaps, and what is no column."""

import re

import numpy as np
import pandas as pd
import pytest
import torch

from hypersimplex_study import data
from hypersimplex_study.batches import prepare
from hypersimplex_study.formats import DataError


def frame(n=100):
    return pd.DataFrame({"a": np.random.default_rng(0).normal(size=n), "y": np.tile(["no", "yes"], n // 2)})


def load(tmp_path, table, suffix="csv"):
    path = tmp_path / f"t.{suffix}"
    table.to_csv(path, index=False) if suffix == "csv" else table.to_parquet(path)
    return data.load(str(path), label="y")


def test_a_small_difference_far_from_zero_is_kept(tmp_path):
    table = frame()
    table["second"] = 1_700_000_000 + 50 * (table["y"] == "yes")
    found = load(tmp_path, table)
    ready = prepare(found, None, 0.0, False, torch.device("cpu"))
    for part, y in ((ready.train, found.train_y), (ready.test, found.test_y)):
        np.testing.assert_allclose(part.rows[:, 1], 2.0 * y - 1, atol=1e-5)


def test_a_function_keeps_small_differences_too(tmp_path, monkeypatch):
    (tmp_path / "far.py").write_text(
        "import numpy as np\n"
        "y = np.arange(40) % 2\n"
        "x = 1.7e9 + 50 * y[:, None]\n"
        "make = lambda: ((x[:30], y[:30], x[30:], y[30:]), lambda: None)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    found = data.load("far:make")
    assert found.train_x.dtype == np.float32
    np.testing.assert_allclose(np.diff(found.test_x[:2, 0]), 50)


def test_other_columns_are_what_they_were(tmp_path):
    rng = np.random.default_rng(0)
    table = frame().assign(year=rng.integers(1990, 2020, 100), same=0.1, gone=np.nan, near=5000 + rng.normal(size=100))
    table.loc[[3, 50], "year"] = np.nan
    found = load(tmp_path, table)
    rows = np.concatenate([found.train_x, found.test_x])
    assert rows.dtype == np.float32
    for i, name in ((0, "a"), (2, "same"), (4, "near")):
        np.testing.assert_array_equal(np.sort(rows[:, i]), np.sort(table[name].to_numpy(np.float32)))
    assert set(rows[:, 1]) <= set(table["year"]) | {np.float32(np.median(found.train_x[:, 1]))}
    assert not rows[:, 3].any()


def test_a_gap_far_from_zero_is_filled_with_what_is_typical(tmp_path):
    table = frame().assign(second=1_700_000_000.0 + np.arange(100) % 5)
    table.loc[[3, 50], "second"] = np.nan
    found = load(tmp_path, table)
    assert np.isfinite(found.train_x).all()
    assert np.abs(np.concatenate([found.train_x, found.test_x])[:, 1]).max() < 3


def test_a_number_beyond_single_precision_is_named(tmp_path):
    table = frame().assign(**{"far out": 1.0})
    table.loc[7, "far out"] = -1e300
    message = "t.csv: column 'far out' must hold numbers between -3.4e+38 and 3.4e+38, got -1e+300; leave it out with"
    with pytest.raises(DataError, match=re.escape(message + " --drop 'far out'")):
        load(tmp_path, table)


@pytest.mark.parametrize("value", [[1, 2], {"u": 1}], ids=["list", "dict"])
def test_a_column_of_many_values_a_row_is_named(tmp_path, value):
    with pytest.raises(DataError, match=r"t.parquet: column 'b' must hold a number or a text in every row, got \w+; "):
        load(tmp_path, frame().assign(b=[value] * 100), "parquet")


def test_too_few_rows_of_every_class_for_a_test_set_are_named(tmp_path):
    table = pd.DataFrame({"a": np.arange(40), "y": [f"c{i // 2}" for i in range(40)]})
    message = "t: a class must have at least 3 samples, so that one is for the test set, got 2 at most"
    with pytest.raises(DataError, match=re.escape(message)):
        load(tmp_path, table)


def test_a_class_named_as_a_gap_is_explained(tmp_path):
    table = frame().assign(y=np.tile(["NA", "EU"], 50))
    with pytest.raises(DataError, match="must have a value in every row, 50 have none; the texts NA, None and null"):
        load(tmp_path, table)
    assert load(tmp_path, table, "parquet").classes == ("EU", "NA")
