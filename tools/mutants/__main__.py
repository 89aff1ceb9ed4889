"""`make mutants`: one-line faults, one at a time, in a copy of the sources; the tests must notice them.

Results are kept in build/mutants.json, so a run that was stopped goes on where it was; a fault is tried again when the
file it is in has changed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import sys
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tools.mutants.mutant import MUTANTS, Mutant
from tools.mutants.page import Results, summary, write_page
from tools.scratch import ENVIRONMENTS, ROOT, Scratch, interpreter

RESULTS = ROOT / "build/mutants.json"
SHARE = 0.95
Try = Callable[[Mutant, float], tuple[str, str]]


def chosen(only: list[str]) -> list[Mutant]:
    return [m for m in MUTANTS if not only or any(word in (m.area, m.name) or word in m.file for word in only)]


def stamp(mutant: Mutant) -> str:
    text = (ROOT / mutant.file).read_text() + mutant.tests
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def check_list(mutants: list[Mutant]) -> None:
    names = [m.name for m in mutants]
    problems = [text for m in mutants if (text := m.wrong(ROOT))]
    problems += [f"twice in the list: {m}" for m in mutants if names.count(m.name) > 1]
    if problems:
        sys.exit("\n".join(["stale:", *problems]))


class Sound:
    """Without a fault every one of the tests must pass: tried once, before the first fault that they should notice."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.locks: dict[tuple[str, str], threading.Lock] = defaultdict(threading.Lock)
        self.found: dict[tuple[str, str], str] = {}

    def passes(self, scratch: Scratch, mutant: Mutant) -> bool:
        key = mutant.area, mutant.tests
        with self.locks[key]:
            if key not in self.found:
                self.found[key], text = scratch.test(*key, 2 * self.seconds)
                print(f"without a fault: {mutant.tests}: {self.found[key]} {text}", flush=True)
        return self.found[key] == "passed"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description=__doc__)
    parser.add_argument("--list", action="store_true", help="print the faults")
    parser.add_argument("--check", action="store_true", help="only check that every fault still fits the sources")
    parser.add_argument(
        "--only", action="append", default=[], help="an area, a part of a file's name, or a fault's name"
    )
    parser.add_argument("--again", action="store_true", help="forget earlier results")
    parser.add_argument(
        "--seconds", type=float, default=200, help="of processor time for one fault; longer counts as noticed"
    )
    parser.add_argument("--jobs", type=int, default=1, help="so many at a time, each in a copy of its own")
    parser.add_argument("--page", type=Path, help="write the figures into this page")
    given = parser.parse_args()
    mutants = chosen(given.only)
    if given.list:
        print(*(f"{m.name}  {m.area:8}  {m}" for m in mutants), sep="\n")
        return
    check_list(mutants)
    if given.check:
        print(f"{len(mutants)} faults fit the sources")
        return
    missing = {m.area for m in mutants if interpreter(m.area) is None}
    for area in sorted(missing):
        print(f"left out: {area}, which needs {ENVIRONMENTS[area]} (make test-{area} makes it)")
    results = {} if given.again or not RESULTS.exists() else json.loads(RESULTS.read_text())
    left = [m for m in mutants if m.area not in missing and results.get(m.name, {}).get("stamp") != stamp(m)]
    if left:
        run(left, results, given.seconds, given.jobs)
    print(summary(mutants, results))
    if given.page:
        write_page(given.page, MUTANTS, results)
    sys.exit(verdict([m for m in mutants if m.area not in missing], results))


def run(mutants: list[Mutant], results: Results, seconds: float, jobs: int) -> None:
    # Neighbors have the same tests, which the first one must see pass: workers begin apart.
    left, lock, sound = deque(m for first in range(5) for m in mutants[first::5]), threading.Lock(), Sound(seconds)

    def work(scratch: Scratch) -> None:
        while left:
            with lock:
                mutant = left.popleft() if left else None
            if mutant:
                tried = scratch.try_mutant if sound.passes(scratch, mutant) else unsound
                note(mutant, tried, results, seconds, lock)

    folders = [ROOT / f"build/mutants/{job}" for job in range(jobs)]
    scratches = [Scratch(folders[0])]
    for folder in folders[1:]:  # what is compiled is copied, not compiled again
        if not folder.exists():
            shutil.copytree(folders[0], folder, ignore=shutil.ignore_patterns("venv-*"))
        scratches.append(Scratch(folder))
    with ThreadPoolExecutor(jobs) as pool:
        for done in [pool.submit(work, scratch) for scratch in scratches]:
            done.result()


def unsound(mutant: Mutant, seconds: float) -> tuple[str, str]:
    return "unsound", "its tests fail without a fault"


def note(mutant: Mutant, tried: Try, results: Results, seconds: float, lock: threading.Lock) -> None:
    begin = time.monotonic()
    found, text = tried(mutant, seconds)
    outcome = {"passed": "survived", "failed": "caught", "time": "caught"}.get(found, found)
    took = time.monotonic() - begin
    with lock:
        results[mutant.name] = {"outcome": outcome, "by": text or found, "stamp": stamp(mutant)}
        RESULTS.write_text(json.dumps(results, indent=1))
        print(f"{outcome:9} {took:4.0f} s  {mutant}  | {text[:100]}", flush=True)


def verdict(mutants: list[Mutant], results: Results) -> str | None:
    outcomes = [results.get(m.name, {}).get("outcome") for m in mutants]
    broken = [m.name for m, o in zip(mutants, outcomes, strict=True) if o not in ("caught", "survived")]
    if broken:
        return f"these could not be tried: {', '.join(broken)}"
    unknown = [m for m, o in zip(mutants, outcomes, strict=True) if o == "survived" and not m.survives]
    for m in unknown:
        print(f"survived without a reason: {m.name} {m}")
    share = outcomes.count("caught") / max(len(outcomes), 1)
    return f"at least {SHARE:.0%} must be caught, got {share:.1%}" if share < SHARE or unknown else None


if __name__ == "__main__":
    main()
