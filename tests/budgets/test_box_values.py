"""box_section against sorted breakpoints, a QP solver, the operator it generalises, and every edge."""

import re

import numpy as np
import pytest

import hypersimplex as hs
from hypersimplex import _checks, _kernel
from tests.budgets.boxes import Boxes, random_boxes, solve
from tests.frontends import FLOAT32, FLOAT64, FRONT_ENDS, PLAIN, eps, every_front_end, every_front_end_and_dtype

INF, NAN = np.inf, np.nan
WIDE = every_front_end_and_dtype((FLOAT32, FLOAT64))


def close(y, expected, b, dtype):
    """Within the rounding of the dtype, of mu * weight/tau and of the sums, which may fall on one free entry."""
    bulk = np.abs(b.weight * expected).sum(-1) + np.abs(b.total)
    size = np.abs(np.where(np.isfinite(b.x), b.x, 0)).max(-1) / b.tau
    free = (expected > b.lower) & (expected < b.upper)
    least = np.where(free, b.weight, np.inf).min(-1)
    room = 4 * eps(dtype) * (1 + np.abs(expected)) + 128 * eps(FLOAT64) * (size + bulk / least)[:, None]
    assert np.all(np.abs(y - expected) <= room), np.max(np.abs(y - expected) / room)


@WIDE
@pytest.mark.parametrize("infinite", [False, True])
@pytest.mark.parametrize("at_most", [False, True])
def test_values_are_those_of_sorted_breakpoints(fe, dtype, infinite, at_most):
    for n in (7, 40) if "jax" in fe.name else (1, 2, 7, 40):  # each compiles anew there
        b = random_boxes(30, n, n, dtype, infinite)
        given = b.arguments() | {"x": b.x.astype(dtype)}
        y = fe.box_section(**given, at_most=at_most)
        assert y.dtype == dtype
        expected = solve(b, at_most)
        if fe.name == "jax":  # mu, tau and the total are float32 there
            size = np.abs(np.where(np.isfinite(b.x), b.x, 0)).max(-1) / b.tau + np.abs(b.weight * expected).sum(-1)
            assert np.all(np.abs(y - expected) < (2e-5 * (1 + size))[:, None])
        else:
            close(y, expected, b, dtype)
        sums = (b.weight * y).sum(-1)
        bulk = 1 + np.abs(b.weight * y).sum(-1)
        assert np.all(sums - b.total <= 8 * eps(dtype) * bulk)
        if not at_most:
            assert np.all(b.total - sums <= 8 * eps(dtype) * bulk)


@pytest.mark.parametrize("at_most", [False, True])
def test_ten_thousand_random_problems(at_most):
    for n, rows in ((3, 3000), (10, 3000), (33, 2000), (70, 2000)):
        b = random_boxes(rows, n, rows + n, infinite=n != 33)
        close(hs.box_section(**b.arguments(), at_most=at_most), solve(b, at_most), b, FLOAT64)


@pytest.mark.parametrize(
    ("rows", "n"), [(16, 271), (15, 272), (16, 272), (17, 272), (16, 273), (2, 4094), (2, 4095), (2, 4096)]
)
def test_rows_in_step(rows, n):
    """The kernel takes 16 rows at a time, or fewer with over 4096 entries together: from 272 of them on, and alone."""
    b = random_boxes(rows, n, rows + n)
    close(hs.box_section(**b.arguments()), solve(b, False), b, FLOAT64)


def test_values_are_those_of_a_qp_solver():
    quadprog = pytest.importorskip("quadprog", reason="quadprog is in the environment of the peers")
    b = random_boxes(50, 6, 11)
    b.x = np.where(np.isfinite(b.x), b.x, -5.0)
    b.upper = np.maximum(b.upper, b.lower + 0.1)  # it takes no bounds that are one point
    least, most = ((b.weight * v).sum(-1) for v in (b.lower, b.upper))
    b.total = least + (most - least) * np.random.default_rng(0).uniform(0.1, 0.9, 50)
    y = hs.box_section(**b.arguments())
    for r in range(50):
        constraints = np.column_stack([b.weight[r], np.eye(6), -np.eye(6)])
        bounds = np.concatenate([[b.total[r]], b.lower[r], -b.upper[r]])
        exact = quadprog.solve_qp(np.eye(6), b.x[r] / b.tau[r], constraints, bounds, meq=1)[0]
        np.testing.assert_allclose(y[r], exact, rtol=0, atol=1e-9 * (1 + np.abs(b.x[r] / b.tau[r]).max()))


