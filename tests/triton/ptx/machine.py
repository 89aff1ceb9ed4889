"""A kernel decoded, and blocks of threads that run it, one after the other.

All threads of a block take each step together. What only a device could show in another order of its warps is shown by
the memory: every access that another order could disturb is reported as a race (see `memory`). Where threads take
different branches, those that are furthest behind go on first; a barrier must find all of them.
"""

from __future__ import annotations

import copy
import gc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from tests.triton.ptx import arithmetic, builders, opcodes, together
from tests.triton.ptx.counts import kind_of
from tests.triton.ptx.decode import Decoder, Nothing, Partial, Step, assign, certain
from tests.triton.ptx.faults import Fault, Unknown
from tests.triton.ptx.memory import Generic, Global, Local, Shared
from tests.triton.ptx.numbers import BOOL, UNSIGNED
from tests.triton.ptx.parse import Instruction, Kernel, Symbol, parse

Array = Any
_TABLES = (arithmetic, opcodes)  # importing them fills the register of builders
MOST_STRETCHES = 2_000_000
# A visit of all warps of a block counts so much: a visit of some of them is then a whole number too.
WARPS = 32
_BRANCHES = ("bra", "ret", "exit")


class Action:
    """An instruction, decoded. `plain` is what all threads do that are at it together."""

    def __init__(self, instruction: Instruction, kernel: Kernel) -> None:
        decoder = Decoder(instruction, kernel)
        self.instruction, self.targets = instruction, decoder.targets()
        self.guard = guard_of(instruction, kernel)
        self.dtypes = {index: UNSIGNED.get(kernel.registers[index].bits, BOOL) for index in self.targets}
        self.exchange: together.GuardedStep | None = None
        if decoder.base in builders.BUILDERS:
            self.step = builders.BUILDERS[decoder.base](decoder)
        elif decoder.base in together.BUILDERS:
            exchange = self.exchange = together.BUILDERS[decoder.base](decoder)
            self.step = lambda block: exchange(block, None)
        else:
            raise Unknown(f"opcode in `{instruction.text}`")
        # A load merges what it reads into its registers by itself.
        self.merges = decoder.base != "ld"
        self.plain: Step = self.step if self.guard is None else lambda block: self.masked(block, None)

    def masked(self, block: Block, threads: Array | None) -> None:
        """For those of the threads whose guard holds."""
        holds = self.guard(block) if self.guard else None
        if threads is not None:
            holds = threads if holds is None else holds & threads
        if holds is None or holds.all():
            self.step(block)
        elif holds.any():
            before = [block.registers[index] for index in self.targets]
            if self.exchange:
                self.exchange(block, holds)
            else:
                self.step(block)
            if self.merges:
                known, block.known = block.known, None
                for index, old in zip(self.targets, before, strict=True):
                    new, block.registers[index] = block.registers[index], old
                    assign(block, index, new, holds, known)
        else:
            for index in self.targets:
                if isinstance(block.registers[index], Nothing):
                    block.registers[index] = Partial(block, np.zeros(len(holds), self.dtypes[index]), holds)


def guard_of(instruction: Instruction, kernel: Kernel) -> Any:
    if instruction.guard is None:
        return None
    holds = Decoder(instruction, kernel).read(instruction.guard, "pred")

    def get(block: Block) -> Array:
        value = holds(block)
        if block.known is not None:
            certain(block, block.threads)
        return ~value if instruction.negated else value

    return get


