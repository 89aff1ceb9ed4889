"""Hypothesis strategies: one slice x, with its k and tau, from the tame to the nasty."""

import importlib.util
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from tests.frontends import FLOAT16

# JAX compiles once for every size: where it is installed, a dozen sizes have to do for all.
FEW_SIZES = (1, 2, 3, 5, 8, 13, 40, 129, 300, 1000, 4100, 5000) if importlib.util.find_spec("jax") else ()


@dataclass(frozen=True)
class Problem:
    x: np.ndarray
    k: float
    tau: float


def sizes(max_n: int) -> st.SearchStrategy[int]:
    """Mostly small, where the edges are; now and then up to max_n, where blocks and tails are."""
    if FEW_SIZES:
        return st.sampled_from([n for n in FEW_SIZES if n <= max_n])
    small = st.integers(1, min(40, max_n))
    return st.one_of(small, small, st.integers(1, max_n))


@st.composite
def values(draw: st.DrawFn, n: int, dtype: np.dtype) -> np.ndarray:
    """Scores of one scale between 1e-6 and 1e6: spread out, tied, constant, or around an offset."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    # float16 ends at 65,504 and has few digits below 1e-4.
    exponent = draw(st.floats(-2, 3) if dtype == FLOAT16 else st.floats(-6, 6))
    kind = draw(st.sampled_from(["normal", "ties", "constant", "offset", "heavy"]))
    x = rng.normal(size=n)
    if kind == "ties":
        x = rng.integers(-2, 3, size=n).astype(float)
    elif kind == "constant":
        x = np.full(n, x[0])
    elif kind == "offset":
        x = x + 10.0 ** draw(st.floats(0, 6 - exponent if dtype != FLOAT16 else 0))
    elif kind == "heavy":
        x = np.clip(rng.standard_cauchy(size=n), -20, 20)
    return (x * 10.0**exponent).astype(dtype)


@st.composite
def problems(
    draw: st.DrawFn, dtype: np.dtype, max_n: int = 5000, infinities: bool = True, whole: bool = False
) -> Problem:
    n = draw(sizes(max_n))
    x = draw(values(n, dtype))
    if infinities and draw(st.booleans()):
        # Masks, and entries that are certain.
        rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
        x[rng.random(n) < draw(st.sampled_from([0.0, 0.1, 0.5, 1.0]))] = -np.inf
        x[rng.random(n) < draw(st.sampled_from([0.0, 0.0, 0.05, 0.5]))] = np.inf
    usable = int(np.sum(x != -np.inf))
    whole_ks = st.one_of(st.just(0), st.just(usable), st.integers(0, usable))
    k = draw(whole_ks if whole else st.one_of(whole_ks, st.floats(0, usable)))
    return Problem(x, float(k), 10.0 ** draw(st.floats(-3, 3)))
