"""A copy of the sources with an environment of its own, where one fault at a time is put in, built and tested."""

from __future__ import annotations

import os
import resource
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tools import module
from tools.mutants.mutant import EVERYTHING, Mutant

ROOT = Path(__file__).parents[1]
COPIED = ("csrc", "src", "study", "tests", "tools", "benchmarks", "examples", "docs", "pyproject.toml", "README.md")
SOURCES = ("src", "study/src")  # of these folders a copy's environment takes packages first
CHOSEN = "HYPERSIMPLEX_PYTHON_ALL"


def interpreter(everything: bool) -> str | None:
    """The Python that runs this, or that of the environment with every framework, or None if there is no such."""
    if not everything:
        return sys.executable
    own = Path(os.environ.get(CHOSEN) or ROOT / EVERYTHING / "bin/python")
    return str(own) if own.exists() else None


class Scratch:
    def __init__(self, folder: Path, flags: Sequence[str] = ("-O1",)) -> None:
        self.tree, self.folder, self.flags = folder / "tree", folder, flags
        self.tree.mkdir(parents=True, exist_ok=True)
        for name in COPIED:
            _synchronise(ROOT / name, self.tree / name)
        self.pythons: dict[bool, Path] = {}
        self.sound = self.folder / "sound.so"  # the module without a fault
        shutil.copy2(self.build(), self.sound)
        self._install(self.sound)

    def build(self) -> Path:
        return module.build(self.folder / "build", self.flags, self.tree)

    def _install(self, built: Path) -> None:
        shutil.copy2(built, self.tree / "src/hypersimplex/_kernel.so")

    def python(self, everything: bool = False) -> Path:
        """An environment that sees the copy first, and then all that the interpreter's own environment sees."""
        if everything in self.pythons:
            return self.pythons[everything]
        base = interpreter(everything)
        assert base is not None
        folder = self.folder / f"venv-{'all' if everything else 'own'}"
        if not folder.exists():
            subprocess.run([base, "-m", "venv", "--without-pip", str(folder)], check=True)
        code = "import sys; print(*[p for p in sys.path if 'site-packages' in p or 'dist-packages' in p], sep='\\n')"
        # From the folder above: the sources must not come in by the working directory.
        seen = subprocess.run([base, "-c", code], capture_output=True, text=True, check=True, cwd=self.folder.parent)
        (site,) = folder.glob("lib/python*/site-packages")
        others = [line for line in seen.stdout.splitlines() if line]
        ours = [str(self.tree / name) for name in (*SOURCES, ".")]
        (site / "first.pth").write_text("\n".join([*ours, *others, ""]))
        self.pythons[everything] = folder / "bin/python"
        return self.pythons[everything]

    def test(self, everything: bool, tests: str, seconds: float) -> tuple[str, str]:
        """passed, failed or time; and the test that failed. `tests` are arguments of pytest, or -m and a module's.

        The limit is of processor time, because a busy machine is no fault; three times that for what waits forever.
        """
        command = [str(self.python(everything)), *arguments(tests)]
        log, limit = self.folder / "log.txt", int(seconds)
        with log.open("w") as out:
            process = subprocess.Popen(
                command, cwd=self.tree, stdout=out, stderr=subprocess.STDOUT, env={**os.environ, "CI": "1"},
                start_new_session=True,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5)),
            )  # fmt: skip
            try:
                code = process.wait(3 * seconds)
            except subprocess.TimeoutExpired:
                code = -signal.SIGXCPU
            with suppress(ProcessLookupError):  # also what the tests themselves have started
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if code in (-signal.SIGXCPU, -signal.SIGKILL):
            return "time", f"more than {limit} s"
        lines = log.read_text(errors="replace").splitlines()
        failed = next((line for line in lines if line.startswith(("FAILED ", "ERROR "))), lines[-1] if lines else "")
        if code in (0, 1, 2) or code < 0:  # 2: a file could not be imported
            return ("passed" if code == 0 else "failed"), failed
        return "broken", "\n".join(lines[-15:])  # pytest could not run, or found no test

    def try_mutant(self, mutant: Mutant, seconds: float) -> tuple[str, str]:
        path, compiled = self.tree / mutant.file, mutant.file.startswith("csrc/")
        before = path.read_text()
        try:
            path.write_text(mutant.applied(before))
            if compiled:
                self._install(self.build())
            return self.test(mutant.everything, mutant.tests, seconds)
        except module.CompileError as error:
            return "does not compile", str(error)[-300:]
        finally:
            path.write_text(before)  # the next build sees a younger file
            if compiled:
                self._install(self.sound)


def arguments(tests: str) -> list[str]:
    pytest = ["-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "not slow"]
    return [*([] if tests.startswith("-m ") else pytest), *shlex.split(tests)]


def _synchronise(source: Path, target: Path) -> None:
    if source.is_file():
        if not target.exists() or target.read_bytes() != source.read_bytes():
            shutil.copy(source, target)
        return
    files = (p for p in source.rglob("*") if p.is_file() and "__pycache__" not in p.parts)
    wanted = {p.relative_to(source) for p in files if p.suffix != ".so"}  # the copy's module is built, not copied
    for old in [p for p in target.rglob("*") if p.is_file()]:
        if old.relative_to(target) not in wanted and old.suffix != ".so":
            old.unlink()
    for name in wanted:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        _synchronise(source / name, target / name)
