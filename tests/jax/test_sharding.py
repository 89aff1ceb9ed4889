"""The batch spread over four devices gives what one device gives: losses, gradients, thresholds."""

import os
import subprocess
import sys
from pathlib import Path


def test_four_devices_equal_one():
    script = Path(__file__).parent / "four_devices.py"
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning:hypersimplex", script],
        env={**os.environ, **flags},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:-1] == [
        "sharded arrays under jit",
        "a mesh with Explicit axes",
        "shard_map",
        "the operator across devices",
        "pmap",
    ]
