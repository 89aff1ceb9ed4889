# mypy: ignore-errors
# ruff: noqa: N803, N806 (what Triton fixes at compile time is written in capitals)
"""The kernels of the projection and its gradients, and the search that the loss uses too.

A program serves BLOCK_C neighboring slices alone: none waits for another or leaves anything for another. Its tile holds
BLOCK_N entries of each slice. Slices that fit are read once and stay in registers; LONG ones are gone over tile by
tile, starting from the threshold of a sample. Each thread adds up its own entries of a few tiles before the threads add
up theirs, and what they find is added in float64.
"""

import triton
import triton.language as tl

from hypersimplex.torch.backends.triton._search import (
    INF,
    MOST_STEPS,
    advance,
    counted,
    decided,
    ends,
    entries,
    guess,
    in_range,
    is_flat,
    largest,
    look,
    projected,
)
from hypersimplex.torch.backends.triton._tiles import load, load_labels, number, own_slices, places_of, starts

# Tiles whose entries a thread adds up before it rounds no more: few, for equal numbers are rounded alike.
CHUNK = tl.constexpr(8)


@triton.jit
def load_logits(
    x, labels, ignored, first, apart, slices, start, n, inner, count,
    LABELS: tl.constexpr, ROWS: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """A tile with -inf, which changes nothing, beyond its edges and where a label is ignored; and where it lies."""
    places, mask = places_of(first, apart, slices, start, n, inner, count, ROWS, BLOCK_N)
    tile = load(x, places, mask, -INF)
    if LABELS:
        label = load_labels(labels, first, apart, ignored, n, BLOCK_N)
        tile = tl.where((label == ignored)[:, None], -INF, tile)
    return tile, places, mask


@triton.jit
def sweep(
    x, labels, ignored, slices, start, c, e, inverse, n, inner, count,
    LABELS: tl.constexpr, ROWS: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """`counted` over whole slices."""
    inside = tl.zeros([c.shape[0]], tl.float64)
    active, ones = tl.zeros_like(inside), tl.zeros_like(inside)
    for begin in range(0, n, CHUNK * BLOCK_N):
        parts = tl.zeros([BLOCK_N, c.shape[0]], c.dtype)
        counts = tl.zeros([BLOCK_N, c.shape[0]], tl.uint32)
        for first in range(begin, tl.minimum(n, begin + CHUNK * BLOCK_N), BLOCK_N):
            z, _, _ = load_logits(x, labels, ignored, first, 1, slices, start, n, inner, count, LABELS, ROWS, BLOCK_N)
            part, some = look(z, c, e, inverse)
            parts, counts = parts + part, counts + some
        a, b, d = counted(parts, counts)
        inside, active, ones = inside + a, active + b, ones + d
    return inside, active, ones


@triton.jit
def settle(
    z, x, labels, ignored, slices, start, n, inner, count, k, size, t, inverse, c, e, width,
    LABELS: tl.constexpr, LONG: tl.constexpr, ROWS: tl.constexpr, BLOCK_N: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Search from (c, e) until every slice is settled, in the tile z or in the whole slices: the point, the sums there.

    `size` entries of a slice are looked at and k is what they shall sum to.
    """
    lo_c, hi_c = tl.zeros_like(c) - largest(WIDE), tl.zeros_like(c) + largest(WIDE)
    lo_e, hi_e = tl.zeros_like(c) - 2, tl.zeros_like(c) + 2
    last = tl.zeros_like(c) + INF
    settled = (slices >= count).to(tl.int32)
    inside, active, ones = tl.zeros_like(k), tl.zeros_like(k), tl.zeros_like(k)
    # Fresh tensors: Triton from 3.5 on takes a name that stands for another's value at the start for one that the loop
    # does not change.
    at_c, at_e = tl.zeros_like(c), tl.zeros_like(e)
    step = 0
    while (tl.min(settled, 0) == 0) & (step < MOST_STEPS):
        at_c, at_e = c, e
        if LONG:
            inside, active, ones = sweep(
                x, labels, ignored, slices, start, c, e, inverse, n, inner, count, LABELS, ROWS, BLOCK_N
            )
        else:
            part, some = look(z, c, e, inverse)
            inside, active, ones = counted(part, some)
        c, e, lo_c, lo_e, hi_c, hi_e, width, last, settled = advance(
            inside, active, ones, k, size, t, inverse, step, c, e, lo_c, lo_e, hi_c, hi_e, width, last, settled, WIDE
        )
        step += 1
    return at_c, at_e, inside, active, ones


@triton.jit
def neighbors(
    z, x, labels, ignored, slices, start, n, inner, count, c, e, t,
    LABELS: tl.constexpr, LONG: tl.constexpr, ROWS: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """`ends` of whole slices."""
    zero, one = ends(z, c, e, t)
    if LONG:
        for first in range(0, n, BLOCK_N):
            tile, _, _ = load_logits(
                x, labels, ignored, first, 1, slices, start, n, inner, count, LABELS, ROWS, BLOCK_N
            )
            low, high = ends(tile, c, e, t)
            zero, one = tl.maximum(zero, low), tl.minimum(one, high)
    return zero, one


@triton.jit
def solve(
    x, labels, ignored, goal, given, slices, start, n, inner, count,
    LABELS: tl.constexpr, LONG: tl.constexpr, ROWS: tl.constexpr, BLOCK_N: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """The first tile, the threshold as (c, e) and as mu, tau as the search used it, the share of infinite entries, and
    whether no entry is active.
    """
    dtype: tl.constexpr = entries(WIDE)
    wide_t = in_range(given, WIDE)
    t, inverse = wide_t.to(dtype), (1 / wide_t).to(dtype)
    apart = n // BLOCK_N if LONG else 1
    z, _, _ = load_logits(x, labels, ignored, 0, apart, slices, start, n, inner, count, LABELS, ROWS, BLOCK_N)
    size = BLOCK_N if LONG else n
    k = goal * BLOCK_N / n if LONG else goal
    c, e, width = guess(z, k, size, t, WIDE)
    c, e, inside, active, ones = settle(
        z, x, labels, ignored, slices, start, n, inner, count, k, size, t, inverse, c, e, width,
        LABELS, False, ROWS, BLOCK_N, WIDE,
    )  # fmt: skip
    if LONG:
        c, e, inside, active, ones = settle(
            z, x, labels, ignored, slices, start, n, inner, count, goal, n, t, inverse, c, e, width / 4,
            LABELS, True, ROWS, BLOCK_N, WIDE,
        )  # fmt: skip
    flat = is_flat(goal, inside, active)
    zero, one = tl.zeros_like(c), tl.zeros_like(c)
    if tl.max(flat.to(tl.int32), 0) > 0:
        zero, one = neighbors(
            z, x, labels, ignored, slices, start, n, inner, count, c, e, t, LABELS, LONG, ROWS, BLOCK_N
        )
    mu = decided(goal, n, given, wide_t, c, e, inside, active, ones, zero, one, flat, WIDE)
    return z, c, e, mu, t, (goal / tl.maximum(ones, 1.0)).to(dtype), flat


@triton.jit(do_not_specialize=["k_outer", "k_inner", "tau_outer", "tau_inner"])
def project(
    x, k, k_number: tl.float64, k_outer, k_inner, tau, tau_number: tl.float64, tau_outer, tau_inner, y, mu,
    n: tl.int64, inner, count, K_TENSOR: tl.constexpr, TAU_TENSOR: tl.constexpr,
    LONG: tl.constexpr, WRITE: tl.constexpr, ROWS: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    WIDE: tl.constexpr = x.dtype.element_ty == tl.float64
    slices = own_slices(BLOCK_C)
    start = starts(slices, n, inner, ROWS)
    goal = number(k, k_number, k_outer, k_inner, slices, inner, count, K_TENSOR, ROWS)
    given = number(tau, tau_number, tau_outer, tau_inner, slices, inner, count, TAU_TENSOR, ROWS)
    z, c, e, at, t, share, flat = solve(
        x, x, 0, goal, given, slices, start, n, inner, count, False, LONG, ROWS, BLOCK_N, WIDE
    )
    tl.store(mu + slices, at, mask=slices < count)
    if WRITE:
        if LONG:
            for first in range(0, n, BLOCK_N):
                places, mask = places_of(first, 1, slices, start, n, inner, count, ROWS, BLOCK_N)
                tile = load(x, places, mask, -INF)
                tl.store(y + places, projected(tile, share, t, c, e, at, flat), mask=mask)
        else:
            places, mask = places_of(0, 1, slices, start, n, inner, count, ROWS, BLOCK_N)
            tl.store(y + places, projected(z, share, t, c, e, at, flat), mask=mask)


@triton.jit
def over_active(y, v):
    """v on A = {0 < y < 1} and 0 elsewhere, and A as ones; a NaN in y stays."""
    active = (y > 0) & (y < 1)
    return tl.where(active, v, tl.where(y != y, y, 0.0)), active.to(tl.int32)


@triton.jit
def pulled_back(y, v, mean, inverse):
    """(v - mean) * inverse on A, 0 elsewhere; all of a slice is NaN if its mean is.

    Two numbers of v's dtype are the mean, so that it has more digits than v.
    """
    high = mean.to(v.dtype)
    low = (mean - high.to(tl.float64)).to(v.dtype)
    off = (v - high[None, :]) - low[None, :]
    return tl.where((y > 0) & (y < 1), off * inverse[None, :], 0.0) + (low - low)[None, :]


@triton.jit
def load_pair(y, v, first, slices, start, n, inner, count, ROWS: tl.constexpr, BLOCK_N: tl.constexpr):
    """Tiles of y and v, in the dtype of v."""
    places, mask = places_of(first, 1, slices, start, n, inner, count, ROWS, BLOCK_N)
    tile = load(v, places, mask, 0.0)
    return load(y, places, mask, 0.0).to(tile.dtype), tile, places, mask


@triton.jit
def total_of(tile):
    return tl.sum(tile, 0).to(tl.float64)


@triton.jit
def sums_over_active(
    y, v, slices, start, n, inner, count,
    NUMBERS: tl.constexpr, ROWS: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """sum_A v and |A|, with NUMBERS also sum_A y and sum_A v y, over whole slices."""
    total, size = tl.zeros([BLOCK_C], tl.float64), tl.zeros([BLOCK_C], tl.float64)
    total_y, total_vy = tl.zeros([BLOCK_C], tl.float64), tl.zeros([BLOCK_C], tl.float64)
    for begin in range(0, n, CHUNK * BLOCK_N):
        sum_v, sum_y = tl.zeros([BLOCK_N, BLOCK_C], entries(WIDE)), tl.zeros([BLOCK_N, BLOCK_C], entries(WIDE))
        sum_vy, sizes = tl.zeros([BLOCK_N, BLOCK_C], entries(WIDE)), tl.zeros([BLOCK_N, BLOCK_C], tl.int32)
        for first in range(begin, tl.minimum(n, begin + CHUNK * BLOCK_N), BLOCK_N):
            a, b, _, _ = load_pair(y, v, first, slices, start, n, inner, count, ROWS, BLOCK_N)
            part, some = over_active(a, b)
            sum_v, sizes = sum_v + part, sizes + some
            if NUMBERS:
                sum_y, sum_vy = sum_y + over_active(a, a)[0], sum_vy + over_active(a, b * a)[0]
        total, size = total + total_of(sum_v), size + total_of(sizes)
        if NUMBERS:
            total_y, total_vy = total_y + total_of(sum_y), total_vy + total_of(sum_vy)
    return total, size, total_y, total_vy


@triton.jit(do_not_specialize=["tau_outer", "tau_inner"])
def pullback(
    y, v, tau, tau_number: tl.float64, tau_outer, tau_inner, grad, to_k, to_tau, n: tl.int64, inner, count,
    TAU_TENSOR: tl.constexpr, NUMBERS: tl.constexpr, LONG: tl.constexpr, ROWS: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """To x: (v - mean_A v)/tau on A. With NUMBERS, to k: mean_A v, to tau: -(sum_A v y - mean_A v sum_A y)/tau."""
    WIDE: tl.constexpr = v.dtype.element_ty == tl.float64
    slices = own_slices(BLOCK_C)
    start = starts(slices, n, inner, ROWS)
    t = number(tau, tau_number, tau_outer, tau_inner, slices, inner, count, TAU_TENSOR, ROWS)
    a, b, places, mask = load_pair(y, v, 0, slices, start, n, inner, count, ROWS, BLOCK_N)
    part, some = over_active(a, b)
    if LONG:
        total, size, total_y, total_vy = sums_over_active(
            y, v, slices, start, n, inner, count, NUMBERS, ROWS, BLOCK_N, BLOCK_C, WIDE
        )
    else:
        total, size = total_of(part), total_of(some)
        total_y, total_vy = total_of(over_active(a, a)[0]), total_of(over_active(a, b * a)[0])
    mean = total / tl.maximum(size, 1.0)
    if NUMBERS:
        tl.store(to_k + slices, mean, mask=slices < count)
        tl.store(to_tau + slices, -(total_vy - mean * total_y) / t, mask=slices < count)
    inverse = (1 / in_range(t, WIDE)).to(entries(WIDE))
    if LONG:
        for first in range(0, n, BLOCK_N):
            tile_y, tile_v, where, real = load_pair(y, v, first, slices, start, n, inner, count, ROWS, BLOCK_N)
            tl.store(grad + where, pulled_back(tile_y, tile_v, mean, inverse), mask=real)
    else:
        tl.store(grad + places, pulled_back(a, b, mean, inverse), mask=mask)
