"""The HyperSimplex loss as an objective of boosted trees."""

import copy
import weakref
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hypersimplex import _checks
from hypersimplex.boosting import _data
from hypersimplex.boosting._columns import Array, Columns, Doubles, Room, numbers, one_each, per_class
from hypersimplex.boosting._thresholds import Reduce, Solution, solve
from hypersimplex.boosting._trainings import Lineage, Trainings
from hypersimplex.boosting.collective import everyone

FLOOR = 1e-3  # of the hessian of an active row: enough to keep a leaf without active rows from dividing by zero


class HyperSimplexObjective:
    """Project each class's scores over the whole data set so that they sum to k, and compare them with the labels.

    Let p be the projection of a column of scores (see `hypersimplex.soft_binary_argmax`) and w the weight of a row.
    The loss is one half of the sum of w (p - y)^2. A row of weight w counts as w rows, in k too. A row is active if
    0 < p < 1. The gradient of an active row is w (p - y - mean)/tau, where mean is the average error of the active
    rows. The gradient of the others is 0.

    Pass the object as `objective` to LGBMClassifier, XGBClassifier or lightgbm.train, or as `obj` to xgboost.train.
    In XGBoost on several machines it projects over the rows of all of them. Boosters then predict raw scores, which
    `scores` and `predict` turn into decisions.

    Args:
        tau: temperature of the projection, positive: a number, or one per class.
        k: the weight of the positive rows: a number, or one per class. Default: the sum of the labels.
        prior: the same as a share of all rows.
        hessian: "gauss-newton" is w/tau^2 on active rows and a thousandth of that elsewhere, and the trees do not
            depend on tau. "ones" is w everywhere, as in the paper.

    Attributes:
        threshold: mu of every class for the training scores of the latest call, None before the first call. It is one
            round behind the trained model, and `calibrate` makes it exact.

    >>> objective = HyperSimplexObjective()
    >>> gradient, hessian = objective([0, 1, 0, 1], np.array([0.1, 1.6, 1.0, 0.4]))
    >>> gradient
    array([ 0. ,  0. ,  0.8, -0.8], dtype=float32)
    >>> objective.threshold
    array([0.2])
    """

    _most_threads: int | None = None  # of the kernel, for estimators whose trees grow on so many

    def __init__(
        self,
        tau: ArrayLike = 1.0,
        *,
        k: ArrayLike | None = None,
        prior: ArrayLike | None = None,
        hessian: str = "gauss-newton",
    ) -> None:
        if k is not None and prior is not None:
            raise ValueError(f"k and prior must not both be given, got k={k!r} and prior={prior!r}")
        if hessian not in ("gauss-newton", "ones"):
            raise ValueError(f"hessian must be 'gauss-newton' or 'ones', got {hessian!r}")
        for bad in (t for t in numbers("tau", tau).ravel() if not (t > 0 and np.isfinite(t))):
            raise _checks.bad_tau(float(bad))
        for bad in () if k is None else (c for c in numbers("k", k).ravel() if not c >= 0):
            raise ValueError(f"k must not be negative, got {_checks.plain_number(float(bad))}")
        for bad in () if prior is None else (p for p in numbers("prior", prior).ravel() if not 0 <= p <= 1):
            raise ValueError(f"prior must be between 0 and 1, got {bad}")
        self.tau = tau
        self.k = k
        self.prior = prior
        self.hessian = hessian
        self.threshold: Doubles | None = None
        self._room = Room()
        self._trainings = Trainings()
        self._lineage = Lineage()

    # LightGBM and XGBoost look at this signature to see whether they may pass weights.
    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> tuple[Array, Array]:
        """Return gradient and hessian, float32, shaped like y_pred. Also takes a booster's own (y_pred, data set)."""
        y_true, y_pred, sample_weight, data = _data.unpack(y_true, y_pred, sample_weight)
        columns = Columns(y_pred, y_true, sample_weight, self._most_threads)
        solution, tau = self._solve(columns, everyone())
        self._set(solution.mu, data)
        on = 1 / tau**2 if self.hessian == "gauss-newton" else np.ones(columns.classes)
        off = on * FLOOR if self.hessian == "gauss-newton" else on
        return columns.write(self._room, solution.mu, tau, solution.mean, on, off)

    def calibrate(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> "HyperSimplexObjective":
        """Set the thresholds to those of a trained model's raw scores y_pred."""
        self._room = Room()  # the training is over
        self._set(self._solve(Columns(y_pred, y_true, sample_weight, self._most_threads), everyone())[0].mu, None)
        return self

    def scores(self, y_pred: ArrayLike) -> Array:
        """Return (y_pred - threshold)/tau. Above one half means positive."""
        return self._scores(y_pred, self._need_threshold())

    def _scores(self, y_pred: ArrayLike, threshold: Doubles) -> Array:
        y_pred = np.asarray(y_pred)
        classes = 1 if y_pred.ndim == 1 else y_pred.shape[1]
        if classes != len(threshold):
            raise ValueError(f"y_pred must have {len(threshold)} columns, as in training, got shape {y_pred.shape}")
        scores = (y_pred.reshape(len(y_pred), classes) - threshold) / per_class("tau", self.tau, classes)
        return scores.reshape(y_pred.shape)

    def predict(self, y_pred: ArrayLike) -> Array:
        """Return the class of every row of raw scores: 0 or 1, or the column with the highest score."""
        return self._predict(y_pred, self._need_threshold())

    def _predict(self, y_pred: ArrayLike, threshold: Doubles) -> Array:
        scores = self._scores(y_pred, threshold)
        return (scores > 0.5).astype(np.int64) if scores.ndim == 1 else scores.argmax(axis=1)

    def loss(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> float:
        """Return the mean loss per row. These rows are projected by themselves."""
        columns = Columns(y_pred, y_true, sample_weight, self._most_threads)
        reduce = everyone()
        total = float(reduce(columns.count(), "sum")[-1])
        return float(self._solve(columns, reduce)[0].square.sum()) / (2 * total) if total > 0 else float("nan")

    def error_rate(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> float:
        """Return the share of rows that `predict` gets wrong."""
        return self._error_rate(y_true, y_pred, sample_weight, None)

    def _error_rate(self, y_true: Any, y_pred: Any, sample_weight: Any, data: Any) -> float:
        threshold = None if data is None else self._trainings.thresholds_for(data)
        predicted = self._predict(y_pred, self._need_threshold() if threshold is None else threshold)
        n = len(predicted)
        wrong = predicted != one_each("y_true", y_true, n)
        weights = (
            np.ones(n) if sample_weight is None else one_each("sample_weight", sample_weight, n).astype(np.float64)
        )
        part, total = everyone()(np.array([weights @ wrong, weights.sum()]), "sum")
        return float(part / total) if total > 0 else float("nan")

    # lightgbm.train copies its parameters deeply; the thresholds must reach the object that was passed.
    def __deepcopy__(self, memo: dict[int, Any]) -> "HyperSimplexObjective":
        if _data.copied_by_lightgbm():
            return self
        fresh = memo[id(self)] = copy.copy(self)
        vars(fresh).update(copy.deepcopy(vars(self), memo))
        return fresh

    # scikit-learn's clone starts anew; without this it would copy deeply.
    def __sklearn_clone__(self) -> "HyperSimplexObjective":
        fresh = copy.copy(self)
        fresh.threshold, fresh._room, fresh._trainings = None, Room(), Trainings()
        return fresh

    def __repr__(self) -> str:
        return f"HyperSimplexObjective({self.tau!r}, k={self.k!r}, prior={self.prior!r}, hessian={self.hessian!r})"

    def _set(self, threshold: Doubles, data: Any) -> None:
        self.threshold = threshold
        self._lineage.latest = weakref.ref(self)
        if data is None:
            self._trainings = Trainings()
        else:
            self._trainings.note(data, threshold)

    def _latest(self) -> "HyperSimplexObjective":
        """This objective or the clone of it that was called last."""
        latest = None if self._lineage.latest is None else self._lineage.latest()
        return self if latest is None else latest

    def _solve(self, columns: Columns, reduce: Reduce) -> tuple[Solution, Doubles]:
        tau = per_class("tau", self.tau, columns.classes)
        counts = reduce(np.append(columns.count(), columns.n), "sum")
        k, total, rows = counts[:-2], float(counts[-2]), int(counts[-1])
        if self.k is not None:
            k = per_class("k", self.k, columns.classes)
            for bad in k[~((k >= 0) & (k <= total))]:
                rule = f"k must be between 0 and {_checks.plain_number(total)} (the weight of all rows)"
                raise ValueError(f"{rule}, got {_checks.plain_number(float(bad))}")
        elif self.prior is not None:
            k = per_class("prior", self.prior, columns.classes) * total
        return solve(columns, k, tau, total, rows, reduce), tau

    def _need_threshold(self) -> Doubles:
        if self.threshold is None:
            raise RuntimeError("thresholds are not known yet: train with this objective, or call calibrate")
        return self.threshold
