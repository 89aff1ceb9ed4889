"""One fault: a piece of a source, what takes its place, and the tests that should notice. The lists are text:

@edges tests/operator/test_edges.py      a name for arguments of pytest
csrc/newton.hpp @edges                   a file, and the tests for the faults below
- k <= n                                 a piece of one line that stands in the file once
+ k < n                                  what takes its place
! No k can be n here.                    why no test can see it, if none can
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

LISTS = Path(__file__).parent
AREAS = {
    "kernel": "kernel (C++)",
    "torch": "PyTorch",
    "jax": "JAX",
    "boosting": "boosting and NumPy",
    "study": "the study",
}


class StaleError(Exception):
    """The piece is not in the source, or stands there more than once."""


@dataclass(frozen=True)
class Mutant:
    area: str
    file: str
    tests: str  # arguments of pytest
    old: str = ""
    new: str = ""
    survives: str = ""  # why no test can see it

    @property
    def name(self) -> str:
        return hashlib.sha256(f"{self.file}\n{self.old}\n{self.new}".encode()).hexdigest()[:8]

    def __str__(self) -> str:
        return f"{self.file}: {self.old}  ->  {self.new}"

    def applied(self, text: str) -> str:
        found = text.count(self.old)
        if found != 1:
            raise StaleError(f"{self.file}: {self.old!r} must be there once, found {found} times")
        return text.replace(self.old, self.new)

    def wrong(self, root: Path) -> str:
        """What is wrong with the entry itself, if anything."""
        try:
            self.applied((root / self.file).read_text())
        except (StaleError, OSError) as error:
            return str(error)
        return "" if self.old != self.new else f"{self.file}: {self.old!r} must change"


def read(area: str) -> list[Mutant]:
    found: list[Mutant] = []
    names: dict[str, str] = {}
    now = Mutant(area, "", "")
    for line in (LISTS / f"{area}.txt").read_text().splitlines():
        mark, _, rest = line.partition(" ")
        if mark.startswith("@"):
            names[mark] = rest.strip()
        elif mark == "-":
            now = replace(now, old=rest)
        elif mark == "+":
            found.append(replace(now, new=rest))
        elif mark == "!":
            found[-1] = replace(found[-1], survives=rest)
        elif mark and mark != "#":
            now = Mutant(area, mark, " ".join(names[word] for word in rest.split()))
    return found


MUTANTS = [mutant for area in AREAS for mutant in read(area)]
