"""Thresholds as a state: running averages that absent classes leave alone, and the decisions made from them."""

import jax
import jax.numpy as jnp
import numpy as np

import hypersimplex.jax as hsj


def test_loss_and_threshold_is_both():
    x = np.random.default_rng(0).normal(size=(30, 3)).astype(np.float32)
    labels = np.arange(30) % 3
    losses, (mu, k) = jax.jit(hsj.loss_and_threshold)(x, labels)
    np.testing.assert_allclose(losses, hsj.hypersimplex_loss(x, labels), atol=1e-6)
    np.testing.assert_allclose(mu, hsj.threshold(x, 10, axis=0), atol=1e-6)
    np.testing.assert_array_equal(k, [10, 10, 10])


def test_the_first_batch_sets_and_later_ones_move():
    state = hsj.threshold_init(2)
    for value in (1.0, 2.0, 4.0):
        state = jax.jit(hsj.threshold_update)(state, jnp.full(2, value), jnp.array([3, 3]), 0.5)
    np.testing.assert_allclose(state.mu, [2.75, 2.75])
    np.testing.assert_array_equal(state.seen, [3, 3])


def test_an_absent_class_does_not_move():
    state = hsj.threshold_update(hsj.threshold_init(3), jnp.array([1.0, 2.0, 3.0]), jnp.array([1, 1, 1]))
    moved = hsj.threshold_update(state, jnp.array([9.0, 9.0, jnp.inf]), jnp.array([0, 4, 1]), 0.5)
    np.testing.assert_allclose(moved.mu, [1, 5.5, 3])
    np.testing.assert_array_equal(moved.seen, [1, 2, 1])


def test_without_momentum_all_batches_count_alike():
    state = hsj.threshold_init(1)
    for value in (1.0, 2.0, 6.0):
        state = hsj.threshold_update(state, jnp.array([value]), 1, momentum=None)
    np.testing.assert_allclose(state.mu, [3.0], rtol=1e-6)


def test_plain_argmax_fails_where_the_thresholds_decide_right():
    """A constant added to a column changes neither the loss nor the decision."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, size=300)
    x = (6 * np.eye(3)[labels] + rng.normal(size=(300, 3)) + [0, 50, -50]).astype(np.float32)
    losses, (mu, k) = hsj.loss_and_threshold(x, labels, tau=4.0)
    state = hsj.threshold_update(hsj.threshold_init(3), mu, k)
    assert np.mean(np.argmax(x, 1) == labels) < 0.5
    assert np.mean(hsj.predict(x, state, 4.0) == labels) > 0.99
    np.testing.assert_allclose(losses, hsj.hypersimplex_loss(x - np.float32([0, 50, -50]), labels, tau=4.0), atol=1e-4)


def test_binary_and_multi_label_decisions():
    state = hsj.ThresholdState(jnp.array([1.0]), jnp.array([1]))
    assert hsj.predict(jnp.array([1.4, 1.6, 0.0]), state).tolist() == [False, True, False]
    assert hsj.predict(jnp.array([1.9, 2.1]), state, 2.0).tolist() == [False, True]
    assert hsj.scores(jnp.array([2.0]), state, 2.0).tolist() == [0.5]
