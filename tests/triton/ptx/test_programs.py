"""The executor on programs written by hand: what they compute, and what is wrong with them."""

import numpy as np
import pytest

from tests.triton.ptx.faults import Diverged, Fault, Misaligned, OutOfBounds, Race, Unknown, Unwritten
from tests.triton.ptx.machine import Program
from tests.triton.ptx.memory import Global, Region

TEXT = """
.version 8.7
.target sm_80
.address_size 64
.extern .shared .align 16 .b8 global_smem[];
.visible .entry test(
    .param .u64 .ptr .global .align 1 test_param_0,
    .param .u64 .ptr .global .align 1 test_param_1
)
.reqntid {threads}
{{
    .local .align 8 .b8 __local_depot0[16];
    .reg .pred %p<9>; .reg .b16 %rs<9>; .reg .b32 %r<19>; .reg .b64 %rd<19>;
    ld.param.b64 %rd1, [test_param_0];
    ld.param.b64 %rd2, [test_param_1];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd4, %rd1, %rd3;
    add.s64 %rd5, %rd2, %rd3;
    mov.b32 %r15, global_smem;
    shl.b32 %r16, %r1, 2;
    add.s32 %r17, %r15, %r16; // one word of shared memory for each thread
    {body}
    ret;
}}
"""
COPY = "ld.global.b32 %r2, [%rd4]; st.global.b32 [%rd5], %r2;"


def run(body, x=None, threads=64, shared=1024, grid=1, fresh=True, out=None):
    """Run it on x; `%rd4` is the address of a thread's own word of x, `%rd5` of the result's."""
    x = np.arange(threads, dtype=np.uint32) if x is None else x
    y = np.zeros(threads if out is None else out, np.uint32)
    given = ((x, False), (y, fresh))
    regions = [Region(each.ctypes.data, each.ctypes.data + each.nbytes, is_fresh) for each, is_fresh in given]
    program = Program(TEXT.format(body=body, threads=threads))
    parameters = [np.uint64(each.ctypes.data) for each in (x, y)]
    counts = program.run((grid, 1, 1), parameters, Global(regions), shared)
    return y, counts, regions[1]


def test_a_copy():
    y, counts, region = run(COPY)
    assert y.tolist() == list(range(64))
    assert counts == {"parameter": 2, "select and move": 2, "integer": 5, "global memory": 2, "branch": 1}
    assert region.unwritten() == 0


def test_a_loop():
    y, counts, _ = run(
        "mov.b32 %r3, 0; mov.b32 %r4, 0;\n$L_again:\nadd.s32 %r3, %r3, %r1; add.s32 %r4, %r4, 1;"
        "setp.lt.s32 %p1, %r4, 5;\n@%p1 bra $L_again;\nst.global.b32 [%rd5], %r3;"
    )
    assert y.tolist() == [5 * i for i in range(64)]
    assert counts["branch"] == 6


@pytest.mark.parametrize(
    "body",
    [
        "setp.lt.u32 %p1, %r1, 40; mov.b32 %r2, 7; @%p1 mov.b32 %r2, 9; st.global.b32 [%rd5], %r2;",
        "setp.lt.u32 %p1, %r1, 40; @%p1 bra $L_a; mov.b32 %r2, 7; bra.uni $L_b;\n$L_a:\nmov.b32 %r2, 9;\n$L_b:\n"
        "st.global.b32 [%rd5], %r2;",
        "setp.ge.u32 %p1, %r1, 40; mov.b32 %r2, 9; @!%p1 bra $L_a; mov.b32 %r2, 7;\n$L_a:\nst.global.b32 [%rd5], %r2;",
        "setp.lt.u32 %p1, %r1, 40; @%p1 mov.b32 %r2, 9; @!%p1 mov.b32 %r2, 7; st.global.b32 [%rd5], %r2;",
    ],
    ids=["a guard", "both sides of a branch", "one side of a branch", "two guards"],
)
def test_threads_that_differ(body):
    assert run(body)[0].tolist() == [9] * 40 + [7] * 24


