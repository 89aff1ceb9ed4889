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
from pathlib import Path

from tools import module
from tools.mutants.mutant import Mutant

ROOT = Path(__file__).parents[1]
COPIED = ("csrc", "src", "tests", "tools", "benchmarks", "examples", "docs", "pyproject.toml", "README.md")
# JAX has an environment of its own; the rest runs where this runs.
ENVIRONMENTS = {"jax": ".venv-all"}


def interpreter(area: str) -> str | None:
    """The Python that has what the area needs, or None."""
    if area not in ENVIRONMENTS:
        return sys.executable
    own = ROOT / ENVIRONMENTS[area] / "bin/python"
    return str(own) if own.exists() else None


class Scratch:
    def __init__(self, folder: Path, flags: Sequence[str] = ("-O1",)) -> None:
        self.tree, self.folder, self.flags = folder / "tree", folder, flags
        self.tree.mkdir(parents=True, exist_ok=True)
        for name in COPIED:
            _synchronise(ROOT / name, self.tree / name)
        self.pythons: dict[str, Path] = {}
        self.build()

    def build(self) -> None:
        built = module.build(self.folder / "build", self.flags, self.tree)
        shutil.copy2(built, self.tree / "src/hypersimplex/_kernel.so")

    def python(self, area: str) -> Path:
        """An environment that sees the copy first, and then all that the area's own environment sees."""
        if area in self.pythons:
            return self.pythons[area]
        base = interpreter(area)
        assert base is not None
        folder = self.folder / f"venv-{area}"
        if not folder.exists():
            subprocess.run([base, "-m", "venv", "--without-pip", str(folder)], check=True)
        code = "import sys; print(*[p for p in sys.path if 'site-packages' in p or 'dist-packages' in p], sep='\\n')"
        # From the folder above: the sources must not come in by the working directory.
        seen = subprocess.run([base, "-c", code], capture_output=True, text=True, check=True, cwd=self.folder.parent)
        (site,) = folder.glob("lib/python*/site-packages")
        others = [line for line in seen.stdout.splitlines() if line]
        (site / "first.pth").write_text("\n".join([str(self.tree / "src"), str(self.tree), *others, ""]))
        self.pythons[area] = folder / "bin/python"
        return self.pythons[area]

    def test(self, area: str, tests: str, seconds: float) -> tuple[str, str]:
        """passed, failed or time; and the test that failed. `tests` are arguments of pytest, or -m and a module's.

        The limit is of processor time, because a busy machine is no fault; ten times that for what waits forever.
        """
        self.build()
        command = [str(self.python(area)), *arguments(tests)]
        log, limit = self.folder / "log.txt", int(seconds)
        with log.open("w") as out:
            process = subprocess.Popen(
                command, cwd=self.tree, stdout=out, stderr=subprocess.STDOUT, env={**os.environ, "CI": "1"},
                start_new_session=True, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (limit, limit)),
            )  # fmt: skip
            try:
                code = process.wait(10 * seconds)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                return "time", ""
        lines = log.read_text(errors="replace").splitlines()
        failed = next((line for line in lines if line.startswith(("FAILED ", "ERROR "))), lines[-1] if lines else "")
        if code in (0, 1) or code < 0:
            return ("passed" if code == 0 else "failed"), failed[:200]
        return "broken", "\n".join(lines[-15:])  # pytest could not run, or found no test

    def try_mutant(self, mutant: Mutant, seconds: float) -> tuple[str, str]:
        path = self.tree / mutant.file
        before = path.read_text()
        try:
            path.write_text(mutant.applied(before))
            return self.test(mutant.area, mutant.tests, seconds)
        except module.CompileError as error:
            return "does not compile", str(error)[-300:]
        finally:
            path.write_text(before)  # the next build sees a younger file


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
