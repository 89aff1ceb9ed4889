"""Every row of the table of edges: the same result, or the same error, in every front end and dtype."""

import itertools
import re

import numpy as np
import pytest

from hypersimplex import reference
from tests.frontends import FLOAT32, FLOAT64, every_front_end, every_front_end_and_dtype, tolerance

INF, NAN = np.inf, np.nan
WIDE = (FLOAT32, FLOAT64)

every_dtype = every_front_end_and_dtype()


def widened(y):
    return np.asarray(y, np.float64)


@every_dtype
@pytest.mark.parametrize("n", [1, 2, 7, 8, 9, 33, 100])
def test_k_of_zero_and_k_of_n_saturate(fe, dtype, n):
    x = np.random.default_rng(n).normal(size=n).astype(dtype)
    assert np.array_equal(fe.soft_binary_argmax(x, 0), np.zeros(n, dtype))
    assert np.array_equal(fe.soft_binary_argmax(x, n), np.ones(n, dtype))
    assert np.array_equal(fe.soft_binary_argmax(x, float(n), 1e3), np.ones(n, dtype))
    assert np.array_equal(fe.binary_argmax(x, 0), np.zeros(n, dtype))
    assert np.array_equal(fe.binary_argmax(x, n), np.ones(n, dtype))


@every_dtype
@pytest.mark.parametrize("columns", [1, 5, 16, 40])
@pytest.mark.parametrize("axis", [0, 1])
def test_a_gap_wider_than_tau_leaves_nothing_between_zero_and_one(fe, dtype, columns, axis):
    """Whatever is off by a rounding here would be active, and its gradient to k not zero."""
    rng = np.random.default_rng(columns)
    for n in (28, 74):
        x = np.stack([rng.permutation(n) for _ in range(columns)], axis=1 - axis).astype(dtype)
        for k, tau in itertools.product(range(1, n, 2), (0.9, 0.5, 0.01)):
            y = fe.soft_binary_argmax(x, k, tau, axis=axis)
            assert np.array_equal(y, reference.binary_argmax(x, k, axis=axis))


@every_dtype
@pytest.mark.parametrize("k", [0.25, 0.5, 1.75, 2.5])
def test_k_may_be_a_fraction(fe, dtype, k):
    x = np.array([0.5, 2.0, 1.0], dtype)
    y = widened(fe.soft_binary_argmax(x, k))
    assert y.sum() == pytest.approx(k, abs=3 * tolerance(dtype))
    np.testing.assert_allclose(y, reference.soft_binary_argmax(x, k), rtol=0, atol=tolerance(dtype))


@every_dtype
def test_ties_get_equal_parts(fe, dtype):
    y = widened(fe.soft_binary_argmax(np.array([3.0, 1.0, 1.0, 1.0, 1.0, -3.0], dtype), 2, 0.5))
    np.testing.assert_array_equal(y, [1, 0.25, 0.25, 0.25, 0.25, 0])
    constant = widened(fe.soft_binary_argmax(np.full(8, 7.0, dtype), 3, 1e-3))
    np.testing.assert_array_equal(constant, np.full(8, 0.375))


@every_dtype
@pytest.mark.parametrize("tau", [1e-12, 1e-30])
def test_ties_get_equal_parts_however_small_tau_is(fe, dtype, tau):
    y = widened(fe.soft_binary_argmax(np.array([3.0, 1.0, 1.0, 0.0], dtype), 2, tau))
    np.testing.assert_array_equal(y, [1, 0.5, 0.5, 0])


