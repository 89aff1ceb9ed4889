# mypy: ignore-errors
# ruff: noqa: N803 (what Triton fixes at compile time is written in capitals)
"""Kernels for what follows the projection: its gradients, and the loss with the gradient to the logits.

For an incoming v, with A = {0 < y < 1} and all sums over it:

    to x:  (v - mean v)/tau on A, 0 elsewhere     to k:  mean v     to tau:  -(sum v y - mean y sum v)/tau

The loss of column c is weight_c/2 sum (p - target)^2 over the samples that are kept; its v is weight_c (p - target).
"""

import triton
import triton.language as tl

from hypersimplex.torch._triton_kernels import gather, load, numbers, projected, store_threshold
from hypersimplex.torch._triton_search import MOST_STEPS, finished, guess, in_range, solve


@triton.jit
def sums_over_active(y, v):
    """sum v, |A|, sum y, sum v y; a NaN in y spoils the sums of its slice."""
    active = (y > 0) & (y < 1)
    spoil = tl.sum(y * 0, 0).to(tl.float64)
    to_v = tl.sum(tl.where(active, v, 0.0), 0).to(tl.float64) + spoil
    to_y = tl.sum(tl.where(active, y, 0.0), 0).to(tl.float64) + spoil
    to_vy = tl.sum(tl.where(active, v * y, 0.0), 0).to(tl.float64) + spoil
    return to_v, tl.sum(active.to(tl.int32), 0).to(tl.float64), to_y, to_vy


@triton.jit
def pulled_back(y, v, total, size, tau):
    active = (y > 0) & (y < 1)
    mean = (total / tl.maximum(size, 1.0))[None, :]
    # total - total is NaN for a slice that is NaN, 0 for all others.
    return (tl.where(active, (v - mean) / tau[None, :], 0.0) + (total - total)[None, :]).to(y.dtype)


@triton.jit
def store_numbers(to_k, to_tau, slices, count, total, size, total_y, total_vy, tau):
    mean = total / tl.maximum(size, 1.0)
    tl.store(to_k + slices, mean, mask=slices < count)
    tl.store(to_tau + slices, -(total_vy - mean * total_y) / tau, mask=slices < count)


@triton.jit
def load_pair(y, v, rows, slices, n, inner, count):
    a, places, mask = load(y, y, 0, rows, slices, n, inner, count, False)
    b, _, _ = load(v, v, 0, rows, slices, n, inner, count, False)
    return tl.where(mask, a, 0.0), tl.where(mask, b, 0.0), places, mask


@triton.jit
def backward_tile(y, v, tau, grad, to_k, to_tau, n, inner, count, BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr):
    slices = tl.program_id(0).to(tl.int64) * BLOCK_C + tl.arange(0, BLOCK_C)
    rows = tl.arange(0, BLOCK_N).to(tl.int64)
    a, b, places, mask = load_pair(y, v, rows, slices, n, inner, count)
    t = tl.load(tau + slices, mask=slices < count, other=1.0)
    total, size, total_y, total_vy = sums_over_active(a, b)
    tl.store(grad + places, pulled_back(a, b, total, size, t), mask=mask)
    store_numbers(to_k, to_tau, slices, count, total, size, total_y, total_vy, t)


@triton.jit
def backward_partly(y, v, parts, n, inner, count, tiles, BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr):
    slices = tl.program_id(1).to(tl.int64) * BLOCK_C + tl.arange(0, BLOCK_C)
    total, size = tl.zeros([BLOCK_C], tl.float64), tl.zeros([BLOCK_C], tl.float64)
    total_y, total_vy = tl.zeros([BLOCK_C], tl.float64), tl.zeros([BLOCK_C], tl.float64)
    first = tl.program_id(0).to(tl.int64) * tiles * BLOCK_N
    for i in range(tiles):
        rows = first + i * BLOCK_N + tl.arange(0, BLOCK_N)
        a, b, _, _ = load_pair(y, v, rows, slices, n, inner, count)
        p, q, r, s = sums_over_active(a, b)
        total, size, total_y, total_vy = total + p, size + q, total_y + r, total_vy + s
    store_parts(parts, slices, count, total, size, total_y, total_vy)


@triton.jit
def store_parts(parts, slices, count, a, b, c, d):
    blocks, mask = tl.num_programs(0), slices < count
    place = tl.program_id(0) * count + slices
    tl.store(parts + place, a, mask=mask)
    tl.store(parts + blocks * count + place, b, mask=mask)
    tl.store(parts + 2 * blocks * count + place, c, mask=mask)
    tl.store(parts + 3 * blocks * count + place, d, mask=mask)


@triton.jit
def add_up(parts, sums, count, blocks, BLOCK_B: tl.constexpr, BLOCK_C: tl.constexpr):
    """The four sums of every slice from those of its blocks."""
    slices = tl.program_id(0).to(tl.int64) * BLOCK_C + tl.arange(0, BLOCK_C)
    for which in range(4):
        total = gather(parts, which, blocks, slices, count, BLOCK_B)
        tl.store(sums + which * count + slices, total, mask=slices < count)


