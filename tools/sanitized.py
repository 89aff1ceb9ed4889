"""`make sanitize-python`: the Python tests over a kernel module that AddressSanitizer watches.

What the kernel's own tests cannot reach is covered here: the boundary to Python, and the memory that frameworks hand
over. Leaks are not looked for: Python itself leaves memory to the end of the process.
"""

from __future__ import annotations

import os
import subprocess
import sys

from tools.scratch import ROOT, Scratch

FLAGS = ["-O1", "-g", "-fsanitize=address", "-fno-omit-frame-pointer"]
TESTS = [
    "tests/kernel",
    "tests/operator",
    "tests/budgets",
    "tests/torch/test_loss_values.py",
    "tests/torch/test_loss_edges.py",
    "tests/torch/test_loss_module.py",
    "tests/torch/test_loss_decisions.py",
    "tests/torch/test_operator_gradients.py",
]
# What is not the kernel, and what counts threads or measures time, which the sanitizer changes.
LEFT_OUT = "not plain and not share_threads and not gil_is_released"
WORKERS = "2"


def preload() -> str:
    """The sanitizer's library must come first, and C++'s own with it, or its exceptions are not found."""
    compiler = os.environ.get("CXX", "g++")
    paths = [
        subprocess.run(
            [compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name in ("libasan.so", "libstdc++.so")
    ]
    missing = [path for path in paths if not os.path.isabs(path)]
    if missing:
        sys.exit(f"{compiler} has no {missing[0]}; the sanitizer's library is a package of its own on some systems")
    return " ".join(paths)


def main() -> None:
    scratch = Scratch(ROOT / "build/sanitize-python", FLAGS)
    environment = {
        **os.environ,
        "LD_PRELOAD": preload(),
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:abort_on_error=1:handle_segv=1",
        "PYTHONMALLOC": "malloc",  # or an array's memory would be a piece of a larger one
        "CI": "1",
    }
    python = str(scratch.python())
    check = "import hypersimplex._kernel as k; assert '__asan_init' in open(k.__file__, 'rb').read().decode('latin1')"
    subprocess.run([python, "-c", check], check=True, env=environment, cwd=scratch.tree)
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", WORKERS, "-m", "not slow", "-k", LEFT_OUT]
    sys.exit(subprocess.run([*command, *(sys.argv[1:] or TESTS)], env=environment, cwd=scratch.tree).returncode)


if __name__ == "__main__":
    main()
