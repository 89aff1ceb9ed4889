"""Run by test_ptx.py in a process of its own: compile every kernel to PTX, without a device.

python tests/triton/ahead_of_time.py 80,90 fp32,fp64
"""

import sys
import time

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from hypersimplex.torch.backends.triton import _kernels as kernels

ROWS = {"BLOCK_N": 1024, "BLOCK_C": 1}
COLUMNS = {"BLOCK_N": 256, "BLOCK_C": 8}
SINGLE = {"BLOCK_N": 1, "BLOCK_C": 1}

# Pointers by what they point to: the array's own dtype, float64, or labels. Whole numbers of 1 are compiled apart.
ENTRIES, LABELS = {"x", "y", "v", "grad", "dense"}, {"labels"}
WHOLE = {"n", "inner", "count", "ignored"}


def signature(kernel, entry, constants):
    types = {}
    for name in kernel.arg_names:
        if name in constants:
            types[name] = "constexpr"
        elif name in WHOLE:
            types[name] = "i64" if name == "n" and entry == "fp64" else "i32"
        else:
            types[name] = "*i64" if name in LABELS else f"*{entry}" if name in ENTRIES else "*fp64"
    return types


def variants(entry):
    """Every kernel, short and long, with labels and without, in float32; in the other dtypes every kernel once."""
    write = {"WRITE": True}
    yield kernels.project, {"LONG": True, **write, **COLUMNS}
    yield kernels.pullback, {**ROWS, "inner": 1}
    yield kernels.loss, {"LABELS": False, "LONG": True, **write, **COLUMNS}
    if entry == "fp32":
        yield kernels.project, {"LONG": False, **write, **ROWS, "inner": 1}
        yield kernels.project, {"LONG": False, "WRITE": False, **SINGLE, "n": 1, "inner": 1, "count": 1}
        yield kernels.loss, {"LABELS": True, "LONG": False, **write, **COLUMNS}


def main():
    """Print what was compiled, one line each: architecture, dtype, kernel."""
    for architecture in map(int, sys.argv[1].split(",")):
        target = GPUTarget("cuda", architecture, 32)
        for entry in sys.argv[2].split(","):
            for kernel, constants in variants(entry):
                begin = time.perf_counter()
                source = ASTSource(kernel, signature(kernel, entry, constants), constants)
                ptx = triton.compile(source, target=target, options={"num_warps": 4}).asm["ptx"]
                print(f"{kernel.__name__} {time.perf_counter() - begin:.1f} s {constants}", file=sys.stderr)
                assert f".target sm_{architecture}" in ptx, kernel.__name__
                print(architecture, entry, kernel.__name__, flush=True)


if __name__ == "__main__":
    main()
