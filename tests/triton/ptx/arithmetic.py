"""What threads compute, each for itself: sums, products, quotients, roots, extremes."""

from __future__ import annotations

import operator
from functools import reduce
from typing import Any

import numpy as np

from tests.triton.ptx import numbers
from tests.triton.ptx.builders import bits_of, builds, is_float, of
from tests.triton.ptx.decode import TYPES, Decoder, Step
from tests.triton.ptx.numbers import F32, F64

Array = Any
SIMPLE = {"add": operator.add, "sub": operator.sub}


@builds("add", "sub")
def add(d: Decoder) -> Step:
    d.take("rn")
    function = SIMPLE[d.base]
    if len(d.modifiers) == 2:  # of a narrow number and a float32
        wide, narrow = d.types(2)
        d.done(3)
        if wide != "f32" or narrow not in ("f16", "bf16"):
            raise d.unknown()
        put, a, b = d.target(0, 32), d.source(1, narrow), d.source(2, "f32")
        return lambda block: put(block, function(a(block).astype(F32), b(block)))
    (kind,) = d.types()
    d.done(3)
    return of(d, function, kind)


@builds("mul", "mad")
def multiply(d: Decoder) -> Step:
    part = d.take("lo", "hi", "wide")
    d.take("rn")
    (kind,) = d.types()
    d.done(3 + (d.base == "mad"))
    if is_float(kind):
        if part or d.base == "mad":
            raise d.unknown()
        return of(d, operator.mul, kind)
    if part is None:
        raise d.unknown()
    if part == "wide":
        wide = f"{kind[0]}{2 * bits_of(kind)}"
        dtype = TYPES[wide]
        put, a, b = d.target(0, bits_of(wide)), d.source(1, kind), d.source(2, kind)
        if d.base == "mul":
            return lambda block: put(block, a(block).astype(dtype) * b(block).astype(dtype))
        c = d.source(3, wide)
        return lambda block: put(block, a(block).astype(dtype) * b(block).astype(dtype) + c(block))
    product = operator.mul if part == "lo" else numbers.high_product
    return of(d, product if d.base == "mul" else lambda a, b, c: product(a, b) + c, kind)


@builds("fma")
def fma(d: Decoder) -> Step:
    (kind,) = d.types()
    if d.take("rn") is None or kind not in ("f32", "f64", "f32x2"):
        raise d.unknown()
    d.done(4)
    return of(d, numbers.fma64 if kind == "f64" else numbers.fma32, kind)


@builds("div", "rem")
def divide(d: Decoder) -> Step:
    exact, near = d.take("rn"), d.take("full", "approx")
    flush = d.take("ftz")
    (kind,) = d.types()
    d.done(3)
    if not is_float(kind):
        if exact or near or flush:
            raise d.unknown()
        return of(d, numbers.quotient if d.base == "div" else numbers.remainder, kind)
    if exact and not flush and kind in ("f32", "f64"):
        return of(d, operator.truediv, kind)
    if near and kind == "f32":
        return of(d, lambda a, b: _near(a.astype(F64) / b.astype(F64), 2, flush), kind)
    raise d.unknown()


def _near(exact: Array, ulps: int, flush: str | None) -> Array:
    found = numbers.moved_by(ulps, exact)
    return numbers.flushed(found) if flush else found


# What the ISA calls an approximation, and how many units in the last place it allows.
APPROXIMATE = {
    "ex2": (np.exp2, 2), "lg2": (np.log2, 2), "rcp": (lambda x: 1 / x, 1),
    "sqrt": (np.sqrt, 1), "rsqrt": (lambda x: 1 / np.sqrt(x), 2),
}  # fmt: skip


@builds("sqrt", "rcp", "ex2", "lg2", "rsqrt")
def root(d: Decoder) -> Step:
    exact, near, flush = d.take("rn"), d.take("approx"), d.take("ftz")
    (kind,) = d.types()
    d.done(2)
    function, ulps = APPROXIMATE[d.base]
    if exact and not flush and d.base in ("sqrt", "rcp") and kind in ("f32", "f64"):
        one = TYPES[kind].type(1)
        return of(d, np.sqrt if d.base == "sqrt" else lambda x: one / x, kind)
    if near and kind == "f32":
        first = numbers.flushed if flush else lambda x: x
        return of(d, lambda x: _near(function(first(x).astype(F64)), ulps, flush), kind)
    raise d.unknown()


@builds("min", "max")
def choose(d: Decoder) -> Step:
    """Of two numbers; of float32 also of three."""
    nan = d.take("NaN")
    (kind,) = d.types()
    d.done(4 if kind == "f32" and len(d.operands) == 4 else 3)
    if not is_float(kind):
        return of(d, np.minimum if d.base == "min" else np.maximum, kind)
    function = numbers.least if d.base == "min" else numbers.greatest
    function = numbers.with_nan(function) if nan else function
    return of(d, lambda *values: reduce(function, values), kind)


@builds("abs", "neg")
def sign(d: Decoder) -> Step:
    (kind,) = d.types()
    d.done(2)
    return of(d, np.abs if d.base == "abs" else operator.neg, kind)