@triton.jit
def backward_write(y, v, tau, sums, grad, to_k, to_tau, n, inner, count, BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr):
    slices = tl.program_id(1).to(tl.int64) * BLOCK_C + tl.arange(0, BLOCK_C)
    rows = tl.program_id(0).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    a, b, places, mask = load_pair(y, v, rows, slices, n, inner, count)
    t = tl.load(tau + slices, mask=slices < count, other=1.0)
    total = tl.load(sums + slices, mask=slices < count, other=0.0)
    size = tl.load(sums + count + slices, mask=slices < count, other=1.0)
    tl.store(grad + places, pulled_back(a, b, total, size, t), mask=mask)
    if tl.program_id(0) == 0:
        total_y = tl.load(sums + 2 * count + slices, mask=slices < count, other=0.0)
        total_vy = tl.load(sums + 3 * count + slices, mask=slices < count, other=0.0)
        store_numbers(to_k, to_tau, slices, count, total, size, total_y, total_vy, t)


@triton.jit
def errors(p, labels, dense, weight, ignored, rows, slices, places, mask, n, count, LABELS: tl.constexpr):
    """v = weight (p - target), and weight/2 (p - target)^2 summed over the tile's rows."""
    w = tl.load(weight + slices, mask=slices < count, other=0.0).to(p.dtype)
    if LABELS:
        label = tl.load(labels + rows, mask=rows < n, other=ignored)
        target = ((label[:, None] == slices[None, :]) & (label != ignored)[:, None]).to(p.dtype)
    else:
        target = tl.load(dense + places, mask=mask, other=0.0).to(p.dtype)
    error = tl.where(mask, p - target, 0.0)
    return w[None, :] * error, tl.sum(w[None, :] * error * error, 0).to(tl.float64) / 2


@triton.jit
def loss_tile(
    x, labels, dense, ignored, k, tau, weight, scale, grad, losses, mu, n, count,
    LABELS: tl.constexpr, WIDE: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """Batches whose columns fit one tile: search, loss and gradient in one program, the logits read once."""
    slices = tl.program_id(0).to(tl.int64) * BLOCK_C + tl.arange(0, BLOCK_C)
    rows = tl.arange(0, BLOCK_N).to(tl.int64)
    z, places, mask = load(x, labels, ignored, rows, slices, n, count, count, LABELS)
    goal, given = numbers(k, tau, slices, count)
    t = in_range(given, WIDE)
    c, e, width = guess(z, goal, n, t, WIDE)
    c, e, inside, active, ones = solve(z, goal, n, t, c, e, width, MOST_STEPS, WIDE)
    p, flat, crowded, broken = finished(z, goal, n, given, t, c, e, inside, active, ones, WIDE)
    p = tl.where(mask, p, 0.0)
    v, loss = errors(p, labels, dense, weight, ignored, rows, slices, places, mask, n, count, LABELS)
    total, size, _, _ = sums_over_active(p, v)
    tl.store(grad + places, pulled_back(p, v, total, size, t) * tl.load(scale).to(p.dtype), mask=mask)
    tl.store(losses + slices, loss, mask=slices < count)
    store_threshold(mu, slices, count, c + e * t, flat, crowded, broken)


@triton.jit
def loss_partly(
    x, labels, dense, ignored, k, tau, weight, state, parts, n, count, tiles,
    LABELS: tl.constexpr, WIDE: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    slices = tl.program_id(1).to(tl.int64) * BLOCK_C + tl.arange(0, BLOCK_C)
    total, size, loss = (
        tl.zeros([BLOCK_C], tl.float64),
        tl.zeros([BLOCK_C], tl.float64),
        tl.zeros([BLOCK_C], tl.float64),
    )
    first = tl.program_id(0).to(tl.int64) * tiles * BLOCK_N
    for i in range(tiles):
        rows = first + i * BLOCK_N + tl.arange(0, BLOCK_N)
        z, places, mask = load(x, labels, ignored, rows, slices, n, count, count, LABELS)
        p, _, _, _, _ = projected(z, k, tau, state, slices, n, count, WIDE)
        p = tl.where(mask, p, 0.0)
        v, part = errors(p, labels, dense, weight, ignored, rows, slices, places, mask, n, count, LABELS)
        a, b, _, _ = sums_over_active(p, v)
        total, size, loss = total + a, size + b, loss + part
    store_parts(parts, slices, count, total, size, loss, loss)


@triton.jit
def loss_write(
    x, labels, dense, ignored, k, tau, weight, scale, state, sums, grad, mu, n, count,
    LABELS: tl.constexpr, WIDE: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    slices = tl.program_id(1).to(tl.int64) * BLOCK_C + tl.arange(0, BLOCK_C)
    rows = tl.program_id(0).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    z, places, mask = load(x, labels, ignored, rows, slices, n, count, count, LABELS)
    p, flat, crowded, broken, at = projected(z, k, tau, state, slices, n, count, WIDE)
    p = tl.where(mask, p, 0.0)
    v, _ = errors(p, labels, dense, weight, ignored, rows, slices, places, mask, n, count, LABELS)
    total = tl.load(sums + slices, mask=slices < count, other=0.0)
    size = tl.load(sums + count + slices, mask=slices < count, other=1.0)
    t = in_range(tl.load(tau + slices, mask=slices < count, other=1.0), WIDE)
    tl.store(grad + places, pulled_back(p, v, total, size, t) * tl.load(scale).to(p.dtype), mask=mask)
    if tl.program_id(0) == 0:
        store_threshold(mu, slices, count, at, flat, crowded, broken)