@every_dtype
@pytest.mark.parametrize(
    ("x", "k", "y", "mu"),
    [
        # -inf masks: the rest shares k.
        ([-INF, 1.0, 1.0, -INF], 1, [0, 0.5, 0.5, 0], 0.5),
        ([-INF, 1.0, 0.5, -INF], 2, [0, 1, 1, 0], -0.5),
        ([-INF, 4.0, 0.0, -INF], 0, [0, 0, 0, 0], 4.0),
        ([-INF, -INF], 0, [0, 0], 0.0),
        # +inf is certain: the rest shares what is left.
        ([INF, 1.0, 1.0, 0.0], 2, [1, 0.5, 0.5, 0], 0.5),
        ([INF, 1.0, 0.5], 1, [1, 0, 0], 1.0),
        ([INF, INF], 2, [1, 1], 0.0),
        ([INF, 1.0, -INF], 1.5, [1, 0.5, 0], 0.5),
        ([INF, -INF], 1, [1, 0], 0.0),
        # More +inf than k: they share k, whatever the rest is.
        ([INF, INF, 5.0, -INF], 1, [0.5, 0.5, 0, 0], INF),
        ([INF, INF, INF, INF], 0.5, [0.125] * 4, INF),
        ([INF, 1.0], 0, [0, 0], INF),
    ],
)
def test_infinities(fe, dtype, x, k, y, mu):
    x = np.array(x, dtype)
    np.testing.assert_array_equal(widened(fe.soft_binary_argmax(x, k)), y)
    np.testing.assert_allclose(widened(fe.threshold(x, k)), mu, rtol=6e-8)  # what float32 can tell


