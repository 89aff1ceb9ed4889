"""Soft-Binary-Argmax@k and the HyperSimplex loss for JAX."""

try:
    import jax as _jax  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("hypersimplex.jax needs JAX; install it with: pip install 'hypersimplex[jax]'") from error

from hypersimplex.jax._assignment import soft_assignment
from hypersimplex.jax._loss import hypersimplex_loss, loss_and_threshold
from hypersimplex.jax._operator import binary_argmax, soft_binary_argmax, threshold
from hypersimplex.jax._thresholds import ThresholdState, predict, scores, threshold_init, threshold_update

__all__ = [
    "ThresholdState",
    "binary_argmax",
    "hypersimplex_loss",
    "loss_and_threshold",
    "predict",
    "scores",
    "soft_assignment",
    "soft_binary_argmax",
    "threshold",
    "threshold_init",
    "threshold_update",
]
