"""What LightGBM and XGBoost hand to an objective or a metric, told apart without importing either."""

import sys
from types import FrameType
from typing import Any


def is_dataset(value: Any) -> bool:
    """A lightgbm.Dataset or an xgboost.DMatrix."""
    return hasattr(value, "get_label") and hasattr(value, "get_weight")


def unpack(first: Any, second: Any, weight: Any) -> tuple[Any, Any, Any, Any]:
    """Labels, scores, weights and data set from (labels, scores, weights) or (scores, data set)."""
    _refuse_machines()
    if not is_dataset(second):
        return first, second, weight, None
    weight = second.get_weight()
    # XGBoost says "no weights" with an empty array.
    return second.get_label(), first, weight if weight is not None and len(weight) > 0 else None, second


def copied_by_lightgbm() -> bool:
    """Whether the deep copy that is being made is one of LightGBM's, which copies the parameters of a training."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_globals.get("__name__") == "copy":
        frame = frame.f_back
    return frame is not None and str(frame.f_globals.get("__name__")).startswith("lightgbm.")


def _refuse_machines() -> None:
    """LightGBM's classifiers, on Dask too, pass arrays alone: only its booster knows of other machines."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_globals.get("__name__") != "lightgbm.basic":
        frame = frame.f_back
    booster = None if frame is None else frame.f_locals.get("self")
    machines = int((getattr(booster, "params", None) or {}).get("num_machines", 1))
    if machines > 1:
        raise ValueError(
            f"num_machines must be 1, got {machines}: LightGBM gives an objective no way to reach the other machines' "
            "rows; use XGBoost on Dask for training on several"
        )