def test_threads_that_leave_a_loop_one_after_the_other():
    y, _, _ = run(
        "mov.b32 %r3, 0;\n$L_again:\nadd.s32 %r3, %r3, 3; setp.lt.u32 %p1, %r3, %r1;\n@%p1 bra $L_again;\n"
        "st.global.b32 [%rd5], %r3;"
    )
    assert y.tolist() == [max(3, -(-i // 3) * 3) for i in range(64)]


def test_threads_wait_at_a_barrier_for_those_whose_branch_lies_behind_it():
    y, _, _ = run(
        "setp.lt.u32 %p1, %r1, 40; mov.b32 %r2, 9;\n@!%p1 bra $L_b;\n$L_a:\nbar.sync 0; st.global.b32 [%rd5], %r2; ret;"
        "\n$L_b:\nmov.b32 %r2, 7;\nbra.uni $L_a;"
    )
    assert y.tolist() == [9] * 40 + [7] * 24


def test_shared_memory_between_barriers():
    back = "ld.shared.b32 %r2, [%r18];st.global.b32 [%rd5], %r2;"
    own = "xor.b32 %r5, %r16, 128; add.s32 %r18, %r15, %r5;"  # of the thread in the other warp
    assert run(f"{own} st.shared.b32 [%r17], %r1; bar.sync 0; {back}")[0].tolist() == [i ^ 32 for i in range(64)]
    with pytest.raises(Race, match="a warp reads shared memory that another one writes"):
        run(f"{own} st.shared.b32 [%r17], %r1; {back}")
    with pytest.raises(Race, match="a warp writes shared memory that another one reads"):
        run(f"{own} st.shared.b32 [%r17], %r1; bar.sync 0; {back} st.shared.b32 [%r17], %r2;")
    with pytest.raises(Race, match="two warps write the same shared memory"):
        run(f"{own} st.shared.b32 [%r17], %r1; st.shared.b32 [%r18], %r1;")
    run(f"{own} st.shared.b32 [%r17], %r1; bar.sync 0; {back} bar.sync 0; st.shared.b32 [%r17], %r2;")


def test_a_warp_alone_needs_no_barrier():
    body = "xor.b32 %r5, %r16, 64; add.s32 %r18, %r15, %r5; st.shared.b32 [%r17], %r1; ld.shared.b32 %r2, [%r18];"
    assert run(body + "st.global.b32 [%rd5], %r2;")[0].tolist() == [i ^ 16 for i in range(64)]


def test_local_memory_by_either_kind_of_address():
    body = "mov.b64 %rd6, __local_depot0; cvta.local.u64 %rd7, %rd6; st.b8 [%rd7+1], %rs1; st.local.b8 [%rd6], %rs1;"
    y = run(f"cvt.u16.u32 %rs1, %r1; {body} ld.local.b16 %rs2, [%rd6]; cvt.u32.u16 %r2, %rs2; st.b32 [%rd5], %r2;")[0]
    assert y.tolist() == [257 * i for i in range(64)]
    run("cvt.u64.u32 %rd6, %r17; cvta.shared.u64 %rd7, %rd6; st.b32 [%rd7], %r1; ld.shared.b32 %r2, [%r17];")
    some = "setp.eq.b32 %p1, %r1, 0; selp.b64 %rd8, %rd7, %rd5, %p1; st.b32 [%rd8], %r1;"
    with pytest.raises(Unknown, match="several memories"):
        run(f"mov.b64 %rd6, __local_depot0; cvta.local.u64 %rd7, %rd6; {some}")


def test_several_writers_of_one_word():
    run("mov.b32 %r2, 5; st.shared.b32 [%r15], %r2;")  # the same value
    with pytest.raises(Race, match="different values"):
        run("st.shared.b32 [%r15], %r1;")
    body = "st.shared.b32 [%r15], %r1; ld.shared.b32 %r2, [%r15]; st.global.b32 [%rd5], %r2;"
    assert len(set(run(body, threads=32)[0].tolist())) == 1  # of one warp any thread may win, the same for all
    with pytest.raises(Race, match="a warp reads shared memory"):
        run("mov.b32 %r2, 5; st.shared.b32 [%r15], %r2; ld.shared.b32 %r3, [%r15];")


@pytest.mark.parametrize(
    ("body", "fault", "said"),
    [
        ("ld.global.b32 %r2, [%rd4+4];", OutOfBounds, "global memory"),
        ("ld.global.b32 %r2, [%rd4+-4];", OutOfBounds, "global memory"),
        ("st.global.b32 [%rd3], %r1;", OutOfBounds, "global memory"),
        ("ld.global.b64 %rd6, [%rd4];", Misaligned, "8 bytes"),
        ("ld.global.b32 %r2, [%rd5];", Unwritten, "global memory that nobody wrote"),
        ("st.shared.b32 [%r17+1020], %r1;", OutOfBounds, "shared memory"),
        ("st.shared.b32 [%r17+-4], %r1;", OutOfBounds, "shared memory"),
        ("ld.shared.b32 %r2, [%r17];", Unwritten, "shared memory that nobody wrote"),
        ("mov.b64 %rd6, __local_depot0; ld.local.b32 %r2, [%rd6+4];", Unwritten, "local memory"),
        ("mov.b64 %rd6, __local_depot0; st.local.b32 [%rd6+16], %r1;", OutOfBounds, "local memory"),
        ("st.global.b32 [%rd5], %r9;", Unwritten, "register"),
        ("add.s32 %r2, %r9, %r9;", Unwritten, "register"),
        ("setp.lt.u32 %p1, %r1, 40; @%p1 mov.b32 %r2, 9; add.s32 %r3, %r2, 1; st.global.b32 [%rd5], %r3;", Unwritten,
         "comes from where nobody wrote"),
        ("setp.lt.u32 %p1, %r1, 40; @%p1 mov.b32 %r2, 9; setp.eq.b32 %p2, %r2, 9;\n@%p2 bra $L_a;\n$L_a:", Unwritten,
         "comes from where nobody wrote"),
        ("setp.lt.u32 %p1, %r1, 40; @%p1 bar.sync 0;", Diverged, "barrier"),
        ("setp.lt.u32 %p1, %r1, 40;\n@%p1 bra $L_a;\nbar.sync 0;\n$L_a:", Diverged, "barrier"),
        ("setp.lt.u32 %p1, %r1, 40;\n@%p1 bra $L_a;\nshfl.sync.bfly.b32 %r2, %r1, 1, 31, -1;\n$L_a:", Diverged, "shfl"),
        ("$L_a:\nbra.uni $L_a;", Fault, "does not end"),
    ],
)  # fmt: skip
def test_what_no_program_may_do(body, fault, said, monkeypatch):
    monkeypatch.setattr("tests.triton.ptx.machine.MOST_STRETCHES", 1000)
    with pytest.raises(fault, match=said):
        run(body)


def test_the_last_bytes_of_shared_and_global_memory_may_be_used():
    run("st.shared.b32 [%r17+768], %r1;")
    run("setp.lt.u32 %p1, %r1, 63; @%p1 ld.global.b32 %r2, [%rd4+4]; @%p1 st.global.b32 [%rd5], %r2;")


def test_a_value_from_nowhere_may_be_computed_with_but_not_used():
    body = "setp.lt.u32 %p1, %r1, 40; @%p1 mov.b32 %r2, 9; add.s32 %r3, %r2, 1; @%p1 st.global.b32 [%rd5], %r3;"
    assert run(body)[0].tolist() == [10] * 40 + [0] * 24
    never = "setp.lt.u32 %p1, %r1, 0; @%p1 ld.global.b32 %r2, [%rd4]; add.s32 %r3, %r2, 1;"
    run(f"{never} @%p1 st.global.b32 [%rd5], %r3;")
    with pytest.raises(Unwritten):
        run(f"{never} st.global.b32 [%rd5], %r3;")


def test_two_blocks_that_write_or_read_the_same():
    with pytest.raises(Race, match="two blocks write"):
        run("st.global.b32 [%rd5], %r1;", grid=2)
    apart = "mov.u32 %r3, %ctaid.x; mul.wide.u32 %rd6, %r3, 256; add.s64 %rd7, %rd5, %rd6; st.global.b32 [%rd7], %r1;"
    y, _, region = run(apart, grid=2, out=128)
    assert y.tolist() == [*range(64), *range(64)]
    assert region.unwritten() == 0
    with pytest.raises(Race, match="another block writes is read"):
        run(f"{apart} ld.global.b32 %r4, [%rd5];", grid=2, out=128)


def test_what_is_left_unwritten_is_counted():
    _, _, region = run("setp.ne.b32 %p1, %r1, 5; @%p1 st.global.b32 [%rd5], %r1;")
    assert region.unwritten() == 4


@pytest.mark.parametrize(
    "body",
    ["frobnicate.b32 %r2, %r1;", "add.sat.s32 %r2, %r1, 1;", "add.f31 %r2, %r1, %r1;", "add.s32 %r2, %r1;",
     "add.s32 %rd6, %r1, 1;", "add.s32 %r2, %rd1, 1;", "mov.b32 %r2, %r99;", "mov.b32 %r2, nowhere;",
     "fma.rz.f32 %r2, %r1, %r1, %r1;", "fma.f32 %r2, %r1, %r1, %r1;",
     "cvt.rz.f32.f64 %r2, %rd1;", "cvt.f32.f64 %r2, %rd1;", "setp.lx.s32 %p1, %r1, 1;", "mul.s32 %r2, %r1, %r1;",
     "bar.sync 1;", ".surprise 5;", "mul.f16 %rs1, %rs1;", "ld.volatile.global.b32 %r2, [%rd4];",
     "@%p1 vote.sync.ballot.b32 %r2, %p1, -1;", "atom.global.add.u32 %r2, [%rd5], 1;"],
)  # fmt: skip
def test_what_is_not_known_is_an_error(body):
    with pytest.raises(Unknown):
        run(body)


@pytest.mark.parametrize("kind", ["", ".trans"])
def test_matrices(kind):
    """Thread 4 r + c holds the numbers 2 c and 2 c + 1 of row r; eight threads name the rows."""
    rows = "and.b32 %r3, %r1, 7; shl.b32 %r4, %r3, 4; and.b32 %r5, %r1, 32; shl.b32 %r6, %r5, 2;"
    place = f"{rows} add.s32 %r7, %r15, %r4; add.s32 %r8, %r7, %r6;"
    write = f"{place} stmatrix.sync.aligned.m8n8.x1{kind}.shared.b16 [%r8], {{%r1}}; bar.sync 0;"
    plain = run(f"{write} ld.shared.b32 %r2, [%r17]; st.global.b32 [%rd5], %r2;")[0]
    held = np.arange(64, dtype=np.uint32).view(np.uint16).reshape(2, 8, 8)
    want = held.transpose(0, 2, 1) if kind else held
    np.testing.assert_array_equal(plain.view(np.uint16).reshape(2, 8, 8), want)
    load = f"ldmatrix.sync.aligned.m8n8.x1{kind}.shared.b16 {{%r2}}, [%r8];"
    assert run(f"{write} {load} st.global.b32 [%rd5], %r2;")[0].tolist() == list(range(64))
