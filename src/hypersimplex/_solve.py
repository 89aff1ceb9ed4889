"""Slices on a curve other than the ramp: the bounds between which a threshold lies, and y and mu from it.

It is measured from an entry that lies near it, the ceil(k)-th largest, and in units of tau. So entries near the
threshold keep their digits where x is large and tau small. `Slices` says how the numbers of a slice are added up.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from hypersimplex._curves import inverse, parts, value
from hypersimplex._search import Goal, Start, search

Array = Any  # of NumPy, of torch or of JAX

SLACK = 1e-3  # of tau, by which rounding may move a bound
MOST_STEPS = 128


class Slices(NamedTuple):
    """What is asked of all slices at once. Every answer has size 1 where the slices lie."""

    total: Callable[[Array], Array]  # the sum of terms
    most: Callable[[Array], Array]  # the largest entry
    largest: Callable[[Array, Array], Array]  # the c-th largest entry, c a whole number in a floating-point array
    find: Callable[..., Array]  # `loop` below, or one that can be traced


class Problem(NamedTuple):
    """What is left for the search: the finite entries, z = (x - origin)/tau, and what they share."""

    z: Array
    k: Array
    n: Array
    origin: Array
    below: Array  # the next entry below the origin, as z
    inner: Array  # whether there is something to search for


def solve(xp: Any, curve: str, x: Array, k: Array, tau: Array, each: Slices) -> tuple[Array, Array]:
    """Return y and mu of every slice; k and tau have mu's shape. A bad slice is NaN."""
    infinite = x == xp.inf
    above, usable = each.total(xp.where(infinite, 1.0, 0 * tau)), each.total(xp.where(x > -xp.inf, 1.0, 0 * tau))
    good = (
        (k >= 0) & (k <= usable) & (tau > 0) & xp.isfinite(tau) & ~(each.total(xp.where(x == x, 0.0, 1 + 0 * tau)) > 0)
    )
    left, n = k - above, usable - above
    p = _problem(xp, x, left, n, k, xp.where(good, tau, 1.0), good & (left > 0) & (left < n), each)
    lo, hi = _bounds(xp, curve, p)
    nu = each.find(xp, curve, p, Start(lo / 2 + hi / 2, lo, hi))

    y = value(xp, curve, p.z - nu)
    y = xp.where(infinite | (~p.inner & (left > 0) & (x > -xp.inf)), 1.0, xp.where(p.inner, y, 0.0))
    y = xp.where((left < 0) & infinite, k / xp.where(above > 0, above, 1.0), y)
    # Where nothing is shared all finite entries are 0, far below the threshold, or 1.
    if curve == "exp":
        low = -each.most(xp.where(xp.isfinite(x), -x, -xp.inf))
        low = xp.where(n > 0, low, -xp.inf)
    else:
        low = -xp.inf + 0 * tau
    mu = xp.where(p.inner, p.origin + nu * tau, xp.where(left > 0, low, xp.inf))
    return xp.where(good, y, xp.nan), xp.where(good, mu, xp.nan)


def _problem(xp: Any, x: Array, left: Array, n: Array, k: Array, tau: Array, inner: Array, each: Slices) -> Problem:
    place = xp.where(inner, xp.ceil(k), 1.0)
    origin = xp.where(inner, each.largest(x, place), 0.0)
    ties = each.total(xp.where(x >= origin, 1.0, 0 * tau)) > place
    below = xp.where(ties, origin, each.most(xp.where(x < origin, x, -xp.inf)))
    z = (xp.where(x < xp.inf, x, -xp.inf) - origin) / tau
    return Problem(
        z,
        xp.where(inner, left, 0.5),
        xp.where(inner, n, 1.0),
        origin,
        xp.where(inner, (below - origin) / tau, 0.0),
        inner,
    )


def _bounds(xp: Any, curve: str, p: Problem) -> tuple[Array, Array]:
    """Numbers below and above the threshold's distance from the origin, in units of tau.

    With c = ceil(k), c entries are at or above the origin and n - c + 1 at or below it. So k is at least c S(-nu), and
    at most c - 1 + (n - c + 1) S(-nu). A whole k leaves the mirrored curves without a lower bound: what the c largest
    lack of 1 is what the others have, so that nu lies half way to the next entry but for the logarithm of their number.
    """
    c = xp.ceil(p.k)
    lack = (c - p.k) / c
    hi = -inverse(xp, curve, (p.k - (c - 1)) / (p.n - (c - 1)))
    if curve == "exp":
        # For a whole k above a gap every nu below 0 would do as far as numbers can tell: 0 is the limit.
        return -xp.log1p(-lack) - 1e-12, hi + SLACK
    whole = lack == 0
    lo = inverse(xp, curve, xp.where(whole, 0.5, lack))
    others = xp.where(p.n > c, p.n - c, 1.0)
    away = xp.log(xp.where(others > c, others, c))
    return xp.where(whole, p.below / 2 - away, lo) - SLACK, xp.where(whole, p.below / 2 + away, hi) + SLACK


def sums_at(
    xp: Any, curve: str, z: Array, nu: Array, low: Array, total: Callable[[Array], Array]
) -> tuple[Array, Array, Array]:
    """The table of a search for the threshold nu + low of entries z."""
    rest, slopes, ones = parts(xp, curve, (z - nu) - low)
    return total(rest), total(slopes), total(xp.where(ones, 1.0, 0 * rest))


def goal(xp: Any, curve: str, p: Problem, start: Start, eps: float, two_parts: bool) -> Goal:
    """How nearly the sums should be k: in one part, nu is wrong by the rounding of a number of its size.

    The mirrored curves count from 1 down, and so a sum that is a whole k has no rounding of its own.
    """
    size = 1.0 if two_parts else 2 * (1 + xp.where(-start.lo > start.hi, -start.lo, start.hi))
    rounding = eps / 2 * xp.where((p.k == xp.floor(p.k)) & (curve != "exp"), 0.0, p.k)
    return Goal(p.k, 1.0, eps * size, rounding, two_parts)


def loop(total: Callable[[Array], Array], eps: float, look_every: int = 1) -> Callable[..., Array]:
    """A `find` for arrays whose values can be read."""

    def find(xp: Any, curve: str, p: Problem, start: Start) -> Array:
        def sums(nu: Array, low: Array, error: Array) -> tuple[Array, Array, Array]:
            return sums_at(xp, curve, p.z, nu, low, total)

        g = goal(xp, curve, p, start, eps, False)
        found = search(
            xp, sums, g.k, g.tau, start, g.tolerance, MOST_STEPS,
            settled=~p.inner, look_every=look_every, rounding=g.rounding,
        )  # fmt: skip
        return found.mu

    return find
