"""Single opcodes against values worked out by hand, or by exact arithmetic."""

from fractions import Fraction

import numpy as np
import pytest

from tests.triton.ptx import numbers
from tests.triton.ptx.test_programs import run

INF, NAN = np.inf, np.nan


def f32(x):
    return f"0f{int(np.float32(x).view(np.uint32)):08X}"


def f64(x):
    return f"0d{int(np.float64(x).view(np.uint64)):016X}"


def word(body, dtype=np.uint32):
    """What a thread leaves in %r2."""
    y = run(f"{body} st.global.b32 [%rd5], %r2;", threads=32)[0]
    assert (y == y[0]).all()
    return y.view(dtype)[0]


def double(body):
    """What a thread leaves in %rd6."""
    low, high = (word(f"{body} mov.b64 {{{parts}}}, %rd6;") for parts in ("%r2, _", "_, %r2"))
    return np.array([int(low) | int(high) << 32], np.uint64).view(np.float64)[0]


@pytest.mark.parametrize(
    ("body", "value"),
    [
        ("add.s32 %r2, -1, 3;", 2),
        ("sub.s32 %r2, 3, 5;", -2),
        ("add.s16x2 %r2, 0x0001FFFF, 0x00020001;", 0x00030000),
        ("min.s16x2 %r2, 0x0001FFFF, 0x00020001;", 0x0001FFFF),
        ("mul.lo.s32 %r2, 65537, 65537;", 131073),
        ("mul.hi.s32 %r2, -2147483648, 4;", -2),
        ("mul.hi.u32 %r2, 0x80000000, 4;", 2),
        ("mad.lo.s32 %r2, 3, -4, 5;", -7),
        ("mov.b16 %rs1, 3; mad.lo.s16 %rs2, %rs1, -4, 5; cvt.s32.s16 %r2, %rs2;", -7),
        ("mul.wide.s32 %rd6, -3, 5; cvt.u32.u64 %r2, %rd6;", -15),
        ("mul.wide.u32 %rd6, -1, -1; shr.u64 %rd7, %rd6, 32; cvt.u32.u64 %r2, %rd7;", -2),
        ("mov.b64 %rd6, 1; mad.wide.s32 %rd7, -3, 5, %rd6; cvt.u32.u64 %r2, %rd7;", -14),
        ("mov.b64 %rd6, -7; mov.b64 %rd7, 2; div.s64 %rd8, %rd6, %rd7; cvt.u32.u64 %r2, %rd8;", -3),
        ("div.s32 %r2, 7, -2;", -3),
        ("rem.s32 %r2, -7, 2;", -1),
        ("rem.s32 %r2, 7, -2;", 1),
        ("div.u32 %r2, -1, 2;", 0x7FFFFFFF),
        ("div.u32 %r2, 7, 0;", -1),
        ("min.s32 %r2, -1, 1;", -1),
        ("min.u32 %r2, -1, 1;", 1),
        ("max.s32 %r2, -1, 1;", 1),
        ("and.b32 %r2, 12, 10;", 8),
        ("or.b32 %r2, 12, 10;", 14),
        ("xor.b32 %r2, 12, 10;", 6),
        ("not.b32 %r2, 0;", -1),
        ("shl.b32 %r2, 3, 31;", -(1 << 31)),
        ("shl.b32 %r2, 3, 32;", 0),
        ("shr.u32 %r2, -8, 1;", 0x7FFFFFFC),
        ("shr.u32 %r2, -8, 40;", 0),
        ("shr.s32 %r2, -8, 1;", -4),
        ("shr.s32 %r2, -8, 40;", -1),
        ("bfe.u32 %r2, 0xABCD, 4, 8;", 0xBC),
        ("bfe.u32 %r2, 0xABCD, 4, 0;", 0),
        ("bfe.u32 %r2, -1, 28, 8;", 15),
        ("bfe.s32 %r2, 0xABCD, 4, 8;", 0xBC - 256),
        ("bfe.s32 %r2, 0x70, 4, 3;", -1),
        ("bfe.s32 %r2, 0x70, 4, 4;", 7),
        ("bfe.s32 %r2, -1, 0, 32;", -1),
        ("popc.b32 %r2, 0xF0F;", 8),
        ("prmt.b32 %r2, 0x33221100, 0x77665544, 0x7410;", 0x77441100),
        ("prmt.b32 %r2, 0x00008000, 0, 0x9999;", -1),
        ("abs.s32 %r2, -5;", 5),
        ("neg.s32 %r2, 5;", -5),
        ("setp.lt.s32 %p1, -1, 1; selp.b32 %r2, 4, 5, %p1;", 4),
        ("setp.lt.u32 %p1, -1, 1; selp.b32 %r2, 4, 5, %p1;", 5),
        ("setp.ls.u32 %p1, 1, 1; not.pred %p2, %p1; selp.b32 %r2, 4, 5, %p2;", 5),
        ("mov.b32 %r3, 0x00020001; mov.b32 {%rs1, %rs2}, %r3; mov.b32 %r2, {%rs2, %rs1};", 0x00010002),
        ("cvt.s64.s32 %rd6, -5; mov.b64 {%r3, %r2}, %rd6;", -1),
        ("cvt.u64.u32 %rd6, -5; mov.b64 {%r3, %r2}, %rd6;", 0),
        ("mov.b16 %rs1, -1; cvt.u32.u16 %r2, %rs1;", 0xFFFF),
        ("mov.b32 %r3, 0x12345; cvt.u16.u32 %rs1, %r3; cvt.u32.u16 %r2, %rs1;", 0x2345),
    ],
)
def test_integers(body, value):
    assert word(body) == value % (1 << 32)


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (f"add.f32 %r2, {f32(1)}, {f32(2**-24)};", 1),
        (f"add.rn.f32 %r2, {f32(1)}, {f32(3 * 2**-24)};", 1 + 2**-22),
        (f"sub.f32 %r2, {f32(INF)}, {f32(INF)};", NAN),
        (f"mul.f32 %r2, {f32(2**-100)}, {f32(2**-49)};", 2**-149),  # a subnormal is not flushed
        (f"div.rn.f32 %r2, {f32(1)}, {f32(3)};", np.float32(1) / np.float32(3)),
        (f"sqrt.rn.f32 %r2, {f32(2)};", np.sqrt(np.float32(2))),
        (f"rcp.rn.f32 %r2, {f32(3)};", 1 / np.float32(3)),
        # (1 + 2^-12)^2 - 1 is 2^-11 + 2^-24: rounding the product first loses the last bit.
        (f"fma.rn.f32 %r2, {f32(1 + 2**-12)}, {f32(1 + 2**-12)}, {f32(-1)};", 2**-11 + 2**-24),
        (f"min.f32 %r2, {f32(NAN)}, {f32(3)};", 3),
        (f"max.f32 %r2, {f32(NAN)}, {f32(NAN)};", NAN),
        (f"max.NaN.f32 %r2, {f32(NAN)}, {f32(3)};", NAN),
        (f"max.f32 %r2, {f32(1)}, {f32(NAN)}, {f32(3)};", 3),
        (f"min.f32 %r2, {f32(1)}, {f32(2)}, {f32(-3)};", -3),
        (f"min.f32 %r2, {f32(0.0)}, {f32(-0.0)};", -0.0),
        (f"max.f32 %r2, {f32(-0.0)}, {f32(0.0)};", 0.0),
        (f"abs.f32 %r2, {f32(-2.5)};", 2.5),
        (f"neg.f32 %r2, {f32(2.5)};", -2.5),
        (f"cvt.rn.f32.f64 %r2, {f64(1 + 2**-24)};", 1),
        (f"cvt.rn.f32.f64 %r2, {f64(1 + 2**-24 + 2**-50)};", 1 + 2**-23),
        (f"cvt.rn.f32.f64 %r2, {f64(1e39)};", INF),
        ("cvt.rn.f32.u32 %r2, -1;", 2.0**32),
        ("cvt.rn.f32.s32 %r2, 16777217;", 16777216),
        ("mov.b16 %rs1, 0x3FC0; cvt.f32.bf16 %r2, %rs1;", 1.5),
        ("mov.b16 %rs1, 0x3E00; cvt.f32.f16 %r2, %rs1;", 1.5),
        (f"mov.b16 %rs1, 0x3FC0; sub.rn.f32.bf16 %r2, %rs1, {f32(0.5)};", 1.0),
        (f"mov.b16 %rs1, 0x3E00; add.rn.f32.f16 %r2, %rs1, {f32(0.5)};", 2.0),
        (f"setp.gt.f32 %p1, {f32(NAN)}, {f32(0)}; selp.f32 %r2, {f32(4)}, {f32(5)}, %p1;", 5),
        (f"mov.b64 %rd6, {{{f32(1)}, {f32(2)}}}; add.f32x2 %rd7, %rd6, %rd6; mov.b64 {{%r2, _}}, %rd7;", 2),
        (f"mov.b64 %rd6, {{{f32(1)}, {f32(2)}}}; fma.rn.f32x2 %rd7, %rd6, %rd6, %rd6; mov.b64 {{_, %r2}}, %rd7;", 6),
    ],
)  # fmt: skip
def test_single_precision(body, value):
    got = word(body, np.float32)
    np.testing.assert_array_equal(got, np.float32(value))
    assert np.signbit(got) == np.signbit(np.float32(value)) or np.isnan(value)


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (f"add.f64 %rd6, {f64(1)}, {f64(2**-53)};", 1),
        (f"div.rn.f64 %rd6, {f64(1)}, {f64(3)};", 1 / 3),
        (f"sqrt.rn.f64 %rd6, {f64(2)};", np.sqrt(2)),
        (f"fma.rn.f64 %rd6, {f64(1 + 2**-30)}, {f64(1 + 2**-30)}, {f64(-1)};", 2**-29 + 2**-60),
        (f"cvt.f64.f32 %rd6, {f32(0.1)};", float(np.float32(0.1))),
        ("cvt.rn.f64.s64 %rd6, 9007199254740993;", 9007199254740992),
        ("cvt.rn.f64.s32 %rd6, -7;", -7),
        ("cvt.rn.f64.u32 %rd6, -7;", 2**32 - 7),
        (f"cvt.rmi.f64.f64 %rd6, {f64(-1.5)};", -2),
        (f"cvt.rni.f64.f64 %rd6, {f64(2.5)};", 2),
        (f"cvt.rzi.f64.f64 %rd6, {f64(-1.5)};", -1),
        (f"cvt.rpi.f64.f64 %rd6, {f64(1.2)};", 2),
        (f"min.f64 %rd6, {f64(NAN)}, {f64(3)};", 3),
        (f"abs.f64 %rd6, {f64(-INF)};", INF),
        (f"setp.nan.f64 %p1, {f64(NAN)}, {f64(0)}; selp.f64 %rd6, {f64(4)}, {f64(5)}, %p1;", 4),
    ],
)
def test_double_precision(body, value):
    np.testing.assert_array_equal(double(body), value)


