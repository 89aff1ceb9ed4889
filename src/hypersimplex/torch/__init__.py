"""Soft-Binary-Argmax@k and the HyperSimplex loss for PyTorch."""

from hypersimplex._checks import missing as _missing

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as error:
    raise _missing("hypersimplex.torch", "PyTorch", "torch") from error

from hypersimplex.torch.assignment import soft_assignment
from hypersimplex.torch.box import box_section
from hypersimplex.torch.chunks import backward_in_chunks
from hypersimplex.torch.functional import binary_argmax, soft_binary_argmax, soft_topk, threshold
from hypersimplex.torch.loss import hypersimplex_loss
from hypersimplex.torch.modules import HyperSimplexLoss, SoftBinaryArgmax, SoftTopK
from hypersimplex.torch.router import BalancedRouter
from hypersimplex.torch.segments import soft_topk_segments

__all__ = [
    "BalancedRouter",
    "HyperSimplexLoss",
    "SoftBinaryArgmax",
    "SoftTopK",
    "backward_in_chunks",
    "binary_argmax",
    "box_section",
    "hypersimplex_loss",
    "soft_assignment",
    "soft_binary_argmax",
    "soft_topk",
    "soft_topk_segments",
    "threshold",
]
