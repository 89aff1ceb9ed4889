"""Soft-Binary-Argmax@k: the Euclidean projection onto the hypersimplex, exact and without a sort.

This is the NumPy front end; hypersimplex.torch and the others are imported by their own names.
"""

from hypersimplex._box import box_section
from hypersimplex._numpy import binary_argmax, soft_binary_argmax, soft_topk, soft_topk_segments, threshold
from hypersimplex._numpy_assignment import soft_assignment
from hypersimplex._version import __version__

__all__ = [
    "__version__",
    "binary_argmax",
    "box_section",
    "soft_assignment",
    "soft_binary_argmax",
    "soft_topk",
    "soft_topk_segments",
    "threshold",
]
