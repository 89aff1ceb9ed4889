"""Bounds and weights as numbers or as arrays: the same y, however a row ends within a register."""

from itertools import product

import numpy as np
import pytest

import hypersimplex as hs

BOUNDS = {"above 0": (0.2, 1.0), "around 0": (-0.5, 1.0), "below 0": (-1.0, -0.2)}
WAYS = list(product([False, True], repeat=3))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("sign", BOUNDS)
def test_every_mixture_of_numbers_and_arrays(sign, dtype):
    rng = np.random.default_rng(0)
    for n in range(1, 41):
        x, numbers = rng.standard_normal((3, n)).astype(dtype), (*BOUNDS[sign], 1.5)
        total = 1.5 * n * (0.3 * numbers[0] + 0.7 * numbers[1])
        expected = hs.box_section(x, total, *(np.full((3, n), v, dtype) for v in numbers), 0.5)
        assert np.allclose(1.5 * expected.sum(-1, dtype=np.float64), total, rtol=1e-6)
        for way in WAYS:
            given = [np.full((3, n), v, dtype) if whole else v for v, whole in zip(numbers, way, strict=True)]
            y = hs.box_section(x, total, *given, 0.5)
            np.testing.assert_allclose(
                y, expected, rtol=0, atol=1e-6 if dtype == np.float32 else 1e-12, err_msg=f"{n} {way}"
            )
