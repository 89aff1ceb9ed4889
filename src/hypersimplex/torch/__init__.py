"""Soft-Binary-Argmax@k and the HyperSimplex loss for PyTorch."""

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "hypersimplex.torch needs PyTorch; install it with: pip install 'hypersimplex[torch]'"
    ) from error

from hypersimplex.torch.assignment import soft_assignment
from hypersimplex.torch.chunks import backward_in_chunks
from hypersimplex.torch.functional import binary_argmax, soft_binary_argmax, threshold
from hypersimplex.torch.loss import hypersimplex_loss
from hypersimplex.torch.modules import HyperSimplexLoss, SoftBinaryArgmax
from hypersimplex.torch.router import BalancedRouter

__all__ = [
    "BalancedRouter",
    "HyperSimplexLoss",
    "SoftBinaryArgmax",
    "backward_in_chunks",
    "binary_argmax",
    "hypersimplex_loss",
    "soft_assignment",
    "soft_binary_argmax",
    "threshold",
]
