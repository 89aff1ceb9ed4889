"""Columns of one's own table that are neither plain numbers nor short texts: dates, categories, IDs, stray cells."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from hypersimplex_study import data
from hypersimplex_study.config import RunConfig
from hypersimplex_study.formats import DataError
from hypersimplex_study.setup import check
from hypersimplex_study.train import Runtime

ROWS = 1200


def frame(**columns):
    rng = np.random.default_rng(0)
    return pd.DataFrame({"a": rng.normal(size=ROWS), "y": np.tile(["no", "yes"], ROWS // 2), **columns})


def load(tmp_path, table, suffix="csv", **more):
    path = tmp_path / f"t.{suffix}"
    table.to_csv(path, index=False) if suffix == "csv" else table.to_parquet(path)
    return data.load(str(path), label="y", **more)


def column(found, i):
    return np.concatenate([found.train_x, found.test_x])[:, i]


DAYS = pd.date_range("2024-01-01", periods=ROWS, freq="9h")


@pytest.mark.parametrize("form", ["%Y-%m-%d", "%m/%d/%Y", "%d/%m/%Y", "%d.%m.%Y", "%Y-%m-%dT%H:%M:%S"])
def test_a_date_becomes_its_parts(tmp_path, form):
    found = load(tmp_path, frame(when=DAYS.strftime(form)))
    parts = ["year", "month", "day", "day_of_week", *["hour"] * ("%H" in form)]
    assert found.train_x.shape[1] == 1 + len(parts)
    for i, part in enumerate(parts, 1):
        np.testing.assert_array_equal(np.sort(column(found, i)), np.sort(getattr(DAYS, part).to_numpy(np.float32)))
    assert len(found.notes) == 1
    assert "column 'when' is read as a date: when year, when month" in found.notes[0]


def test_dates_of_a_parquet_file_and_gaps_among_dates(tmp_path):
    when = DAYS.to_series(index=range(ROWS))
    when[5] = pd.NaT
    for table, suffix in ((frame(when=when), "parquet"), (frame(when=when.dt.strftime("%Y-%m-%d %H:%M")), "csv")):
        found = load(tmp_path, table, suffix)
        assert found.train_x.shape[1] == 6
        assert np.isfinite(column(found, 1)).all()


def test_what_only_looks_like_a_date_is_text(tmp_path):
    assert load(tmp_path, frame(version=np.tile(["1.2.3", "1.10.0"], ROWS // 2))).train_x.shape[1] == 3


@pytest.mark.parametrize(
    ("stray", "kind", "shown"),
    [
        ({7: "€"}, "a number", "'€' in row 8"),
        ({7: "€ 12", 9: "n. a."}, "a number", "'€ 12' in row 8, 'n. a.' in row 10"),
        (dict.fromkeys(range(5), "x"), "a number", "'x' in row 1, 'x' in row 2, 'x' in row 3 and 2 more"),
    ],
)
def test_cells_that_are_no_numbers_are_named(tmp_path, stray, kind, shown):
    price = np.round(np.random.default_rng(1).uniform(1, 50, ROWS), 2).astype(object)
    for row, value in stray.items():
        price[row] = value
    message = (
        f"column 'the price' must hold {kind} in every row, got {shown} (rows below the header are counted from 1)"
    )
    with pytest.raises(DataError, match=re.escape(message) + ".*--drop 'the price'$"):
        load(tmp_path, frame(**{"the price": price}))


def test_a_cell_that_is_no_date_is_named(tmp_path):
    when = DAYS.strftime("%Y-%m-%d").to_numpy(object)
    when[3], when[4] = "unknown", "2024-13-45"
    with pytest.raises(
        DataError, match=r"must hold a date in every row, got 'unknown' in row 4, '2024-13-45' in row 5 "
    ):
        load(tmp_path, frame(when=when))


def test_codes_of_which_some_are_digits_are_text(tmp_path):
    code = np.tile([*"123456789", "X"], ROWS // 10)
    assert load(tmp_path, frame(code=code)).train_x.shape[1] == 11


def cities(informative=False):
    names = np.array([f"city {i:03d}" for i in range(400)])
    table = frame()
    # Odd and even cities differ, which no single split of the alphabet shows.
    pick = 2 * np.random.default_rng(2).integers(0, 200, ROWS) + (np.arange(ROWS) % 2 if informative else 0)
    return table.assign(city=names[pick])


def test_more_than_a_hundred_categories_are_for_trees(tmp_path):
    table = cities()
    found = load(tmp_path, table)
    assert found.categories == {"city": 1}
    assert len(np.unique(column(found, 1))) == table["city"].nunique()
    assert "column 'city' has " in found.notes[0]
    config = RunConfig(dataset=str(tmp_path / "t.csv"), label="y")
    message = "network must be lightgbm or lightgbm-paper for t, whose text column 'city' has more than 100 values; "
    with pytest.raises(ValueError, match=re.escape(message + "or leave it out with --drop city")):
        check([config], Runtime())
    check([replace(config, drop=("city",))], Runtime())


def test_trees_see_categories_and_no_order(tmp_path):
    boosted = pytest.importorskip("hypersimplex_study.boosted")
    found = load(tmp_path, cities(informative=True))
    train = boosted.prepare(found, None, 0.2, 1)["train"]
    assert train.categorical_feature == [1]
    import lightgbm as lgb

    settings = {"objective": "binary", "verbosity": -1, "num_leaves": 4, "min_data_per_group": 1, "cat_smooth": 1}
    booster = lgb.train(settings, train, num_boost_round=1)
    assert "==" in booster.trees_to_dataframe()["decision_type"].to_numpy()


def test_ids_of_text_are_named_and_not_the_categories(tmp_path):
    table = cities().assign(customer=[f"C{i:06d}" for i in range(ROWS)])
    message = (
        "a text column must repeat its values, got 'customer' with 1200 values in 1200 rows, as IDs and names have"
    )
    with pytest.raises(DataError, match=re.escape(message) + "; leave out with --drop customer$"):
        load(tmp_path, table)
    assert load(tmp_path, table, drop=("customer",)).categories == {"city": 1}
