"""Metrics of the objective in each library's form, usable for early stopping."""

from typing import Any, TypeVar

from hypersimplex.boosting import _data
from hypersimplex.boosting.objective import HyperSimplexObjective

Self = TypeVar("Self")


class _Metric:
    def __init__(self, objective: HyperSimplexObjective, name: str = "error") -> None:
        if name not in ("error", "loss"):
            raise ValueError(f"name must be 'error' or 'loss', got {name!r}")
        self.objective = objective
        self.name = name
        self.__name__ = f"hypersimplex_{name}"

    # scikit-learn clones an estimator's objective and metric apart; this objective knows its clone, a copy would not.
    def __sklearn_clone__(self: Self) -> Self:
        return self

    def measure(self, y_true: Any, y_pred: Any, sample_weight: Any) -> float:
        y_true, y_pred, sample_weight, data = _data.unpack(y_true, y_pred, sample_weight)
        objective = self.objective._latest()
        if self.name == "error":
            return objective._error_rate(y_true, y_pred, sample_weight, data)
        return objective.loss(y_true, y_pred, sample_weight)


class LightGBMMetric(_Metric):
    """A metric for LightGBM: the error rate at the objective's thresholds ("error"), or the loss ("loss").

    Pass it as `feval` to lightgbm.train or as `eval_metric` to LGBMClassifier.fit. The thresholds are those of the
    training scores one round before. If scikit-learn has cloned the objective, the clone called last counts.

    >>> objective = HyperSimplexObjective()
    >>> _ = objective.calibrate([0, 1, 1], [0.0, 1.0, 2.0])
    >>> LightGBMMetric(objective)([0, 1, 0], [0.1, 1.2, 3.0])
    ('hypersimplex_error', 0.3333333333333333, False)
    """

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> tuple[str, float, bool]:
        return self.__name__, self.measure(y_true, y_pred, sample_weight), False


class XGBoostMetric(_Metric):
    """A metric for XGBoost: the error rate at the objective's thresholds ("error"), or the loss ("loss").

    Pass it as `custom_metric` to xgboost.train or as `eval_metric` to XGBClassifier. The thresholds are those of the
    training scores one round before. If scikit-learn has cloned the objective, the clone called last counts.

    >>> objective = HyperSimplexObjective()
    >>> _ = objective.calibrate([0, 1, 1], [0.0, 1.0, 2.0])
    >>> XGBoostMetric(objective)([0, 1, 0], [0.1, 1.2, 3.0])
    0.3333333333333333
    """

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        value = self.measure(y_true, y_pred, sample_weight)
        return (self.__name__, value) if _data.is_dataset(y_pred) else value