@WIDE
def test_the_operator_is_the_special_case(fe, dtype):
    x = np.random.default_rng(0).normal(size=(8, 60)).astype(dtype)
    for k, tau in ((0, 1.0), (1, 0.1), (7.5, 0.3), (30, 2.0), (60, 0.1)):
        y, wanted = fe.box_section(x, k, tau=tau), fe.soft_binary_argmax(x, k, tau)
        np.testing.assert_allclose(y, wanted, rtol=0, atol=40 * eps(dtype))


@WIDE
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_arguments_broadcast_along_every_axis(fe, dtype, axis):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(3, 4, 5)).astype(dtype)
    n, rest = x.shape[axis], tuple(np.delete(x.shape, axis))
    full = {
        "lower": rng.uniform(-1, 0, (4, 1)), "upper": rng.uniform(0.5, 1, (3, 1, 1)), "weight": rng.uniform(0.5, 2, 5)
    }  # fmt: skip
    total, tau = rng.uniform(0, 0.2 * n, rest[1:]), rng.uniform(0.5, 2, rest)
    y = fe.box_section(x, total, **{k: v.astype(dtype) for k, v in full.items()}, tau=tau, axis=axis)
    rows = [np.moveaxis(np.broadcast_to(v, x.shape), axis, -1).reshape(-1, n) for v in (x, *full.values())]
    b = Boxes(
        rows[0], np.broadcast_to(total, rest).ravel(), *(r.astype(dtype).astype(float) for r in rows[1:]), tau.ravel()
    )
    got = np.moveaxis(y, axis, -1).reshape(-1, n)
    np.testing.assert_allclose(got, solve(b), rtol=0, atol=1e-5 if dtype == FLOAT32 else 1e-13)


@every_front_end_and_dtype()
def test_edges(fe, dtype):
    def box(x, *args, **kwargs):
        return np.asarray(fe.box_section(np.array(x, dtype), *args, **kwargs), float)

    same = np.testing.assert_array_equal
    same(box([3.0, 1.0, 1.0, 0.0], 2, tau=0.5), [1, 0.5, 0.5, 0])  # ties
    same(box([-INF, 1.0, 1.0, -INF], 1), [0, 0.5, 0.5, 0])  # masks
    same(box([INF, 1.0, 1.0, 0.0], 2), [1, 0.5, 0.5, 0])
    same(box([INF, INF, 5.0, -INF], 1), [0.5, 0.5, 0, 0])  # they share
    same(box([INF, INF, 5.0, -INF], 1, upper=INF), [0.5, 0.5, 0, 0])
    same(box([INF, INF, 5.0, -INF], 1, at_most=True), [0.5, 0.5, 0, 0])
    same(box([INF, 1.0, 5.0], 1, upper=INF, at_most=True), [1, 0, 0])
    same(box([INF, -1.0, 0.5], 2, at_most=True), [1, 0, 0.5])
    same(box([1.0, 2.0, 3.0], 0), [0, 0, 0])
    same(box([1.0, 2.0, 3.0], 3), [1, 1, 1])
    same(box([1.0, 2.0, 3.0], 6, -INF, INF), [1, 2, 3])
    same(box([1.0, 2.0, 3.0], 3, -INF, INF), [0, 1, 2])
    same(box([1.0, 2.0, 3.0], 9, -INF, INF, at_most=True), [1, 2, 3])
    same(box([1.0, 2.0, 3.0], INF, -INF, INF, at_most=True), [1, 2, 3])
    same(box([0.0, 5.0, 9.0], 2, tau=0.01), [0, 1, 1])  # a gap: nothing between the bounds
    same(box([1.0, 2.0], 1.5, 0.75, 0.75), [0.75, 0.75])
    same(box([[NAN, 1.0], [1.0, 1.0]], 1), [[NAN, NAN], [0.5, 0.5]])
    assert box(np.zeros((0, 3)), 1).shape == (0, 3)
    assert box(np.zeros((2, 0)), 0).shape == (2, 0)


