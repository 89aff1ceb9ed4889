"""What all classifiers share: labels, weights, thresholds, decisions, and probabilities."""

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import train_test_split
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from hypersimplex.sklearn._calibration import Array, Calibration, folds
from hypersimplex.sklearn._categories import first_text


class ThresholdClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A subclass turns rows into raw scores; here thresholds turn those into decisions.

    It provides `_learn(x, y, weights, ...)`, `_raw(x)` and `_check(x, ...)`. Inside, y holds indices of classes, or a
    column of 0 and 1 for each label.
    """

    classes_: Array
    threshold_: Array
    tau_: Any
    _multilabel = False
    _takes_categories = False  # of pandas

    def decision_function(self, X: Any) -> Array:  # noqa: N803
        """Return how far every row is past its threshold, in units of tau.

        With two classes: (score - threshold)/tau - 1/2, positive for the second class. With more classes: one column
        per class, (score - threshold)/tau, and the largest decides. With several labels: one column per label, as
        with two classes.
        """
        check_is_fitted(self)
        if not np.isfinite(self.threshold_).any():
            raise NotFittedError(
                "a decision needs a threshold, which comes from rows of a class beside rows of others: no call of "
                "partial_fit has held both"
            )
        return self._decide(self._check(X, reset=False))

    def predict(self, X: Any) -> Array:  # noqa: N803
        """Return the class of every row, decided at the thresholds. With several labels: 0 or 1 for each."""
        decision = self.decision_function(X)
        if self._multilabel:
            return (decision > 0).astype(int)
        which = (decision > 0).astype(int) if decision.ndim == 1 else decision.argmax(axis=1)
        return np.asarray(self.classes_[which])

    @property
    def predict_proba(self) -> Callable[[Any], Array]:
        """Return probabilities, by scikit-learn's calibration of the decision function on held-out folds.

        They need calibration="sigmoid" (Platt) or "isotonic". Then `fit` trains one more model per fold, to get scores
        for rows that the model has not seen. `predict` decides at the thresholds, so close to a threshold it may
        differ from the most probable class.
        """
        # A property, since scikit-learn's available_if hides the reason behind a message of its own.
        if self.calibration is None:
            name = type(self).__name__
            raise AttributeError(
                f"{name} has predict_proba only after calibration, which trains on more folds: create it as "
                f"{name}(calibration='sigmoid') or 'isotonic' and fit it; predict and decision_function need none"
            )
        return self._probabilities

    def _probabilities(self, X: Any) -> Array:  # noqa: N803
        check_is_fitted(self)
        if not hasattr(self, "calibrator_"):
            raise NotFittedError(
                f"predict_proba needs a call of fit with calibration={self.calibration!r}: partial_fit does not "
                "calibrate, nor does set_params after fit"
            )
        return self.calibrator_.probabilities(self.decision_function(X))

    def _decide(self, x: Any) -> Array:
        scores = (self._raw(x) - self.threshold_) / self.tau_
        if self._multilabel:
            return np.asarray(scores - 0.5)
        return np.asarray(scores[:, 0] - 0.5 if scores.shape[1] == 1 else scores)

    def _keep(self, arguments: dict[str, Any]) -> None:
        """Every argument of __init__ under its own name, as scikit-learn wants it."""
        self.__dict__.update({name: value for name, value in arguments.items() if name not in ("self", "__class__")})

    def _read(self, X: Any, y: Any, sample_weight: Any, again: bool = False) -> tuple[Any, Array, Any]:  # noqa: N803
        """Rows, labels and weights as a training takes them; `again` keeps to the classes of the fit before."""
        x, y = self._check(X, y, reset=not again)
        check_classification_targets(y)
        multilabel = y.ndim == 2
        if multilabel and type_of_target(y) != "multilabel-indicator":
            raise ValueError(f"y must hold one class for each row, or 0 and 1 for every label, got {type_of_target(y)}")
        weights = self._weights(x, y, sample_weight)
        if again:
            y = self._indices(y, "of the fit before")
        else:
            self._multilabel = multilabel
            self.classes_ = np.arange(y.shape[1]) if multilabel else np.unique(y)
            y = y if multilabel else np.searchsorted(self.classes_, y)  # a tenth of the time of return_inverse
        if weights is not None:
            if not weights.any():
                raise ValueError("sample_weight must not be zero for every row")
            if (weights == 0).any():  # a row of weight 0 is no row
                x, y, weights = x[weights > 0], y[weights > 0], weights[weights > 0]
            weights = None if (weights == 1).all() else weights
        if not multilabel and (y == y[0]).all():
            raise ValueError(
                "This classifier needs samples of at least 2 classes in the data, but the data contains only one "
                f"class: {self.classes_[y[0]]}"
            )
        return x, y, weights

    def _validate(self, x: Any, *y: Any, **how: Any) -> Any:
        """scikit-learn's checks, with the name of a column that holds text."""
        try:
            return validate_data(self, x, *y, **how)
        except ValueError as error:
            found = first_text(x) if "could not convert string" in str(error) else None
            if found is None:
                raise
        column, value = found
        frame = ", or make it a pandas category" if self._takes_categories else ""
        raise ValueError(
            f"X must hold numbers, got {value!r} in column {column!r}; leave out a column of identifiers, and encode "
            f"one of categories with scikit-learn's ColumnTransformer{frame}"
        )

    def _weights(self, x: Any, y: Array, sample_weight: Any) -> Any:
        """Those of the rows times those of their classes, or None."""
        given = None if sample_weight is None else _check_sample_weight(sample_weight, x, ensure_non_negative=True)
        if self.class_weight is None:
            return given
        by_class = compute_sample_weight(self.class_weight, y)
        return by_class if given is None else by_class * given

    def _indices(self, y: Array, whose: str) -> Array:
        """Of labels of known classes."""
        if self._multilabel or np.ndim(y) != 1:
            if not self._multilabel or np.shape(y)[1:] != self.classes_.shape:
                columns = f"{len(self.classes_)} columns of labels" if self._multilabel else "one column"
                raise ValueError(f"y must have {columns}, as {whose}, got shape {np.shape(y)}")
            return y
        for unknown in np.setdiff1d(y, self.classes_).tolist():
            raise ValueError(f"y must hold classes {whose}, {self.classes_.tolist()}, got {unknown!r}")
        return np.searchsorted(self.classes_, y)

    def _hold_out(self, x: Any, y: Array, weights: Any) -> tuple[tuple[Any, Array, Any], tuple[Any, Array, Any]]:
        """Split off validation_fraction of the rows for early stopping."""
        every, how = np.arange(len(y)), {"test_size": self.validation_fraction, "random_state": self.random_state}
        try:  # every class in both parts
            train, held = train_test_split(every, stratify=y, **how)
        except ValueError:  # too few rows for that
            train, held = train_test_split(every, **how)
        first, second = ((x[rows], y[rows], None if weights is None else weights[rows]) for rows in (train, held))
        return first, second

    def _calibrate(self, x: Any, y: Array, weights: Any, *how: Any, **changes: Any) -> None:
        """Train on all folds but one, and calibrate the scores of that one; `how` goes to `_learn`."""
        held = np.empty((len(y), 1 if len(self.classes_) == 2 and not self._multilabel else len(self.classes_)))
        for train, test in folds(y, self.calibration_folds, self.random_state):
            model = clone(self).set_params(calibration=None, **changes)
            vars(model).update({name: value for name, value in vars(self).items() if name in self._read_once})
            model._learn(x[train], y[train], None if weights is None else weights[train], *how)
            held[test] = model._decide(x[test]).reshape(len(test), -1)
        self.calibrator_ = Calibration(self.calibration, held, y, weights)

    _read_once: tuple[str, ...] = ("classes_", "_multilabel")  # what reading the data has set

    def _check_calibration(self, y: Array) -> None:
        """Before anything is trained."""
        self.__dict__.pop("calibrator_", None)
        if self.calibration not in (None, "sigmoid", "isotonic"):
            raise ValueError(f"calibration must be None, 'sigmoid' or 'isotonic', got {self.calibration!r}")
        fewest = 2 if y.ndim == 2 else np.bincount(y, minlength=len(self.classes_)).min()
        if self.calibration is not None and fewest < 2:
            raise ValueError(f"calibration needs at least 2 rows of every class, got a class with {fewest}")
