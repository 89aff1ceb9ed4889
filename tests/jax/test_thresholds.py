"""Thresholds as a state: running averages that absent classes leave alone, and the decisions made from them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hypersimplex.jax as hsj


def test_loss_and_threshold_is_both():
    x = np.random.default_rng(0).normal(size=(30, 3)).astype(np.float32)
    labels = np.arange(30) % 3
    losses, (mu, k) = jax.jit(hsj.loss_and_threshold)(x, labels)
    np.testing.assert_allclose(losses, hsj.hypersimplex_loss(x, labels), atol=1e-6)
    np.testing.assert_allclose(mu, hsj.threshold(x, 10, axis=0), atol=1e-6)
    np.testing.assert_array_equal(k, [10, 10, 10])


@pytest.mark.parametrize("jit", [False, True])
def test_the_average_of_the_first_batches_and_then_momentum(jit):
    """With momentum 0.4: 1, the mean of 1 and 2, then 0.6 of the old and 0.4 of the new."""
    update, state = jax.jit(hsj.threshold_update) if jit else hsj.threshold_update, hsj.threshold_init(2)
    for value, want in ((1.0, 1.0), (2.0, 1.5), (4.0, 2.5), (0.0, 1.5)):
        state = update(state, jnp.full(2, value), jnp.array([3, 3]), 6, 0.4)
        np.testing.assert_allclose(state.mu, [want, want], rtol=1e-6)
    np.testing.assert_array_equal(state.seen, [24, 24])


AVERAGES = [0.4014125, 0.4591793, -0.3566713, 0.3240066]


@pytest.mark.parametrize(
    ("momentum", "want"),
    [
        (0.1, AVERAGES),
        (None, AVERAGES),  # of 60 samples, less than the 1,000 they follow
        (0.0, AVERAGES),
        (0.4, [0.400638, 0.4471079, -0.1978862, 0.360162]),
        (1.0, [0.3936678, 0.2950911, 0.3457436, 0.6855606]),
    ],
)
def test_the_thresholds_are_those_of_torch(momentum, want):
    """The numbers are HyperSimplexLoss(tau=0.7)'s after the same five batches."""
    rng, state = np.random.default_rng(5), hsj.threshold_init(4)
    for ends in [(0, 3), (0, 4), (0, 1), (1, 4), (0, 4)]:  # classes are absent; one batch is of a single class
        x, labels = rng.normal(size=(12, 4)).astype(np.float32), rng.integers(*ends, size=12)
        _, (mu, k) = jax.jit(hsj.loss_and_threshold)(x, labels, tau=0.7)
        state = hsj.threshold_update(state, mu, k, 12, momentum)
    np.testing.assert_allclose(state.mu, want, atol=1e-6)


def test_a_class_without_a_positive_or_a_negative_has_no_threshold():
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    for labels, kept in (([0, 0, 0], None), ([0, 0, 1], np.array([True, True, False]))):
        _, (mu, k) = hsj.loss_and_threshold(x, np.array(labels), where=kept)
        assert mu.tolist() == [-np.inf, np.inf]
        state = hsj.threshold_update(hsj.threshold_init(2), mu, k, 3 if kept is None else 2)
        np.testing.assert_array_equal(state.seen, [0, 0])
        np.testing.assert_array_equal(state.mu, [0, 0])
    _, (mu, k) = hsj.loss_and_threshold(x, np.array([0, 1, 1]), k=3)
    assert k.tolist() == [3, 3]
    assert mu.tolist() == [-np.inf, -np.inf]


def test_an_absent_class_does_not_move():
    state = hsj.threshold_update(hsj.threshold_init(3), jnp.array([1.0, 2.0, 3.0]), jnp.array([1, 1, 1]), 3)
    moved = hsj.threshold_update(state, jnp.array([9.0, 9.0, jnp.inf]), jnp.array([0, 4, 1]), 5, 0.5)
    np.testing.assert_allclose(moved.mu, [1, 2 + 7 * 5 / 8, 3])
    np.testing.assert_array_equal(moved.seen, [3, 8, 3])


def test_with_momentum_0_all_samples_count_alike():
    state = hsj.threshold_init(1)
    for value, samples in ((1.0, 100), (2.0, 100), (6.0, 1000)):
        state = hsj.threshold_update(state, jnp.array([value]), 1, samples, momentum=0)
    np.testing.assert_allclose(state.mu, [63 / 12], rtol=1e-6)


