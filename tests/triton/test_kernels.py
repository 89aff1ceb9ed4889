"""The kernels against the reference: by Triton's interpreter, or compiled and executed.

A small tile turns small arrays into long slices of several tiles.
"""

import numpy as np
import pytest
import torch

from hypersimplex import reference
from hypersimplex.torch._batch import Batch, Settings
from hypersimplex.torch.backends import plain
from hypersimplex.torch.backends.triton import _backend, loss, project, pullback
from tests.frontends import BFLOAT16, FLOAT16, FLOAT32, FLOAT64, to_numpy, to_torch, tolerance
from tests.triton.agreement import loses, project_array, projects, pulls_back

INF, NAN = np.inf, np.nan
pytestmark = pytest.mark.usefixtures("on_cpu")
both_ways = pytest.mark.parametrize("tile", [None, 16], ids=["one tile", "several tiles"])


@pytest.fixture(autouse=True)
def small(request, monkeypatch):
    """With a `tile`, so many entries are one, and slices do not share programs."""
    if "tile" in request.fixturenames and (tile := request.getfixturevalue("tile")):
        monkeypatch.setattr(_backend, "TILE", tile)
        monkeypatch.setattr(_backend, "LEAST", 1)


@both_ways
@pytest.mark.parametrize("dtype", [FLOAT16, BFLOAT16, FLOAT32, FLOAT64], ids=str)
def test_every_dtype(dtype, tile):
    projects(np.random.default_rng(0).normal(size=(2, 37)).astype(dtype), 5.3, 0.7)


@both_ways
@pytest.mark.parametrize(("shape", "dim"), [((1, 1), 1), ((3, 17), 1), ((33, 5), 0), ((2, 19, 3), 1)])
def test_odd_sizes_along_any_dim(shape, dim, tile):
    x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    slices = tuple(np.delete(shape, dim))
    k = np.linspace(0, shape[dim], int(np.prod(slices))).reshape(slices)
    projects(x, k, np.linspace(0.3, 2, k.size).reshape(slices), dim)


@both_ways
@pytest.mark.parametrize(
    ("x", "k", "y", "mu"),
    [
        ([-INF, 1.0, 1.0, -INF], 1, [0, 0.5, 0.5, 0], 0.5),
        ([-INF, 4.0, 0.0, -INF], 0, [0, 0, 0, 0], 4.0),
        ([INF, 1.0, 1.0, 0.0], 2, [1, 0.5, 0.5, 0], 0.5),
        ([INF, 1.0, 0.5], 1, [1, 0, 0], 1.0),
        ([INF, INF, 5.0, -INF], 1, [0.5, 0.5, 0, 0], INF),
        ([3.0, 1.0, 1.0, 1.0, 1.0, -3.0], 2, [1, 0.25, 0.25, 0.25, 0.25, 0], 0.75),
        ([3.0, 1.0, 2.0], 3, [1, 1, 1], 0.0),
        ([3.0, 1.0, NAN], 1, [NAN, NAN, NAN], NAN),
        ([-INF, 1.0, -INF], 2, [NAN, NAN, NAN], NAN),
        ([1.0, 2.0], 3, [NAN, NAN], NAN),
        ([1.0, 2.0], -1, [NAN, NAN], NAN),
    ],
)
def test_edges(x, k, y, mu, tile, monkeypatch):
    if tile:
        monkeypatch.setattr(_backend, "TILE", 2)
    got, got_mu = project_array(np.array(x, np.float32), k)
    np.testing.assert_allclose(got, y, rtol=0, atol=1e-7)
    np.testing.assert_allclose(got_mu, mu, rtol=0, atol=1e-7)


@both_ways
@pytest.mark.parametrize("tau", [0.0, -1.0, NAN, INF])
def test_a_bad_tau_gives_nan(tau, tile):
    assert torch.isnan(project_array(np.arange(20, dtype=np.float32), 2, tau)[0]).all()


