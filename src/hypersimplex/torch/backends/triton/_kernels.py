# mypy: ignore-errors
# ruff: noqa: N803, N806 (what Triton fixes at compile time is written in capitals)
"""The kernels: the projection, its gradients, and the loss with its gradient.

An array is seen as (outer, n, inner): slices of n entries, `inner` apart. A program serves BLOCK_C neighboring slices
alone: none waits for another or leaves anything for another. Its tile holds BLOCK_N entries of each slice. Slices that
fit are searched in registers; LONG ones are gone over tile by tile, starting from the threshold of a sample.
"""

import triton
import triton.language as tl

from hypersimplex.torch.backends.triton._search import (
    INF,
    MOST_STEPS,
    advance,
    decided,
    ends,
    guess,
    in_range,
    largest,
    look,
    projected,
)


@triton.jit
def load(x, rows, slices, n, inner, count, other):
    """A tile in float32 or float64, with `other` beyond its edges; where it lies, and which entries are real."""
    outer, at = slices // inner, slices % inner
    places = (outer * n * inner + at)[None, :] + rows[:, None] * inner
    mask = (rows < n)[:, None] & (slices < count)[None, :]
    tile = tl.load(x + places, mask=mask, other=other)
    return (tile if tile.dtype == tl.float64 else tile.to(tl.float32)), places, mask


@triton.jit
def load_logits(x, labels, ignored, rows, slices, n, inner, count, LABELS: tl.constexpr):
    """A tile with -inf, which changes nothing, beyond its edges and where a label is ignored."""
    tile, places, mask = load(x, rows, slices, n, inner, count, -INF)
    if LABELS:
        label = tl.load(labels + rows, mask=rows < n, other=ignored)
        tile = tl.where((label == ignored)[:, None], -INF, tile)
    return tile, places, mask


@triton.jit
def own_slices(BLOCK_C: tl.constexpr):
    return tl.program_id(0).to(tl.int64) * BLOCK_C + tl.arange(0, BLOCK_C)


@triton.jit
def rows_from(first, BLOCK_N: tl.constexpr):
    return first + tl.arange(0, BLOCK_N).to(tl.int64)


@triton.jit
def sweep(
    x, labels, ignored, slices, c, e, t, n, inner, count, LABELS: tl.constexpr, BLOCK_N: tl.constexpr
):  # fmt: skip
    """`look` at whole slices."""
    inside, active, ones = tl.zeros_like(c), tl.zeros_like(c), tl.zeros_like(c)
    for first in range(0, n, BLOCK_N):
        z, _, _ = load_logits(x, labels, ignored, rows_from(first, BLOCK_N), slices, n, inner, count, LABELS)
        a, b, d = look(z, c, e, t)
        inside, active, ones = inside + a, active + b, ones + d
    return inside, active, ones


