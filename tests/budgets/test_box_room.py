"""How far a total may lie beyond what the bounds allow: 4 eps of their size, of the dtype that is computed in."""

import numpy as np
import pytest

from hypersimplex import _checks, _kernel
from tests.frontends import BFLOAT16, FLOAT16, FLOAT32, FLOAT64, HAS_TORCH, eps, every_front_end_and_dtype

if HAS_TORCH:
    from tests.frontends import PLAIN

BOX = (-1.0, 3.0)  # four entries: the total lies between -4 and 12, and the size is 16
EVERY = every_front_end_and_dtype((FLOAT16, BFLOAT16, FLOAT32, FLOAT64))
SIDES = pytest.mark.parametrize("side", ["least", "most"])


def total(side, steps, dtype):
    """A number so many steps beyond the end, each a quarter of what is allowed."""
    step = 16 * eps(FLOAT32 if dtype.itemsize < 4 else dtype)
    return -4 - steps * step if side == "least" else 12 + steps * step


def box(fe, dtype, side, steps):
    x = np.array([0.5, -0.25, 2, 1], dtype)
    return np.asarray(fe.box_section(x, total(side, steps, dtype), *BOX), np.float64)


@EVERY
@SIDES
def test_a_total_within_the_room_is_met_by_the_bounds(fe, dtype, side):
    for steps in (0, 3, 4):
        assert box(fe, dtype, side, steps).tolist() == [BOX[side == "most"]] * 4


@EVERY
@SIDES
def test_a_total_beyond_it_is_an_error(fe, dtype, side):
    with pytest.raises(ValueError, match=r"^total must be between -4 and 12 "):
        box(fe, dtype, side, 5)


@every_front_end_and_dtype((FLOAT64,))
@SIDES
def test_an_entry_that_rounding_keeps_from_its_bound_is_at_it(fe, dtype, side):
    """Each x/tau is a bound but for rounding. An entry that is not free must not look so to the gradient."""
    ends, tau = np.random.default_rng(0).uniform(0.5, 2, 500), 0.7
    bounds = (ends, ends + 1) if side == "least" else (ends - 1, ends)
    y = fe.box_section(ends * tau, 1e6, *bounds, 1.0, tau, at_most=True)
    assert y.tolist() == ends.tolist()


@SIDES
@pytest.mark.parametrize("dtype", [FLOAT32, FLOAT64], ids=str)
def test_plain_torch_gives_nan_where_nobody_looks_at_the_values(monkeypatch, dtype, side):
    monkeypatch.setattr(_checks, "check_box", lambda *given: None)
    assert [np.isnan(box(PLAIN, dtype, side, steps)).all() for steps in (0, 3, 4, 5)] == [False, False, False, True]


@SIDES
@pytest.mark.parametrize("dtype", [FLOAT32, FLOAT64], ids=str)
def test_jax_gives_nan_under_jit(dtype, side):
    jax = pytest.importorskip("jax", reason="JAX is in an environment of its own")
    import hypersimplex.jax as hsj

    x = np.array([0.5, -0.25, 2, 1], dtype)
    with jax.enable_x64(dtype == FLOAT64):
        run = jax.jit(lambda total: hsj.box_section(x, total, *BOX))
        found = [np.asarray(run(total(side, steps, dtype))) for steps in (0, 3, 4, 5)]
    assert [np.isnan(y).all() for y in found] == [False, False, False, True]


def test_there_is_one_definition():
    assert _checks.box_room(eps(FLOAT64)) == _kernel.constants()["box_room"] * eps(FLOAT64) == 4 * eps(FLOAT64)
