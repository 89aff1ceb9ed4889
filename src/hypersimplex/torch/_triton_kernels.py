# mypy: ignore-errors
# ruff: noqa: N803 (what Triton fixes at compile time is written in capitals)
"""The kernels. An array is seen as (outer, n, inner): slices of n entries, `inner` apart; a tile holds BLOCK_N entries
of BLOCK_C neighbouring slices, so that loads are coalesced along whichever dim is contiguous.

Short slices fit one tile and need one kernel. Long ones take a start from a sample, then a fixed number of steps, each
a pass of many blocks that leave partial sums and a small kernel that adds them up; nothing waits for the host. What is
left over after these steps (staircases much steeper than tau) is searched by one program each.
"""

import triton
import triton.language as tl

from hypersimplex.torch._triton_search import (
    INF,
    MOST_STEPS,
    advance,
    finished,
    guess,
    in_range,
    largest,
    look,
    solve,
)


@triton.jit
def load(x, labels, ignored, rows, slices, n, inner, count, LABELS: tl.constexpr):
    """A tile in float32 or float64; -inf, which changes nothing, beyond its edges and where a label is ignored."""
    outer, at = slices // inner, slices % inner
    places = (outer * n * inner + at)[None, :] + rows[:, None] * inner
    mask = (rows < n)[:, None] & (slices < count)[None, :]
    tile = tl.load(x + places, mask=mask, other=-INF)
    if LABELS:
        label = tl.load(labels + rows, mask=rows < n, other=ignored)
        tile = tl.where((label == ignored)[:, None], -INF, tile)
    return (tile if tile.dtype == tl.float64 else tile.to(tl.float32)), places, mask


@triton.jit
def numbers(k, tau, slices, count):
    mask = slices < count
    return tl.load(k + slices, mask=mask, other=0.0), tl.load(tau + slices, mask=mask, other=1.0)


@triton.jit
def project_tile(
    x, y, k, tau, state, n, inner, count, WIDE: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr
):
    """Slices that fit one tile: search and projection in one program."""
    slices = tl.program_id(0).to(tl.int64) * BLOCK_C + tl.arange(0, BLOCK_C)
    rows = tl.arange(0, BLOCK_N).to(tl.int64)
    z, places, mask = load(x, x, 0, rows, slices, n, inner, count, False)
    goal, given = numbers(k, tau, slices, count)
    t = in_range(given, WIDE)
    c, e, width = guess(z, goal, n, t, WIDE)
    c, e, inside, active, ones = solve(z, goal, n, t, c, e, width, MOST_STEPS, WIDE)
    p, flat, crowded, broken = finished(z, goal, n, given, t, c, e, inside, active, ones, WIDE)
    tl.store(y + places, p, mask=mask)
    store_threshold(state, slices, count, c + e * t, flat, crowded, broken)


@triton.jit
def store_threshold(state, slices, count, mu, flat, crowded, broken):
    """mu, and whether it is one of many: then its middle is found by who wants to know."""
    mu = tl.where(broken, float("nan"), tl.where(crowded, INF, mu))
    many = flat & (crowded == 0) & (broken == 0)
    tl.store(state + slices, mu, mask=slices < count)
    tl.store(state + count + slices, many.to(tl.float64), mask=slices < count)


