"""What both classifiers share: labels, thresholds, decisions, and probabilities."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import StratifiedKFold, train_test_split
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

Array = NDArray[Any]


class ThresholdClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A subclass turns rows into raw scores; here thresholds turn those into decisions.

    It provides `_train(x, y, weights, classes)`, `_raw(x)` and `_check(x, ...)`, y being class indices.
    """

    classes_: Array
    threshold_: Array
    tau_: Any

    def decision_function(self, X: Any) -> Array:  # noqa: N803
        """How far a row is past its threshold, in units of tau.

        Binary: (score - threshold)/tau - 1/2, positive for the second class. Otherwise one column for each class,
        (score - threshold)/tau, of which the largest decides.
        """
        check_is_fitted(self)
        if not np.isfinite(self.threshold_).any():
            raise NotFittedError(
                "a decision needs a threshold, which comes from rows of a class beside rows of others: no call of "
                "partial_fit has held both"
            )
        raw = self._raw(self._check(X, reset=False))
        scores = (raw - self.threshold_) / self.tau_
        return np.asarray(scores[:, 0] - 0.5 if scores.shape[1] == 1 else scores)

    def predict(self, X: Any) -> Array:  # noqa: N803
        """The class of every row, decided at the thresholds."""
        decision = self.decision_function(X)
        which = (decision > 0).astype(int) if decision.ndim == 1 else decision.argmax(axis=1)
        return np.asarray(self.classes_[which])

    @available_if(lambda self: _calibrated(self))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Array:  # noqa: N803
        """Probabilities from scikit-learn's calibration of the decision function, fitted on held-out folds.

        The loss itself ranks and decides; it does not estimate probabilities. `predict` decides at the thresholds, so
        close to them it may differ from the most probable class. With calibration="sigmoid" (Platt) or
        "isotonic" `fit` trains once more for every fold, to have scores of rows the model has not seen.
        """
        check_is_fitted(self)
        if not hasattr(self, "calibrator_"):
            raise NotFittedError(
                f"predict_proba needs a call of fit with calibration={self.calibration!r}: partial_fit does not "
                "calibrate, nor does set_params after fit"
            )
        decision = self.decision_function(X)
        return np.asarray(self.calibrator_.predict_proba(decision.reshape(len(decision), -1)))

    def _read(self, X: Any, y: Any, sample_weight: Any) -> tuple[Any, Array, Array | None]:  # noqa: N803
        x, y = self._check(X, y, reset=True)
        check_classification_targets(y)
        self.classes_, y = np.unique(y, return_inverse=True)
        weights = None if sample_weight is None else _check_sample_weight(sample_weight, x, ensure_non_negative=True)
        if weights is not None:
            if not weights.any():
                raise ValueError("sample_weight must not be zero for every row")
            if (weights == 0).any():  # a row of weight 0 is no row
                x, y, weights = x[weights > 0], y[weights > 0], weights[weights > 0]
            weights = None if (weights == 1).all() else weights
        present = np.unique(y)
        if len(present) < 2:
            raise ValueError(
                "This classifier needs samples of at least 2 classes in the data, but the data contains only one "
                f"class: {self.classes_[present[0]]}"
            )
        return x, y, weights

    def _hold_out(self, x: Any, y: Array, weights: Array | None) -> tuple[Any, Any, Array, Array, Any, Any]:
        """Split off validation_fraction of the rows for early stopping."""
        stratify = y if np.bincount(y).min() > 1 else None
        given = np.ones(len(y)) if weights is None else weights
        parts = train_test_split(
            x, y, given, test_size=self.validation_fraction, stratify=stratify, random_state=self.random_state
        )
        train_x, held_x, train_y, held_y, train_w, held_w = parts
        return train_x, held_x, train_y, held_y, *((None, None) if weights is None else (train_w, held_w))

    def _calibrate(self, x: Any, y: Array, weights: Array | None) -> None:
        self.__dict__.pop("calibrator_", None)
        if self.calibration is None:
            return
        if self.calibration not in ("sigmoid", "isotonic"):
            raise ValueError(f"calibration must be None, 'sigmoid' or 'isotonic', got {self.calibration!r}")
        folds = min(self.calibration_folds, int(np.bincount(y).min()))
        if folds < 2:
            raise ValueError("calibration needs at least 2 rows of every class, got a class with 1")
        held = np.empty((len(y), 1 if len(self.classes_) == 2 else len(self.classes_)))
        seed = check_random_state(self.random_state).randint(2**31 - 1)
        for train, test in StratifiedKFold(folds, shuffle=True, random_state=seed).split(np.zeros(len(y)), y):
            model = clone(self).set_params(calibration=None)
            model.fit(x[train], y[train], sample_weight=None if weights is None else weights[train])
            held[test] = model.decision_function(x[test]).reshape(len(test), -1)
        scores, every = _Scores(len(self.classes_)), np.arange(len(y))
        calibrator = CalibratedClassifierCV(scores, method=self.calibration, cv=[(every, every)], ensemble=False)
        self.calibrator_ = calibrator.fit(held, y, weights)


def _calibrated(model: Any) -> bool:
    if model.calibration is None:
        raise AttributeError("predict_proba needs calibration='sigmoid' or calibration='isotonic', got None")
    return True


class _Scores(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier whose features are its scores, so that scikit-learn can calibrate scores found elsewhere."""

    def __init__(self, classes: int) -> None:
        self.classes = classes

    def fit(self, X: Array, y: Array, sample_weight: Any = None) -> "_Scores":  # noqa: N803
        self.classes_ = np.arange(self.classes)
        return self

    def decision_function(self, X: Array) -> Array:  # noqa: N803
        return X[:, 0] if self.classes == 2 else X

    def predict(self, X: Array) -> Array:  # noqa: N803
        return (X[:, 0] > 0).astype(int) if self.classes == 2 else X.argmax(axis=1)
