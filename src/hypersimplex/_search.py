"""The one search for thresholds in Python: sums at given thresholds in, thresholds out.

For every slice, the sum of S((x - mu)/tau) falls as mu rises; S is one of the curves, and for the ramp the sum falls
along straight pieces. A Newton step follows the slope at mu to where it meets k; a bracket keeps it from leaving the
solution behind. Only sums leave a pass over the entries, so one path serves one process and many: `reduce` adds up the
sums of all ranks or machines, and every one of them draws the same conclusions.

All vectors have one number for each slice. `xp` is NumPy, torch or jax.numpy, whichever they belong to; nothing here
waits for a device but the question whether all slices are settled, and that is asked every `look_every` steps. `judged`
and `moved` are one step, for those who loop by themselves.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

Vector = Any  # of NumPy, of torch or of JAX

# Rows of a table of sums: of y over the entries that are not counted as ones, of slopes, and the number of ones. For
# the ramp the first two are the sum and the number of the active entries. A curve that nears 1 without reaching it
# counts y - 1 instead of y for its upper half, so that no digits are lost: see `_curves.parts`.
ACTIVE_SUM, ACTIVE, ONES = range(3)

ROUNDING = 1e-16  # of k in a sum
JUMP = 1e-12  # of k, where a sum of weights steps over k and no entry is active


class Start(NamedTuple):
    """Where to begin: at mu, between lo and hi. With `width` these may be infinite: it is how far to jump at first."""

    mu: Vector
    lo: Vector
    hi: Vector
    width: Vector | None = None


class Found(NamedTuple):
    mu: Vector
    low: Vector  # digits that mu has not, or 0
    sums: Vector  # the table there
    exact: Vector  # whether the sum is k as nearly as was asked for


class Goal(NamedTuple):
    """What a slice should sum to, its temperature, and how nearly: by how much mu/tau may be wrong."""

    k: Vector
    tau: Vector | float
    tolerance: float
    rounding: Vector  # of a sum that is k
    two_parts: bool = False


class State(NamedTuple):
    """What is known of every slice between two steps."""

    mu: Vector
    low: Vector
    lo: Vector
    hi: Vector
    width: Vector | None
    residual: Vector  # at mu, once it is judged
    last: Vector  # the size of the residual one step before, and two
    before: Vector
    error: Vector  # of mu/tau, by the step before
    exact: Vector
    settled: Vector


def begin(xp: Any, start: Start, settled: Vector | None = None) -> State:
    mu, lo, hi, width = start
    low, far = xp.zeros_like(mu), xp.full_like(mu, xp.inf)
    exact = settled = low > 0 if settled is None else settled
    return State(mu, low, lo, hi, width, far, far, far, far, exact, settled)


def judged(xp: Any, s: State, table: Vector, goal: Goal) -> State:
    """The state with the residual of the table, which holds the sums at mu, and whether that settles a slice."""
    slopes = table[ACTIVE]
    # The ones are taken off k, not added up: a large k must not swallow the digits of the active entries.
    r = table[ACTIVE_SUM] - (goal.k - table[ONES])
    allowed = goal.tolerance * slopes + xp.where(slopes > 0, goal.rounding, JUMP * goal.k)
    exact = s.exact | ~(abs(r) > allowed)
    return s._replace(residual=r, exact=exact, settled=s.settled | exact)


def moved(xp: Any, s: State, table: Vector, goal: Goal) -> State:
    """The state after a step from mu, where the sums are those of the table."""
    r, slopes, some = s.residual, table[ACTIVE], table[ACTIVE] > 0
    size, rises = abs(r), r > 0
    lo, hi = xp.where(rises, s.mu, s.lo), xp.where(rises, s.hi, s.mu)
    steep = xp.where(some, slopes, 1)
    shift = s.low + r * goal.tau / steep
    newton = s.mu + shift
    within = some & (((lo < newton) & (newton < hi)) | (newton == s.mu))
    good, other, width = _otherwise(xp, within, size <= s.before / 2, lo, hi, s.width)
    to = xp.where(good, newton, other)
    rest = xp.where(good, _rounded_off(s.mu, shift, newton), 0.0) if goal.two_parts else s.low
    settled = s.settled | ((to == s.mu) & (rest == s.low))  # rounding: nothing better exists
    mu, low = xp.where(settled, s.mu, to), xp.where(settled, s.low, rest)
    return State(mu, low, lo, hi, width, r, size, s.last, size / steep, s.exact, settled)


def search(
    xp: Any,
    sums: Callable[[Vector, Vector, Vector], Vector],
    k: Vector,
    tau: Vector | float,
    start: Start,
    tolerance: float,
    most_steps: int,
    *,
    reduce: Callable[[Vector], Vector] | None = None,
    settled: Vector | None = None,
    two_parts: bool = False,
    look_every: int = 1,
    rounding: Vector | None = None,
) -> Found:
    """Find mu such that the projections at mu sum to k, but for `tolerance` times the sum of slopes, and `rounding`.

    `sums(mu, low, error)` has one row for each of ACTIVE_SUM, ACTIVE and ONES, and for whatever else the caller wants
    to know at the solution; error is that of the step before, per active entry. With `reduce`, slices that are settled
    are not asked for again: their mu is NaN, and they are not sent. With `two_parts`, the solution is mu + low.
    """
    goal = Goal(k, tau, tolerance, ROUNDING * k if rounding is None else rounding, two_parts)
    state, table = begin(xp, start, settled), None
    for step in range(most_steps):
        table = _ask(xp, sums, state.mu, state.low, state.error, reduce, state.settled, table)
        state = judged(xp, state, table, goal)
        if step % look_every == look_every - 1 and bool(state.settled.all()):
            break
        state = moved(xp, state, table, goal)
    return Found(state.mu, state.low, table, state.exact)


def _ask(
    xp: Any, sums: Any, mu: Vector, low: Vector, error: Vector, reduce: Any, settled: Vector, table: Vector
) -> Vector:
    """The sums at mu of all ranks or machines, of slices that are not settled; the others' are those of the table."""
    if reduce is None:
        return sums(mu, low, error)
    found = sums(xp.where(settled, xp.nan, mu), low, error)
    asked = ~settled
    if bool(asked.all()):
        return reduce(found)
    table = xp.zeros_like(found) if table is None else table
    table[:, asked] = reduce(found[:, asked])
    return table


