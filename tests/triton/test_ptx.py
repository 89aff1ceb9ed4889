"""Every kernel compiles to PTX for the two architectures in use, in every dtype, which needs no device."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("architecture", [80, 90])
@pytest.mark.parametrize("entry", ["fp32", "fp64", "fp16", "bf16"])
def test_every_kernel_compiles_for(architecture, entry):
    script = Path(__file__).parent / "ahead_of_time.py"
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    run = subprocess.run(
        [sys.executable, script, str(architecture), entry], env=env, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == ["loss", "project", "pullback"]
