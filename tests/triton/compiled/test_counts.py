"""The table of executed instructions."""

import pytest
import torch

from benchmarks import cuda_counts
from tests.triton.ptx.counts import KINDS, kind_of


@pytest.mark.parametrize(
    ("opcode", "kind"),
    [
        ("fma.rn.f64", "float64"), ("setp.lt.f64", "float64"), ("cvt.f64.f32", "float64"), ("min.f64", "float64"),
        ("div.rn.f64", "float64 division"), ("sqrt.rn.f64", "float64 division"), ("div.rn.f32", "float32 division"),
        ("add.f32", "float32"), ("fma.rn.f32x2", "float32"), ("setp.gt.bf16x2", "float32"), ("add.s64", "integer"),
        ("and.pred", "integer"), ("div.s64", "integer"), ("selp.f64", "select and move"),
        ("mov.b32", "select and move"), ("ld.global.v4.b32", "global memory"), ("st.shared.b64", "shared memory"),
        ("ldmatrix.sync.aligned.m8n8.x1.shared.b16", "shared memory"), ("ld.param.b64", "parameter"),
        ("st.b8", "local memory"), ("bar.sync", "barrier"), ("shfl.sync.bfly.b32", "shuffle"),
        ("redux.sync.add.s32", "shuffle"), ("bra.uni", "branch"), ("ret", "branch"),
    ],
)  # fmt: skip
def test_kinds(opcode, kind):
    assert kind_of(opcode) == kind
    assert kind in KINDS


def test_the_table():
    _, _, *rows = cuda_counts.table(90, torch.float32, [((2, 300), 1), ((300, 2), 0)])
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert [row[:3] for row in cells] == [
        ["project", "(2, 300)", "1"], ["pullback", "(2, 300)", "1"],
        ["project", "(300, 2)", "0"], ["pullback", "(300, 2)", "0"], ["loss", "(300, 2)", "0"],
    ]  # fmt: skip
    for _, _, _, total, *parts in cells:
        # What is not shown is rare, and every figure is rounded.
        assert 0 < float(total) - sum(map(float, parts)) + 0.05 * len(parts) < 0.1 * float(total)


@pytest.mark.parametrize(("n", "passes"), [(1023, 3), (2047, 3), (5119, 5), (9215, 5)])
def test_passes_over_the_entries(n, passes):
    """A gradient reads y and v and writes one array; slices that do not fit a tile are read twice.

    Beside that, each of 128 threads writes what goes to k and to tau. Slices that are no multiple of four are read one
    entry at a time.
    """
    _, call = list(cuda_counts.calls((4, n), 1, torch.float32))[1]
    assert cuda_counts.counted(call, 90)["global memory"] == 4 * (passes * (n + 1) + 2 * 128)


def test_short_slices_have_as_many_barriers_whatever_their_size():
    counts = [cuda_counts.counted(list(cuda_counts.calls((4, n), 1, torch.float32))[1][1], 90) for n in (1023, 2047)]
    assert counts[0]["barrier"] == counts[1]["barrier"] > 0
