"""Any axis, any strides, k and tau per slice: the layout of the memory never changes the result."""

import functools
import itertools

import numpy as np
import pytest
import torch

import hypersimplex as hs
from hypersimplex import reference
from tests.frontends import (
    BFLOAT16,
    FLOAT32,
    FLOAT64,
    NUMPY,
    TORCH,
    every_front_end,
    every_front_end_and_dtype,
    tolerance,
)

WIDE = (FLOAT32, FLOAT64)

every_wide_dtype = every_front_end_and_dtype(WIDE)


def agrees(fe, x, k, tau=1.0, axis=-1):
    """The three functions equal the reference, and x is as it was."""
    before = x.copy()
    y = fe.soft_binary_argmax(x, k, tau, axis=axis)
    mu = fe.threshold(x, k, tau, axis=axis)
    expected_mu = reference.threshold(x, k, tau, axis=axis)
    assert y.shape == x.shape
    assert mu.shape == expected_mu.shape
    atol = tolerance(x.dtype, np.abs(expected_mu).max(initial=0), np.min(tau), np.max(k, initial=0))
    expected = reference.soft_binary_argmax(x, k, tau, axis=axis)
    np.testing.assert_allclose(np.asarray(y, np.float64), expected, rtol=0, atol=atol)
    np.testing.assert_allclose(mu, expected_mu, rtol=4 * tolerance(mu.dtype), atol=tolerance(mu.dtype))
    if np.array_equal(k, np.round(k)):
        top = fe.binary_argmax(x, k, axis=axis)
        assert np.array_equal(np.asarray(top, np.float64), reference.binary_argmax(x, k, axis=axis))
    assert np.array_equal(x, before)


def scores(shape, dtype, seed=0):
    """Normal, a few of them tied: the ties are what binary_argmax has to order."""
    x = np.random.default_rng(seed).normal(size=shape)
    return np.where(np.abs(x) < 0.3, np.round(x, 1), x).astype(dtype)


@every_wide_dtype
@pytest.mark.parametrize("shape", [(1,), (7,), (3, 5), (5, 3), (1, 9), (9, 1), (4, 6, 5), (2, 1, 3, 4), (16, 17)])
def test_any_axis(fe, dtype, shape):
    x = scores(shape, dtype)
    for axis in range(-len(shape), len(shape)):
        agrees(fe, x, 1, 0.7, axis=axis)
        agrees(fe, x, shape[axis] * 0.4, 2.0, axis=axis)