@pytest.mark.parametrize(
    ("name", "truths"),  # for (1, 2), (2, 2), (2, 1), (NaN, 1)
    [("eq", "0100"), ("ne", "1010"), ("lt", "1000"), ("le", "1100"), ("gt", "0010"), ("ge", "0110"),
     ("equ", "0101"), ("neu", "1011"), ("ltu", "1001"), ("leu", "1101"), ("gtu", "0011"), ("geu", "0111"),
     ("num", "1110"), ("nan", "0001")],
)  # fmt: skip
def test_comparisons(name, truths):
    pairs = [(1, 2), (2, 2), (2, 1), (NAN, 1)]
    found = [word(f"setp.{name}.f32 %p1, {f32(a)}, {f32(b)}; selp.b32 %r2, 1, 0, %p1;") for a, b in pairs]
    assert "".join(map(str, found)) == truths


def test_comparisons_of_pairs():
    both = "setp.gt.bf16x2 %p1|%p2, 0x40003F80, 0x3F803F80;"  # (1, 2) > (1, 1)
    assert word(f"{both} selp.b32 %r2, 1, 0, %p1;") == 0
    assert word(f"{both} selp.b32 %r2, 1, 0, %p2;") == 1


@pytest.mark.parametrize(
    ("value", "bits"),
    [(1.0, 0x3F80), (1 + 2**-8, 0x3F80), (1 + 3 * 2**-8, 0x3F82), (-INF, 0xFF80), (NAN, 0x7FFF), (3.4e38, 0x7F80),
     (2**-149, 0)],
)  # fmt: skip
def test_rounding_to_bfloat16(value, bits):
    assert word(f"cvt.rn.bf16.f32 %rs1, {f32(value)}; cvt.u32.u16 %r2, %rs1;") == bits
    assert word(f"cvt.rn.bf16x2.f32 %r2, {f32(0)}, {f32(value)};") == bits
    assert word(f"cvt.rn.bf16x2.f32 %r2, {f32(value)}, {f32(0)};") == bits << 16


