"""The curves by themselves: S, its slope as a function of y, the way back from y, and a search for their sums."""

import numpy as np
import pytest
import torch

from hypersimplex import _checks
from hypersimplex._curves import CURVES, inverse, parts, slope, value
from hypersimplex._search import Start, search

every_curve = pytest.mark.parametrize("curve", CURVES)
every_xp = pytest.mark.parametrize("xp", [np, torch], ids=["numpy", "torch"])

DEFINITIONS = {
    "ramp": lambda t: np.clip(t, 0, 1),
    "exp": lambda t: np.exp(np.minimum(t, 0)),
    "logistic": lambda t: 1 / (1 + np.exp(-t)),
    "laplace": lambda t: np.where(t < 0, np.exp(t) / 2, 1 - np.exp(-t) / 2),
}


@every_xp
@every_curve
def test_the_value_is_the_definition(xp, curve):
    t = np.concatenate([np.linspace(-30, 30, 1201), [0.0, 1.0, -np.inf, np.inf, np.nan]])
    y = np.asarray(value(xp, curve, xp.asarray(t)))
    np.testing.assert_allclose(y, DEFINITIONS[curve](t), rtol=1e-14, atol=1e-16)
    np.testing.assert_array_equal(y[-3:], [0, 1, np.nan])
    assert not np.isnan(np.asarray(value(xp, curve, xp.asarray([-1e300, 1e300])))).any()


@every_xp
@every_curve
def test_the_slope_is_the_derivative_and_depends_on_y_alone(xp, curve):
    t = np.linspace(-8.05, 8.05, 300)
    h = 1e-6
    expected = (DEFINITIONS[curve](t + h) - DEFINITIONS[curve](t - h)) / (2 * h)
    found = np.asarray(slope(xp, curve, xp.asarray(DEFINITIONS[curve](t))))
    np.testing.assert_allclose(found, expected, atol=1e-9)
    np.testing.assert_allclose(np.asarray(parts(xp, curve, xp.asarray(t))[1]), expected, atol=1e-9)
    ends = np.asarray(slope(xp, curve, xp.asarray([0.0, 1.0, np.nan])))
    np.testing.assert_array_equal(ends, [0, 0, np.nan])


@every_xp
@every_curve
def test_the_inverse_leads_back(xp, curve):
    t = np.linspace(0.01, 0.99, 99) if curve == "ramp" else np.linspace(-30, -0.01 if curve == "exp" else 8, 99)
    found = np.asarray(inverse(xp, curve, value(xp, curve, xp.asarray(t))))
    np.testing.assert_allclose(found, t, rtol=1e-11, atol=1e-11)


@every_curve
def test_what_is_counted_apart_keeps_digits_that_one_minus_y_has_not(curve):
    t = np.asarray([50.0])
    rest, _, above = parts(np, curve, t)
    assert above.all()
    expected = {"logistic": -np.exp(-50.0), "laplace": -np.exp(-50.0) / 2}.get(curve, 0.0)
    np.testing.assert_allclose(rest, expected, rtol=1e-14)


@pytest.mark.parametrize("t", [-3.0, -0.2, 0.0, 0.3, 4.0])
@pytest.mark.parametrize("curve", ["logistic", "laplace"])
def test_torch_can_differentiate_the_value_where_the_sign_turns(curve, t):
    point = torch.tensor(t, dtype=torch.float64, requires_grad=True)
    y = value(torch, curve, point)
    (found,) = torch.autograd.grad(y, point)
    torch.testing.assert_close(found, slope(torch, curve, y.detach()))


@every_xp
@every_curve
def test_one_search_serves_every_curve(xp, curve):
    rng = np.random.default_rng(3)
    x, k = rng.normal(size=(7, 40)), rng.uniform(1, 39, 7)

    def sums(mu, low, error):
        rest, slopes, ones = parts(xp, curve, (xp.asarray(x) - mu[:, None]) / 0.5)
        return xp.stack([rest.sum(1), 1.0 * slopes.sum(1), 1.0 * ones.sum(1)])

    lo, hi = xp.asarray(np.full(7, -20.0)), xp.asarray(np.full(7, 20.0))
    found = search(xp, sums, xp.asarray(k), 0.5, Start((lo + hi) / 2, lo, hi), 1e-13, 80)
    assert bool(found.exact.all())
    y = DEFINITIONS[curve]((x - np.asarray(found.mu)[:, None]) / 0.5)
    np.testing.assert_allclose(y.sum(1), k, rtol=1e-12)


def test_a_curve_that_does_not_exist_is_an_error():
    for curve in CURVES:
        _checks.check_curve(curve)
    with pytest.raises(ValueError, match=r"^curve must be 'ramp', 'exp', 'logistic' or 'laplace', got 'x'$"):
        _checks.check_curve("x")
    with pytest.raises(ValueError, match=r"^curve must be .*, got None$"):
        _checks.check_curve(None)
