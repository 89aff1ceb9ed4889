"""CUDA tensors by Triton kernels, once they have shown on the device at hand that they give what plain torch gives.

Nothing here waits for the device, so bad values give NaN instead of an error. What has no kernel is plain torch.
"""

import functools
from collections.abc import Callable
from typing import Any

from torch import Tensor

from hypersimplex._checks import is_installed
from hypersimplex.torch.backends import plain
from hypersimplex.torch.backends.plain import binary, gradient, prepare, sums
from hypersimplex.torch.backends.plain_box import box
from hypersimplex.torch.backends.triton import _backend, _self_check
from hypersimplex.torch.backends.triton._backend import loss

__all__ = ["binary", "box", "gradient", "loss", "prepare", "project", "pullback", "segments", "serves", "sums"]


def _of_the_ramp(own: Callable[..., Any], other: Callable[..., Any]) -> Callable[..., Any]:
    """The kernels know the ramp; plain torch serves the other curves."""

    @functools.wraps(own)
    def serve(*args: Any, curve: str = "ramp", **options: Any) -> Any:
        return own(*args, **options) if curve == "ramp" else other(*args, curve=curve, **options)

    return serve


project = _of_the_ramp(_backend.project, plain.project)
pullback = _of_the_ramp(_backend.pullback, plain.pullback)
segments = functools.partial(plain.segments, project=project)
_is_installed = functools.cache(is_installed)


def serves(x: Tensor) -> bool:
    """Whether Triton is installed and its kernels give the right numbers on x's device."""
    return x.is_cuda and _is_installed("triton") and _self_check.passes(x)
