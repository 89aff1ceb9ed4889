"""Columns of text: the error names the column, and a ColumnTransformer makes numbers of them."""

import re

import numpy as np
import pytest
from sklearn.compose import make_column_transformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

pytest.importorskip("lightgbm")
pytest.importorskip("xgboost")
pandas = pytest.importorskip("pandas")

from tests.sklearn.models import lgbm, mlp, xgb  # noqa: E402

EVERY = pytest.mark.parametrize("make", [lgbm, xgb, mlp])
ADVICE = "leave out a column of identifiers, and encode one of categories with scikit-learn's ColumnTransformer"


def customers(n=120):
    rng = np.random.default_rng(0)
    city = rng.choice(["Basel", "Ghent", "Lille"], n)
    rows = pandas.DataFrame({"amount": rng.normal(size=n), "customer": [f"C{i:06}" for i in range(n)], "city": city})
    return rows, (city == "Ghent").astype(int)


def message(make, value, column):
    frame = "" if make is mlp else ", or make it a pandas category"
    return "^" + re.escape(f"X must hold numbers, got {value!r} in column {column!r}; {ADVICE}{frame}") + "$"


@EVERY
def test_a_column_of_text_is_named(make):
    rows, y = customers()
    with pytest.raises(ValueError, match=message(make, "C000000", "customer")):
        make().fit(rows, y)
    with pytest.raises(ValueError, match=message(make, rows["city"][0], "city")):
        make().fit(rows.drop(columns="customer"), y)
    with pytest.raises(ValueError, match=message(make, "C000000", 1)):
        make().fit(rows.to_numpy(), y)
    model = make().fit(rows[["amount"]], y)
    with pytest.raises(ValueError, match=message(make, "1 €", "amount")):
        model.predict(pandas.DataFrame({"amount": [0.5, "1 €"]}, dtype=object))


@EVERY
def test_numbers_written_as_text_are_numbers(make):
    rows, y = customers()
    expected = make().fit(rows[["amount"]].to_numpy(), y).decision_function(rows[["amount"]].to_numpy())
    text = np.array([[repr(float(value))] for value in rows["amount"]], dtype=object)
    np.testing.assert_array_equal(make().fit(text, y).decision_function(text), expected)


@EVERY
def test_another_error_keeps_its_own_words(make):
    rows, y = customers()
    with pytest.raises(ValueError, match="feature names should match"):
        make().fit(rows[["amount"]], y).predict(rows[["city"]])
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        make().fit(rows[["amount"]], y[1:])


@EVERY
def test_a_column_transformer_makes_numbers(make):
    rows, y = customers()
    encode = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["city"]), ("passthrough", ["amount"]))
    assert make_pipeline(encode, make()).fit(rows, y).score(rows, y) > 0.95
