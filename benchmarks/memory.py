"""The memory a step needs at its peak, above what the process held before."""

import re
import sys
from pathlib import Path

import torch

from benchmarks.timing import Step


def peak_bytes(step: Step) -> int:
    """Call the step once; the answer counts its result. For a process of its own, as a peak only rises."""
    ballast = torch.ones(2**26)  # above any peak that importing and preparing left behind
    before = _peak()
    result = step()
    after = _peak()
    del ballast, result
    return after - before


def _peak() -> int:
    """The most this process has held. Linux's getrusage would begin with the most its parent held."""
    status = Path("/proc/self/status")
    if status.exists() and (found := re.search(r"VmHWM:\s+(\d+) kB", status.read_text())):
        return int(found[1]) * 1024
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