@every_dtype
@pytest.mark.parametrize("n", [3, 16, 70])
def test_a_nan_spoils_its_own_slice_only(fe, dtype, n):
    x = np.random.default_rng(0).normal(size=(3, n)).astype(dtype)
    whole = fe.soft_binary_argmax(x, 2), fe.threshold(x, 2), fe.binary_argmax(x, 2)
    for at in (0, n // 2, n - 1):
        spoilt = x.copy()
        spoilt[1, at] = NAN
        for axis, array in ((-1, spoilt), (0, np.ascontiguousarray(spoilt.T))):
            y = fe.soft_binary_argmax(array, 2, axis=axis)
            mu = fe.threshold(array, 2, axis=axis)
            top = fe.binary_argmax(array, 2, axis=axis)
            for got, expected in zip((y, mu, top), whole, strict=True):
                rows = widened(got.T if axis == 0 and got.ndim == 2 else got)
                assert np.isnan(rows[1]).all()
                atol = tolerance(dtype)
                np.testing.assert_allclose(rows[[0, 2]], widened(expected)[[0, 2]], rtol=0, atol=atol)


@every_dtype
def test_a_nan_is_stronger_than_an_infinity_and_than_a_saturated_k(fe, dtype):
    for x, k in (([NAN, INF, INF], 1), ([NAN, -INF, -INF], 2), ([NAN, 1.0], 0), ([NAN, 1.0], 2)):
        x = np.array(x, dtype)
        assert np.isnan(widened(fe.soft_binary_argmax(x, k))).all()
        assert np.isnan(fe.threshold(x, k))


@every_dtype
def test_empty_slices_and_empty_batches(fe, dtype):
    assert fe.soft_binary_argmax(np.zeros(0, dtype), 0).shape == (0,)
    assert fe.soft_binary_argmax(np.zeros((2, 0), dtype), 0).shape == (2, 0)
    np.testing.assert_array_equal(fe.threshold(np.zeros((2, 0), dtype), 0), [0, 0])
    assert fe.soft_binary_argmax(np.zeros((0, 5), dtype), 2).shape == (0, 5)
    assert fe.threshold(np.zeros((0, 5), dtype), 2).shape == (0,)
    assert fe.binary_argmax(np.zeros((5, 0), dtype), 2, axis=0).shape == (5, 0)


@every_front_end
def test_an_empty_batch_does_not_hide_bad_numbers(fe):
    x = np.zeros((0, 3))
    refuses(fe, ValueError, "k must be between 0 and 3 (the size of axis -1), got 7", fe.soft_binary_argmax, x, 7)
    refuses(fe, ValueError, "k must be between 0 and 3 (the size of axis -1), got 7", fe.threshold, x, 7)
    refuses(fe, ValueError, "tau must be positive, got -1.0", fe.soft_binary_argmax, x, 1, -1.0)
    refuses(fe, ValueError, "k must be between 0 and 3 (the size of axis -1), got -1", fe.binary_argmax, x, -1)


@every_front_end
def test_text_is_no_number(fe):
    x = np.zeros(3)
    refuses(fe, TypeError, "k must be a number or an array of numbers, got str", fe.soft_binary_argmax, x, "2")
    refuses(fe, TypeError, "tau must be a number or an array of numbers, got str", fe.soft_binary_argmax, x, 1, "1")


@every_dtype
def test_the_largest_numbers_do_not_overflow(fe, dtype):
    top = float(np.finfo(dtype).max) if dtype in WIDE else 3e4
    x = np.array([top, -top, 0.0], dtype)
    np.testing.assert_array_equal(widened(fe.soft_binary_argmax(x, 1)), [1, 0, 0])
    np.testing.assert_array_equal(widened(fe.soft_binary_argmax(x, 2)), [1, 0, 1])
    np.testing.assert_array_equal(widened(fe.soft_binary_argmax(-x, 1.5)), [0, 1, 0.5])


@every_dtype
@pytest.mark.parametrize("tau", [1e-300, 1e300])
def test_tau_may_be_any_positive_number(fe, dtype, tau):
    x = np.array([0.25, 3.0, -1.0, 2.0], dtype)
    expected = reference.soft_binary_argmax(x, 2, tau)
    np.testing.assert_allclose(widened(fe.soft_binary_argmax(x, 2, tau)), expected, rtol=0, atol=tolerance(dtype))


def refuses(fe, kind, message, function, *args, **kwargs):
    """The message is the same everywhere, but for the framework's own words for x, axis and clip."""
    message = message.replace("x must", f"{fe.input_word} must").replace("axis", fe.axis_word)
    if fe.axis_word == "dim":
        message = message.replace(".clip(", ".clamp(")
    with pytest.raises(kind, match="^" + re.escape(message) + "$"):
        function(*args, **kwargs)


@every_front_end
@pytest.mark.parametrize("k", [7, -1, 5.5, NAN, INF])
def test_k_outside_its_range_is_an_error(fe, k):
    x = np.zeros((3, 5), np.float32)
    message = f"k must be between 0 and 5 (the size of axis -1), got {k}"
    refuses(fe, ValueError, message, fe.soft_binary_argmax, x, k)
    refuses(fe, ValueError, message, fe.threshold, x, k)
    refuses(fe, ValueError, message, fe.binary_argmax, x, k)
    refuses(fe, ValueError, message.replace("-1", "0", 1), fe.soft_binary_argmax, x.T, k, axis=0)


@every_front_end
def test_one_bad_k_among_many_is_an_error(fe):
    x = np.zeros((3, 5), np.float32)
    for dtype in (np.float32, np.float64, np.int64):
        with pytest.raises(ValueError, match=r"^k must be between 0 and 5 \(the size of .*\), got 9(\.0)?$"):
            fe.soft_binary_argmax(x, np.array([2, 9, 1], dtype))


@every_front_end
def test_an_empty_slice_cannot_hold_a_positive_k(fe):
    x = np.zeros((2, 0))
    message = "k must be between 0 and 0 (the size of axis -1), got 1"
    refuses(fe, ValueError, message, fe.soft_binary_argmax, x, 1)
    refuses(fe, ValueError, message, fe.threshold, x, 1)
    refuses(fe, ValueError, message, fe.binary_argmax, x, 1)


@every_front_end
@pytest.mark.parametrize("tau", [0.0, -1.0, NAN, INF, -INF])
def test_tau_that_is_not_positive_is_an_error(fe, tau):
    rule = "positive" if np.isfinite(tau) else "positive and finite"
    message = f"tau must be {rule}, got {tau}"
    refuses(fe, ValueError, message, fe.soft_binary_argmax, np.zeros(5), 2, tau)
    refuses(fe, ValueError, message, fe.threshold, np.zeros(5), 2, tau)
    refuses(fe, ValueError, message, fe.soft_binary_argmax, np.zeros((2, 5)), 2, np.array([1.0, tau]))


@every_front_end
@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8", "bool", "complex64"])
def test_x_that_is_not_floating_point_is_an_error(fe, dtype):
    name = f"torch.{dtype}" if fe.input_word == "input" else dtype
    message = f"x must be floating point, got {name}"
    refuses(fe, TypeError, message, fe.soft_binary_argmax, np.zeros(5, dtype), 2)
    refuses(fe, TypeError, message, fe.threshold, np.zeros(5, dtype), 2)
    refuses(fe, TypeError, message, fe.binary_argmax, np.zeros(5, dtype), 2)


@every_front_end
def test_binary_argmax_wants_a_whole_k(fe):
    x = np.array([1.0, 3.0, 2.0])
    refuses(fe, ValueError, "k must be a whole number for exactly k ones, got 2.5", fe.binary_argmax, x, 2.5)
    np.testing.assert_array_equal(fe.binary_argmax(x, 2.0), [0, 1, 1])
    np.testing.assert_array_equal(fe.binary_argmax(x, np.array(2.0)), [0, 1, 1])


@every_front_end
@pytest.mark.parametrize("name", ["k", "tau"])
def test_k_and_tau_must_broadcast_over_the_slices(fe, name):
    x, given = np.zeros((3, 5)), {"k": 2, "tau": 1.0}
    for shape in ((4,), (3, 1), (5,)):
        wrong = {**given, name: np.ones(shape)}
        message = f"{name} must broadcast to the slices' shape (3,), got shape {shape}"
        refuses(fe, ValueError, message, fe.soft_binary_argmax, x, **wrong)
        refuses(fe, ValueError, message, fe.threshold, x, **wrong)


@every_front_end
def test_k_above_the_unmasked_entries_is_an_error(fe):
    x = np.array([[1.0, 2.0, 3.0, 4.0], [-INF, 1.0, 2.0, -INF]], np.float32)
    rule, hint = "k must be at most 2, the number of entries that are not -inf, got 3", "to lower it where a mask"
    message = f"{rule}; {hint} leaves fewer: k = valid.sum(-1).clip(max=k)"
    refuses(fe, ValueError, message, fe.soft_binary_argmax, x, 3)
    refuses(fe, ValueError, message, fe.threshold, x, 3)
    columns = message.replace("-1", "axis")
    refuses(fe, ValueError, columns, fe.soft_binary_argmax, np.ascontiguousarray(x.T), 3, axis=0)
    refuses(fe, ValueError, message.replace("got 3", "got 2.5"), fe.soft_binary_argmax, x[1], 2.5)
    refuses(fe, ValueError, message, fe.binary_argmax, x, 3)
    refuses(fe, ValueError, message, fe.soft_binary_argmax, np.array([INF, 1.0, -INF, -INF], np.float32), 3)


@every_front_end
@pytest.mark.parametrize("left", [1, 2, 3])
def test_k_lowered_as_the_message_says_gives_short_rows_what_they_have(fe, left):
    x, valid = np.array([[1.0, 2.0, 3.0, 4.0], [4.0, 3.0, 2.0, 1.0]]), np.arange(4) < np.array([[4], [left]])
    masked, k = np.where(valid, x, -INF), valid.sum(-1).clip(max=2)
    for function in (fe.soft_binary_argmax, fe.binary_argmax):
        np.testing.assert_allclose(np.asarray(function(masked, k)).sum(-1), k, rtol=1e-6)
    if left < 2:
        with pytest.raises(ValueError, match=r"leaves fewer: k = valid\.sum\(-1\)\.cl"):
            fe.soft_binary_argmax(masked, 2)
    else:
        np.testing.assert_allclose(np.asarray(fe.soft_binary_argmax(masked, 2)).sum(-1), 2, rtol=1e-6)


@every_front_end
@pytest.mark.parametrize("axis", [2, -3])
def test_an_axis_that_does_not_exist_is_an_error(fe, axis):
    message = f"axis must be between -2 and 1, got {axis}"
    for function in (fe.soft_binary_argmax, fe.threshold, fe.binary_argmax):
        refuses(fe, (ValueError, IndexError), message, function, np.zeros((3, 5)), 1, axis=axis)
