"""One fault: a piece of a source, what takes its place, and the tests that should notice."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path


class StaleError(Exception):
    """The piece is not in the source, or stands there more than once."""


@dataclass(frozen=True)
class Mutant:
    area: str  # kernel, torch, jax or boosting
    file: str
    old: str
    new: str
    tests: str  # arguments of pytest
    survives: str = ""  # why no test can see it

    @property
    def name(self) -> str:
        return hashlib.sha256(f"{self.file}\n{self.old}\n{self.new}".encode()).hexdigest()[:8]

    def applied(self, text: str) -> str:
        found = text.count(self.old)
        if found != 1:
            raise StaleError(f"{self.file}: {self.old!r} must be there once, found {found} times")
        return text.replace(self.old, self.new)

    def check(self, root: Path) -> str:
        """What is wrong with the entry itself, if anything."""
        try:
            self.applied((root / self.file).read_text())
        except (StaleError, OSError) as error:
            return str(error)
        return "" if "\n" not in self.old + self.new and self.old != self.new else f"{self.file}: must change one line"