@pytest.mark.parametrize("n", [250, 999, 1000, 1001])
def test_without_momentum_the_last_1000_samples_count(n):
    """By torch's rule: the plain average first, then with weight min(1, n/1000)."""
    torch = pytest.importorskip("torch")
    from hypersimplex.torch import HyperSimplexLoss

    rng, state, criterion = np.random.default_rng(0), hsj.threshold_init(3), HyperSimplexLoss(num_classes=3)
    update = jax.jit(hsj.threshold_update)
    for step in range(8):
        x, labels = rng.normal(size=(n, 3)).astype(np.float32) + step, rng.integers(0, 3, size=n)
        _, (mu, k) = hsj.loss_and_threshold(x, labels)
        state = update(state, mu, k, n)
        criterion(torch.tensor(x, requires_grad=True), torch.from_numpy(labels))
        np.testing.assert_allclose(state.mu, criterion.threshold, rtol=1e-5)
        np.testing.assert_array_equal(state.seen, criterion.seen)


def test_plain_argmax_fails_where_the_thresholds_decide_right():
    """A constant added to a column changes neither the loss nor the decision."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, size=300)
    x = (6 * np.eye(3)[labels] + rng.normal(size=(300, 3)) + [0, 50, -50]).astype(np.float32)
    losses, (mu, k) = hsj.loss_and_threshold(x, labels, tau=4.0)
    state = hsj.threshold_update(hsj.threshold_init(3), mu, k, 300)
    assert np.mean(np.argmax(x, 1) == labels) < 0.5
    assert np.mean(hsj.predict(x, state, 4.0) == labels) > 0.99
    np.testing.assert_allclose(losses, hsj.hypersimplex_loss(x - np.float32([0, 50, -50]), labels, tau=4.0), atol=1e-4)


@pytest.mark.parametrize(
    ("kind", "message", "call"),
    [
        (RuntimeError, "thresholds are not known yet: ", lambda s: hsj.predict(np.ones((3, 2)), hsj.threshold_init(2))),
        (RuntimeError, "thresholds are not known yet: ", lambda s: hsj.scores(np.ones((3, 2)), hsj.threshold_init(2))),
        (ValueError, r"logits must have 2 classes, got shape \(3, 4\)", lambda s: hsj.predict(np.ones((3, 4)), s)),
        (ValueError, r"logits must have 2 classes, got shape \(3,\)", lambda s: hsj.scores(np.ones(3), s)),
        (ValueError, "tau must be positive, got 0.0", lambda s: hsj.predict(np.ones((3, 2)), s, 0.0)),
        (ValueError, "tau must be positive and finite, got inf", lambda s: hsj.scores(np.ones((3, 2)), s, np.inf)),
        (ValueError, r"tau must be a number or have shape \(2,\)", lambda s: hsj.scores(np.ones((3, 2)), s, [1.0] * 3)),
        (
            TypeError,
            "tau must be a number or one number for each class, got str",
            lambda s: hsj.scores(np.ones(2), s, "a"),
        ),
        (
            ValueError,
            r"mu must be a number or have shape \(2,\), got shape \(3,\)",
            lambda s: hsj.threshold_update(s, np.ones(3), np.ones(3), 3),
        ),
        (
            ValueError,
            "momentum must be between 0 and 1 or None, got 5",
            lambda s: hsj.threshold_update(s, np.ones(2), np.ones(2), 3, momentum=5),
        ),
        (
            ValueError,
            "samples must be at least 0, got -1",
            lambda s: hsj.threshold_update(s, np.ones(2), np.ones(2), -1),
        ),
        (ValueError, "num_classes must be at least 1, got 0", lambda s: hsj.threshold_init(0)),
        (TypeError, "num_classes must be a whole number, got 1.5", lambda s: hsj.threshold_init(1.5)),
    ],
)
def test_bad_input_is_an_error(kind, message, call):
    with pytest.raises(kind, match=f"^{message}"):
        call(hsj.ThresholdState(jnp.zeros(2), jnp.array([1.0, 0.0])))


def test_while_tracing_the_state_is_taken_as_it_is():
    x = jnp.array([[0.0, 1.0], [2.0, 1.0]])
    assert jax.jit(hsj.predict)(x, hsj.threshold_init(2)).tolist() == [1, 0]


def test_binary_and_multi_label_decisions():
    state = hsj.ThresholdState(jnp.array([1.0]), jnp.array([1]))
    assert hsj.predict(jnp.array([1.4, 1.6, 0.0]), state).tolist() == [False, True, False]
    assert hsj.predict(jnp.array([1.9, 2.1]), state, 2.0).tolist() == [False, True]
    assert hsj.scores(jnp.array([2.0]), state, 2.0).tolist() == [0.5]
