"""The HyperSimplex loss as scikit-learn classifiers: boosted trees (LightGBM) and a perceptron (PyTorch)."""

from typing import TYPE_CHECKING, Any

try:
    import sklearn as _sklearn  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "hypersimplex.sklearn needs scikit-learn; install it with: pip install 'hypersimplex[sklearn]'"
    ) from error

if TYPE_CHECKING:
    from hypersimplex.sklearn.lgbm import HyperSimplexLGBMClassifier
    from hypersimplex.sklearn.mlp import HyperSimplexMLPClassifier

__all__ = ["HyperSimplexLGBMClassifier", "HyperSimplexMLPClassifier"]


# One needs LightGBM, the other PyTorch: each is loaded when it is asked for.
def __getattr__(name: str) -> Any:
    if name == "HyperSimplexLGBMClassifier":
        from hypersimplex.sklearn.lgbm import HyperSimplexLGBMClassifier

        return HyperSimplexLGBMClassifier
    if name == "HyperSimplexMLPClassifier":
        from hypersimplex.sklearn.mlp import HyperSimplexMLPClassifier

        return HyperSimplexMLPClassifier
    raise AttributeError(f"module 'hypersimplex.sklearn' has no attribute {name!r}")
