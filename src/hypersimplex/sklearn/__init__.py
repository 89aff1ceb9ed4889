"""The HyperSimplex loss as scikit-learn classifiers: boosted trees (LightGBM, XGBoost) and a perceptron (PyTorch)."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hypersimplex._checks import missing as _missing

try:
    import sklearn as _sklearn  # noqa: F401
except ModuleNotFoundError as error:
    raise _missing("hypersimplex.sklearn", "scikit-learn", "sklearn") from error

if TYPE_CHECKING:
    from hypersimplex.sklearn.lgbm import HyperSimplexLGBMClassifier
    from hypersimplex.sklearn.mlp import HyperSimplexMLPClassifier
    from hypersimplex.sklearn.xgb import HyperSimplexXGBClassifier

__all__ = ["HyperSimplexLGBMClassifier", "HyperSimplexMLPClassifier", "HyperSimplexXGBClassifier"]


# Each needs a library of its own, and is loaded when it is asked for.
def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'hypersimplex.sklearn' has no attribute {name!r}")
    part = name.removeprefix("HyperSimplex").removesuffix("Classifier").lower()
    return getattr(import_module(f"hypersimplex.sklearn.{part}"), name)