@pytest.mark.parametrize(("value", "bits"), [(1 + 2**-11, 0x3C00), (1 + 3 * 2**-11, 0x3C02), (65520.0, 0x7C00)])
def test_rounding_to_half_precision(value, bits):
    assert word(f"cvt.rn.f16.f32 %rs1, {f32(value)}; cvt.u32.u16 %r2, %rs1;") == bits


@pytest.mark.parametrize(
    ("value", "rounding", "want"),
    [(2.5, "rni", 2), (-2.5, "rzi", -2), (-2.5, "rmi", -3), (2.5, "rpi", 3), (1e10, "rzi", 2**31 - 1),
     (-1e10, "rzi", -(2**31)), (NAN, "rzi", 0)],
)  # fmt: skip
def test_conversions_to_integers_saturate(value, rounding, want):
    assert word(f"cvt.{rounding}.s32.f32 %r2, {f32(value)};", np.int32) == want


def random_numbers(dtype, size, lowest, highest):
    rng = np.random.default_rng(3)
    exponents = rng.integers(lowest, highest, size)
    return np.ldexp(rng.uniform(-1, 1, size), exponents).astype(dtype)


def rounded(exact, dtype):
    """An exact fraction as the nearest number of the dtype, ties to even."""
    if dtype == np.float64:
        try:
            return np.float64(float(exact))
        except OverflowError:
            return np.float64(INF if exact > 0 else -INF)
    with np.errstate(over="ignore"):
        near = np.float32(float(exact))
        around = [near, np.nextafter(near, np.float32(-INF)), np.nextafter(near, np.float32(INF))]
    # The nearest, and of two equally near ones the one with an even last bit.
    finite = [x for x in around if np.isfinite(x)]
    return min(finite, key=lambda x: (abs(Fraction(float(x)) - exact), int(x.view(np.uint32)) & 1))


