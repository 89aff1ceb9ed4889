"""What the tables of opcodes share: the register of builders, and elementwise steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.triton.ptx.decode import PACKED, TYPES, Decoder, Step
from tests.triton.ptx.numbers import to_bfloat16

Array = Any
BUILDERS: dict[str, Callable[[Decoder], Step]] = {}


def builds(*names: str) -> Callable[..., Any]:
    def keep(function: Callable[[Decoder], Step]) -> Callable[[Decoder], Step]:
        BUILDERS.update(dict.fromkeys(names, function))
        return function

    return keep


def bits_of(kind: str) -> int:
    return PACKED[kind][1] if kind in PACKED else 1 if kind == "pred" else 8 * TYPES[kind].itemsize


def is_float(kind: str) -> bool:
    return kind.startswith(("f", "bf"))


def of(d: Decoder, function: Callable[..., Array], kind: str, result: int | None = None) -> Step:
    """d = function(all sources), elementwise; in bfloat16 computed in float32 and rounded once."""
    put = d.target(0, bits_of(kind) if result is None else result)
    get = [d.source(i, kind) for i in range(1, len(d.operands))]
    if kind in ("bf16", "bf16x2"):
        plain = function
        function = lambda *values: to_bfloat16(plain(*values))  # noqa: E731
    if len(get) == 1:
        (only,) = get
        return lambda block: put(block, function(only(block)))
    if len(get) == 2:
        first, second = get
        return lambda block: put(block, function(first(block), second(block)))
    return lambda block: put(block, function(*(each(block) for each in get)))
