"""The loss against its formula in float64: one half of the sum over classes of (p - onehot)^2, p the projections."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hypersimplex.jax as hsj
from hypersimplex import reference

RNG = np.random.default_rng(0)
LOGITS = RNG.normal(size=(20, 4)).astype(np.float32)
LABELS = RNG.integers(0, 3, size=20)  # class 3 is absent
ONEHOT = np.eye(4)[LABELS]


def formula(logits, dense, k=None, tau=1.0):
    k = dense.sum(0) if k is None else k
    p = reference.soft_binary_argmax(logits, k, tau, axis=0)
    return 0.5 * ((p - dense) ** 2).sum(1)


def gradient(logits, dense, v, k=None, tau=1.0):
    k = dense.sum(0) if k is None else k
    p = reference.soft_binary_argmax(logits, k, tau, axis=0)
    return reference.vjp(p, (p - dense) * v[:, None], tau, axis=0)[0]


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("tau", [1.0, np.array([0.1, 1.0, 2.0, 3.0])])
def test_value_and_gradient(jit, tau):
    v = np.random.default_rng(1).normal(size=20).astype(np.float32)

    def total(x):
        losses = hsj.hypersimplex_loss(x, LABELS, tau=tau)
        return jnp.dot(v, losses), losses

    (_, losses), to_x = (jax.jit if jit else lambda f: f)(jax.value_and_grad(total, has_aux=True))(LOGITS)
    np.testing.assert_allclose(losses, formula(LOGITS, ONEHOT, tau=tau), atol=1e-6)
    np.testing.assert_allclose(to_x, gradient(LOGITS, ONEHOT, v, tau=tau), atol=3e-6)


def test_dense_labels_soft_labels_and_multi_label():
    np.testing.assert_allclose(hsj.hypersimplex_loss(LOGITS, ONEHOT), formula(LOGITS, ONEHOT), atol=1e-6)
    soft = 0.9 * ONEHOT + 0.025
    np.testing.assert_allclose(hsj.hypersimplex_loss(LOGITS, soft), formula(LOGITS, soft), atol=1e-6)
    several = (RNG.random((20, 4)) < 0.4).astype(np.int32)
    np.testing.assert_allclose(hsj.hypersimplex_loss(LOGITS, several), formula(LOGITS, several), atol=1e-6)


def test_the_released_numbers():
    """Logits (2.1, 1.6, 1), labels (0, 1, 0), k = 1, tau = 1.5: mean squared error 0.2963 and its gradient."""
    x, labels = jnp.array([2.1, 1.6, 1.0]), jnp.array([0, 1, 0])

    def mean_squared_error(x):
        return 2 * jnp.mean(hsj.hypersimplex_loss(x, labels, k=1, tau=1.5))

    value, to_x = jax.value_and_grad(mean_squared_error)(x)
    assert float(value) == pytest.approx(0.2963, abs=5e-5)
    np.testing.assert_allclose(to_x, [0.2963, -0.2963, 0], atol=5e-5)


def test_k_and_prior():
    k = np.array([5, 2.5, 0, 20])
    np.testing.assert_allclose(hsj.hypersimplex_loss(LOGITS, LABELS, k=k), formula(LOGITS, ONEHOT, k), atol=1e-6)
    by_prior = hsj.hypersimplex_loss(LOGITS, LABELS, prior=k / 20)
    np.testing.assert_allclose(by_prior, formula(LOGITS, ONEHOT, k), atol=1e-6)
    half = hsj.hypersimplex_loss(LOGITS, LABELS, prior=0.5)
    np.testing.assert_allclose(half, formula(LOGITS, ONEHOT, 10), atol=1e-6)


@pytest.mark.parametrize("kwargs", [{}, {"prior": 0.3}, {"k": 4}])
@pytest.mark.parametrize("dense", [False, True])
def test_where_equals_dropping_the_rows(kwargs, dense):
    kept = RNG.random(20) < 0.6
    labels = ONEHOT if dense else LABELS
    v = RNG.normal(size=20).astype(np.float32)

    def f(x, labels, v, **more):
        losses = hsj.hypersimplex_loss(x, labels, **more, **kwargs)
        return jnp.dot(v, losses), losses

    (_, got), to_x = jax.jit(jax.value_and_grad(f, has_aux=True))(LOGITS, labels, v, where=kept)
    (_, want), to_kept = jax.value_and_grad(f, has_aux=True)(LOGITS[kept], labels[kept], v[kept])
    np.testing.assert_allclose(got[kept], want, atol=1e-6)
    np.testing.assert_allclose(to_x[kept], to_kept, atol=2e-6)
    np.testing.assert_array_equal(got[~kept], 0)
    np.testing.assert_array_equal(to_x[~kept], 0)


def test_what_is_masked_may_be_anything():
    kept = np.arange(20) != 7
    x, labels = LOGITS.copy(), LABELS.copy()
    x[7], labels[7] = np.nan, 99
    losses, to_x = jax.jit(jax.value_and_grad(lambda x: jnp.sum(hsj.hypersimplex_loss(x, labels, where=kept))))(x)
    np.testing.assert_allclose(losses, formula(LOGITS[kept], ONEHOT[kept]).sum(), rtol=1e-5)
    assert np.isfinite(to_x).all()


def test_more_axes_are_one_batch():
    deep = LOGITS.reshape(5, 2, 2, 4)
    got = hsj.hypersimplex_loss(deep, LABELS.reshape(5, 2, 2))
    assert got.shape == (5, 2, 2)
    np.testing.assert_allclose(got.reshape(-1), formula(LOGITS, ONEHOT), atol=1e-6)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_half_precision(dtype):
    x = jnp.asarray(LOGITS, dtype)
    losses = hsj.hypersimplex_loss(x, LABELS)
    assert losses.dtype == dtype
    want = formula(np.asarray(x, np.float64), ONEHOT)
    np.testing.assert_allclose(losses.astype(np.float32), want, atol=4 * float(jnp.finfo(dtype).eps))


def test_batches_of_one_class_one_sample_and_nothing():
    grad = jax.grad(lambda x, labels, **more: jnp.sum(hsj.hypersimplex_loss(x, labels, **more)))
    for x, labels in ((LOGITS, np.zeros(20, int)), (LOGITS[:1], LABELS[:1])):
        np.testing.assert_array_equal(hsj.hypersimplex_loss(x, labels), 0)
        np.testing.assert_array_equal(grad(x, labels), 0)
    nothing = np.zeros(20, bool)
    np.testing.assert_array_equal(hsj.hypersimplex_loss(LOGITS, LABELS, where=nothing), 0)
    np.testing.assert_array_equal(grad(LOGITS, LABELS, where=nothing), 0)
    assert hsj.hypersimplex_loss(LOGITS[:0], LABELS[:0]).shape == (0,)


def test_gradients_to_k_and_tau():
    k, tau = jnp.array([5.0, 6.5, 7.25, 1.5]), jnp.array([1.0, 2.0, 0.5, 1.0])
    p = reference.soft_binary_argmax(LOGITS, k, tau, axis=0)
    _, want_k, want_tau = reference.vjp(p, p - ONEHOT, tau, axis=0)
    f = jax.jit(jax.grad(lambda k, tau: jnp.sum(hsj.hypersimplex_loss(LOGITS, LABELS, k=k, tau=tau)), argnums=(0, 1)))
    for got, want in zip(f(k, tau), (want_k, want_tau), strict=True):
        np.testing.assert_allclose(got, want, atol=2e-5)


def test_under_jit_a_label_out_of_range_gives_nan():
    labels = LABELS.copy()
    labels[3] = 4
    losses = jax.jit(hsj.hypersimplex_loss)(LOGITS, labels)
    assert np.flatnonzero(np.isnan(losses)).tolist() == [3]


@pytest.mark.parametrize("bad", [2.0, -0.5, np.nan, np.inf])
def test_under_jit_a_dense_label_out_of_range_gives_nan(bad):
    """As with an index, it counts for no class; where= forgives it."""
    dense = ONEHOT.astype(np.float32)
    dense[3, 1] = bad
    losses = jax.jit(hsj.hypersimplex_loss)(LOGITS, dense)
    assert np.flatnonzero(np.isnan(losses)).tolist() == [3]
    kept = np.arange(20) != 3
    losses, to_x = jax.jit(jax.value_and_grad(lambda x, y: jnp.sum(hsj.hypersimplex_loss(x, y, where=kept))))(
        LOGITS, dense
    )
    np.testing.assert_allclose(losses, formula(LOGITS[kept], ONEHOT[kept]).sum(), rtol=1e-5)
    assert np.isfinite(to_x).all()
    binary = jax.jit(hsj.hypersimplex_loss)(LOGITS[:, 1], dense[:, 1])
    assert np.flatnonzero(np.isnan(binary)).tolist() == [3]


def test_no_classes():
    nothing = np.zeros((3, 0), np.float32)
    for f in (hsj.hypersimplex_loss, jax.jit(hsj.hypersimplex_loss)):
        np.testing.assert_array_equal(f(nothing, nothing), np.zeros(3))


def test_a_half_prior_of_a_large_batch():
    x, labels = np.zeros(70_000, np.float32), np.zeros(70_000, np.int32)
    _, (_, k) = jax.jit(hsj.loss_and_threshold)(x, labels, prior=jnp.float16(1.0))
    assert float(k) == 70_000


@pytest.mark.parametrize(
    ("kind", "message", "args", "kwargs"),
    [
        (TypeError, "logits must be floating point, got int32", (LABELS.astype(np.int32), LABELS), {}),
        (ValueError, "labels must be between 0 and 3, got 4", (LOGITS, LABELS + 2), {}),
        (ValueError, "labels must be between 0 and 3, got -1", (LOGITS, np.full(20, -1)), {}),
        (ValueError, "labels must be between 0 and 1 where they are dense, got 2.0", (LOGITS, 2 * ONEHOT), {}),
        (TypeError, "labels must be integer where they hold class indices, got float", (LOGITS, LABELS * 1.0), {}),
        (ValueError, r"labels must have the shape of logits \(20, 4\), or .*, got \(7,\)", (LOGITS, LABELS[:7]), {}),
        (ValueError, "k and prior must not both be given", (LOGITS, LABELS), {"k": 1, "prior": 0.5}),
        (ValueError, r"k must be between 0 and 20 \(the number of samples\), got 21", (LOGITS, LABELS), {"k": 21}),
        (ValueError, "prior must be between 0 and 1, got 1.5", (LOGITS, LABELS), {"prior": 1.5}),
        (ValueError, "tau must be positive, got 0.0", (LOGITS, LABELS), {"tau": 0.0}),
        (TypeError, "k must be a number or one number for each class, got str", (LOGITS, LABELS), {"k": "a"}),
        (TypeError, "prior must be a number or one number for each class, got str", (LOGITS, LABELS), {"prior": "a"}),
        (
            TypeError,
            "tau must be a number or one number for each class, got list",
            (LOGITS, LABELS),
            {"tau": [None, 1]},
        ),
        (
            ValueError,
            r"prior must be a number or have shape \(4,\), got shape \(3,\)",
            (LOGITS, LABELS),
            {"prior": [0.1] * 3},
        ),
        (ValueError, r"k must be a number or have shape \(4,\), got shape \(20,\)", (LOGITS, LABELS), {"k": [1] * 20}),
        (ValueError, r"where must have the shape of the batch \(20,\)", (LOGITS, LABELS), {"where": np.ones(3, bool)}),
        (TypeError, "where must be boolean, got float32", (LOGITS, LABELS), {"where": np.ones(20, np.float32)}),
    ],
)
def test_bad_input_is_an_error(kind, message, args, kwargs):
    with pytest.raises(kind, match=f"^{message}"):
        hsj.hypersimplex_loss(*args, **kwargs)


@pytest.mark.parametrize(("dtype", "classes"), [(np.uint8, 255), (np.uint8, 256), (np.uint8, 257), (np.int8, 128)])
def test_labels_of_a_dtype_that_does_not_hold_the_number_of_classes(dtype, classes):
    logits = np.random.default_rng(0).normal(size=(20, classes)).astype(np.float32)
    labels = np.arange(20, dtype=dtype)
    narrow, wide = (jax.jit(hsj.hypersimplex_loss)(logits, of) for of in (labels, labels.astype(np.int32)))
    np.testing.assert_array_equal(narrow, wide)
    assert np.isfinite(wide).all()
