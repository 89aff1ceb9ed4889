"""A yardstick for one's own data: what logistic regression, on the same standardized inputs, makes of it."""

import warnings
from collections.abc import Sequence

import numpy as np
import torch
from torch.nn import functional as F  # noqa: N812

from hypersimplex_study.batches import split
from hypersimplex_study.evaluation import measures
from hypersimplex_study.formats import Array
from hypersimplex_study.losses import Argmax
from hypersimplex_study.measures import MEASURES, METRICS, gain
from hypersimplex_study.records import Run
from hypersimplex_study.samples import Data

# Numbers in all: above, the regression itself would take minutes.
LARGEST = 5_000_000
BEHIND = 4  # times the smallest difference of interest: two points of accuracy


def logistic_regression(data: Data, subset: int | None, validation: float) -> dict[str, float] | None:
    """Return its measures on the test set, trained on the rows the networks train on; None where it would take long."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    rows, held = split(data, subset, validation)
    too_long = len(rows) * int(np.prod(data.train_x.shape[1:])) > LARGEST
    if too_long or len(np.unique(data.train_y[rows])) == 1:
        return None
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    with warnings.catch_warnings():
        # A regression that has not quite converged is yardstick enough.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(_flat(data.train_x[rows]), data.train_y[rows])

    def scores(x: Array) -> torch.Tensor:
        found = model.decision_function(_flat(x))
        found = np.stack([0 * found, found], 1) if found.ndim == 1 else found
        # A class that is in no training row is never decided for.
        every = np.full((len(x), len(data.classes)), found.min() - 10.0)
        every[:, model.classes_] = found
        return torch.from_numpy(every)

    parts = {"test": (data.test_y, scores(data.test_x))}
    if len(held):
        parts["val"] = (data.train_y[held], scores(data.train_x[held]))
    found = measures(Argmax(F.cross_entropy), parts)
    return {name: found[f"test_{name}"] for name in METRICS if f"test_{name}" in found}


def _flat(x: Array) -> Array:
    return np.asarray(x, dtype=np.float64).reshape(len(x), -1)


def sentence(dataset: str, found: dict[str, float], runs: Sequence[Run]) -> str | None:
    """The yardstick beside the best of the networks, by the epoch that the last one stands for; None without one."""
    mine = [r for r in runs if r.state == "done" and r.config.dataset == dataset]
    name = next((r.measure for r in runs), "accuracy")
    if name not in found:
        return None
    measure, value = MEASURES[name], found[name]
    said = f"sanity check on {dataset}: logistic regression on the same standardized inputs: {measure.shown(value)} "
    said += measure.title
    reached = [gain(name, v) for r in mine for _, v in r.scores()[-1:] if v is not None]
    if not reached:
        return said
    best = measure.shown(gain(name, max(reached)))
    if max(reached) >= gain(name, value) - BEHIND * measure.matters:
        return f"{said}; the networks: {best} at best"
    return f"{said}; the networks are behind it ({best} at best): train longer (--epochs) or try more --lr"
