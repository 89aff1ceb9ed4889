"""PTX as text in, one kernel's instructions out.

What is read is what LLVM and Triton write: one entry per module, one statement per line or several, inline assembly
with scopes of its own. Lines for debuggers are skipped; a directive or an operand that is not known is an error.
"""

import re
from typing import NamedTuple

from tests.triton.ptx.faults import Unknown


class Register(NamedTuple):
    index: int
    bits: int  # 1: a predicate
    name: str


class Immediate(NamedTuple):
    text: str


class Symbol(NamedTuple):
    """A label, an array, a parameter, a special register, or the sink `_`."""

    name: str


class Vector(NamedTuple):
    parts: tuple


class Pair(NamedTuple):
    """Two results, a|b."""

    first: Register | Symbol
    second: Register | Symbol


class Address(NamedTuple):
    base: Register | Symbol | Immediate
    offset: int


Operand = Register | Immediate | Symbol | Vector | Pair | Address


class Instruction(NamedTuple):
    opcode: str
    operands: tuple[Operand, ...]
    guard: Register | None
    negated: bool
    line: int
    text: str


class Parameter(NamedTuple):
    name: str
    bits: int


class Kernel(NamedTuple):
    name: str
    target: int
    threads: int
    parameters: tuple[Parameter, ...]
    registers: tuple[Register, ...]
    shared: dict[str, int]  # where each array begins; the one of unknown size comes last
    local: dict[str, int]
    local_bytes: int
    instructions: tuple[Instruction, ...]
    labels: dict[str, int]  # those that a branch names


_COMMENT = re.compile(r"//.*$")
_ENTRY = re.compile(r"\.visible\s+\.entry\s+([\w$]+)\s*\(([^)]*)\)([^{]*)\{", re.DOTALL)
_PARAMETER = re.compile(r"\.param\s+\.[usbf](\d+)\b[^,]*?([\w$]+)\s*$")
_LABEL = re.compile(r"^\s*(\$[\w$]+)\s*:\s*(?!:)")
_REGISTERS = re.compile(r"^\.reg\s+\.(pred|[busf]\d+)\s+(.*)$")
_ARRAY = re.compile(r"^(?:\.extern\s+)?\.(shared|local)\s+\.align\s+(\d+)\s+\.b8\s+([\w$]+)\[(\d*)\]$")
_GUARD = re.compile(r"^@(!?)([%\w]+)\s+(.*)$", re.DOTALL)
_SPECIAL = re.compile(r"^%(tid|ntid|ctaid|nctaid)\.[xyz]$|^%(laneid|warpid)$")
_IMMEDIATE = re.compile(r"^-?(0[fF][\da-fA-F]{8}|0[dD][\da-fA-F]{16}|0x[\da-fA-F]+|\d+)U?$")
_SKIPPED = re.compile(r"\.(loc|file|pragma)\b")


def _closing(text: str, start: int) -> int:
    """Where the brace that was opened just before `start` is closed."""
    depth = 1
    for found in re.finditer(r"[{}]", text[start:]):
        depth += 1 if found[0] == "{" else -1
        if not depth:
            return start + found.start()
    raise Unknown("an entry without an end")


def _split(text: str) -> list[str]:
    """At the commas outside of braces and brackets."""
    parts, depth = [""], 0
    for char in text:
        depth += (char in "{[") - (char in "}]")
        if char == "," and not depth:
            parts.append("")
        else:
            parts[-1] += char
    return [part.strip() for part in parts if part.strip()]


