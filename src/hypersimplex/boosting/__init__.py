"""The HyperSimplex loss for LightGBM and XGBoost. Imports neither: they call the objective."""

from hypersimplex.boosting.metrics import LightGBMMetric, XGBoostMetric
from hypersimplex.boosting.objective import HyperSimplexObjective

__all__ = ["HyperSimplexObjective", "LightGBMMetric", "XGBoostMetric"]
