"""Derivatives of every curve by finite differences, in forward and reverse mode, and of second order."""

import jax
import numpy as np
import pytest
from jax.test_util import check_grads

import hypersimplex.jax as hsj
from hypersimplex._curves import CURVES


@pytest.mark.parametrize("curve", CURVES[1:])
def test_finite_differences_agree(curve):
    with jax.enable_x64(True):
        x = np.random.default_rng(0).normal(size=6)
        for function in (hsj.soft_topk, hsj.threshold):
            solved = jax.jit(lambda x, k, tau, function=function: function(x, k, tau, curve=curve))
            check_grads(solved, (x, 2.3, 0.7), order=2, modes=("fwd", "rev"), atol=1e-3, rtol=1e-3)
