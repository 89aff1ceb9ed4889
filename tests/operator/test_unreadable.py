"""What NumPy cannot read as an array of numbers: the error names the argument, in every function."""

from fractions import Fraction

import numpy as np
import pytest

import hypersimplex as hs
from tests.unreadable import HUGE, VALUES, X, calls

CALLS = calls(hs)


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("call", CALLS)
def test_the_argument_is_named(call, value):
    (name, run), (make, got) = CALLS[call], VALUES[value]
    with pytest.raises(TypeError, match=f"^{name} must be readable as an array, {got}"):
        run(make())


@pytest.mark.parametrize("value", HUGE)
@pytest.mark.parametrize("call", CALLS)
def test_a_whole_number_beyond_float64(call, value):
    name, run = CALLS[call]
    with pytest.raises(ValueError, match=f"^{name} must be a number that float64 holds, got one beyond 1e308$"):
        run(HUGE[value])


def test_the_temperature_of_an_assignment():
    with pytest.raises(ValueError, match=r"^tau must be a number that float64 holds"):
        hs.soft_assignment(X, 1, 1, 10**400)


def test_a_number_of_any_type_is_still_one():
    wanted = hs.box_section(X, 0.5, weight=2.0)
    for total in (Fraction(1, 2), np.float16(0.5), np.array(0.5)):
        np.testing.assert_array_equal(hs.box_section(X, total, weight=np.int64(2)), wanted)


def test_whole_numbers_in_an_array_of_objects_are_still_refused():
    with pytest.raises(TypeError, match=r"^x must be floating point, got object$"):
        hs.soft_topk(np.array([1, 2, 3], object), 1)
    with pytest.raises(TypeError, match=r"^k must be a number or an array of numbers, got list$"):
        hs.soft_topk(X, [1, None])
