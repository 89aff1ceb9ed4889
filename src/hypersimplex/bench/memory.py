"""The memory a step needs at its peak, above what the process held before."""

import sys

import torch

from hypersimplex.bench.timing import Step


def peak_bytes(step: Step) -> int:
    """Call the step once; the answer counts its result. For a process of its own, as a peak only rises."""
    import resource

    ballast = torch.ones(2**26)  # above any peak that importing and preparing left behind
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = step()
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    del ballast, result
    return (after - before) * (1 if sys.platform == "darwin" else 1024)
