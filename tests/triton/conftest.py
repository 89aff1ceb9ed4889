import importlib.util
import os

import torch

# Triton lives in an environment of its own; `make test` says that this suite is left out, `make test-triton` runs it.
collect_ignore_glob = [] if importlib.util.find_spec("triton") else ["test_*.py"]

# Read when Triton is first imported: kernels then run on the CPU, one program after another.
os.environ["TRITON_INTERPRET"] = "1"

# The arrays are tiny: on a busy machine threads would only wait for each other.
torch.set_num_threads(1)


def pytest_configure(config):
    # The interpreter computes with NumPy, which warns where a device gives inf or NaN without a word.
    config.addinivalue_line("filterwarnings", "ignore::RuntimeWarning:triton.runtime.interpreter")
    # About a default of Triton's compiler that is to change; either is right for these kernels.
    config.addinivalue_line("filterwarnings", "ignore:TRITON_DEFAULT_FP_FUSION:UserWarning")
