"""Every kernel compiles to PTX for the two architectures in use, in every dtype, which needs no device."""

import os
import subprocess
import sys
from pathlib import Path

ARCHITECTURES, ENTRIES = ("80", "90"), ("fp32", "fp64", "fp16", "bf16")


def test_every_kernel_compiles():
    script = Path(__file__).parent / "ahead_of_time.py"
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, script, ",".join(ARCHITECTURES), ",".join(ENTRIES)]
    run = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    kernels = ("loss", "project", "pullback")
    assert set(run.stdout.splitlines()) == {f"{a} {e} {k}" for a in ARCHITECTURES for e in ENTRIES for k in kernels}
