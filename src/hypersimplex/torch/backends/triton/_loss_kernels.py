# mypy: ignore-errors
# ruff: noqa: N803, N806 (what Triton fixes at compile time is written in capitals)
"""The kernels of the loss: the targets of every class are counted, every class is projected, the losses are added up.

The logits are (n, classes) and the slices are the classes. `counts` has a number per class and, of labels, the samples
that are not ignored behind them.
"""

import triton
import triton.language as tl

from hypersimplex.torch.backends.triton._kernels import CHUNK, over_active, pulled_back, solve, total_of
from hypersimplex.torch.backends.triton._search import entries, projected
from hypersimplex.torch.backends.triton._tiles import load, load_labels, number, own_slices, places_of


@triton.jit
def count_labels(
    labels, ignored, slices, n, classes, BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr
):  # fmt: skip
    """How often each class is the label, NaN where a label is no class; and how many labels are not ignored."""
    found, kept = tl.zeros([BLOCK_N, BLOCK_C], tl.int32), tl.zeros([BLOCK_N], tl.int32)
    wrong = tl.zeros([BLOCK_N], tl.int32)
    for first in range(0, n, BLOCK_N):
        label = load_labels(labels, first, 1, ignored, n, BLOCK_N)
        real = label != ignored
        found += ((label[:, None] == slices[None, :]) & real[:, None]).to(tl.int32)
        kept += real.to(tl.int32)
        wrong += (real & ((label < 0) | (label >= classes))).to(tl.int32)
    bad = tl.max(wrong, 0) > 0
    counts = tl.sum(found.to(tl.int64), 0).to(tl.float64)
    return tl.where(bad, float("nan"), counts), tl.sum(kept.to(tl.int64), 0).to(tl.float64)