@WIDE
@pytest.mark.parametrize("at_most", [False, True])
@pytest.mark.parametrize("lower", [0.0, 0.5, -0.5])
def test_infinite_entries_are_as_very_large_ones(fe, dtype, at_most, lower):
    """With enough for all of them, with too little, and exactly at the change."""
    x = np.array([[INF, 1.5, INF, 0.25, 1.0], [0.5, INF, -INF, 0.75, INF]], dtype)
    large = np.where(x == INF, 100.0, x)
    for total in 5 * lower + np.array([0.25, 1.0, 1.99, 2.0, 2.01, 2.5]) * (1 - lower):
        same = {"lower": lower, "at_most": at_most}
        y, wanted = fe.box_section(x, total, **same), hs.box_section(large, total, **same)
        np.testing.assert_allclose(y, wanted, rtol=0, atol=64 * eps(dtype))


@every_front_end_and_dtype((FLOAT32, FLOAT64))
@pytest.mark.parametrize("shape", [(3, 0), (0,), (0, 3), (0, 0), (2, 0, 3)])
def test_empty_slices_with_bounds_of_their_own(fe, dtype, shape):
    for axis in range(len(shape)):
        line = tuple(size if d == axis else 1 for d, size in enumerate(shape))
        for form in (shape, line, shape[-1:]):
            given = {"lower": np.zeros(form, dtype), "upper": np.ones(form, dtype), "weight": np.ones(form, dtype)}
            assert fe.box_section(np.zeros(shape, dtype), 0.0, **given, axis=axis).shape == shape
            if shape[axis] or np.prod(np.delete(shape, axis)) == 0:
                continue
            with pytest.raises(ValueError, match=re.escape("total must be between 0 and 0 (what the bounds allow), ")):
                fe.box_section(np.zeros(shape, dtype), 1.0, **given, axis=axis)


@every_front_end
def test_ties_share_however_small_tau_is(fe):
    y = fe.box_section(np.array([3.0, 1.0, 1.0, 0.0], np.float32), 2, tau=1e-30)
    np.testing.assert_array_equal(y, [1, 0.5, 0.5, 0])


@every_front_end
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"total": 4}, "total must be between 0 and 3 (what the bounds allow), got 4"),
        ({"total": -0.5}, "total must be between 0 and 3 (what the bounds allow), got -0.5"),
        ({"total": NAN}, "total must be between 0 and 3 (what the bounds allow), got nan"),
        ({"total": 1, "lower": 0.5, "weight": 2.0}, "total must be between 3 and 6 (what the bounds allow), got 1"),
        ({"total": -1, "at_most": True}, "total must be at least 0 (what the bounds allow), got -1"),
        ({"total": 1, "lower": 1.0, "upper": 0.5}, "lower must be at most upper, got 1 and 0.5"),
        ({"total": 1, "lower": NAN}, "lower must be at most upper, got nan and 1"),
        ({"total": 1, "weight": 0.0}, "weight must be positive and finite, got 0"),
        ({"total": 1, "weight": INF}, "weight must be positive and finite, got inf"),
        ({"total": 1, "weight": np.array([1.0, -2.0, 1.0])}, "weight must be positive and finite, got -2"),
        ({"total": 1, "weight": np.array([1.0, np.inf, 1.0])}, "weight must be positive and finite, got inf"),
        ({"total": 1, "weight": np.float32([5, -2, 1])}, "weight must be positive and finite, got -2"),
        (
            {"total": 1, "lower": np.float32([0, 0.75, 0]), "upper": np.float32([1, 0.5, 1])},
            "lower must be at most upper, got 0.75 and 0.5",
        ),
        ({"total": 1, "tau": 0.0}, "tau must be positive, got 0.0"),
        ({"total": np.array([1.0, 5.0])}, "total must be between 0 and 3 (what the bounds allow), got 5"),
        ({"total": 1, "lower": np.zeros(4)}, "lower must broadcast to the input's shape (2, 3), got shape (4,)"),
        ({"total": np.zeros(3)}, "total must broadcast to the slices' shape (2,), got shape (3,)"),
    ],
)
def test_what_cannot_be_met_is_an_error_with_both_numbers(fe, given, message):
    with pytest.raises(ValueError, match="^" + re.escape(message) + "$"):
        fe.box_section(np.zeros((2, 3), np.float32), **given)


@every_front_end
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"total": -0.5}, "total must be between 0 and 3 (what the bounds allow), got -0.5"),
        ({"total": 1, "weight": -2.0}, "weight must be positive and finite, got -2"),
    ],
)
def test_a_nan_beside_it_does_not_reach_the_message(fe, given, message):
    with pytest.raises(ValueError, match="^" + re.escape(message) + "$"):
        fe.box_section(np.array([NAN, 0.0, 1.0], np.float32), **given)