@pytest.mark.parametrize(("dtype", "lowest", "highest"), [(np.float32, -140, 60), (np.float32, -3, 3),
                                                         (np.float64, -3, 3), (np.float64, -1070, 500)])  # fmt: skip
def test_fused_multiply_add_rounds_once(dtype, lowest, highest):
    a, b = random_numbers(dtype, (2, 3000), lowest, highest)
    near = (a.astype(np.float64) * b).astype(dtype)
    c = np.concatenate([near[:1000], -near[1000:2000], random_numbers(dtype, 1000, lowest, highest)])
    with np.errstate(all="ignore"):
        # The result lies close to a tie between two numbers for a third of them.
        c[:1000] *= dtype(2.0) ** np.random.default_rng(4).integers(20, 60, 1000).astype(dtype)
        got = (numbers.fma32 if dtype == np.float32 else numbers.fma64)(a, b, c)
    for i in np.flatnonzero(np.isfinite(c)):
        exact = Fraction(float(a[i])) * Fraction(float(b[i])) + Fraction(float(c[i]))
        assert got[i] == rounded(exact, dtype), (a[i], b[i], c[i])


@pytest.mark.parametrize(
    ("function", "dtype", "last"), [(numbers.fma32, np.float32, 23), (numbers.fma64, np.float64, 52)]
)
def test_fused_multiply_add_just_off_a_tie(function, dtype, last):
    """c = 1 + ulp, and the product is half an ulp less a little that twice the digits do not hold beside c."""
    little, half = 2.0 ** -(last // 2 + 6), 2.0 ** -(last + 1)
    a, b, c = (np.array([x], dtype) for x in ((1 + little) * half, 1 - little, 1 + 2 * half))
    assert function(a, b, c) == c
    b = np.array([1 + little], dtype)
    assert function(a, b, c) == dtype(1 + 4 * half)


def test_fused_multiply_add_of_what_is_not_finite():
    a, b, c = (np.array(x, np.float64) for x in ([INF, 0, 1, 1e300, 1e300], [1, INF, 1, 1e300, 1e300],
                                                  [-INF, 1, NAN, -INF, -1e308]))  # fmt: skip
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(numbers.fma64(a, b, c), [NAN, NAN, NAN, -INF, INF])


@pytest.mark.parametrize(
    ("opcode", "function", "ulps"), [("ex2", np.exp2, 2), ("lg2", np.log2, 2), ("sqrt", np.sqrt, 1)]
)
def test_approximations_are_off_by_as_much_as_the_isa_allows(opcode, function, ulps):
    x = np.random.default_rng(5).uniform(0.5, 9, 64).astype(np.float32)
    y = run(f"ld.global.b32 %r2, [%rd4]; {opcode}.approx.f32 %r3, %r2; st.global.b32 [%rd5], %r3;", x.view(np.uint32))[
        0
    ]
    want = function(x.astype(np.float64)).astype(np.float32)
    off = y.astype(np.int64) - want.view(np.uint32).astype(np.int64)
    assert set(abs(off)) == {ulps}
    assert {-ulps, ulps} == set(off)
    assert word(f"{opcode}.approx.f32 %r2, {f32(4)};", np.float32) == function(4)


@pytest.mark.parametrize(
    ("body", "want"),
    [
        ("shfl.sync.bfly.b32 %r2, %r1, 5, 31, -1;", lambda i: i ^ 5),
        ("shfl.sync.down.b32 %r2, %r1, 5, 31, -1;", lambda i: i + 5 if i % 32 < 27 else i),
        ("shfl.sync.up.b32 %r2, %r1, 5, 0, -1;", lambda i: i - 5 if i % 32 >= 5 else i),
        ("shfl.sync.idx.b32 %r2, %r1, 5, 31, -1;", lambda i: i // 32 * 32 + 5),
        ("shfl.sync.idx.b32 %r2, %r1, 5, 0x181f, -1;", lambda i: i // 8 * 8 + 5),
        ("redux.sync.add.s32 %r2, %r1, -1;", lambda i: sum(range(i // 32 * 32, i // 32 * 32 + 32))),
        ("redux.sync.max.s32 %r2, %r1, -1;", lambda i: i // 32 * 32 + 31),
        ("shfl.sync.bfly.b32 %r3|%p1, %r1, 16, 15, -1; selp.b32 %r2, 1, 0, %p1;", lambda i: int(i % 32 >= 16)),
    ],
)
def test_exchange_within_a_warp(body, want):
    assert run(f"{body} st.global.b32 [%rd5], %r2;")[0].tolist() == [want(i) for i in range(64)]


def test_a_guard_that_does_not_hold_leaves_a_word_alone():
    y = run("setp.lt.u32 %p1, %r1, 8; @%p1 ld.global.b32 %r2, [%rd4]; @%p1 st.global.b32 [%rd5], %r2;", threads=32)[0]
    assert y.tolist() == [*range(8), *[0] * 24]