@every_wide_dtype
@pytest.mark.parametrize("columns", [*range(1, 41), 63, 64, 65, 130])
def test_slices_along_the_first_axis(fe, dtype, columns):
    """The kernel changes its way of walking with the number of columns."""
    for rows in (1, 2, 33, 260):
        x = scores((rows, columns), dtype, seed=columns)
        agrees(fe, x, rows // 3, 0.5, axis=0)
        agrees(fe, x, np.linspace(0, rows, columns), np.linspace(0.1, 3, columns), axis=0)


@every_front_end_and_dtype(WIDE, (NUMPY, TORCH))
@pytest.mark.parametrize("columns", [2, 3, 5, 7])
def test_long_narrow_columns_whose_last_rows_do_not_fill_a_register(fe, dtype, columns):
    for n in range(20_000, 20_017):
        x = np.random.default_rng(n).normal(size=(n, columns)).astype(dtype)
        x[-16:] += 3  # what is left over counts
        expected = fe.soft_binary_argmax(np.ascontiguousarray(x.T), n / 10).T
        near = 2 * tolerance(dtype, k=n / 10)
        np.testing.assert_allclose(fe.soft_binary_argmax(x, n / 10, axis=0), expected, rtol=0, atol=near)


@every_wide_dtype
@pytest.mark.parametrize("n", [*range(1, 36), 63, 64, 65, 127, 128, 129, 1000, 1023, 1025, 4097])
def test_every_remainder_of_a_vector(fe, dtype, n):
    x = scores((3, n), dtype, seed=n)
    agrees(fe, x, n // 2, 0.5)
    agrees(fe, x, np.array([0.3, n * 0.9, n / 7]), np.array([0.01, 1.0, 10.0]))


def views(x):
    """The same numbers as x, (6, 10), stored in other ways."""
    wide = np.zeros((12, 30), x.dtype)
    wide[::2, 1::3] = x
    yield "fortran", np.asfortranarray(x)
    yield "every second", wide[::2, 1::3]
    yield "row gaps", np.pad(x, ((0, 0), (0, 3)))[:, :10]
    yield "backwards", np.ascontiguousarray(x[::-1, ::-1])[::-1, ::-1]
    yield "columns backwards", np.ascontiguousarray(x[:, ::-1])[:, ::-1]
    yield "transposed", np.ascontiguousarray(x.T).T
    yield "inner axis of three", np.stack([x, x + 1, x - 1], axis=1)[:, 0]
    yield "last axis of three", np.stack([x, x + 1], axis=2)[..., 0]


@every_front_end_and_dtype((BFLOAT16, FLOAT32, FLOAT64))
@pytest.mark.parametrize("which", range(8))
def test_any_strides(fe, dtype, which):
    x = scores((6, 10), dtype)
    name, view = next(itertools.islice(views(x), which, None))
    assert np.array_equal(view, x), name
    for axis in (0, 1, -1):
        agrees(fe, view, 2, 0.5, axis=axis)
        slices = x.shape[1 - axis % 2]
        agrees(fe, view, np.linspace(0, 5, slices), np.linspace(0.5, 2, slices), axis=axis)


@every_wide_dtype
def test_broadcast_arrays(fe, dtype):
    row, column = scores(10, dtype), scores((6, 1), dtype)
    for x in (np.broadcast_to(row, (6, 10)), np.broadcast_to(column, (6, 10))):
        assert 0 in x.strides
        agrees(fe, x, 2, 0.5)
        agrees(fe, x, 2, 0.5, axis=0)
    agrees(fe, np.broadcast_to(dtype.type(2), (4, 6, 10)), 3.5, axis=1)


@every_wide_dtype
def test_read_only_input(fe, dtype):
    x, k, tau = scores((6, 10), dtype), np.arange(6.0), np.ones(6)
    for a in (x, k, tau):
        a.flags.writeable = False
    agrees(fe, x, k, tau)
    agrees(fe, x.T, k, tau, axis=0)


@pytest.mark.parametrize("dtype", ["<f2", ">f2", "<f4", ">f4", "<f8", ">f8"])
@pytest.mark.parametrize("aligned", [True, False])
def test_numbers_of_any_byte_order_at_any_address(dtype, aligned):
    """Only NumPy has these; arrays mapped from files look like this."""
    x = scores((6, 10), np.float16).astype(dtype)
    buffer = np.zeros(x.nbytes + 1, np.uint8)
    view = buffer[1 - aligned :][: x.nbytes].view(dtype).reshape(x.shape)
    view[...] = x
    y = hs.soft_binary_argmax(view, 2.5, axis=0)
    assert y.dtype == dtype
    native, atol = x.astype(x.dtype.newbyteorder("=")), tolerance(x.dtype.newbyteorder("="))
    np.testing.assert_allclose(y, hs.soft_binary_argmax(native, 2.5, axis=0), rtol=0, atol=atol)
    np.testing.assert_allclose(hs.threshold(view, 2.5), hs.threshold(native, 2.5), rtol=0, atol=atol)
    np.testing.assert_array_equal(hs.binary_argmax(view, 2), hs.binary_argmax(native, 2))


@every_front_end
@pytest.mark.parametrize("dtype", ["int8", "int64", "float16", "float32", "float64"])
def test_k_and_tau_of_any_dtype(fe, dtype):
    x = scores((3, 10), np.float32)
    agrees(fe, x, np.array([1, 5, 10], dtype), np.array([1, 2, 4], dtype))
    agrees(fe, x, np.array(4, dtype), np.array(2, dtype))


@every_wide_dtype
def test_k_and_tau_broadcast_over_the_slices(fe, dtype):
    x = scores((4, 6, 5), dtype)
    per_first = np.array([[0.5], [1.0], [2.0], [4.0]])
    per_second = np.linspace(0.2, 3, 6)
    for k, tau in ((per_first, per_second), (2, per_first), (per_second, per_first), (per_second[None], 1.0)):
        agrees(fe, x, k, tau)
    agrees(fe, x, np.linspace(0, 6, 20).reshape(4, 5), np.array([1.0, 2.0, 3.0, 4.0, 5.0]), axis=1)
    agrees(fe, x, np.linspace(0, 4, 60).reshape(2, 6, 5)[0], np.ones((1, 1)), axis=0)
    # k and tau with strides of their own.
    agrees(fe, x, np.linspace(0, 5, 48).reshape(4, 12)[:, ::2], np.linspace(1, 2, 24).reshape(6, 4).T)


@every_front_end
def test_empty_shapes(fe):
    for shape, axis in itertools.product([(0, 5), (5, 0), (0, 0), (3, 0, 5), (0, 3, 5)], [0, 1, -1]):
        x = np.zeros(shape, np.float32)
        agrees(fe, x, 0, axis=axis)
        if shape[axis]:
            agrees(fe, x, 2, axis=axis)


@pytest.fixture(params=[1, 2, 5])
def threads(request, monkeypatch):
    """NumPy takes its number of threads from the environment at each call, torch from torch."""
    monkeypatch.setenv("HYPERSIMPLEX_NUM_THREADS", str(request.param))
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@functools.cache
def large_problem(shape, dtype, axis):
    x = scores(shape, dtype)
    k = shape[axis] // 10
    return x, k, reference.soft_binary_argmax(x, k, axis=axis), reference.binary_argmax(x, k, axis=axis)


@every_front_end_and_dtype(WIDE, (NUMPY, TORCH))
@pytest.mark.parametrize(
    ("shape", "axis"),
    [((1_000_003,), 0), ((3, 100_001), 1), ((500, 601), 1), ((100_003, 3), 0), ((9001, 40), 0), ((301, 997), 0)],
)
def test_large_work_on_any_number_of_threads(fe, dtype, shape, axis, threads):
    x, k, soft, hard = large_problem(shape, dtype, axis)
    np.testing.assert_allclose(fe.soft_binary_argmax(x, k, axis=axis), soft, rtol=0, atol=tolerance(dtype, 4.0, k=k))
    assert np.array_equal(fe.binary_argmax(x, k, axis=axis), hard)


@pytest.mark.parametrize("value", ["0", "-1", "many", "", "1.5"])
def test_a_number_of_threads_that_makes_no_sense_is_an_error(monkeypatch, value):
    monkeypatch.setenv("HYPERSIMPLEX_NUM_THREADS", value)
    with pytest.raises(ValueError, match=f"HYPERSIMPLEX_NUM_THREADS must be .*, got '{value}'"):
        hs.soft_binary_argmax(np.zeros(5), 1)
