"""Soft-Binary-Argmax@k and the HyperSimplex loss for JAX."""

from hypersimplex._checks import missing as _missing

try:
    import jax as _jax  # noqa: F401
except ModuleNotFoundError as error:
    raise _missing("hypersimplex.jax", "JAX", "jax") from error

from hypersimplex.jax._box import box_section
from hypersimplex.jax._loss import hypersimplex_loss, loss_and_threshold
from hypersimplex.jax._operator import binary_argmax, soft_binary_argmax, soft_topk, threshold
from hypersimplex.jax._segments import soft_topk_segments
from hypersimplex.jax._thresholds import ThresholdState, predict, scores, threshold_init, threshold_update

__all__ = [
    "ThresholdState",
    "binary_argmax",
    "box_section",
    "hypersimplex_loss",
    "loss_and_threshold",
    "predict",
    "scores",
    "soft_binary_argmax",
    "soft_topk",
    "soft_topk_segments",
    "threshold",
    "threshold_init",
    "threshold_update",
]
