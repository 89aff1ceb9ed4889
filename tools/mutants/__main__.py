"""`make mutants`: one-line faults, one at a time, in a copy of the sources; the tests must notice them.

Results are kept in build/mutants.json, so a run that was stopped goes on where it was; a fault is tried again when the
file it is in has changed, or if it survived.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tools.mutants.mutant import EVERYTHING, MUTANTS, Mutant
from tools.mutants.page import Results, caught, summary, write_page
from tools.scratch import CHOSEN, ROOT, Scratch, interpreter

RESULTS = ROOT / "build/mutants.json"
SHARE = 0.95
LONGEST = 300  # seconds of processor time for the tests of a fault
SLOWER = 3  # what takes so many times longer than without the fault has noticed it


def chosen(only: list[str]) -> list[Mutant]:
    return [m for m in MUTANTS if not only or any(word in (m.area, m.name) or word in m.file for word in only)]


def stamp(mutant: Mutant) -> str:
    text = (ROOT / mutant.file).read_text() + mutant.tests
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def is_known(mutant: Mutant, results: Results) -> bool:
    """Whether it was tried as it stands. A survivor without a reason is tried again: a test may have been written."""
    result = results.get(mutant.name, {})
    good = ("caught", "survived") if mutant.survives else ("caught",)
    return result.get("stamp") == stamp(mutant) and result.get("outcome") in good


def check_list(mutants: list[Mutant]) -> None:
    names = [m.name for m in mutants]
    problems = [text for m in mutants if (text := m.wrong(ROOT))]
    problems += [f"twice in the list: {m}" for m in mutants if names.count(m.name) > 1]
    if problems:
        sys.exit("\n".join(["stale:", *problems]))


class Sound:
    """What became of a fault. The test that failed must pass without it, which is tried once."""

    def __init__(self) -> None:
        self.found: dict[tuple[bool, str], tuple[str, float]] = {}

    def outcome(self, scratch: Scratch, mutant: Mutant) -> tuple[str, str]:
        found, text = scratch.try_mutant(mutant, LONGEST)
        if found == "passed":
            return "survived", text
        if found == "time":
            passed, took = self.passes(scratch, mutant, mutant.tests)
            return ("caught" if passed and SLOWER * took < LONGEST else "too slow to tell"), text
        if found != "failed":
            return found, text
        kind, _, line = text.partition(" ")
        failed = shlex.quote(line.partition(" - ")[0]) if kind in ("FAILED", "ERROR") and "::" in line else ""
        if any(self.passes(scratch, mutant, tests)[0] for tests in [failed, mutant.tests] if tests):
            return "caught", text
        return "unsound", f"without the fault as well: {text}"

    def passes(self, scratch: Scratch, mutant: Mutant, tests: str) -> tuple[bool, float]:
        key = mutant.everything, tests
        if key not in self.found:
            begin = time.monotonic()
            found, _ = scratch.test(*key, LONGEST)
            self.found[key] = found, time.monotonic() - begin
        found, took = self.found[key]
        return found == "passed", took


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description=__doc__)
    parser.add_argument("--list", action="store_true", help="print the faults")
    parser.add_argument("--check", action="store_true", help="only check that every fault still fits the sources")
    parser.add_argument(
        "--only", action="append", default=[], help="an area, a part of a file's name, or a fault's name"
    )
    parser.add_argument("--again", action="store_true", help="try what has been tried")
    parser.add_argument("--blind", action="store_true", help="only those written without knowledge of the tests")
    parser.add_argument("--jobs", type=int, default=1, help="so many at a time, each in a copy of its own")
    parser.add_argument("--page", type=Path, help="write the figures into this page")
    given = parser.parse_args()
    mutants = [m for m in chosen(given.only) if m.blind or not given.blind]
    if given.list:
        print(*(f"{m.name}  {m.area:8}  {m}" for m in mutants), sep="\n")
        return
    check_list(mutants)
    if given.check:
        print(f"{len(mutants)} faults fit the sources")
        return
    possible = [m for m in mutants if interpreter(m.everything)]
    if len(possible) < len(mutants):
        number = len(mutants) - len(possible)
        print(f"left out: {number} that need {EVERYTHING} (`make mutants` makes it) or the Python that {CHOSEN} names")
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    left = [m for m in possible if given.again or not is_known(m, results)]
    if left:
        run(left, results, given.jobs)
    print(summary(mutants, results))
    if given.page:
        command = ["git", "rev-parse", "--short", "HEAD"]
        commit = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
        write_page(given.page, MUTANTS, results, commit)
    sys.exit(verdict(possible, results))


def run(mutants: list[Mutant], results: Results, jobs: int) -> None:
    left, lock, sound = deque(mutants), threading.Lock(), Sound()

    def work(scratch: Scratch) -> None:
        while left:
            with lock:
                mutant = left.popleft() if left else None
            if mutant:
                begin = time.monotonic()
                note(mutant, sound.outcome(scratch, mutant), begin, results, lock)

    folders = [ROOT / f"build/mutants/{job}" for job in range(jobs)]
    scratches = [Scratch(folders[0])]
    for folder in folders[1:]:  # what is compiled is copied, not compiled again
        if not folder.exists():
            shutil.copytree(folders[0], folder, ignore=shutil.ignore_patterns("venv-*"))
        scratches.append(Scratch(folder))
    with ThreadPoolExecutor(jobs) as pool:
        for done in [pool.submit(work, scratch) for scratch in scratches]:
            done.result()


def note(mutant: Mutant, found: tuple[str, str], begin: float, results: Results, lock: threading.Lock) -> None:
    outcome, text = found
    with lock:
        results[mutant.name] = {"outcome": outcome, "by": text[:200], "stamp": stamp(mutant)}
        RESULTS.write_text(json.dumps(results, indent=1))
        print(f"{outcome:9} {time.monotonic() - begin:4.0f} s  {mutant}  | {text[:100]}", flush=True)


def verdict(mutants: list[Mutant], results: Results) -> str | None:
    outcomes = [results.get(m.name, {}).get("outcome") for m in mutants]
    broken = [m.name for m, o in zip(mutants, outcomes, strict=True) if o not in ("caught", "survived")]
    if broken:
        return f"these could not be tried: {', '.join(broken)}"
    unknown = [m for m, o in zip(mutants, outcomes, strict=True) if o == "survived" and not m.survives]
    for m in unknown:
        print(f"survived without a reason: {m.name} {m}")
    for whose, blind in (("our faults", False), ("a stranger's faults", True)):
        some = [m for m in mutants if m.blind == blind]
        share = caught(some, results) / max(len(some), 1)
        if some and share < SHARE:
            return f"at least {SHARE:.0%} of {whose} must be caught, got {share:.1%}"
    return "a survivor needs its reason" if unknown else None


if __name__ == "__main__":
    main()
