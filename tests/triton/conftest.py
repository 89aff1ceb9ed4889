"""The kernels in two ways: by Triton's interpreter, or with TRITON_INTERPRET=0 compiled, and executed by `ptx`.

Triton decides between them when it is imported, so one process does either. `make test-triton` runs both.
"""

import importlib.util
import os
from contextlib import contextmanager

import pytest
import torch

# Read when Triton is first imported: kernels then run on the CPU, one program after another.
INTERPRETED = os.environ.setdefault("TRITON_INTERPRET", "1") == "1"
# Architectures to compile for and to execute.
ARCHITECTURES = [int(each) for each in os.environ.get("HYPERSIMPLEX_SM", "80,90").split(",")]
ALL = len(ARCHITECTURES) > 2

# Triton lives in an environment of its own; `make test` says that this suite is left out, `make test-triton` runs it.
if not importlib.util.find_spec("triton"):
    collect_ignore_glob = ["test_*.py", "compiled/*"]
elif INTERPRETED:
    collect_ignore_glob = ["compiled/*"]
else:
    # Faults are put into the interpreter's kernels there, and launches are counted without any.
    collect_ignore_glob = ["test_self_check.py", "test_launches.py", "ptx/*"]

# The arrays are tiny: on a busy machine threads would only wait for each other.
torch.set_num_threads(1)


def pytest_configure(config):
    # The interpreter computes with NumPy, which warns where a device gives inf or NaN without a word.
    config.addinivalue_line("filterwarnings", "ignore::RuntimeWarning:triton.runtime.interpreter")
    # About a default of Triton's compiler that is to change; either is right for these kernels.
    config.addinivalue_line("filterwarnings", "ignore:TRITON_DEFAULT_FP_FUSION:UserWarning")


def _real():
    """The kind of device that this machine has: NVIDIA's and AMD's are "cuda" to torch, Intel's "xpu"."""
    return next((kind for kind in ("cuda", "xpu") if getattr(torch, kind).is_available()), None)


WAYS = ["interpreter"] if INTERPRETED else [f"sm_{each}" for each in ARCHITECTURES]


@contextmanager
def running(way):
    """Kernels run in this way; yields the device for their tensors."""
    if way == "interpreter":
        yield torch.device("cpu")
    elif way == "real":
        if not _real():
            pytest.skip("no NVIDIA, AMD or Intel device on this machine")
        yield torch.device(_real())
    else:
        from tests.triton.ptx.device import emulated

        with emulated(int(way.removeprefix("sm_"))):
            yield torch.device("cpu")


@pytest.fixture(params=WAYS)
def on_cpu(request):
    """Kernels take CPU tensors: by the interpreter, or compiled for each architecture and executed."""
    with running(request.param) as device:
        yield device


@pytest.fixture(params=WAYS if INTERPRETED else [*WAYS, "real"])
def device(request):
    """As `on_cpu`; and the device of this machine, if it has one."""
    with running(request.param) as device:
        yield device
