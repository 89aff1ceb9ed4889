"""What the tests of the boundary share: code that may crash runs in a child process, and a gradient."""

import os
import tempfile
import textwrap
import traceback

import torch
from torch import Tensor

from hypersimplex.torch import soft_binary_argmax


def alone(code: str) -> None:
    """Run in a child process, where a segmentation fault is a failed test; forked, so that torch is there already."""
    source = "import torch\nfrom hypersimplex.torch import *\ntorch.manual_seed(0)\n" + textwrap.dedent(code)
    with tempfile.TemporaryFile("w+") as said:
        child = os.fork()
        if child == 0:
            try:
                exec(compile(source, "<alone>", "exec"), {})
                os._exit(0)
            except SystemExit:
                os._exit(0)
            except BaseException:
                said.write(traceback.format_exc())
                said.flush()
                os._exit(1)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        said.seek(0)
        assert status == 0, said.read() or f"ended by signal {-status}"


def gradient(x: Tensor, *args: object) -> Tensor:
    leaf = x.detach().clone().requires_grad_()
    v = torch.linspace(-1, 1, x.numel(), dtype=x.dtype).reshape(x.shape)
    return torch.autograd.grad(soft_binary_argmax(leaf, *args), leaf, v)[0]
