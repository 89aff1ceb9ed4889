# mypy: ignore-errors
# ruff: noqa: N803 (what Triton fixes at compile time is written in capitals)
"""What a program reads: tiles of its slices, labels, and the numbers that a slice has one of.

An array is seen as (outer, n, inner): slices of n entries, `inner` apart. With ROWS, inner is 1, and the places within
a tile need no 64 bits.
"""

import triton
import triton.language as tl


@triton.jit
def own_slices(BLOCK_C: tl.constexpr):
    return tl.program_id(0).to(tl.int64) * BLOCK_C + tl.arange(0, BLOCK_C)


@triton.jit
def starts(slices, n, inner, ROWS: tl.constexpr):
    """Where each slice begins."""
    if ROWS:
        return slices * n
    else:
        return slices // inner * n * inner + slices % inner


@triton.jit
def number(at, value, outer, stride, slices, inner, count, IS_TENSOR: tl.constexpr, ROWS: tl.constexpr):
    """One float64 per slice: of a tensor by its strides, or the same for all."""
    if IS_TENSOR:
        places = slices * outer if ROWS else slices // inner * outer + slices % inner * stride
        return tl.load(at + places, mask=slices < count, other=1.0).to(tl.float64)
    else:
        return tl.zeros_like(slices).to(tl.float64) + value


@triton.jit
def places_of(first, apart, slices, start, n, inner, count, ROWS: tl.constexpr, BLOCK_N: tl.constexpr):
    """Where the entries first, first + apart, ... of each slice lie, and which of them are real."""
    rows = tl.arange(0, BLOCK_N)
    begin = start + (tl.zeros_like(start) + first) * inner
    left = rows < tl.minimum(n - first, BLOCK_N).to(tl.int32)  # apart is 1 or such that all are real
    if ROWS:
        places = begin[None, :] + (rows * apart)[:, None]
    else:
        places = begin[None, :] + (rows.to(tl.int64) * apart * inner)[:, None]
    # Of a program with one slice, that one is real.
    return places, left[:, None] if slices.shape[0] == 1 else left[:, None] & (slices < count)[None, :]


@triton.jit
def load(x, places, mask, other):
    """A tile in float32 or float64, with `other` where nothing is."""
    tile = tl.load(x + places, mask=mask, other=other)
    return tile if tile.dtype == tl.float64 else tile.to(tl.float32)


@triton.jit
def load_labels(labels, first, apart, ignored, n, BLOCK_N: tl.constexpr):
    """Labels in 64 bits, `ignored` beyond the end."""
    rows = tl.arange(0, BLOCK_N)
    return tl.load(
        labels + first + rows * apart, mask=rows < tl.minimum(n - first, BLOCK_N).to(tl.int32), other=ignored
    )