@both_ways
def test_ties_get_equal_parts_however_small_tau_is(tile):
    x = np.array([3.0, 1.0, 1.0, 0.0] + [-1.0] * 20, np.float32)
    got, _ = project_array(x, 2, 1e-30)
    np.testing.assert_array_equal(got, [1, 0.5, 0.5, 0] + [0] * 20)


@both_ways
def test_an_offset_of_a_million_with_a_small_tau(tile):
    projects((1e6 + np.random.default_rng(0).normal(size=90)).astype(np.float32), 9, 1e-3)


@both_ways
def test_a_gap_wider_than_tau_leaves_nothing_between_zero_and_one(tile):
    x = np.random.default_rng(0).permutation(40).astype(np.float32)
    for k in (1, 17, 39):
        np.testing.assert_array_equal(project_array(x, k, 0.5)[0], reference.binary_argmax(x, k))


@both_ways
@pytest.mark.parametrize("dtype", [FLOAT32, FLOAT64, BFLOAT16], ids=str)
@pytest.mark.parametrize("dim", [0, 1])
def test_gradients(dtype, dim, tile):
    rng = np.random.default_rng(2)
    x, v = (rng.normal(size=(19, 21)).astype(dtype) for _ in range(2))
    k, tau = np.linspace(0, 19, x.shape[1 - dim]), np.linspace(0.5, 2, x.shape[1 - dim])
    y = to_numpy(project_array(x, k, tau, dim)[0])
    pulls_back(y, v, tau, dim)


@both_ways
def test_a_nan_in_y_spoils_its_own_gradient_only(tile):
    y, v = np.full((2, 20), 0.25, np.float32), np.arange(40, dtype=np.float32).reshape(2, 20)
    y[1, 3] = NAN
    got = pullback(to_torch(y), to_torch(v), torch.tensor(1.0), 1)
    for g, want in zip(got, reference.vjp(y, v), strict=True):
        np.testing.assert_allclose(g, want, atol=1e-4)


@both_ways
@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("dtype", [FLOAT32, FLOAT64, BFLOAT16], ids=str)
def test_the_loss_is_that_of_plain_torch(dtype, dense, tile):
    rng = np.random.default_rng(3)
    x, labels = to_torch(rng.normal(size=(45, 3)).astype(dtype)), torch.from_numpy(rng.integers(0, 2, size=45))
    target = torch.nn.functional.one_hot(labels, 3) * 0.8 + 0.05  # class 2 is absent from the labels
    labels[::7] = -100
    batch = Batch(x, target.to(x.dtype) if dense else labels, dense, (45,))
    settings = Settings(torch.tensor([1.0, 2.0, 0.5]), -100, "mean", None, None, torch.tensor([0.5, 1.0, 2.0]))
    assert loses(batch, settings, tolerance(dtype)).gradient.dtype is x.dtype


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("given", [{}, {"prior": 0.3}, {"k": 2.0, "tau": 0.5}, {"ignore_index": 0}])
def test_the_settings_of_the_loss(reduction, given):
    x = torch.from_numpy(np.random.default_rng(5).normal(size=(7, 3, 2)).astype(np.float32))
    labels = torch.tensor([0, 1, 1, 1, 0, 1, 1, 0, 0, 1, 2, 1, 0, 1]).reshape(7, 2)
    given = {"weight": None, "ignore_index": -100, "k": None, "prior": None, "tau": 1.0, **given}
    batch, settings = Batch(x, labels, False, (7, 2)), Settings(reduction=reduction, **given)
    loses(batch, settings, 1e-6)


def test_a_loss_without_samples_is_nan_and_its_gradient_zero():
    settings = Settings(None, -100, "mean", None, None, 1.0)
    for labels in (torch.full((3,), -100), torch.empty(0, dtype=torch.int64)):
        got = loss(Batch(torch.zeros(len(labels), 2), labels, False, labels.shape), settings, True)
        assert got.loss.isnan()
        assert got.gradient.tolist() == [[0, 0]] * len(labels)