@triton.jit
def start(
    x, labels, ignored, k, tau, state, n, inner, count, stride, sampled,
    LABELS: tl.constexpr, WIDE: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """Search a sample, and set up the state of the search: c, e, lo, lo e, hi, hi e, width, last, settled, 3 sums."""
    slices = tl.program_id(0).to(tl.int64) * BLOCK_C + tl.arange(0, BLOCK_C)
    picks = tl.arange(0, BLOCK_N).to(tl.int64)
    rows = tl.where(picks < sampled, picks * stride, n)
    z, _, _ = load(x, labels, ignored, rows, slices, n, inner, count, LABELS)
    goal, given = numbers(k, tau, slices, count)
    t = in_range(given, WIDE)
    share = sampled.to(tl.float64) / n
    first, first_e, width = guess(z, goal, n, t, WIDE)
    edge = (goal <= 0) | (goal >= n)
    c, e, _, _, _ = solve(z, goal * share, n * share, t, first, first_e, width, 6, WIDE)
    usable = (tl.abs(c) < largest(WIDE)) & (edge == 0)
    c, e = tl.where(usable, c, first), tl.where(usable, e, first_e)
    mask, zero = slices < count, tl.zeros_like(c)
    tl.store(state + slices, c, mask=mask)
    tl.store(state + count + slices, e, mask=mask)
    tl.store(state + 2 * count + slices, zero - largest(WIDE), mask=mask)
    tl.store(state + 3 * count + slices, zero - 2, mask=mask)
    tl.store(state + 4 * count + slices, zero + largest(WIDE), mask=mask)
    tl.store(state + 5 * count + slices, zero + 2, mask=mask)
    tl.store(state + 6 * count + slices, width / 4, mask=mask)
    tl.store(state + 7 * count + slices, zero + INF, mask=mask)
    tl.store(state + 8 * count + slices, zero, mask=mask)


@triton.jit
def look_partly(
    x, labels, ignored, tau, state, parts, n, inner, count, tiles,
    LABELS: tl.constexpr, WIDE: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """One block's share of a pass; nothing to do once its slices are settled."""
    slices = tl.program_id(1).to(tl.int64) * BLOCK_C + tl.arange(0, BLOCK_C)
    mask = slices < count
    settled = tl.load(state + 8 * count + slices, mask=mask, other=1.0)
    if tl.min(settled, 0) == 0:
        c = tl.load(state + slices, mask=mask, other=0.0)
        e = tl.load(state + count + slices, mask=mask, other=0.0)
        t = in_range(tl.load(tau + slices, mask=mask, other=1.0), WIDE)
        inside, active, ones = tl.zeros_like(c), tl.zeros_like(c), tl.zeros_like(c)
        first = tl.program_id(0).to(tl.int64) * tiles * BLOCK_N
        for i in range(tiles):
            rows = first + i * BLOCK_N + tl.arange(0, BLOCK_N)
            z, _, _ = load(x, labels, ignored, rows, slices, n, inner, count, LABELS)
            a, b, d = look(z, c, e, t)
            inside, active, ones = inside + a, active + b, ones + d
        blocks = tl.num_programs(0)
        place = tl.program_id(0) * count + slices
        tl.store(parts + place, inside, mask=mask)
        tl.store(parts + blocks * count + place, active, mask=mask)
        tl.store(parts + 2 * blocks * count + place, ones, mask=mask)


@triton.jit
def gather(parts, which, blocks, slices, count, BLOCK_B: tl.constexpr):
    """The sum of one quantity over all blocks."""
    total = tl.zeros_like(slices).to(tl.float64)
    for first in range(0, blocks, BLOCK_B):
        b = first + tl.arange(0, BLOCK_B)
        place = (which * blocks + b)[:, None] * count + slices[None, :]
        mask = (b < blocks)[:, None] & (slices < count)[None, :]
        total += tl.sum(tl.load(parts + place, mask=mask, other=0.0), 0)
    return total


@triton.jit
def take_step(
    k, tau, state, parts, n, count, blocks, step, WIDE: tl.constexpr, BLOCK_B: tl.constexpr, BLOCK_C: tl.constexpr
):
    """Add up what the blocks left, and step."""
    slices = tl.program_id(0).to(tl.int64) * BLOCK_C + tl.arange(0, BLOCK_C)
    mask = slices < count
    before = tl.load(state + 8 * count + slices, mask=mask, other=1.0)
    if tl.min(before, 0) == 0:
        inside = gather(parts, 0, blocks, slices, count, BLOCK_B)
        active = gather(parts, 1, blocks, slices, count, BLOCK_B)
        ones = gather(parts, 2, blocks, slices, count, BLOCK_B)
        step_from(inside, active, ones, k, tau, state, slices, n, count, step, WIDE)


@triton.jit
def step_from(inside, active, ones, k, tau, state, slices, n, count, step, WIDE: tl.constexpr):
    mask = slices < count
    goal, given = numbers(k, tau, slices, count)
    c = tl.load(state + slices, mask=mask, other=0.0)
    e = tl.load(state + count + slices, mask=mask, other=0.0)
    lo_c = tl.load(state + 2 * count + slices, mask=mask, other=0.0)
    lo_e = tl.load(state + 3 * count + slices, mask=mask, other=0.0)
    hi_c = tl.load(state + 4 * count + slices, mask=mask, other=0.0)
    hi_e = tl.load(state + 5 * count + slices, mask=mask, other=0.0)
    width = tl.load(state + 6 * count + slices, mask=mask, other=1.0)
    last = tl.load(state + 7 * count + slices, mask=mask, other=0.0)
    settled = tl.load(state + 8 * count + slices, mask=mask, other=1.0).to(tl.int32)
    was = settled == 1
    c, e, lo_c, lo_e, hi_c, hi_e, width, last, settled = advance(
        inside, active, ones, goal, n, in_range(given, WIDE), step,
        c, e, lo_c, lo_e, hi_c, hi_e, width, last, settled, WIDE,
    )  # fmt: skip
    # A slice that was settled keeps the sums it settled with.
    mask = mask & (was == 0)
    tl.store(state + slices, c, mask=mask)
    tl.store(state + count + slices, e, mask=mask)
    tl.store(state + 2 * count + slices, lo_c, mask=mask)
    tl.store(state + 3 * count + slices, lo_e, mask=mask)
    tl.store(state + 4 * count + slices, hi_c, mask=mask)
    tl.store(state + 5 * count + slices, hi_e, mask=mask)
    tl.store(state + 6 * count + slices, width, mask=mask)
    tl.store(state + 7 * count + slices, last, mask=mask)
    tl.store(state + 8 * count + slices, settled.to(tl.float64), mask=mask)
    tl.store(state + 9 * count + slices, inside, mask=mask)
    tl.store(state + 10 * count + slices, active, mask=mask)
    tl.store(state + 11 * count + slices, ones, mask=mask)
    return tl.min(settled, 0)


@triton.jit
def finish_search(
    x, labels, ignored, k, tau, state, n, inner, count, step,
    LABELS: tl.constexpr, WIDE: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """The slices that the fixed number of steps left over: one program walks all of a slice until it is settled."""
    slices = tl.program_id(0).to(tl.int64) * BLOCK_C + tl.arange(0, BLOCK_C)
    mask = slices < count
    done = tl.min(tl.load(state + 8 * count + slices, mask=mask, other=1.0), 0).to(tl.int32)
    t = in_range(tl.load(tau + slices, mask=mask, other=1.0), WIDE)
    while (done == 0) & (step < MOST_STEPS):
        c = tl.load(state + slices, mask=mask, other=0.0)
        e = tl.load(state + count + slices, mask=mask, other=0.0)
        inside, active, ones = tl.zeros_like(c), tl.zeros_like(c), tl.zeros_like(c)
        for first in range(0, n, BLOCK_N):
            rows = (first + tl.arange(0, BLOCK_N)).to(tl.int64)
            z, _, _ = load(x, labels, ignored, rows, slices, n, inner, count, LABELS)
            a, b, d = look(z, c, e, t)
            inside, active, ones = inside + a, active + b, ones + d
        done = step_from(inside, active, ones, k, tau, state, slices, n, count, step, WIDE)
        tl.debug_barrier()  # the next round reads what this one stored
        step += 1


@triton.jit
def write(
    x, y, k, tau, state, mu, n, inner, count,
    WIDE: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """The projection of long slices, whose thresholds are known."""
    slices = tl.program_id(1).to(tl.int64) * BLOCK_C + tl.arange(0, BLOCK_C)
    rows = tl.program_id(0).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    z, places, mask = load(x, x, 0, rows, slices, n, inner, count, False)
    p, flat, crowded, broken, at = projected(z, k, tau, state, slices, n, count, WIDE)
    tl.store(y + places, p, mask=mask)
    if tl.program_id(0) == 0:
        store_threshold(mu, slices, count, at, flat, crowded, broken)


@triton.jit
def projected(z, k, tau, state, slices, n, count, WIDE: tl.constexpr):
    goal, given = numbers(k, tau, slices, count)
    mask = slices < count
    c = tl.load(state + slices, mask=mask, other=0.0)
    e = tl.load(state + count + slices, mask=mask, other=0.0)
    inside = tl.load(state + 9 * count + slices, mask=mask, other=0.0)
    active = tl.load(state + 10 * count + slices, mask=mask, other=0.0)
    ones = tl.load(state + 11 * count + slices, mask=mask, other=0.0)
    t = in_range(given, WIDE)
    p, flat, crowded, broken = finished(z, goal, n, given, t, c, e, inside, active, ones, WIDE)
    return p, flat, crowded, broken, c + e * t
