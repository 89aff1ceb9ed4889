"""What LightGBM and XGBoost hand to an objective or a metric, told apart without importing either."""

from typing import Any


def is_dataset(value: Any) -> bool:
    """A lightgbm.Dataset or an xgboost.DMatrix."""
    return hasattr(value, "get_label") and hasattr(value, "get_weight")


def unpack(first: Any, second: Any, weight: Any) -> tuple[Any, Any, Any]:
    """Labels, scores and weights from (labels, scores, weights) or (scores, data set)."""
    if not is_dataset(second):
        return first, second, weight
    machines = (getattr(second, "params", None) or {}).get("num_machines", 1)
    if int(machines) > 1:
        raise ValueError(
            f"num_machines must be 1, got {machines}: LightGBM gives an objective no way to reach the other machines' "
            "rows; use XGBoost for training on several"
        )
    weight = second.get_weight()
    # XGBoost says "no weights" with an empty array.
    return second.get_label(), first, weight if weight is not None and len(weight) > 0 else None