@pytest.mark.parametrize("label", [-1, 3])
def test_a_label_that_is_no_class_makes_the_loss_nan(label):
    labels = torch.tensor([0, label, 1, 2])
    for k in (None, 1.0):
        settings = Settings(None, -100, "sum", k, None, 1.0)
        assert loss(Batch(torch.zeros(4, 3), labels, False, (4,)), settings, True).loss.isnan()


def test_bad_numbers_are_errors():
    x = torch.zeros(2, 3)
    with pytest.raises(ValueError, match="k must be between 0 and 3"):
        project(x, 4.0, 1.0, 1)
    with pytest.raises(ValueError, match="tau must be"):
        project(x, 1.0, 0.0, 1)


def test_empty_arrays():
    for shape in ((0, 5), (5, 0)):
        y, mu = project_array(np.zeros(shape, np.float32), 0)
        assert y.shape == shape
        assert mu.shape == shape[:1]
        to_x, to_k, to_tau = pullback(y, y, 1.0, -1)
        assert to_x.shape == shape
        assert to_k.shape == to_tau.shape == shape[:1]


def test_only_what_is_wanted():
    x = torch.tensor([[0.25, 1.5, 1.0]])
    y, mu = project(x, 1.0, 1.0, 1, want_y=False)
    assert y is None
    assert mu.tolist() == [0.75]
    assert pullback(x, x, 1.0, 1, (True, False, False))[1:] == (None, None)


@pytest.mark.parametrize("n", [15, 16, 17, 31, 32, 33])
def test_sizes_around_one_tile_and_two(n, monkeypatch):
    monkeypatch.setattr(_backend, "TILE", 16)
    monkeypatch.setattr(_backend, "LEAST", 1)
    x, v = np.random.default_rng(n).normal(size=(2, n)).astype(np.float32)
    projects(x, n / 3, 0.5)
    y = project_array(x, n / 3, 0.5)[0].numpy()
    for got, want in zip(pullback(to_torch(y), to_torch(v), 0.5, 0), reference.vjp(y, v, 0.5), strict=True):
        np.testing.assert_allclose(got, want, atol=1e-5)


@pytest.mark.parametrize("slices", [7, 8, 9])
@pytest.mark.parametrize("dim", [0, 1])
def test_numbers_of_slices_around_those_of_one_program(slices, dim, monkeypatch):
    monkeypatch.setattr(_backend, "TILE", 64)
    monkeypatch.setattr(_backend, "LEAST", 64)
    x = np.random.default_rng(slices).normal(size=(slices, 8)).astype(np.float32)
    assert _backend.plan(torch.Size((slices, 8)), 1).block_c == 8
    projects(x if dim else np.ascontiguousarray(x.T), np.linspace(0.5, 7, slices), 0.5, dim)


@pytest.mark.parametrize(
    ("shape", "dim", "block", "long"),
    [((8, 4095), 1, (4096, 1), False), ((8, 4096), 1, (4096, 1), False), ((8, 4097), 1, (1024, 1), True),
     ((9, 512), 1, (512, 2), False), ((9, 513), 1, (1024, 1), False), ((100, 8), 1, (8, 32), False),
     ((511, 1000), 0, (512, 8), False), ((512, 1000), 0, (512, 8), False), ((513, 1000), 0, (128, 8), True),
     ((100_000, 10), 0, (128, 8), True), ((128, 10), 0, (128, 16), False), ((1, 1), 1, (1, 1), False)],
)  # fmt: skip
def test_what_fits_one_tile(shape, dim, block, long):
    p = _backend.plan(torch.Size(shape), dim)
    assert (p.block_n, p.block_c) == block
    assert p.is_long == long


def test_any_strides_and_wrappers():
    x = torch.from_numpy(np.random.default_rng(6).normal(size=(6, 5, 4)).astype(np.float32))
    want = plain.project(x, 2.0, 0.5, 1)
    for odd in (x.transpose(0, 2).contiguous().transpose(0, 2), x.repeat(1, 1, 2)[..., :4], torch._neg_view(-x)):
        got = project(odd, 2.0, 0.5, 1)
        torch.testing.assert_close(got[0], want[0])
        torch.testing.assert_close(got[1], want[1], rtol=1e-6, atol=1e-6)
