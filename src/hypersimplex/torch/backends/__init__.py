"""The backends: one module for each way to compute, all with the functions of `Backend`, and the choice between them.

    kernel    CPU tensors, by the compiled kernel
    triton    CUDA tensors, where Triton is installed and passed its self-check on the device
    plain     torch operations: every other device, and within `plain_only()`

A caller picks once per call, `backend = pick(x)`, and uses the same backend for the gradient. A backend is never used
under a transform (compilation, torch.func, tracing, a dispatch mode). There the registered operators are used, and they
pick a backend when they run. A backend imports `_batch`, `_columns`, `_boundary`, `_box_formula`, `_checks`,
`_curves`, `_formulas`, `_search` and `_solve`, and nothing further out.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from torch import Tensor

from hypersimplex.torch._batch import Batch, Number, Outcome, Settings
from hypersimplex.torch.backends import kernel, plain, triton

Wanted = Any  # a tensor; None if it was not wanted


class Backend(Protocol):
    """What every backend does. Nothing here is differentiable: gradients are attached by the callers.

    x, y and v are floating point of any strides, the slices lie along dim. k and tau are numbers, or tensors: 0-d or
    of the slices' shape (x's without dim), on x's device. What is per slice or per class comes back in `widest` of the
    device: float64, or float32 where there is none. Half precision is computed in float32.

    Bad values (k, tau, labels) raise the errors of `_checks` where they can be read without waiting for the device
    (plain numbers always can: `_checks.check_numbers`); elsewhere their slices are NaN.
    """

    def project(
        self,
        x: Tensor,
        k: Number,
        tau: Number,
        dim: int,
        *,
        want_y: bool = True,
        want_mu: bool = True,
        curve: str = "ramp",
    ) -> tuple[Wanted, Wanted]:
        """y in x's dtype and mu of the slices' shape; what is not wanted may be None.

        Where an interval of mu would do, it is the middle, or the finite end.
        """

    def binary(self, x: Tensor, k: Number, dim: int) -> Tensor:
        """Exactly k ones in every slice, ties to the lower index, in x's dtype."""

    def pullback(
        self,
        y: Tensor,
        v: Tensor,
        tau: Number,
        dim: int,
        needs: tuple[bool, bool, bool] = (True, True, True),
        *,
        curve: str = "ramp",
    ) -> tuple[Wanted, Wanted, Wanted]:
        """The gradients of sum(v * y) to x (in v's dtype), k and tau (of the slices' shape); None if not needed.

        y is what `project` gave, but may have been stored in between: neither its strides nor its dtype, nor those of
        tau, are what they were.
        """

    def box(
        self, x: Tensor, total: Tensor, lower: Tensor, upper: Tensor, weight: Tensor, tau: Tensor, at_most: bool
    ) -> tuple[Tensor, Tensor]:
        """y = clip((x - mu * weight)/tau, lower, upper) with sum(weight * y) = total, and mu, of the slices' shape.

        Slices lie along the last dim. y is in the dtype it was computed in, all else but x in `widest`. total and tau
        broadcast to the slices' shape, the bounds and weights to x's. Where the total of an `at_most` is not reached,
        mu is 0; where infinite entries share the total, it is infinite.
        """

    def segments(self, x: Tensor, offsets: Tensor, k: Tensor, tau: Tensor, *, curve: str = "ramp") -> Tensor:
        """The projection of every x[offsets[i] : offsets[i + 1]]; k and tau are 0-d or one for each, in `widest`."""

    def loss(self, batch: Batch, settings: Settings, with_gradient: bool) -> Outcome:
        """The loss with reduction "mean" or "sum", and its gradient to batch.logits if wanted.

        The gradient has the shape of batch.logits and the dtype it was computed in. `mu_and_k` has two rows: every
        class's threshold and its k. Without a sample that counts the mean is NaN and its gradient zero.
        """

    # One rank's part of a loss over many ranks' samples, at thresholds that all ranks try together.

    def prepare(self, batch: Batch) -> Batch:
        """The batch as `sums` and `gradient` read it without copying it again."""

    def sums(self, batch: Batch, ignore_index: int, tau: Tensor, mu: Tensor, low: Tensor) -> Tensor:
        """Five rows of classes at the thresholds mu + low (low holds the digits that mu has not).

        The sum of the active projections, the number of active entries, of ones, the sum of the active entries'
        errors, and of all squared errors. A class whose mu is NaN is not asked for and its column is 0; where mu is
        infinite all entries are 0 (+inf) or 1 (-inf). tau, mu, low: float64, one for each class.
        """

    def gradient(
        self, batch: Batch, ignore_index: int, tau: Tensor, mu: Tensor, low: Tensor, mean: Tensor, factor: Tensor
    ) -> Tensor:
        """factor * (p - target - mean)/tau on the active entries and 0 elsewhere, of the shape of batch.logits.

        mean is the mean error of all ranks' active entries, factor the class weight times the scale of the loss.
        """


_forced = bool(os.environ.get("HYPERSIMPLEX_PLAIN"))


@contextmanager
def plain_only() -> Iterator[None]:
    """Use plain torch operations, as on a device that has nothing better."""
    global _forced
    before, _forced = _forced, True
    try:
        yield
    finally:
        _forced = before


def pick(x: Tensor, curve: str = "ramp") -> Backend:
    if _forced:
        return plain
    if x.is_cpu:
        return kernel
    return triton if curve == "ramp" and triton.serves(x) else plain  # the other curves have no kernel there
