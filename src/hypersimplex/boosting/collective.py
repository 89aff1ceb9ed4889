"""Adding up over the machines of a distributed XGBoost training, by XGBoost's own communication."""

import sys

import numpy as np

from hypersimplex.boosting._columns import Doubles
from hypersimplex.boosting._thresholds import Reduce


def everyone() -> Reduce:
    """How to combine numbers with the other workers of this training, or with nobody if there is none."""
    # A training with XGBoost has imported it; without one there is nobody to talk to.
    collective = getattr(sys.modules.get("xgboost"), "collective", None)
    return _over_workers if collective is not None and collective.is_distributed() else _alone


def _alone(values: Doubles, how: str) -> Doubles:
    return values


def _over_workers(values: Doubles, how: str) -> Doubles:
    from xgboost import collective

    operation = collective.Op.SUM if how == "sum" else collective.Op.MAX
    return np.asarray(collective.allreduce(np.ascontiguousarray(values), operation))