def _otherwise(
    xp: Any, within: Vector, halved: Vector, lo: Vector, hi: Vector, width: Vector | None
) -> tuple[Vector, Vector, Vector | None]:
    """Where a Newton step is good, and where to go if it is not: to the middle, or toward an end that is not known.

    It is good within the bracket if the last two steps have halved the residual: either that or the bracket shrinks.
    """
    middle = lo / 2 + hi / 2
    if width is None:
        return within & halved, middle, None
    below, above = lo == -xp.inf, hi == xp.inf
    good = within & (halved | below | above)
    return good, xp.where(below, hi - width, xp.where(above, lo + width, middle)), xp.where(good, width, 4 * width)


def _rounded_off(mu: Vector, shift: Vector, total: Vector) -> Vector:
    """What the sum of mu and shift lost."""
    back = total - mu
    return (mu - (total - back)) + (shift - back)


def is_flat(xp: Any, active_sum: Vector, active: Vector, slack: Vector | float) -> Vector:
    """Whether no entry is active but for rounding: any threshold between two entries will do."""
    return xp.minimum(active_sum, active - active_sum) <= slack


def middle(xp: Any, zero: Vector, one: Vector, tau: Vector | float) -> Vector:
    """Of all mu between the largest entry that is 0 and the smallest that is 1: the middle, or the finite end."""
    first, last = zero, one - tau
    has_first, has_last = xp.isfinite(first), xp.isfinite(last)
    ends = xp.where(has_first & has_last, 2.0, 1.0)
    return xp.where(has_first, first, 0.0) / ends + xp.where(has_last, last, 0.0) / ends
