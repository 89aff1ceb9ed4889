"""Compiles the kernel's module by hand, for tests that need it built in another way than an install builds it.

    python -m tools.module FOLDER -fsanitize=address ...

puts it into FOLDER with the given flags. One instruction set only, which calls itself baseline: the best that this
machine has, or with HYPERSIMPLEX_SIMD=baseline the one that every machine has. Only what has changed since the last
time is compiled, so each of the two needs a folder of its own.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
FLAGS = ["-std=c++17", "-fPIC", "-fvisibility=hidden", "-pthread", "-DNDEBUG"]
KERNEL_FLAGS = ["-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off", "-DHS_VARIANT=baseline"]


class CompileError(Exception):
    pass


def _instructions() -> list[str]:
    if os.environ.get("HYPERSIMPLEX_SIMD") == "baseline":
        return []
    try:
        flags = Path("/proc/cpuinfo").read_text()
    except OSError:
        flags = ""
    return ["-mavx2", "-mfma"] if platform.machine() == "x86_64" and " avx2 " in flags else []


def _sources(root: Path) -> dict[Path, list[str]]:
    """Every source with the flags of its own."""
    import nanobind

    nanobind_source = Path(nanobind.source_dir())
    robin = nanobind_source.parent / "ext/robin_map/include"
    python = ["-I", nanobind.include_dir(), "-I", str(robin), "-I", sysconfig.get_path("include")]
    sources = {nanobind_source / "nb_combined.cpp": [*python, "-fno-strict-aliasing"]}
    for source in sorted((root / "csrc").glob("*.cpp")):
        own = {"bindings.cpp": [*python, "-fno-strict-aliasing"], "variant.cpp": [*KERNEL_FLAGS, *_instructions()]}
        sources[source] = own.get(source.name, [])
    return sources


def _run(command: Sequence[str], where: Path) -> None:
    done = subprocess.run(command, cwd=where, capture_output=True, text=True)
    if done.returncode:
        raise CompileError(done.stderr[-4000:])


def _is_up_to_date(target: Path, root: Path) -> bool:
    """Whether the object is younger than all that the compiler read for it, which it wrote down beside it."""
    try:
        _, _, read = target.with_suffix(".d").read_text().replace("\\\n", " ").partition(": ")
        files = [root / name.replace("\\ ", " ") for name in re.split(r"(?<!\\)\s+", read) if name]
        return target.stat().st_mtime_ns > max(path.stat().st_mtime_ns for path in files)
    except OSError:  # never compiled, or a header is gone
        return False


def build(folder: Path, flags: Sequence[str], root: Path = ROOT) -> Path:
    """Compile root's csrc into folder; a source is compiled anew if it or a header of its own is younger."""
    folder.mkdir(parents=True, exist_ok=True)
    compiler = os.environ.get("CXX", "g++")
    launcher = [found] if (found := shutil.which("ccache")) else []
    objects, changed = [], False
    for source, own in _sources(root).items():
        target = folder / f"{source.stem}.o"
        objects.append(str(target))
        if _is_up_to_date(target, root):
            continue
        # From the root and by relative names, so that ccache and a copied folder serve another copy of the sources.
        name = str(source.relative_to(root)) if root in source.parents else str(source)
        _run([*launcher, compiler, *FLAGS, *own, *flags, "-MMD", "-c", name, "-o", str(target)], root)
        changed = True
    module = folder / "_kernel.so"
    if changed or not module.exists():
        _run([compiler, "-shared", "-pthread", *flags, *objects, "-ldl", "-o", str(module)], folder)
    return module


if __name__ == "__main__":
    print(build(Path(sys.argv[1]).resolve(), sys.argv[2:]))
