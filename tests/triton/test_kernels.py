"""The kernels, run by Triton's interpreter on the CPU, against the reference.

`tile` is how many entries a program holds: a small one turns small arrays into long slices of several blocks.
"""

import numpy as np
import pytest
import torch

from hypersimplex import reference
from hypersimplex.torch import _ops, _targets, _triton, _triton_loss, loss
from hypersimplex.torch._targets import Settings
from tests.frontends import BFLOAT16, FLOAT16, FLOAT32, FLOAT64, to_numpy, to_torch, tolerance

INF, NAN = np.inf, np.nan
SHORT, LONG = None, 16
both_ways = pytest.mark.parametrize("tile", [SHORT, LONG], ids=["one block", "several blocks"])


def project(x, k, tau=1.0, dim=-1, tile=None):
    k, tau = (torch.as_tensor(np.asarray(value, np.float64)) for value in (k, tau))
    y, mu = _triton.project(to_torch(x), k, tau, dim, tile)
    return y, _triton.settle(to_torch(x), mu, tau, dim)


def agrees(x, k, tau=1.0, dim=-1, tile=None):
    y, mu = project(x, k, tau, dim, tile)
    want, want_mu = reference.soft_binary_argmax(x, k, tau, axis=dim), reference.threshold(x, k, tau, axis=dim)
    atol = tolerance(x.dtype, np.abs(np.nan_to_num(want_mu)).max(), np.min(tau))
    np.testing.assert_allclose(np.asarray(to_numpy(y), np.float64), want, rtol=0, atol=atol)
    np.testing.assert_allclose(mu, want_mu, rtol=4e-7, atol=4e-7 * np.max(tau))
    return y


@both_ways
@pytest.mark.parametrize("dtype", [FLOAT16, BFLOAT16, FLOAT32, FLOAT64], ids=str)
def test_every_dtype(dtype, tile):
    agrees(np.random.default_rng(0).normal(size=(2, 37)).astype(dtype), 5.3, 0.7, tile=tile)


@both_ways
@pytest.mark.parametrize(("shape", "dim"), [((1, 1), 1), ((3, 17), 1), ((33, 5), 0), ((2, 19, 3), 1)])
def test_odd_sizes_along_any_dim(shape, dim, tile):
    x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    slices = tuple(np.delete(shape, dim))
    k = np.linspace(0, shape[dim], int(np.prod(slices))).reshape(slices)
    agrees(x, k, np.linspace(0.3, 2, k.size).reshape(slices), dim, tile)


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
def test_edges(x, k, y, mu, tile):
    got, got_mu = project(np.array(x, np.float32), k, tile=2 if tile else None)
    np.testing.assert_allclose(got, y, rtol=0, atol=1e-7)
    np.testing.assert_allclose(got_mu, mu, rtol=0, atol=1e-7)


@both_ways
@pytest.mark.parametrize("tau", [0.0, -1.0, NAN, INF])
def test_a_bad_tau_gives_nan(tau, tile):
    assert torch.isnan(project(np.arange(20, dtype=np.float32), 2, tau, tile=tile)[0]).all()


@both_ways
def test_ties_get_equal_parts_however_small_tau_is(tile):
    x = np.array([3.0, 1.0, 1.0, 0.0] + [-1.0] * 20, np.float32)
    got, _ = project(x, 2, 1e-30, tile=tile)
    np.testing.assert_array_equal(got, [1, 0.5, 0.5, 0] + [0] * 20)


@both_ways
def test_an_offset_of_a_million_with_a_small_tau(tile):
    agrees((1e6 + np.random.default_rng(0).normal(size=90)).astype(np.float32), 9, 1e-3, tile=tile)


@both_ways
def test_a_gap_wider_than_tau_leaves_nothing_between_zero_and_one(tile):
    x = np.random.default_rng(0).permutation(40).astype(np.float32)
    for k in (1, 17, 39):
        np.testing.assert_array_equal(project(x, k, 0.5, tile=tile)[0], reference.binary_argmax(x, k))


@both_ways
@pytest.mark.parametrize("dtype", [FLOAT32, FLOAT64, BFLOAT16], ids=str)
@pytest.mark.parametrize("dim", [0, 1])
def test_gradients(dtype, dim, tile):
    rng = np.random.default_rng(2)
    x, v = (rng.normal(size=(19, 21)).astype(dtype) for _ in range(2))
    k, tau = np.linspace(0, 19, x.shape[1 - dim]), np.linspace(0.5, 2, x.shape[1 - dim])
    y = to_numpy(project(x, k, tau, dim, tile)[0])
    got = _triton.backward(to_torch(y), to_torch(v), torch.from_numpy(tau), dim, tile)
    assert to_numpy(got[0]).dtype == dtype
    for g, want in zip(got, reference.vjp(y, v, tau, axis=dim), strict=True):
        np.testing.assert_allclose(g.double(), want, rtol=0, atol=40 * tolerance(dtype if g is got[0] else FLOAT32))


@both_ways
def test_a_nan_in_y_spoils_its_own_gradient_only(tile):
    y, v = np.full((2, 20), 0.25, np.float32), np.arange(40, dtype=np.float32).reshape(2, 20)
    y[1, 3] = NAN
    got = _triton.backward(to_torch(y), to_torch(v), torch.tensor(1.0), 1, tile)
    for g, want in zip(got, reference.vjp(y, v), strict=True):
        np.testing.assert_allclose(g, want, atol=1e-4)


