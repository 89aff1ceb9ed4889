"""Nonsense given to the compiled module raises; it never crashes. In a process of its own, to see a crash."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("seed", range(4))
def test_nonsense_never_crashes_the_kernel(seed):
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-m", "tests.kernel.fuzz_kernel", str(seed)],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    outcomes = dict(pair.split(":") for pair in done.stdout.split())
    # All kinds of ending were seen, so the fuzzer tried both sound and unsound calls.
    for outcome in ("accepted", "refused", "TypeError", "ValueError"):
        assert int(outcomes.get(outcome, 0)) > 20, outcomes
