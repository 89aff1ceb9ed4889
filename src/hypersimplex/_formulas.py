"""The derivative of every curve, in array expressions: the gradients as a table, and y as a formula of x, k and tau.

With s the slopes, W their sum, m the mean of v weighted by them, and y = S(t), the gradients of sum(v * y) are

    x:  s (v - m)/tau        k:  m        tau:  -(1/tau) sum s (v - m) t

s and t are functions of y, so y is all that has to be kept. Where no entry has a slope, the gradients are zero. `total`
sums up the terms of every slice, in a shape that meets the entries. A slice with a NaN is NaN as a whole.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from hypersimplex._curves import inverse, slope, value

Array = Any  # of NumPy, of torch or of JAX
Total = Callable[[Array], Array]


class Slopes(NamedTuple):
    each: Array
    active: Array  # where they are not 0
    total: Array  # their sum, or 1 without any: it is divided by

    def mean(self, xp: Any, v: Array, total: Total) -> Array:
        """The mean of v weighted by the slopes."""
        return total(xp.where(self.active, self.each * v, 0.0)) / self.total


def slopes(xp: Any, curve: str, y: Array, total: Total) -> Slopes:
    each = slope(xp, curve, y)
    added = total(each)
    return Slopes(each, each != 0, xp.where(added == 0, 1.0, added))


def places(xp: Any, curve: str, y: Array, active: Array) -> Array:
    """t of the active entries, and some number elsewhere."""
    return inverse(xp, curve, xp.where(active, y, 0.5))


def pullback(xp: Any, curve: str, y: Array, v: Array, tau: Array | float, total: Total) -> tuple[Array, Array, Array]:
    """The gradients of sum(v * y) to x, k and tau. Can be differentiated again."""
    s = slopes(xp, curve, y, total)
    mean = s.mean(xp, v, total)
    centered = xp.where(s.active, s.each * (v - mean), 0.0)
    t = places(xp, curve, y, s.active)
    return centered / tau, mean, -total(centered * t) / tau


def by_newton_steps(
    xp: Any, curve: str, y: Array, moved: Array, ratio: Array, more: Array, total: Total
) -> tuple[Array, Array]:
    """What y and mu/tau rise by when x/tau rises by `moved`, tau by the factor `ratio` and k by `more`.

    y is a solution and taken as constant. The arguments are 0, 1 and 0, and so are the results; what they have is the
    derivatives. Two Newton steps from a solution have all derivatives up to the third, if the slopes of the second step
    are differentiated too. The ramp's pieces are straight: one step is enough.
    """
    active = slope(xp, curve, y) != 0
    start = places(xp, curve, y, active)
    before = value(xp, curve, start)

    def at(nu: Array) -> tuple[Array, Array]:
        now = value(xp, curve, (start + moved - nu) / ratio)
        return xp.where(active, now - before, 0.0), xp.where(active, slope(xp, curve, now), 0.0)

    nu = 0 * more
    for _ in range(1 if curve == "ramp" else 2):
        rise, each = at(nu)
        steep = total(each)
        none = steep == 0
        nu = nu + xp.where(none, 0.0, (total(rise) - more) * ratio / xp.where(none, 1.0, steep))
    return at(nu)[0], nu
