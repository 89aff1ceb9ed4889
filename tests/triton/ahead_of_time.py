"""Run by test_ptx.py in a process of its own: compile every kernel to PTX for one architecture, without a device.

python tests/triton/ahead_of_time.py 80
"""

import sys

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from hypersimplex.torch import _triton_gradients as gradients
from hypersimplex.torch import _triton_kernels as kernels

TILE = {"BLOCK_N": 1024, "BLOCK_C": 1}
COLUMNS = {"BLOCK_N": 256, "BLOCK_C": 8}

# Pointers by what they point to: the array's own dtype, float64, or labels.
ENTRIES, LABELS = {"x", "y", "v", "grad", "dense"}, {"labels"}
WHOLE = {"n", "inner", "count", "ignored", "stride", "sampled", "tiles", "blocks", "step"}


def signature(kernel, entry, constants):
    types = {}
    for name in kernel.arg_names:
        if name in constants:
            types[name] = "constexpr"
        elif name in WHOLE:
            types[name] = "i32"
        else:
            types[name] = "*i64" if name in LABELS else f"*{entry}" if name in ENTRIES else "*fp64"
    return types


def variants():
    """Every kernel in float32; the whole chain in the other dtypes, in tiles of rows and of columns."""
    wide = {"fp64": True}
    for entry in ("fp32", "fp16", "bf16", "fp64"):
        for tile in (TILE, COLUMNS):
            flags = {"WIDE": wide.get(entry, False), **tile}
            yield kernels.project_tile, entry, flags
            if entry == "fp16" or (entry == "bf16" and tile is TILE):
                continue
            yield kernels.look_partly, entry, {"LABELS": False, **flags}
            yield kernels.write, entry, flags
            yield gradients.backward_tile, entry, tile
            yield gradients.backward_write, entry, tile
            if tile is TILE:
                yield kernels.start, entry, {"LABELS": False, **flags}
                yield kernels.finish_search, entry, {"LABELS": False, **flags}
                yield kernels.take_step, entry, {"WIDE": flags["WIDE"], "BLOCK_B": 64, "BLOCK_C": 1}
                yield gradients.backward_partly, entry, tile
                yield gradients.add_up, entry, {"BLOCK_B": 64, "BLOCK_C": 1}
            else:
                for labels in (True, False):
                    yield gradients.loss_tile, entry, {"LABELS": labels, **flags}
                    yield gradients.loss_partly, entry, {"LABELS": labels, **flags}
                    yield gradients.loss_write, entry, {"LABELS": labels, **flags}


def main():
    architecture = int(sys.argv[1])
    target = GPUTarget("cuda", architecture, 32)
    count = 0
    for kernel, entry, constants in variants():
        source = ASTSource(kernel, signature(kernel, entry, constants), constants)
        ptx = triton.compile(source, target=target, options={"num_warps": 4}).asm["ptx"]
        assert f".target sm_{architecture}" in ptx, kernel.__name__
        count += 1
    print(f"{count} kernels for sm_{architecture}")


if __name__ == "__main__":
    main()