@every_front_end
def test_masks_count_for_what_the_bounds_allow(fe):
    x = np.array([[1.0, 2.0, 3.0], [-INF, 1.0, -INF]], np.float32)
    with pytest.raises(ValueError, match=re.escape("total must be between 0 and 1 (what the bounds allow), got 2")):
        fe.box_section(x, 2)


@every_front_end
def test_a_mask_without_a_lower_bound_is_an_error(fe):
    x = np.array([-INF, 1.0, 2.0], np.float32)
    with pytest.raises(
        ValueError, match=re.escape("total must be between -inf and -inf (what the bounds allow), got 1")
    ):
        fe.box_section(x, 1, -INF, INF)


@WIDE
def test_bounds_that_meet_the_total_but_for_rounding(fe, dtype):
    """Ten times 0.1 is not 1 in floating point."""
    for n in (3, 7, 10, 49):
        y = fe.box_section(np.arange(n).astype(dtype), 1, upper=np.full(n, 1 / n, dtype))
        np.testing.assert_allclose(y, 1 / n, rtol=8 * eps(dtype))


@every_front_end
def test_the_problem_of_cvxpylayers_issue_205(fe):
    """0 <= y <= 0.002, sum 1, n = 1000: there the bounds were violated, and runs differed."""
    for seed in range(10):
        x = np.random.default_rng(seed).normal(size=1000).astype(np.float32)
        y = fe.box_section(x, 1, upper=0.002)
        assert y.min() >= 0
        assert y.max() <= np.float32(0.002)
        assert abs(float(y.sum(dtype=np.float64)) - 1) < 1e-6
        np.testing.assert_array_equal(y, fe.box_section(x, 1, upper=0.002))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_around_every_size_at_which_the_kernel_changes(dtype, monkeypatch):
    """Registers, chains of 64 of them, blocks of a long row; on one thread and on three, bit by bit the same."""
    c = _kernel.constants()
    lanes = c["float64_lanes"]
    sizes = {lanes, 64 * lanes, c["task_entries"], c["parallel_row"], c["parallel_worth"]}
    for n in sorted({size + d for size in sizes for d in (-1, 0, 1)}):
        rng = np.random.default_rng(n)
        x, weight = rng.normal(size=(2, n)).astype(dtype), rng.uniform(0.5, 2, n)
        results = []
        for threads in ("1", "3"):
            monkeypatch.setenv("HYPERSIMPLEX_NUM_THREADS", threads)
            results.append(hs.box_section(x, 0.1 * n, -0.5, 1.5, weight, 0.5))
        np.testing.assert_array_equal(*results)
        y = results[0].astype(np.float64)
        mu = ((x - 0.5 * y) / weight)[(y > -0.5) & (y < 1.5)]
        np.testing.assert_allclose((weight * y).sum(-1), 0.1 * n, rtol=32 * np.finfo(dtype).eps)
        if mu.size:  # one mu for all free entries of a row
            for r in range(2):
                mine = ((x[r] - 0.5 * y[r]) / weight)[(y[r] > -0.5) & (y[r] < 1.5)]
                assert np.ptp(mine) <= 64 * np.finfo(dtype).eps


def test_plain_torch_agrees_with_the_kernel_on_awkward_numbers():
    rng = np.random.default_rng(5)
    for tau in (1e-6, 1e-3, 1e3):
        x = rng.normal(size=(20, 50)) * 100
        a, b = (fe.box_section(x, 10.0, -1.0, 2.0, tau=tau) for fe in (FRONT_ENDS[0], PLAIN))
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-13 * (1 + 300 / tau))


def test_plain_torch_gives_nan_for_bad_numbers_that_nobody_looks_at(monkeypatch):
    """As on a device whose values cannot be read without waiting."""
    monkeypatch.setattr(_checks, "check_box", lambda *given: None)
    x = np.array([[0.1, 1.6, 1.0]] * 4)
    x[2, :2] = -np.inf
    upper, weight = np.array([[1.0], [-1.0], [1.0], [1.0]]), np.array([[-1.0], [1.0], [1.0], [1.0]])
    total = np.array([1.0, 1.0, 1.5, 1.0])  # of which the third is more than what is not masked can hold
    y = PLAIN.box_section(x, total, 0.0, upper, weight)
    assert np.isnan(y[:3]).all()
    np.testing.assert_allclose(y[3], [0.0, 0.8, 0.2], atol=1e-12)
