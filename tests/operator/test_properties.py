"""What the projection must satisfy, in every front end, for whatever Hypothesis thinks of."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hypersimplex import reference
from tests.frontends import (
    FLOAT32,
    FLOAT64,
    FRONT_ENDS,
    REFERENCE,
    eps,
    every_front_end_and_dtype,
    tolerance,
)
from tests.problems import problems, sizes, values

WIDE = (FLOAT32, FLOAT64)

every_dtype = every_front_end_and_dtype()
# The reference has to have the properties as well; the half types round too coarsely to say much.
every_wide_dtype = every_front_end_and_dtype(WIDE, (*FRONT_ENDS, REFERENCE))


def widened(y):
    return np.asarray(y, np.float64)


@every_dtype
@given(data=st.data())
def test_equals_the_reference(fe, dtype, data):
    p = data.draw(problems(dtype))
    y = fe.soft_binary_argmax(p.x, p.k, p.tau)
    assert y.dtype == dtype
    mu = reference.threshold(p.x, p.k, p.tau)
    expected = reference.soft_binary_argmax(p.x, p.k, p.tau)
    np.testing.assert_allclose(widened(y), expected, rtol=0, atol=tolerance(dtype, mu, p.tau, p.k))


@every_dtype
@given(data=st.data())
def test_the_threshold_equals_the_reference(fe, dtype, data):
    p = data.draw(problems(dtype))
    mu = fe.threshold(p.x, p.k, p.tau)
    assert mu.dtype == (FLOAT64 if dtype == FLOAT64 else FLOAT32)
    expected = reference.threshold(p.x, p.k, p.tau)
    # Rounding mu itself is relative to mu; where y is off by its tolerance, mu is off by tau times that.
    atol = p.tau * tolerance(mu.dtype, k=p.k)
    np.testing.assert_allclose(widened(mu), expected, rtol=2 * eps(mu.dtype), atol=atol)


@every_dtype
@given(data=st.data())
def test_lies_in_the_hypersimplex(fe, dtype, data):
    p = data.draw(problems(dtype))
    y = widened(fe.soft_binary_argmax(p.x, p.k, p.tau))
    assert y.min() >= 0
    assert y.max() <= 1
    # Zeros and ones are exact; each entry between them is off by its tolerance at the most.
    inside = max(1, np.sum((y > 0) & (y < 1)))
    atol = tolerance(dtype, reference.threshold(p.x, p.k, p.tau), p.tau, p.k)
    assert abs(math.fsum(y) - p.k) <= inside * atol


@every_dtype
@given(data=st.data())
def test_keeps_the_order_and_the_ties(fe, dtype, data):
    p = data.draw(problems(dtype))
    y = widened(fe.soft_binary_argmax(p.x, p.k, p.tau))
    order = np.argsort(widened(p.x), kind="stable")
    x, y = widened(p.x)[order], y[order]
    assert np.all(np.diff(y) >= 0)
    assert np.all(np.diff(y)[x[1:] == x[:-1]] == 0)


@every_wide_dtype
@given(data=st.data())
def test_ignores_a_common_shift(fe, dtype, data):
    # Multiples of 1/64 below 4, moved by a whole number below 2^16: 24 bits, so x + shift is exact.
    n, seed = data.draw(sizes(5000)), data.draw(st.integers(0, 2**32 - 1))
    x = (np.random.default_rng(seed).integers(-256, 257, size=n) / 64).astype(dtype)
    shift = dtype.type(data.draw(st.integers(-(2**16), 2**16)))
    k, tau = data.draw(st.floats(0, n)), 2.0 ** data.draw(st.integers(-6, 6))
    moved = fe.soft_binary_argmax(x + shift, k, tau)
    # JAX without x64 adds up in float32, and in another order on another processor.
    atol = (4 if fe.name == "jax" else 2) * tolerance(dtype, abs(shift) + 4, tau, n)
    np.testing.assert_allclose(moved, fe.soft_binary_argmax(x, k, tau), rtol=0, atol=atol)


@every_wide_dtype
@given(data=st.data())
def test_does_not_care_about_the_order_of_the_entries(fe, dtype, data):
    p = data.draw(problems(dtype))
    order = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1))).permutation(p.x.size)
    atol = 2 * tolerance(dtype, reference.threshold(p.x, p.k, p.tau), p.tau, p.k)
    y = fe.soft_binary_argmax(p.x, p.k, p.tau)
    np.testing.assert_allclose(fe.soft_binary_argmax(p.x[order], p.k, p.tau), y[order], rtol=0, atol=atol)


@every_wide_dtype
@given(data=st.data())
def test_the_complement_is_the_projection_of_the_negative(fe, dtype, data):
    p = data.draw(problems(dtype, infinities=False))
    # For a tiny k, n - k is rounded; ask for the k that is left.
    rest = p.x.size - p.k
    k = p.x.size - rest
    atol = 2 * tolerance(dtype, np.abs(p.x).max() + p.tau, p.tau, p.x.size)
    complement = fe.soft_binary_argmax(-p.x, rest, p.tau)
    np.testing.assert_allclose(1 - complement, fe.soft_binary_argmax(p.x, k, p.tau), rtol=0, atol=atol)


@every_wide_dtype
@given(data=st.data())
def test_moves_no_more_than_its_input_over_tau(fe, dtype, data):
    p = data.draw(problems(dtype, infinities=False))
    step = data.draw(values(p.x.size, dtype)) * dtype.type(10.0 ** data.draw(st.floats(-6, 0)))
    other = p.x + step
    moved = widened(fe.soft_binary_argmax(other, p.k, p.tau)) - fe.soft_binary_argmax(p.x, p.k, p.tau)
    size = max(np.abs(p.x).max(), np.abs(other).max()) + p.tau
    rounding = 2 * tolerance(dtype, size, p.tau, p.k) * np.sqrt(p.x.size)
    bound = np.linalg.norm(widened(other) - widened(p.x)) / p.tau
    assert np.linalg.norm(moved) <= bound * (1 + 1e-12) + rounding


@every_wide_dtype
@given(data=st.data())
def test_k_of_one_is_sparsemax(fe, dtype, data):
    p = data.draw(problems(dtype, infinities=False))
    x = widened(p.x) - p.x.max()
    z = np.sort(x / p.tau)[::-1]
    support = np.flatnonzero(1 + np.arange(1, z.size + 1) * z > np.cumsum(z))[-1] + 1
    expected = np.maximum(x / p.tau - (z[:support].sum() - 1) / support, 0)
    # The formula's running sums are float64 as well: they cost n eps64.
    atol = tolerance(dtype, np.abs(p.x).max() + p.tau, p.tau) + p.x.size * eps(FLOAT64)
    np.testing.assert_allclose(fe.soft_binary_argmax(p.x, 1, p.tau), expected, rtol=0, atol=atol)


@every_dtype
@given(data=st.data())
def test_a_tau_below_every_gap_gives_the_binary_argmax(fe, dtype, data):
    n = data.draw(sizes(200))
    x = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1))).permutation(n).astype(dtype)
    k, tau = data.draw(st.integers(0, n)), data.draw(st.sampled_from([0.99, 0.5, 1e-3, 1e-30]))
    y = fe.soft_binary_argmax(x, k, tau)
    assert np.array_equal(y, fe.binary_argmax(x, k))
    assert widened(y).sum() == k


@every_wide_dtype
@given(data=st.data())
def test_projecting_twice_changes_nothing(fe, dtype, data):
    p = data.draw(problems(dtype))
    y = fe.soft_binary_argmax(p.x, p.k, p.tau)
    # y sums to k up to rounding only, and with few active entries they take up all of the difference.
    off = abs(math.fsum(widened(y)) - p.k)
    again = fe.soft_binary_argmax(y, p.k)
    np.testing.assert_allclose(again, y, rtol=0, atol=2 * tolerance(dtype, 1.0, k=p.k) + off)


@every_dtype
@given(data=st.data())
def test_binary_argmax_equals_the_reference(fe, dtype, data):
    p = data.draw(problems(dtype, whole=True))
    y = fe.binary_argmax(p.x, int(p.k))
    assert y.dtype == dtype
    assert np.array_equal(widened(y), reference.binary_argmax(p.x, p.k))
