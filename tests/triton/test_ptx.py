"""Every kernel compiles to PTX for the two architectures in use, which needs no device."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("architecture", [80, 90])
def test_every_kernel_compiles_for(architecture):
    script = Path(__file__).parent / "ahead_of_time.py"
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    run = subprocess.run(
        [sys.executable, script, str(architecture)], env=env, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert f"kernels for sm_{architecture}" in run.stdout
