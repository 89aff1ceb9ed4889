"""Sums and extremes of slices. A slice lies along an axis of an array and may be spread over the devices of a mesh."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Array = jax.Array

_BLOCK = 1024


class Along(NamedTuple):
    """Where a slice lies: along an axis of the array, and across the devices of a named axis."""

    axis: int
    axis_name: Any = None

    def everywhere(self, sums: Any) -> Any:
        return lax.psum(sums, self.axis_name) if self.axis_name is not None else sums

    def totals(self, *terms: Array) -> tuple[Array, ...]:
        """The terms' sums in one pass, in blocks: for the search, which must not lose digits."""
        return self.everywhere(_sums_in_blocks(terms, self.axis))  # type: ignore[no-any-return]

    def total(self, x: Array) -> Array:
        return self.everywhere(jnp.sum(x, self.axis, keepdims=True))  # type: ignore[no-any-return]

    def most(self, x: Array) -> Array:
        top = jnp.max(x, self.axis, keepdims=True)
        return lax.pmax(top, self.axis_name) if self.axis_name is not None else top

    def least(self, x: Array) -> Array:
        return -self.most(-x)


def _sums_in_blocks(terms: tuple[Array, ...], axis: int) -> tuple[Array, ...]:
    """Sums over one axis, kept: one pass for all of them, in blocks, so that rounding does not pile up."""
    zeros = tuple(np.zeros((), t.dtype) for t in terms)

    def add(a: Any, b: Any) -> Any:
        return tuple(p + q for p, q in zip(a, b, strict=True))

    def reduce(parts: tuple[Array, ...], axis: int) -> tuple[Array, ...]:
        n = parts[0].shape[axis]
        blocks = n // _BLOCK
        if blocks < 2:
            return tuple(lax.reduce(parts, zeros, add, (axis,)))
        cut = blocks * _BLOCK
        folded = tuple(_fold(lax.slice_in_dim(p, 0, cut, axis=axis), axis) for p in parts)
        whole = reduce(tuple(lax.reduce(folded, zeros, add, (axis + 1,))), axis)
        if cut == n:
            return whole
        rest = tuple(lax.slice_in_dim(p, cut, n, axis=axis) for p in parts)
        return tuple(add(whole, lax.reduce(rest, zeros, add, (axis,))))

    return tuple(jnp.expand_dims(s, axis) for s in reduce(terms, axis))


def _fold(x: Array, axis: int) -> Array:
    return x.reshape(*x.shape[:axis], -1, _BLOCK, *x.shape[axis + 1 :])