class _Reader:
    """The body of an entry, statement by statement."""

    def __init__(self) -> None:
        self.scopes: list[dict[str, Register]] = [{}]
        self.registers: list[Register] = []
        self.arrays: dict[str, dict[str, int]] = {"shared": {}, "local": {}}
        self.sizes = {"shared": 0, "local": 0}
        self.instructions: list[Instruction] = []
        self.labels: dict[str, int] = {}

    def declare(self, kind: str, names: str) -> None:
        bits = 1 if kind == "pred" else int(kind[1:])
        for name in _split(names):
            ranged = re.match(r"^([%\w]+)<(\d+)>$", name)
            for each in [f"{ranged[1]}{i}" for i in range(int(ranged[2]))] if ranged else [name]:
                register = Register(len(self.registers), bits, each)
                self.registers.append(register)
                self.scopes[-1][each] = register

    def array(self, space: str, align: int, name: str, size: str) -> None:
        self.sizes[space] = -(-self.sizes[space] // align) * align
        self.arrays[space][name] = self.sizes[space]
        self.sizes[space] += int(size or 0)

    def operand(self, text: str) -> Operand:
        if text[0] == "{":
            return Vector(tuple(self.operand(part) for part in _split(text[1:-1])))
        if text[0] == "[":
            base, _, offset = text[1:-1].partition("+")
            return Address(self.operand(base.strip()), int(offset.strip() or "0", 0))
        if "|" in text:
            return Pair(*(self.operand(part.strip()) for part in text.split("|")))
        for scope in reversed(self.scopes):
            if text in scope:
                return scope[text]
        if _IMMEDIATE.match(text):
            return Immediate(text.rstrip("U"))
        if _SPECIAL.match(text) or re.match(r"^[\w$]+$", text):
            return Symbol(text)
        raise Unknown(f"operand {text}")

    def statement(self, text: str, line: int) -> None:
        if found := _REGISTERS.match(text):
            self.declare(found[1], found[2])
        elif found := _ARRAY.match(text):
            self.array(found[1], int(found[2]), found[3], found[4])
        elif text.startswith("."):
            raise Unknown(f"directive {text}")
        else:
            guarded = _GUARD.match(text)
            negated, name, rest = guarded.groups() if guarded else ("", None, text)
            opcode, _, operands = rest.partition(" ")
            guard = self.operand(name) if name else None
            given = tuple(self.operand(each) for each in _split(operands))
            self.instructions.append(Instruction(opcode, given, guard, bool(negated), line, " ".join(text.split())))

    def read(self, body: str, first_line: int) -> None:
        waiting = ""
        for number, raw in enumerate(body.split("\n"), first_line):
            line = raw.strip()
            if not waiting and _SKIPPED.match(line):
                continue
            waiting = f"{waiting} {line.expandtabs()}".strip()
            while waiting:
                if found := _LABEL.match(waiting):
                    self.labels[found[1]] = len(self.instructions)
                    waiting = waiting[found.end() :]
                elif waiting[0] == "{":
                    self.scopes.append({})
                    waiting = waiting[1:].lstrip()
                elif waiting[0] == "}":
                    self.scopes.pop()
                    waiting = waiting[1:].lstrip()
                elif ";" in waiting:
                    statement, _, waiting = waiting.partition(";")
                    waiting = waiting.lstrip()
                    if statement.strip():
                        self.statement(statement.strip(), number)
                else:
                    break


def parse(text: str) -> Kernel:
    """The one entry of a module."""
    text = "\n".join(_COMMENT.sub("", line) for line in text.split("\n"))
    entries = list(_ENTRY.finditer(text))
    if len(entries) != 1:
        raise Unknown(f"a module with {len(entries)} entries")
    entry = entries[0]
    reader = _Reader()
    for line in text[: entry.start()].split(";"):
        if found := _ARRAY.match(line[line.rfind(".extern") :].strip() if ".extern" in line else line.strip()):
            reader.array(found[1], int(found[2]), found[3], found[4])
    reader.read(text[entry.end() : _closing(text, entry.end())], text.count("\n", 0, entry.end()) + 1)
    parameters = []
    for each in filter(None, map(str.strip, entry[2].split(","))):
        found = _PARAMETER.search(each)
        if not found:
            raise Unknown(f"parameter {each}")
        parameters.append(Parameter(found[2], int(found[1])))
    threads = re.search(r"\.(?:req|max)ntid\s+(\d+)", entry[3])
    target = re.search(r"\.target\s+sm_(\d+)", text)
    if not threads or not target:
        raise Unknown("an entry without its number of threads, or a module without its target")
    goals = {part.name for each in reader.instructions for part in each.operands if isinstance(part, Symbol)}
    return Kernel(
        entry[1], int(target[1]), int(threads[1]), tuple(parameters), tuple(reader.registers),
        reader.arrays["shared"], reader.arrays["local"], reader.sizes["local"],
        tuple(reader.instructions), {name: place for name, place in reader.labels.items() if name in goals},
    )  # fmt: skip
