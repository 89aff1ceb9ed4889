"""One fault: a piece of a source, what takes its place, and the tests that should notice. The lists are text:

@edges tests/operator/test_edges.py      a name for arguments of pytest, or for the beginning of paths
csrc/newton.hpp @edges                   a file, and the tests for the faults below; with .venv-all, they run there
- k <= n                                 a piece of one line that stands in the file once
+ k < n                                  what takes its place
? k = n is refused.                      what a user would see
~                                        the tests did not notice it when it was first tried
! No k can be n here.                    why no test can see it, if none can

A file `blind_<area>.txt` holds faults that were written from the sources alone, without knowledge of the tests or of
the other lists.
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
    "sklearn": "scikit-learn",
    "study": "study and command line",
}

EVERYTHING = ".venv-all"
NEED_EVERYTHING = ("jax", "sklearn")  # areas whose tests need it, for JAX, LightGBM and XGBoost


class StaleError(Exception):
    """The piece is not in the source, or stands there more than once."""


@dataclass(frozen=True)
class Mutant:
    area: str
    file: str
    tests: str  # arguments of pytest
    old: str = ""
    new: str = ""
    effect: str = ""  # what a user would see
    survives: str = ""  # why no test can see it
    blind: bool = False  # written without knowledge of the tests
    missed: bool = False  # not noticed when it was first tried
    everything: bool = False  # its tests run in the environment with every framework

    @property
    def name(self) -> str:
        text = "\n".join([self.file, self.old, self.new, *["blind"][: self.blind]])
        return hashlib.sha256(text.encode()).hexdigest()[:8]

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


def _written_out(word: str, names: dict[str, str]) -> str:
    """A word with its name replaced: `@edges`, or `@study/train.py`."""
    name, slash, rest = word.partition("/")
    return names[name] + slash + rest if name.startswith("@") else word


def read(path: Path, area: str, blind: bool = False) -> list[Mutant]:
    found: list[Mutant] = []
    names: dict[str, str] = {}
    now = Mutant(area, "", "", blind=blind)
    for line in path.read_text().splitlines():
        mark, _, rest = line.partition(" ")
        if mark == "-":
            now = replace(now, old=rest)
        elif mark == "+":
            found.append(replace(now, new=rest))
        elif mark == "?":
            found[-1] = replace(found[-1], effect=rest)
        elif mark == "~":
            found[-1] = replace(found[-1], missed=True)
        elif mark == "!":
            found[-1] = replace(found[-1], survives=rest)
        elif mark.startswith("@") and "/" not in mark:
            names[mark] = " ".join(_written_out(word, names) for word in rest.split())
        elif mark and mark != "#":
            tests = " ".join(_written_out(word, names) for word in rest.split()).split()
            everything = EVERYTHING in tests or area in NEED_EVERYTHING
            tests = [word for word in tests if word != EVERYTHING]
            now = Mutant(area, _written_out(mark, names), " ".join(tests), blind=blind, everything=everything)
    return found


def read_all() -> list[Mutant]:
    lists = [(LISTS / f"{word}{area}.txt", area, bool(word)) for word in ("", "blind_") for area in AREAS]
    return [mutant for path, area, blind in lists if path.exists() for mutant in read(path, area, blind)]


MUTANTS = read_all()
