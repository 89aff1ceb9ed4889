"""Probabilities: scikit-learn's calibration, fitted to scores of held-out folds."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.dummy import DummyClassifier
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.utils import check_random_state

Array = NDArray[Any]


def folds(y: Array, most: int, random_state: Any) -> Iterator[tuple[Array, Array]]:
    """Rows to train on and rows held out, every class in both."""
    seed = check_random_state(random_state).randint(2**31 - 1)
    if y.ndim == 2:
        return KFold(most, shuffle=True, random_state=seed).split(y)  # type: ignore[no-any-return]
    number = min(most, int(np.bincount(y).min()))
    return StratifiedKFold(number, shuffle=True, random_state=seed).split(y, y)  # type: ignore[no-any-return]


class Calibration:
    """Calibrates the decision function of the classes, or of every label by itself."""

    def __init__(self, method: str, decision: Array, y: Array, weights: Array | None) -> None:
        self.labels = y.ndim == 2
        columns = [(decision[:, [c]], y[:, c]) for c in range(y.shape[1])] if self.labels else [(decision, y)]
        self.models = [_fit(method, scores, classes, weights) for scores, classes in columns]

    def probabilities(self, decision: Array) -> Array:
        if not self.labels:
            return np.asarray(self.models[0].predict_proba(decision.reshape(len(decision), -1)))
        return np.column_stack([model.predict_proba(decision[:, [c]])[:, 1] for c, model in enumerate(self.models)])


def _fit(method: str, scores: Array, y: Array, weights: Array | None) -> Any:
    if (y == y[0]).all():  # a label that is the same in all rows
        return DummyClassifier(strategy="constant", constant=int(y[0])).fit([[0.0], [0.0]], [0, 1])
    every = np.arange(len(y))
    model = CalibratedClassifierCV(_Scores(int(y.max()) + 1), method=method, cv=[(every, every)], ensemble=False)
    return model.fit(scores, y, weights)


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