def formula(x, target, kept, k, tau, weight):
    """Column c: weight_c/2 sum (p - target)^2 over the samples kept; the gradient, with v = weight_c (p - target)."""
    p = reference.soft_binary_argmax(np.where(kept[:, None], x, -INF), k, tau, axis=0)
    error = np.where(kept[:, None], p - target, 0)
    to_x, _, _ = reference.vjp(p, weight * error, tau, axis=0)
    return weight / 2 * (error**2).sum(0), to_x


@both_ways
@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("dtype", [FLOAT32, FLOAT64, BFLOAT16], ids=str)
def test_the_fused_loss(dtype, dense, tile):
    rng = np.random.default_rng(3)
    x, labels = rng.normal(size=(45, 3)).astype(dtype), rng.integers(0, 2, size=45)  # class 2 is absent
    kept = np.ones(45, bool)
    target = 0.8 * np.eye(3)[labels] + 0.05 if dense else np.eye(3)[labels]
    if not dense:
        labels[::7], kept[::7] = -100, False
    k, tau, weight = (target * kept[:, None]).sum(0), np.array([0.5, 1.0, 2.0]), np.array([1.0, 2.0, 0.5])
    given = torch.from_numpy(target).to(to_torch(x).dtype) if dense else torch.from_numpy(labels)
    arguments = (torch.from_numpy(a) for a in (k, tau, weight))
    got = _triton.loss(to_torch(x), given, *arguments, torch.tensor(0.5), tile=8 * tile if tile else None)
    want, to_x = formula(x, np.asarray(given.double()) if dense else target, kept, k, tau, weight)
    np.testing.assert_allclose(got.losses, want, rtol=1e-6)
    np.testing.assert_allclose(got.gradient.double(), to_x / 2, rtol=0, atol=8 * tolerance(dtype))


def test_an_ignored_label_may_be_a_class():
    x, labels = np.random.default_rng(4).normal(size=(12, 3)).astype(np.float32), np.arange(12) % 3
    kept, target = labels != 0, np.eye(3)[labels]
    k = target[kept].sum(0)
    ones = torch.ones(3)
    got = _triton.loss(to_torch(x), torch.from_numpy(labels), torch.from_numpy(k), ones, ones, torch.tensor(1.0), 0)
    want, to_x = formula(x, target, kept, k, 1.0, np.ones(3))
    np.testing.assert_allclose(got.losses, want, atol=1e-6)
    np.testing.assert_allclose(got.gradient, to_x, atol=1e-6)


def test_empty_arrays():
    for shape in ((0, 5), (5, 0)):
        y, mu = project(np.zeros(shape, np.float32), 0)
        assert y.shape == shape
        assert mu.shape == shape[:1]


@pytest.mark.parametrize(
    ("shape", "dim", "tile", "short"),
    [((8, 8192), 1, (8192, 1), True), ((8, 8193), 1, (8192, 1), False), ((1024, 1000), 0, (1024, 8), True),
     ((100_000, 10), 0, (1024, 8), False), ((128, 10), 0, (128, 16), True)],
)  # fmt: skip
def test_what_fits_one_tile(shape, dim, tile, short):
    p = _triton.plan(torch.Size(shape), dim)
    assert (p.block_n, p.block_c) == tile
    assert p.short == short


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize(
    "kwargs", [{}, {"prior": 0.3}, {"k": 2.0, "tau": 0.5, "weight": torch.tensor([1.0, 2.0, 3.0])}]
)
def test_the_loss_of_the_torch_front_end(reduction, kwargs):
    """What a CUDA tensor gets equals what a CPU tensor gets: loss, gradient, thresholds, k."""
    x = torch.from_numpy(np.random.default_rng(5).normal(size=(14, 3)).astype(np.float32)).requires_grad_()
    target = torch.tensor([0, 1, 1, -100, 0, 1, 1, 0, 0, 1, -100, 1, 0, 1])
    given = {"weight": None, "k": None, "prior": None, "tau": 1.0, **kwargs}
    settings = Settings(ignore_index=-100, reduction=reduction, **given)
    got, want = _triton_loss.fused(x, target, settings), loss.composed(_targets.read(x, target), settings)
    torch.testing.assert_close(got.loss, want.loss)
    torch.testing.assert_close(got.threshold, want.threshold)
    torch.testing.assert_close(got.k, want.k)
    assert float(got.samples) == 12
    torch.testing.assert_close(torch.autograd.grad(got.loss, x)[0], torch.autograd.grad(want.loss, x)[0])


def test_cuda_tensors_are_sent_here():
    for name in ("project", "threshold"):
        assert torch._C._dispatch_has_kernel_for_dispatch_key(f"hypersimplex::{name}", "CUDA")
    x, k, tau = torch.tensor([[0.25, 1.5, 1.0]]), torch.tensor(1.0), torch.tensor(1.0)
    assert _ops.project_triton(x, k, tau, 1).tolist() == [[0, 0.75, 0.25]]
    assert _ops.threshold_triton(x, k, tau, 1).tolist() == [0.75]
