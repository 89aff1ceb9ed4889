"""Soft-Binary-Argmax@k and the HyperSimplex loss for PyTorch."""

from hypersimplex._checks import missing as _missing

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as error:
    raise _missing("hypersimplex.torch", "PyTorch", "torch") from error

from hypersimplex.torch.chunks import backward_in_chunks
from hypersimplex.torch.functional import binary_argmax, soft_binary_argmax, soft_topk, threshold
from hypersimplex.torch.loss import hypersimplex_loss
from hypersimplex.torch.modules import HyperSimplexLoss, SoftBinaryArgmax

__all__ = [
    "HyperSimplexLoss",
    "SoftBinaryArgmax",
    "backward_in_chunks",
    "binary_argmax",
    "hypersimplex_loss",
    "soft_binary_argmax",
    "soft_topk",
    "threshold",
]