@triton.jit(do_not_specialize=["ignored"])
def count(
    labels, dense, ignored, counts, n: tl.int64, classes,
    LABELS: tl.constexpr, ROWS: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """The sum of every class's targets."""
    slices = own_slices(BLOCK_C)
    if LABELS:
        found, kept = count_labels(labels, ignored, slices, n, classes, BLOCK_N, BLOCK_C)
        tl.store(counts + classes, kept, mask=tl.program_id(0) == 0)
    else:
        WIDE: tl.constexpr = dense.dtype.element_ty == tl.float64
        found = tl.zeros([BLOCK_C], tl.float64)
        for begin in range(0, n, CHUNK * BLOCK_N):
            parts = tl.zeros([BLOCK_N, BLOCK_C], entries(WIDE))
            for first in range(begin, tl.minimum(n, begin + CHUNK * BLOCK_N), BLOCK_N):
                places, mask = places_of(first, 1, slices, slices, n, classes, classes, ROWS, BLOCK_N)
                parts += load(dense, places, mask, 0.0)
            found += total_of(parts)
    tl.store(counts + slices, found, mask=slices < classes)


@triton.jit
def divisor(counts, weight, weight_stride, samples, classes, WEIGHTED: tl.constexpr, BLOCK: tl.constexpr):
    """What the mean divides by: the samples, or the weights of their labels."""
    if WEIGHTED:
        total = tl.zeros([BLOCK], tl.float64)
        for first in range(0, classes, BLOCK):
            each = first + tl.arange(0, BLOCK)
            some = tl.load(counts + each, mask=each < classes, other=0.0)
            total += some * tl.load(weight + each * weight_stride, mask=each < classes, other=0.0).to(tl.float64)
        return tl.sum(total, 0)
    else:
        return samples


@triton.jit
def errors(z, labels, dense, ignored, first, places, mask, slices, share, t, c, e, mu, flat, n,
           LABELS: tl.constexpr, BLOCK_N: tl.constexpr):  # fmt: skip
    """p and p - target of a tile; beyond its edges both are 0, or NaN where mu is."""
    p = projected(z, share, t, c, e, mu, flat)
    if LABELS:
        label = load_labels(labels, first, 1, ignored, n, BLOCK_N)
        target = ((label[:, None] == slices[None, :]) & (label != ignored)[:, None]).to(p.dtype)
    else:
        target = load(dense, places, mask, 0.0).to(p.dtype)
    return p, p - target


@triton.jit
def tile_errors(
    x, labels, dense, ignored, first, slices, share, t, c, e, mu, flat, n, classes,
    LABELS: tl.constexpr, ROWS: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """`errors` of a tile that is read again, and where it lies."""
    places, mask = places_of(first, 1, slices, slices, n, classes, classes, ROWS, BLOCK_N)
    z = load(x, places, mask, -float("inf"))
    if LABELS:
        label = load_labels(labels, first, 1, ignored, n, BLOCK_N)
        z = tl.where((label == ignored)[:, None], -float("inf"), z)
    p, error = errors(
        z, labels, dense, ignored, first, places, mask, slices, share, t, c, e, mu, flat, n, LABELS, BLOCK_N
    )
    return p, error, places, mask


@triton.jit
def error_sums(
    x, labels, dense, ignored, slices, share, t, c, e, mu, flat, n, classes,
    LABELS: tl.constexpr, ROWS: tl.constexpr, BLOCK_N: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """The errors of the active entries summed, how many there are, and all squared errors summed."""
    total, size, squares = tl.zeros_like(mu), tl.zeros_like(mu), tl.zeros_like(mu)
    for begin in range(0, n, CHUNK * BLOCK_N):
        sums, square = tl.zeros([BLOCK_N, c.shape[0]], c.dtype), tl.zeros([BLOCK_N, c.shape[0]], c.dtype)
        sizes = tl.zeros([BLOCK_N, c.shape[0]], tl.int32)
        for first in range(begin, tl.minimum(n, begin + CHUNK * BLOCK_N), BLOCK_N):
            p, error, _, _ = tile_errors(
                x, labels, dense, ignored, first, slices, share, t, c, e, mu, flat, n, classes, LABELS, ROWS, BLOCK_N
            )
            part, some = over_active(p, error)
            sums, sizes, square = sums + part, sizes + some, square + error * error
        total, size, squares = total + total_of(sums), size + total_of(sizes), squares + total_of(square)
    return total, size, squares


@triton.jit(do_not_specialize=["ignored", "k_stride", "tau_stride", "weight_stride"])
def loss(
    x, labels, dense, ignored, counts, k, k_number: tl.float64, k_stride, tau, tau_number: tl.float64, tau_stride,
    weight, weight_stride, grad, losses, mu_and_k, n: tl.int64, classes,
    COUNTED: tl.constexpr, PRIOR: tl.constexpr, K_TENSOR: tl.constexpr, TAU_TENSOR: tl.constexpr,
    WEIGHT: tl.constexpr, MEAN: tl.constexpr, LABELS: tl.constexpr, LONG: tl.constexpr, WRITE: tl.constexpr,
    ROWS: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """Every class's weight/2 sum (p - target)^2, and the gradient of the loss to the logits."""
    WIDE: tl.constexpr = x.dtype.element_ty == tl.float64
    slices = own_slices(BLOCK_C)
    real = slices < classes
    samples = tl.load(counts + classes) if LABELS else tl.zeros([], tl.float64) + n
    if COUNTED:
        goal = tl.load(counts + slices, mask=real, other=0.0)
    else:
        goal = number(k, k_number, k_stride, 0, slices, 1, classes, K_TENSOR, True)
        goal = goal * samples if PRIOR else goal
        if LABELS:  # NaN if a label is no class
            found = tl.load(counts + slices, mask=real, other=0.0)
            goal = goal + (found - found)
    given = number(tau, tau_number, tau_stride, 0, slices, 1, classes, TAU_TENSOR, True)
    z, c, e, mu, t, share, flat = solve(
        x, labels, ignored, goal, given, slices, slices, n, classes, classes, LABELS, LONG, ROWS, BLOCK_N, WIDE
    )
    tl.store(mu_and_k + slices, mu, mask=real)
    tl.store(mu_and_k + classes + slices, goal, mask=real)
    places, mask = places_of(0, 1, slices, slices, n, classes, classes, ROWS, BLOCK_N)
    p, error = errors(z, labels, dense, ignored, 0, places, mask, slices, share, t, c, e, mu, flat, n, LABELS, BLOCK_N)
    if LONG:
        total, size, squares = error_sums(
            x, labels, dense, ignored, slices, share, t, c, e, mu, flat, n, classes, LABELS, ROWS, BLOCK_N, WIDE
        )
    else:
        part, some = over_active(p, error)
        total, size, squares = total_of(part), total_of(some), total_of(error * error)
    factor = tl.zeros_like(mu) + 1
    if WEIGHT:
        factor = tl.load(weight + slices * weight_stride, mask=real, other=0.0).to(tl.float64)
    tl.store(losses + slices, factor * squares / 2, mask=real)
    if WRITE:
        if MEAN:
            # Loaded again rather than kept in registers.
            kept = tl.load(counts + classes) if LABELS else tl.zeros([], tl.float64) + n
            by = divisor(counts, weight, weight_stride, kept, classes, WEIGHT and LABELS, 128)
            factor = factor / tl.where(by == 0, 1.0, by)
        mean, inverse = total / tl.maximum(size, 1.0), (factor / t.to(tl.float64)).to(entries(WIDE))
        if LONG:
            for first in range(0, n, BLOCK_N):
                tile_p, tile_error, there, some_real = tile_errors(
                    x, labels, dense, ignored, first, slices, share, t, c, e, mu, flat, n, classes,
                    LABELS, ROWS, BLOCK_N,
                )  # fmt: skip
                tl.store(grad + there, pulled_back(tile_p, tile_error, mean, inverse), mask=some_real)
        else:
            tl.store(grad + places, pulled_back(p, error, mean, inverse), mask=mask)


@triton.jit(do_not_specialize=["weight_stride"])
def finish(
    losses, counts, weight, weight_stride, value, n: tl.int64, classes,
    LABELS: tl.constexpr, WEIGHT: tl.constexpr, MEAN: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The sum or mean of the classes' losses; the mean of no sample is NaN."""
    total = tl.zeros([BLOCK], tl.float64)
    for first in range(0, classes, BLOCK):
        each = first + tl.arange(0, BLOCK)
        total += tl.load(losses + each, mask=each < classes, other=0.0)
    found = tl.sum(total, 0)
    if MEAN:
        samples = tl.load(counts + classes) if LABELS else tl.zeros([], tl.float64) + n
        by = divisor(counts, weight, weight_stride, samples, classes, WEIGHT and LABELS, BLOCK)
        found = tl.where(by == 0, float("nan"), found / tl.where(by == 0, 1.0, by))
    # Not from float64 to a half at once, which the interpreter cannot.
    tl.store(value, found if value.dtype.element_ty == tl.float64 else found.to(tl.float32))
