"""What threads compute, each for itself: bits, comparisons, conversions, moves."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.triton.ptx import numbers
from tests.triton.ptx.builders import bits_of, builds, is_float, of
from tests.triton.ptx.decode import PACKED, TYPES, Decoder, Step
from tests.triton.ptx.memory import WINDOWS
from tests.triton.ptx.numbers import F16, U8, UNSIGNED, to_bfloat16
from tests.triton.ptx.parse import Pair, Vector

Array = Any
LOGIC = {"and": operator.and_, "or": operator.or_, "xor": operator.xor, "not": operator.invert}


@builds("and", "or", "xor", "not")
def logic(d: Decoder) -> Step:
    (kind,) = d.types()
    d.done(2 if d.base == "not" else 3)
    return of(d, LOGIC[d.base], kind)


@builds("shl", "shr")
def shift(d: Decoder) -> Step:
    (kind,) = d.types()
    d.done(3)
    put, a, by = d.target(0, bits_of(kind)), d.source(1, kind), d.source(2, "u32")
    function = numbers.shifted_left if d.base == "shl" else numbers.shifted_right
    return lambda block: put(block, function(a(block), by(block)))


@builds("bfe")
def extract(d: Decoder) -> Step:
    (kind,) = d.types()
    d.done(4)
    bits = bits_of(kind)
    if kind not in ("u32", "s32", "u64", "s64"):
        raise d.unknown()
    put, a, first, count = d.target(0, bits), d.source(1, kind), d.source(2, "u32"), d.source(3, "u32")

    def step(block: Any) -> None:
        begin, size = (get(block) & np.uint32(255) for get in (first, count))
        # Up to the highest bit and down again, by which a signed number takes its sign along.
        up = np.maximum(bits - begin.astype(np.int64) - size, 0).astype(np.uint32)
        field = numbers.shifted_left(numbers.shifted_right(a(block), begin), up + begin)
        found = numbers.shifted_right(field, np.where(size >= bits, begin, up + begin))
        put(block, np.where(size == 0, a(block).dtype.type(0), found))

    return step


@builds("popc")
def population(d: Decoder) -> Step:
    (kind,) = d.types()
    d.done(2)
    return of(d, numbers.bit_count, kind, 32)


@builds("prmt")
def permute(d: Decoder) -> Step:
    """Each nibble of the third source names a byte of the first two, or, with its high bit, the sign of that byte."""
    (kind,) = d.types()
    d.done(4)
    if kind != "b32":
        raise d.unknown()

    def function(a: Array, b: Array, how: Array) -> Array:
        eight = np.concatenate([np.ascontiguousarray(x).view(U8).reshape(-1, 4) for x in (a, b)], axis=1)
        nibbles = (how[:, None] >> np.arange(0, 16, 4, dtype=np.uint32)) & np.uint32(15)
        found = np.take_along_axis(eight, (nibbles & 7).astype(np.int64), axis=1)
        spread = np.where(found & 0x80, U8.type(0xFF), U8.type(0))
        return np.ascontiguousarray(np.where(nibbles & 8, spread, found)).view(np.uint32).reshape(-1)

    return of(d, function, kind)


ORDERED = {"eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt,
           "ge": operator.ge}  # fmt: skip
LOWER = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}


def comparison(name: str, kind: str) -> Callable[[Array, Array], Array] | None:
    if not is_float(kind):
        return ORDERED.get(LOWER.get(name, name))
    if name == "nan":
        return lambda a, b: (a != a) | (b != b)
    if name == "num":
        return lambda a, b: (a == a) & (b == b)
    if name == "ne":
        return lambda a, b: (a != b) & (a == a) & (b == b)
    if name in ORDERED:
        return ORDERED[name]
    if name.endswith("u") and name[:-1] in ORDERED:
        plain = ORDERED[name[:-1]]
        return lambda a, b: plain(a, b) | (a != a) | (b != b)
    return None


@builds("setp")
def compare(d: Decoder) -> Step:
    (kind,) = d.types()
    function = comparison(d.modifiers.pop() if d.modifiers else "", kind)
    d.done(3)
    if function is None:
        raise d.unknown()
    a, b = d.source(1, kind), d.source(2, kind)
    if kind in PACKED:
        pair = d.operands[0]
        if not isinstance(pair, Pair):
            raise d.unknown()
        low, high = d.write(pair.first, 1), d.write(pair.second, 1)

        def both(block: Any) -> None:
            found = function(a(block), b(block))
            low(block, found[::2])
            high(block, found[1::2])

        return both
    put = d.target(0, 1)
    return lambda block: put(block, function(a(block), b(block)))


@builds("selp")
def select(d: Decoder) -> Step:
    (kind,) = d.types()
    d.done(4)
    kind = f"b{bits_of(kind)}"
    put, a, b, which = d.target(0, bits_of(kind)), d.source(1, kind), d.source(2, kind), d.source(3, "pred")
    return lambda block: put(block, np.where(which(block), a(block), b(block)))


@builds("mov")
def move(d: Decoder) -> Step:
    """A copy; with a vector on one side, its parts put together or taken apart, the lowest first."""
    (kind,) = d.types()
    d.done(2)
    bits = bits_of(kind)
    to, of_ = d.operands
    if isinstance(to, Vector):
        each = bits // len(to.parts)
        puts, get = [d.write(part, each) for part in to.parts], d.source(1, f"b{bits}")

        def apart(block: Any) -> None:
            parts = np.ascontiguousarray(get(block)).view(UNSIGNED[each]).reshape(-1, len(puts))
            for i, put in enumerate(puts):
                put(block, np.ascontiguousarray(parts[:, i]))

        return apart
    put = d.target(0, bits)
    if isinstance(of_, Vector):
        each = bits // len(of_.parts)
        # LLVM packs a half that nothing uses from a register that no instruction writes: here it is a NaN.
        gets = [
            d.constant(0x7FFF, 16) if each == 16 and d.is_never_written(part) else d.read(part, f"b{each}")
            for part in of_.parts
        ]

        def together(block: Any) -> None:
            put(block, np.stack([get(block) for get in gets], axis=1).view(UNSIGNED[bits]).reshape(-1))

        return together
    get = d.source(1, "pred" if bits == 1 else f"b{bits}")
    return lambda block: put(block, get(block))


@builds("cvta")
def to_generic(d: Decoder) -> Step:
    back, space = d.take("to"), d.take("local", "shared", "global")
    (kind,) = d.types()
    d.done(2)
    if space is None or kind != "u64":
        raise d.unknown()
    window = np.uint64(WINDOWS.get(space, 0))
    return of(d, lambda a: a - window if back else a + window, kind)


@builds("cvt")
def convert(d: Decoder) -> Step:
    rounding = d.take("rn", "rz", "rni", "rzi", "rmi", "rpi")
    to, of_ = d.types(2)
    d.done(3 if to in PACKED else 2)
    if to in ("f16x2", "bf16x2") and of_ == "f32" and rounding == "rn":
        put, high, low = d.target(0, 32), d.source(1, of_), d.source(2, of_)
        narrow = to_bfloat16 if to == "bf16x2" else lambda x: x.astype(F16).view(np.uint16)
        return lambda block: put(
            block, np.stack([narrow(low(block)), narrow(high(block))], axis=1).view(np.uint32).reshape(-1)
        )
    function = _conversion(to, of_, rounding)
    if function is None:
        raise d.unknown()
    put, get = d.target(0, bits_of(to)), d.source(1, of_)
    return lambda block: put(block, function(get(block)))


def _conversion(to: str, of_: str, rounding: str | None) -> Callable[[Array], Array] | None:
    """What NumPy's astype rounds is rounded to nearest, ties to even; only inexact conversions name a rounding."""
    if "pred" in (to, of_) or to in PACKED or of_ in PACKED:
        return None
    dtype = TYPES[to]
    if is_float(of_) and not is_float(to):
        whole = rounding in numbers.ROUND_TO_WHOLE
        return (lambda x: numbers.to_integer(x, dtype, rounding)) if whole else None
    if is_float(of_) and bits_of(to) == bits_of(of_):
        whole = numbers.ROUND_TO_WHOLE.get(rounding or "")
        return (lambda x: whole(x)) if whole and to == of_ != "bf16" else None
    inexact = is_float(to) and (not is_float(of_) or bits_of(to) < bits_of(of_))
    if inexact != (rounding is not None) or rounding not in (None, "rn"):
        return None
    if to == "bf16":
        return to_bfloat16 if of_ == "f32" else None
    return lambda x: x.astype(dtype)
