"""The derivatives of box sections, by one formula for torch and JAX."""

from collections.abc import Callable
from typing import Any


def correction(xp: Any, constant: Callable[[Any], Any], y: Any, mu: Any, at_most: bool, *arguments: Any) -> Any:
    """What to add to y: it is 0 and has the derivatives, to any order, in every mode. Slices lie along the last dim.

    While the free entries A stay the same, and with x measured from mu * weight, where it is tau * y:

        nu = (sum_A weight x/tau + sum_(not A) weight bound - total) / sum_A weight^2
        y = x/tau - nu * weight on A, and the bound elsewhere.

    arguments: x, total, lower, upper, weight, and with tau its inverse, a constant, and the ratio of it, as a
    constant, to itself. `constant` stops derivatives. y and mu are constants, y = clip((x - mu * weight)/tau, lower,
    upper). mu is 0 where the total of an `at_most` is not reached.
    """
    x, total, lower, upper, weight, inverse, ratio = arguments
    low = y <= constant(lower)
    high = ~low & (y >= constant(upper))
    free = ~(low | high)
    # Differences of infinities would be NaN, and so would the products of an infinite mu.
    moved = xp.where(xp.isfinite(constant(x)), x - constant(x), 0)
    moved = moved - xp.where(xp.isfinite(mu), mu, 0) * (weight - constant(weight))
    from_mu = xp.where(free, (y + moved * inverse) * ratio, 0)
    bound = xp.where(low, lower, xp.where(high, upper, 0))

    def along(terms: Any) -> Any:
        return terms.sum(-1, keepdims=True)

    squares = along(xp.where(free, weight * weight, 0))
    excess = along(weight * (from_mu + bound)) - total
    nu = excess / xp.where(squares == 0, 1, squares)
    if at_most:
        nu = xp.where(mu == 0, 0, nu)
    change = xp.where(free, from_mu - nu * weight, bound)
    return change - constant(change)
