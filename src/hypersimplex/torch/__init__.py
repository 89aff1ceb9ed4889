"""Soft-Binary-Argmax@k for PyTorch."""

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "hypersimplex.torch needs PyTorch; install it with: pip install 'hypersimplex[torch]'"
    ) from error

from hypersimplex.torch.functional import binary_argmax, soft_binary_argmax, threshold
from hypersimplex.torch.modules import SoftBinaryArgmax

__all__ = ["SoftBinaryArgmax", "binary_argmax", "soft_binary_argmax", "threshold"]