@contextmanager
def without_collector() -> Iterator[None]:
    """Decoding makes many small objects that stay: looking through them for garbage takes longer than all the rest."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


class Stretch:
    """Instructions without a branch between them, and where to go on."""

    def __init__(self, first: int, kernel: Kernel) -> None:
        last = first
        stops = {place for place in kernel.labels.values() if place > first}
        while last < len(kernel.instructions) and last not in stops:
            if kernel.instructions[last].opcode.split(".")[0] in _BRANCHES:
                break
            last += 1
        self.instructions = kernel.instructions[first:last]
        self.actions = [Action(each, kernel) for each in self.instructions]
        self.steps = [each.plain for each in self.actions]
        self.end = len(kernel.instructions)
        self.next = last
        self.guard: Any = None
        self.jump = last
        if last < len(kernel.instructions) and last not in stops:
            self._branch(kernel.instructions[last], kernel, last)
        self.gathers = any(".sync" in each.opcode for each in self.instructions)
        self.classes = Counter(kind_of(each.opcode) for each in self.instructions)

    def _branch(self, branch: Instruction, kernel: Kernel, place: int) -> None:
        self.instructions = (*self.instructions, branch)
        if branch.opcode in ("ret", "exit"):
            target = self.end
        elif branch.opcode in ("bra", "bra.uni") and isinstance(branch.operands[0], Symbol):
            target = kernel.labels[branch.operands[0].name]
        else:
            raise Unknown(f"opcode in `{branch.text}`")
        self.guard, self.jump = guard_of(branch, kernel), target
        self.next = place + 1 if self.guard else target

    def after(self, block: Block) -> int | Array:
        """Where to go on: one place, or one for each thread."""
        if self.guard is None:
            return self.next
        holds = self.guard(block)
        if block.threads is None:
            if holds.all():
                return self.jump
            if not holds.any():
                return self.next
        return np.where(holds, self.jump, self.next)


class Program:
    """A kernel, ready to run; a stretch is decoded when it is first reached."""

    def __init__(self, text: str) -> None:
        self.text = text
        with without_collector():
            self.kernel = parse(text)
        self.stretches: dict[int, Stretch] = {}

    def replaced(self, place: int, opcode: str) -> Program:
        """The same program with another opcode at one place; what is decoded and does not hold that place is shared."""
        given = list(self.kernel.instructions)
        given[place] = given[place]._replace(opcode=opcode)
        other = copy.copy(self)
        other.kernel = self.kernel._replace(instructions=tuple(given))
        other.stretches = {
            first: each for first, each in self.stretches.items() if not first <= place < first + len(each.instructions)
        }
        return other

    def stretch(self, place: int) -> Stretch:
        if place not in self.stretches:
            with without_collector():
                self.stretches[place] = Stretch(place, self.kernel)
        return self.stretches[place]

    def run(self, grid: tuple[int, int, int], parameters: list[Array], memory: Global, shared: int) -> Counter[str]:
        """Every block of the grid; how many instructions of each kind a thread of each block executed, in all."""
        visits: Counter[int] = Counter()
        number = 0
        for z in range(grid[2]):
            for y in range(grid[1]):
                for x in range(grid[0]):
                    memory.start_block(number)
                    Block(self, (x, y, z), grid, parameters, memory, shared).run(visits)
                    number += 1
        found: Counter[str] = Counter()
        for place, times in visits.items():
            stretch = self.stretches[place]
            for kind, count in stretch.classes.items():
                found[kind] += times * count // WARPS
        return found


class Block:
    """The threads of one block: their registers and memory."""

    def __init__(
        self, program: Program, at: tuple[int, int, int], grid: tuple[int, int, int], parameters: list[Array],
        memory: Global, shared: int,
    ) -> None:  # fmt: skip
        kernel = program.kernel
        threads = kernel.threads
        self.program, self.parameters, self.at = program, parameters, at
        self.registers: list[Any] = [Nothing()] * len(kernel.registers)
        self.threads: Array | None = None  # those that are here; None: all
        self.known: Array | None = None  # of what is being read: where it means something; None: everywhere
        thread = np.arange(threads)
        own, local = Shared(shared), Local(threads, kernel.local_bytes)
        self.memory = {"global": memory, "shared": own, "local": local, "generic": Generic(memory, own, local)}
        self.who = {"global": thread, "shared": thread // together.WARP, "local": thread, "generic": thread}
        values: dict[str, Any] = {"%tid.x": thread, "%ntid.x": threads, "%laneid": thread % together.WARP}
        values |= {f"%{name}.{axis}": value for name, size, value in (("tid", 0, 0), ("ntid", 0, 1))
                   for axis in "yz"}  # fmt: skip
        values |= {f"%ctaid.{axis}": place for axis, place in zip("xyz", at, strict=True)}
        values |= {f"%nctaid.{axis}": size for axis, size in zip("xyz", grid, strict=True)}
        self.special = {name: np.broadcast_to(np.asarray(v, np.uint32), threads).copy() for name, v in values.items()}

    def run(self, visits: Counter[int]) -> None:
        end = len(self.program.kernel.instructions)
        place: int | Array = 0
        for _ in range(MOST_STRETCHES):
            if isinstance(place, int):
                if place == end:
                    return
                visits[place] += WARPS
                place = self._pass(self.program.stretch(place), self._together)
            else:
                place = self._apart(place, visits)
        raise Fault(f"{self.program.kernel.name} does not end within {MOST_STRETCHES} stretches of instructions")

    def _apart(self, places: Array, visits: Counter[int]) -> int | Array:
        """Threads that took different branches: those that are furthest behind go on, until all are in one place.

        Where all threads must be there, in front of a barrier or an exchange, those that are there wait.
        """
        end = len(self.program.kernel.instructions)
        there = [int(each) for each in np.unique(places)]
        place = next((each for each in there if each < end and not self.program.stretch(each).gathers), there[0])
        self.threads = places == place
        if self.threads.all():
            self.threads = None
            return place
        warps = self.threads.reshape(-1, together.WARP).any(1)
        visits[place] += WARPS * int(warps.sum()) // len(warps)
        after = self._pass(self.program.stretch(place), self._masked)
        return np.where(self.threads, after, places)

    def _together(self, stretch: Stretch) -> None:
        for step in stretch.steps:
            step(self)
            if self.known is not None:
                self._pass_on(stretch.actions[self.done].targets)
            self.done += 1

    def _masked(self, stretch: Stretch) -> None:
        for action in stretch.actions:
            action.masked(self, self.threads)
            self.done += 1

    def _pass(self, stretch: Stretch, go: Callable[[Stretch], None]) -> int | Array:
        self.done = 0
        try:
            with np.errstate(all="ignore"):
                go(stretch)
                return stretch.after(self)
        except Fault as fault:
            raise self._told(fault, stretch.instructions[self.done]) from None

    def _pass_on(self, targets: list[int]) -> None:
        """What was computed of values that mean something only in part does so too."""
        known, self.known = self.known, None
        for index in targets:
            assign(self, index, self.registers[index], None, known)

    def _told(self, fault: Fault, instruction: Instruction) -> Fault:
        where = f"{self.program.kernel.name} for sm_{self.program.kernel.target}, block {self.at}"
        return type(fault)(f"{fault} ({where}, line {instruction.line} of the PTX: {instruction.text})")
