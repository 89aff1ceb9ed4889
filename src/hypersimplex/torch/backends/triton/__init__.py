"""CUDA tensors by Triton kernels, once they have shown on the device at hand that they give what plain torch gives.

Nothing here waits for the device, so bad values give NaN instead of an error. What has no kernel is plain torch.
"""

import functools

from torch import Tensor

from hypersimplex._checks import is_installed
from hypersimplex.torch.backends import plain
from hypersimplex.torch.backends.plain import binary, gradient, prepare, sums
from hypersimplex.torch.backends.plain_box import box
from hypersimplex.torch.backends.triton import _self_check
from hypersimplex.torch.backends.triton._backend import loss, project, pullback

__all__ = ["binary", "box", "gradient", "loss", "prepare", "project", "pullback", "segments", "serves", "sums"]


segments = functools.partial(plain.segments, project=project)
_is_installed = functools.cache(is_installed)


def serves(x: Tensor) -> bool:
    """Whether Triton is installed and its kernels give the right numbers on x's device."""
    return x.is_cuda and _is_installed("triton") and _self_check.passes(x)
