"""A yardstick for one's own data: what logistic regression, on the same standardized inputs, makes of it."""

import warnings
from collections.abc import Sequence

import numpy as np

from hypersimplex.study.batches import split
from hypersimplex.study.records import Run
from hypersimplex.study.samples import Data

# Numbers in all: above, the regression itself would take minutes.
LARGEST = 5_000_000
BEHIND = 0.02


def logistic_regression(data: Data, subset: int | None, validation: float) -> float | None:
    """Return its accuracy on the test set, trained on the rows the networks train on; None where it would take long."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    rows, _ = split(data, subset, validation)
    if len(rows) * int(np.prod(data.train_x.shape[1:])) > LARGEST:
        return None
    x, test = (np.asarray(part, dtype=np.float64).reshape(len(part), -1) for part in (data.train_x[rows], data.test_x))
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    with warnings.catch_warnings():
        # A regression that has not quite converged is yardstick enough.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(x, data.train_y[rows])
    return float((model.predict(test) == data.test_y).mean())


def sentence(dataset: str, accuracy: float, runs: Sequence[Run]) -> str:
    """The yardstick beside the best of the networks, by the epoch that the last one stands for."""
    reached = [v for r in runs if r.state == "done" and r.config.dataset == dataset for _, v in r.accuracies()[-1:]]
    best = max((v for v in reached if v is not None), default=None)
    said = f"sanity check on {dataset}: logistic regression on the same standardized inputs: {accuracy:.1%} accuracy"
    if best is None or best >= accuracy - BEHIND:
        return said
    return f"{said}; the networks are behind it ({best:.1%} at best): train longer (--epochs) or try more --lr"
