"""What is more than one thread's own arithmetic: memory, barriers, and the exchange within a warp.

These steps are given the guard: a thread whose guard does not hold touches no memory.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from tests.triton.ptx import numbers
from tests.triton.ptx.decode import TYPES, Decoder, assign, certain
from tests.triton.ptx.faults import Diverged
from tests.triton.ptx.numbers import U8, U64, UNSIGNED
from tests.triton.ptx.parse import Address, Pair, Register, Symbol, Vector

Array = Any
GuardedStep = Callable[[Any, Array | None], None]
BUILDERS: dict[str, Callable[[Decoder], GuardedStep]] = {}
WARP = 32


def builds(*names: str) -> Callable[..., Any]:
    def keep(function: Callable[[Decoder], GuardedStep]) -> Callable[[Decoder], GuardedStep]:
        BUILDERS.update(dict.fromkeys(names, function))
        return function

    return keep


def _shape(d: Decoder) -> tuple[str, np.dtype, int]:
    """The space of a load or store, the type of each number, and how many there are."""
    space = d.take("global", "shared", "local", "param") or "generic"
    many = d.take("v2", "v4", "v8")
    (kind,) = d.types()
    d.done(2)
    return space, TYPES[kind], int(many[1]) if many else 1


def _parts(d: Decoder, operand: Any, count: int) -> tuple[Any, ...]:
    """The registers of one side; inline assembly writes braces around a single one too."""
    parts = operand.parts if isinstance(operand, Vector) else (operand,)
    if len(parts) != count:
        raise d.unknown(f"{len(parts)} registers")
    return parts


@builds("ld")
def load(d: Decoder) -> GuardedStep:
    space, dtype, count = _shape(d)
    parts = _parts(d, d.operands[0], count)
    if space == "param":
        return _load_parameter(d, parts[0], dtype)
    address, size = d.address(1), dtype.itemsize

    def step(block: Any, guard: Array | None) -> None:
        at, who = address(block), block.who[space]
        certain(block, guard)
        if guard is not None:
            at, who = at[guard], who[guard]
        found = block.memory[space].read(at, size * count, who) if len(at) else np.empty((0, size * count), U8)
        for i, part in enumerate(parts):
            if part == Symbol("_"):
                continue
            values = np.ascontiguousarray(found[:, i * size : (i + 1) * size]).view(dtype).reshape(-1)
            wide = np.dtype(f"{'i' if dtype.kind == 'i' else 'u'}{part.bits // 8}")
            if dtype.kind != "f":
                values = values.astype(wide)
            if guard is not None:
                full = np.zeros(len(guard), values.dtype)
                full[guard] = values
                values = full
            assign(block, part.index, values, guard)

    return step


def _load_parameter(d: Decoder, target: Any, dtype: np.dtype) -> GuardedStep:
    address = d.operands[1]
    names = [parameter.name for parameter in d.kernel.parameters]
    if not isinstance(address, Address) or not isinstance(address.base, Symbol) or address.base.name not in names:
        raise d.unknown("parameter")
    number, offset = names.index(address.base.name), address.offset
    if offset or 8 * dtype.itemsize != d.kernel.parameters[number].bits:
        raise d.unknown("part of a parameter")
    put = d.write(target, target.bits)
    wide = np.dtype(f"{'i' if dtype.kind == 'i' else 'u'}{target.bits // 8}")
    return lambda block, guard: put(
        block, np.full(d.threads, block.parameters[number]).view(wide if dtype.kind == "f" else dtype).astype(wide)
    )


@builds("st")
def store(d: Decoder) -> GuardedStep:
    space, dtype, count = _shape(d)
    if space == "param":
        raise d.unknown()
    parts, address, size = _parts(d, d.operands[1], count), d.address(0), dtype.itemsize
    gets = [d.raw(part, part.bits if isinstance(part, Register) else 8 * size) for part in parts]
    narrow = [UNSIGNED[part.bits] if isinstance(part, Register) else UNSIGNED[8 * size] for part in parts]

    def step(block: Any, guard: Array | None) -> None:
        at, who = address(block), block.who[space]
        columns = [np.ascontiguousarray(get(block).view(kind)) for get, kind in zip(gets, narrow, strict=True)]
        certain(block, guard)
        if guard is not None:
            at, who, columns = at[guard], who[guard], [column[guard] for column in columns]
        if len(at):
            values = [column.view(U8).reshape(len(at), -1)[:, :size] for column in columns]
            block.memory[space].write(at, np.concatenate(values, axis=1), who)

    return step


@builds("bar", "barrier")
def barrier(d: Decoder) -> GuardedStep:
    if d.take("sync") is None:
        raise d.unknown()
    within_warp = d.take("warp")
    d.done(1)
    if within_warp:
        return lambda block, guard: None  # the threads of a warp are together in any case

    def step(block: Any, guard: Array | None) -> None:
        if guard is not None and not guard.all():
            raise Diverged("a barrier that not all threads of the block reach")
        block.memory["shared"].barrier()

    if d.constant(0, 32)(None)[0] != d.source(0, "b32")(None)[0]:
        raise d.unknown("barrier")
    return step


def _whole_warps(d: Decoder, block: Any, mask: Array, guard: Array | None) -> None:
    alone = guard is not None and (guard.reshape(-1, WARP) != guard.reshape(-1, WARP)[:, :1]).any()
    if alone or (mask != np.uint32(0xFFFFFFFF)).any():
        raise Diverged(f"only some threads of a warp take part in {d.instruction.text}")


@builds("shfl")
def shuffle(d: Decoder) -> GuardedStep:
    how = d.take("bfly", "up", "down", "idx")
    if d.take("sync") is None or how is None:
        raise d.unknown()
    (kind,) = d.types()
    d.done(5)
    first = d.operands[0]
    put = d.write(first.first if isinstance(first, Pair) else first, 32)
    valid = d.write(first.second, 1) if isinstance(first, Pair) else None
    get, by, clamp, mask = d.source(1, kind), *(d.source(i, "u32") for i in (2, 3, 4))
    lane = np.arange(d.threads, dtype=np.int64) % WARP
    warp = np.arange(d.threads, dtype=np.int64) - lane

    def step(block: Any, guard: Array | None) -> None:
        _whole_warps(d, block, mask(block), guard)
        b, c = by(block).astype(np.int64) & 31, clamp(block).astype(np.int64)
        segment, most = (c >> 8) & 31, c & 31
        last = (lane & segment) | (most & ~segment)
        if how == "up":
            other, inside = lane - b, lane - b >= last
        elif how == "down":
            other, inside = lane + b, lane + b <= last
        else:
            other = lane ^ b if how == "bfly" else (lane & segment) | (b & ~segment)
            inside = other <= last
        certain(block)
        source = warp + np.where(inside, other, lane)
        put(block, get(block)[source])
        if valid:
            valid(block, inside)
        if block.known is not None:
            block.known = block.known[source]

    return step


REDUCED: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}  # fmt: skip
REDUCED_FLOATS = {"min": numbers.least, "max": numbers.greatest}


@builds("redux")
def reduction(d: Decoder) -> GuardedStep:
    function = REDUCED.get(d.take(*REDUCED) or "")
    name = next((name for name, each in REDUCED.items() if each is function), "")
    magnitude, nan = d.take("abs"), d.take("NaN")
    if d.take("sync") is None:
        raise d.unknown()
    (kind,) = d.types()
    d.done(3)
    if kind == "f32":
        function = REDUCED_FLOATS.get(name)
        function = numbers.with_nan(function) if nan and function else function
    elif magnitude or nan:
        raise d.unknown()
    if function is None:
        raise d.unknown()
    put, get, mask = d.target(0, 32), d.source(1, kind), d.source(2, "u32")

    def step(block: Any, guard: Array | None) -> None:
        _whole_warps(d, block, mask(block), guard)
        certain(block)
        values = get(block).reshape(-1, WARP)
        values = np.abs(values) if magnitude else values
        put(block, np.repeat(reduce(function, [np.ascontiguousarray(values[:, i]) for i in range(WARP)]), WARP))
        if block.known is not None:
            block.known = np.repeat(block.known.reshape(-1, WARP).all(1), WARP)

    return step


@builds("ldmatrix", "stmatrix")
def matrix(d: Decoder) -> GuardedStep:
    """Matrices of 8 rows of 16 bytes. Eight threads name the rows of each; a thread holds two neighbors of a row."""
    loads = d.base == "ldmatrix"
    many, across, shared = d.take("x1", "x2", "x4"), d.take("trans"), d.take("shared")
    if d.take("sync") is None or d.take("aligned") is None or d.take("m8n8") is None or not (many and shared):
        raise d.unknown()
    if d.types() != ["b16"]:
        raise d.unknown()
    d.done(2)
    count, address = int(many[1]), d.address(1 if loads else 0)
    parts = _parts(d, d.operands[0 if loads else 1], count)
    warps = d.threads // WARP
    lane = np.arange(WARP)
    # Which of a matrix's 64 numbers a lane holds.
    here = np.stack([lane // 4 * 8 + lane % 4 * 2 + i for i in (0, 1)], axis=1)
    if across:
        here = here % 8 * 8 + here // 8

    def rows(block: Any, guard: Array | None, i: int) -> tuple[Array, Array]:
        if guard is not None:
            raise Diverged(f"only some threads take part in {d.instruction.text}")
        certain(block)
        named = address(block).reshape(warps, WARP)[:, 8 * i : 8 * i + 8].reshape(-1).astype(U64)
        return named, np.repeat(np.arange(warps), 8)

    def read(block: Any, guard: Array | None) -> None:
        for i, put in enumerate(puts):
            numbers_ = block.memory["shared"].read(*rows(block, guard, i)[:1], 16, rows(block, guard, i)[1])
            found = np.ascontiguousarray(numbers_).view(np.uint16).reshape(warps, 64)[:, here]
            put(block, np.ascontiguousarray(found).view(np.uint32).reshape(-1))

    def write(block: Any, guard: Array | None) -> None:
        for i, get in enumerate(gets):
            at, who = rows(block, guard, i)
            full = np.empty((warps, 64), np.uint16)
            full[:, here] = np.ascontiguousarray(get(block)).view(np.uint16).reshape(warps, WARP, 2)
            certain(block)
            block.memory["shared"].write(at, full.view(U8).reshape(-1, 16), who)

    if loads:
        puts = [d.write(part, 32) for part in parts]
        return read
    gets = [d.read(part, "b32") for part in parts]
    return write
