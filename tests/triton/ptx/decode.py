"""One instruction at a time: its opcode taken apart, and its operands as functions of a block of threads.

A register holds one NumPy array, of an entry for each thread, in whatever dtype wrote it; to read it in another dtype
is a view. What is packed (f32x2, f16x2) is a view of twice the length.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.triton.ptx.faults import Unknown, Unwritten
from tests.triton.ptx.memory import LOCAL, SHARED
from tests.triton.ptx.numbers import BOOL, UNSIGNED, from_bfloat16
from tests.triton.ptx.parse import Address, Immediate, Instruction, Kernel, Operand, Register, Symbol, Vector

Array = Any
Get = Callable[[Any], Array]
Put = Callable[[Any, Array], None]
Step = Callable[[Any], None]

TYPES = {f"{kind}{bits}": np.dtype(f"{letter}{bits // 8}")
         for kind, letter in (("b", "u"), ("u", "u"), ("s", "i"), ("f", "f"))
         for bits in (8, 16, 32, 64) if kind != "f" or bits > 8}  # fmt: skip
TYPES |= {"pred": BOOL, "bf16": np.dtype(np.uint16)}
# Two numbers in one register: the type of each, and the bits of both.
PACKED = {"f32x2": ("f32", 64), "f16x2": ("f16", 32), "bf16x2": ("bf16", 32),
          "s16x2": ("s16", 32), "u16x2": ("u16", 32)}  # fmt: skip


class Nothing:
    """A register that nobody wrote."""

    dtype = None

    def view(self, _dtype: np.dtype) -> Array:
        raise Unwritten("a register that nobody wrote is read")


class Partial:
    """A register that means something only where the mask holds. What is computed of it does so no more.

    Nothing is wrong with that until a thread stores it, branches on it, or takes it for an address or a guard.
    """

    dtype = None

    def __init__(self, block: Any, values: Array, mask: Array) -> None:
        self.block, self.values, self.mask = block, values, mask

    def view(self, dtype: np.dtype) -> Array:
        known = self.block.known
        self.block.known = self.mask if known is None else known & self.mask
        return self.values.view(dtype)


def assign(block: Any, index: int, values: Array, guard: Array | None, known: Array | None = None) -> None:
    """Write a register where the guard holds; None stands for everywhere."""
    if guard is not None:
        old, known = block.registers[index], guard if known is None else known & guard
        if isinstance(old, Partial):
            values, known = np.where(guard, values, old.values.view(values.dtype)), known | (old.mask & ~guard)
        elif not isinstance(old, Nothing):
            values, known = np.where(guard, values, old.view(values.dtype)), known | ~guard
    block.registers[index] = values if known is None or known.all() else Partial(block, values, known)


def certain(block: Any, guard: Array | None = None) -> None:
    """What was read since the last step must mean something, in all threads whose guard holds."""
    known, block.known = block.known, None
    if known is not None and not (known if guard is None else known[guard]).all():
        raise Unwritten("a value is used that comes from where nobody wrote")


def bits_of(text: str) -> int:
    if text[:2] in ("0f", "0F", "0d", "0D"):
        return int(text[2:], 16)
    return int(text, 0)


class Decoder:
    """An instruction while it is being decoded; a modifier that nobody takes is an error."""

    def __init__(self, instruction: Instruction, kernel: Kernel) -> None:
        self.instruction, self.kernel, self.threads = instruction, kernel, kernel.threads
        self.base, *self.modifiers = instruction.opcode.split(".")
        self.operands = instruction.operands

    def unknown(self, what: str = "") -> Unknown:
        return Unknown(f"{what or 'opcode'} in `{self.instruction.text}`")

    def take(self, *names: str) -> str | None:
        """The first of these modifiers that is there, which then is dealt with."""
        for name in names:
            if name in self.modifiers:
                self.modifiers.remove(name)
                return name
        return None

    def types(self, count: int = 1) -> list[str]:
        """The last modifiers, which must be types and all that is left."""
        found, self.modifiers = self.modifiers[-count:], self.modifiers[:-count]
        if len(found) != count or any(each not in TYPES and each not in PACKED for each in found):
            raise self.unknown("type")
        return found

    def done(self, operands: int) -> None:
        if self.modifiers:
            raise self.unknown(f"modifier .{self.modifiers[0]}")
        if len(self.operands) != operands:
            raise self.unknown(f"{len(self.operands)} operands")

    def constant(self, value: int, bits: int) -> Get:
        array = np.full(self.threads, value % (1 << bits), UNSIGNED[bits])
        return lambda block: array

    def raw(self, operand: Operand, bits: int) -> Get:
        """An operand as it lies in the register, or as unsigned bits."""
        if isinstance(operand, Register):
            if operand.bits != bits:
                raise self.unknown(f"{bits} bits of {operand.name}")
            index = operand.index
            return lambda block: block.registers[index]
        if isinstance(operand, Immediate):
            return self.constant(bits_of(operand.text), bits)
        if isinstance(operand, Symbol) and operand.name.startswith("%"):
            name = operand.name
            return lambda block: block.special[name]
        if isinstance(operand, Symbol) and operand.name in self.kernel.shared:
            return self.constant(SHARED + self.kernel.shared[operand.name], bits)
        if isinstance(operand, Symbol) and operand.name in self.kernel.local:
            return self.constant(LOCAL + self.kernel.local[operand.name], bits)
        raise self.unknown(f"operand {operand}")

    def source(self, position: int, kind: str) -> Get:
        """An operand in NumPy's dtype for `kind`; what is packed in twice the length, bfloat16 as float32."""
        return self.read(self.operands[position], kind)

    def read(self, operand: Operand, kind: str) -> Get:
        each, bits = PACKED.get(kind, (kind, 0))
        dtype = TYPES[each]
        raw = self.raw(operand, bits or (1 if kind == "pred" else 8 * dtype.itemsize))
        if each == "bf16":
            return lambda block: from_bfloat16(raw(block).view(dtype))

        def get(block: Any) -> Array:
            value = raw(block)
            return value if value.dtype is dtype else value.view(dtype)

        return get

    def target(self, position: int, bits: int) -> Put:
        return self.write(self.operands[position], bits)

    def write(self, operand: Operand, bits: int) -> Put:
        if operand == Symbol("_"):
            return lambda block, value: None
        if not isinstance(operand, Register) or operand.bits != bits:
            raise self.unknown(f"target {operand} of {bits} bits")
        index = operand.index
        if bits == 1:

            def put_predicate(block: Any, value: Array) -> None:
                block.registers[index] = value

            return put_predicate
        kind = UNSIGNED[bits]

        def put(block: Any, value: Array) -> None:
            block.registers[index] = value if value.dtype.itemsize == kind.itemsize else value.view(kind)

        return put

    def address(self, position: int) -> Get:
        """A register and an offset, as 64 bits; addresses of shared memory may come in 32."""
        operand = self.operands[position]
        if not isinstance(operand, Address):
            raise self.unknown("address")
        bits = operand.base.bits if isinstance(operand.base, Register) else 64
        base, offset = self.read(operand.base, f"u{bits}"), operand.offset
        if not offset:
            return lambda block: base(block).astype(np.uint64)
        step = np.uint64(offset % (1 << 64))
        return lambda block: base(block).astype(np.uint64) + step

    def targets(self) -> list[int]:
        """The registers that the first operand names."""
        return _targets(self.operands)

    def is_never_written(self, operand: Operand) -> bool:
        """Whether it is a register that no instruction of the kernel names first."""
        return isinstance(operand, Register) and not any(
            operand.index in _targets(each.operands) for each in self.kernel.instructions
        )


def _targets(operands: tuple[Operand, ...]) -> list[int]:
    first = operands[0] if operands else None
    parts = first.parts if isinstance(first, Vector) else first if type(first).__name__ == "Pair" else (first,)
    return [part.index for part in parts if isinstance(part, Register)]
