"""Whose thresholds a metric takes: those of the training that is under way."""

import threading
import weakref
from typing import Any

from hypersimplex.boosting._columns import Doubles


class Lineage(threading.local):
    """An objective and its clones, of which a metric follows the one that was called last in its thread.

    scikit-learn clones the objective of an estimator, and its metric apart from it or not at all.
    """

    latest: weakref.ref[Any] | None = None

    # A pickle holds it once, so that what was linked stays linked.
    def __reduce__(self) -> tuple[type["Lineage"], tuple[()]]:
        return Lineage, ()


class Trainings:
    """The thresholds of every data set an objective is being trained on.

    lightgbm.cv and xgboost.cv train all folds with one objective: a round of every fold, then the metric of every fold.
    """

    def __init__(self) -> None:
        self._thresholds: weakref.WeakKeyDictionary[Any, Doubles] = weakref.WeakKeyDictionary()
        self._partners: weakref.WeakKeyDictionary[Any, weakref.ref[Any]] = weakref.WeakKeyDictionary()
        self._last: weakref.ref[Any] | None = None  # trained on
        self._shown: weakref.ref[Any] | None = None  # the training data a metric has seen since
        self._alone = False  # whether the last was trained on twice in a row
        self._alternating = False

    def note(self, data: Any, thresholds: Doubles) -> None:
        """A round of the training on this data."""
        again = self._last is not None and self._last() is data
        if again or self._alone:  # every other training is over
            self._thresholds.clear()
        self._alternating = not again and data in self._thresholds
        self._alone = again
        self._thresholds.pop(data, None)
        self._thresholds[data] = thresholds
        self._last, self._shown = weakref.ref(data), None

    def thresholds_for(self, data: Any) -> Doubles | None:
        """The thresholds of the training that evaluates this data; None means those of the latest round."""
        training = data if data in self._thresholds else self._find(data)
        if training is None:
            if self._alternating:
                raise RuntimeError(
                    "an error rate needs the thresholds of its own training, got several trainings in turns: give each "
                    "an objective of its own, or evaluate its training data first"
                )
            return None
        if training is data:
            self._shown = weakref.ref(data)
        return self._thresholds[training]

    def _find(self, data: Any) -> Any:
        if self._shown is not None:  # XGBoost's folds evaluate their training data first
            return self._shown()
        partner = self._partners.get(data, lambda: None)()
        if partner is None or partner not in self._thresholds:
            partner = _other_side(data, list(self._thresholds))
            if partner is not None:
                self._partners[data] = weakref.ref(partner)
        return partner

    def __reduce__(self) -> tuple[type["Trainings"], tuple[()]]:
        return Trainings, ()


def _other_side(data: Any, trainings: list[Any]) -> Any:
    """The training data of the fold that holds out this data: LightGBM's folds say which rows they are.

    Of several without a common row the latest, which is right for splits in time.
    """
    if getattr(data, "used_indices", None) is None:
        return None
    held = set(data.used_indices)
    for training in reversed(trainings):
        siblings = getattr(training, "used_indices", None) is not None and training.reference is data.reference
        if siblings and held.isdisjoint(training.used_indices):
            return training
    return None