@triton.jit
def settle(
    z, x, labels, ignored, slices, n, inner, count, k, size, t, c, e, width,
    LABELS: tl.constexpr, LONG: tl.constexpr, BLOCK_N: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Search from (c, e) until every slice is settled, in the tile z or in the whole slices: the point, the sums there.

    `size` entries of a slice are looked at and k is what they shall sum to.
    """
    lo_c, hi_c = tl.zeros_like(c) - largest(WIDE), tl.zeros_like(c) + largest(WIDE)
    lo_e, hi_e = tl.zeros_like(c) - 2, tl.zeros_like(c) + 2
    last = tl.zeros_like(c) + INF
    settled = (slices >= count).to(tl.int32)
    inside, active, ones = tl.zeros_like(c), tl.zeros_like(c), tl.zeros_like(c)
    # Fresh tensors: Triton from 3.5 on takes a name that stands for another's value at the start for one that the loop
    # does not change.
    at_c, at_e = tl.zeros_like(c), tl.zeros_like(e)
    step = 0
    while (tl.min(settled, 0) == 0) & (step < MOST_STEPS):
        at_c, at_e = c, e
        if LONG:
            inside, active, ones = sweep(x, labels, ignored, slices, c, e, t, n, inner, count, LABELS, BLOCK_N)
        else:
            inside, active, ones = look(z, c, e, t)
        c, e, lo_c, lo_e, hi_c, hi_e, width, last, settled = advance(
            inside, active, ones, k, size, t, step, c, e, lo_c, lo_e, hi_c, hi_e, width, last, settled, WIDE
        )
        step += 1
    return at_c, at_e, inside, active, ones


@triton.jit
def solve(
    x, labels, ignored, goal, given, slices, n, inner, count,
    LABELS: tl.constexpr, LONG: tl.constexpr, BLOCK_N: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """The threshold as (c, e) and as mu, tau as the search used it, the ones, and whether no entry is active."""
    t = in_range(given, WIDE)
    apart = n // BLOCK_N if LONG else 1
    rows = rows_from(0, BLOCK_N) * apart
    z, _, _ = load_logits(x, labels, ignored, rows, slices, n, inner, count, LABELS)
    size = BLOCK_N if LONG else n
    k = goal * BLOCK_N / n if LONG else goal
    c, e, width = guess(z, k, size, t, WIDE)
    c, e, inside, active, ones = settle(
        z, x, labels, ignored, slices, n, inner, count, k, size, t, c, e, width, LABELS, False, BLOCK_N, WIDE
    )
    if LONG:
        c, e, inside, active, ones = settle(
            z, x, labels, ignored, slices, n, inner, count, goal, n, t, c, e, width / 4, LABELS, True, BLOCK_N, WIDE
        )
    zero, one = ends(z, c, e, t)
    if LONG:
        for first in range(0, n, BLOCK_N):
            z, _, _ = load_logits(x, labels, ignored, rows_from(first, BLOCK_N), slices, n, inner, count, LABELS)
            low, high = ends(z, c, e, t)
            zero, one = tl.maximum(zero, low), tl.minimum(one, high)
    mu, flat = decided(goal, n, given, t, c, e, inside, active, ones, zero, one, WIDE)
    return c, e, mu, t, ones, flat


@triton.jit
def project(
    x, k, tau, y, mu, n, inner, count,
    LONG: tl.constexpr, WRITE: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    WIDE: tl.constexpr = x.dtype.element_ty == tl.float64
    slices = own_slices(BLOCK_C)
    real = slices < count
    goal, given = tl.load(k + slices, mask=real, other=0.0), tl.load(tau + slices, mask=real, other=1.0)
    c, e, at, t, ones, flat = solve(x, x, 0, goal, given, slices, n, inner, count, False, LONG, BLOCK_N, WIDE)
    tl.store(mu + slices, at, mask=real)
    if WRITE:
        for first in range(0, n, BLOCK_N):
            z, places, mask = load(x, rows_from(first, BLOCK_N), slices, n, inner, count, -INF)
            tl.store(y + places, projected(z, goal, t, c, e, ones, at, flat), mask=mask)


@triton.jit
def sums_over_active(y, v):
    """sum v, |A|, sum y, sum v y over A = {0 < y < 1}; a NaN in y spoils the sums of its slice."""
    active = (y > 0) & (y < 1)
    spoil = tl.sum(y * 0, 0).to(tl.float64)
    to_v = tl.sum(tl.where(active, v, 0.0), 0).to(tl.float64) + spoil
    to_y = tl.sum(tl.where(active, y, 0.0), 0).to(tl.float64) + spoil
    to_vy = tl.sum(tl.where(active, v * y, 0.0), 0).to(tl.float64) + spoil
    return to_v, tl.sum(active.to(tl.int32), 0).to(tl.float64), to_y, to_vy


@triton.jit
def pulled_back(y, v, mean, tau):
    """(v - mean)/tau on A, 0 elsewhere, in float64; all of a slice is NaN if its mean is."""
    active = (y > 0) & (y < 1)
    return tl.where(active, (v - mean[None, :]) / tau[None, :], 0.0) + (mean - mean)[None, :]


@triton.jit
def pullback(y, v, tau, grad, to_k, to_tau, n, inner, count, BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr):
    """To x: (v - mean_A v)/tau on A. To k: mean_A v. To tau: -(sum_A v y - mean_A v sum_A y)/tau."""
    slices = own_slices(BLOCK_C)
    real = slices < count
    t = tl.load(tau + slices, mask=real, other=1.0)
    total, size = tl.zeros_like(t), tl.zeros_like(t)
    total_y, total_vy = tl.zeros_like(t), tl.zeros_like(t)
    for first in range(0, n, BLOCK_N):
        a, _, _ = load(y, rows_from(first, BLOCK_N), slices, n, inner, count, 0.0)
        b, _, _ = load(v, rows_from(first, BLOCK_N), slices, n, inner, count, 0.0)
        part, number, part_y, part_vy = sums_over_active(a, b)
        total, size, total_y, total_vy = total + part, size + number, total_y + part_y, total_vy + part_vy
    mean = total / tl.maximum(size, 1.0)
    tl.store(to_k + slices, mean, mask=real)
    tl.store(to_tau + slices, -(total_vy - mean * total_y) / t, mask=real)
    for first in range(0, n, BLOCK_N):
        a, places, mask = load(y, rows_from(first, BLOCK_N), slices, n, inner, count, 0.0)
        b, _, _ = load(v, rows_from(first, BLOCK_N), slices, n, inner, count, 0.0)
        tl.store(grad + places, pulled_back(a, b, mean, t).to(b.dtype), mask=mask)


@triton.jit
def errors(
    x, labels, dense, ignored, goal, t, c, e, mu, ones, flat, rows, slices, n, count, LABELS: tl.constexpr
):  # fmt: skip
    """p and p - target of a tile, 0 beyond its edges."""
    z, places, mask = load_logits(x, labels, ignored, rows, slices, n, count, count, LABELS)
    p = tl.where(mask, projected(z, goal, t, c, e, ones, mu, flat), 0.0)
    if LABELS:
        label = tl.load(labels + rows, mask=rows < n, other=ignored)
        target = ((label[:, None] == slices[None, :]) & (label != ignored)[:, None]).to(p.dtype)
    else:
        target = tl.load(dense + places, mask=mask, other=0.0).to(p.dtype)
    return p, tl.where(mask, p - target, 0.0), places, mask


@triton.jit
def loss(
    x, labels, dense, ignored, k, tau, weight, scale, grad, value, mu, n, count,
    LABELS: tl.constexpr, LONG: tl.constexpr, WRITE: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """Every class's weight/2 sum (p - target)^2, and the gradient of their sum times scale to the logits (n, count)."""
    WIDE: tl.constexpr = x.dtype.element_ty == tl.float64
    slices = own_slices(BLOCK_C)
    real = slices < count
    goal, given = tl.load(k + slices, mask=real, other=0.0), tl.load(tau + slices, mask=real, other=1.0)
    c, e, at, t, ones, flat = solve(
        x, labels, ignored, goal, given, slices, n, count, count, LABELS, LONG, BLOCK_N, WIDE
    )
    tl.store(mu + slices, at, mask=real)
    total, size, squares = tl.zeros_like(goal), tl.zeros_like(goal), tl.zeros_like(goal)
    for first in range(0, n, BLOCK_N):
        rows = rows_from(first, BLOCK_N)
        p, error, _, _ = errors(
            x, labels, dense, ignored, goal, t, c, e, at, ones, flat, rows, slices, n, count, LABELS
        )
        part, number, _, _ = sums_over_active(p, error)
        total, size, squares = total + part, size + number, squares + tl.sum(error * error, 0).to(tl.float64)
    factor = tl.load(weight + slices, mask=real, other=0.0)
    tl.store(value + slices, factor * squares / 2, mask=real)
    if WRITE:
        factor, mean = factor * tl.load(scale), total / tl.maximum(size, 1.0)
        for first in range(0, n, BLOCK_N):
            rows = rows_from(first, BLOCK_N)
            p, error, places, mask = errors(
                x, labels, dense, ignored, goal, t, c, e, at, ones, flat, rows, slices, n, count, LABELS
            )
            pull = pulled_back(p, error, mean, t) * factor[None, :]
            tl.store(grad + places, pull.to(p.dtype), mask=mask)
