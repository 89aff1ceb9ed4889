"""Train a small network on the handwritten digits that come with scikit-learn, in plain JAX with optax.

The loss compares columns of the batch, so adding a constant to a class's logits changes nothing in it: the network
alone does not say where a class begins. The thresholds do. They are a state beside the parameters, moved by every
batch, and prediction uses them.

    python examples/jax_digits.py
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from hypersimplex.jax import ThresholdState, loss_and_threshold, predict, threshold_init, threshold_update

TAU, BATCH, EPOCHS = 4.0, 256, 30


def init(key, sizes=(64, 64, 10)):
    keys = jax.random.split(key, len(sizes) - 1)
    pairs = zip(keys, sizes[:-1], sizes[1:], strict=True)
    return [(jax.random.normal(k, (m, n)) * np.sqrt(2 / m), jnp.zeros(n)) for k, m, n in pairs]


def apply(params, x):
    *hidden, (weight, bias) = params
    for w, b in hidden:
        x = jax.nn.relu(x @ w + b)
    return x @ weight + bias


def loss_fn(params, x, labels):
    losses, aux = loss_and_threshold(apply(params, x), labels, tau=TAU)
    return losses.mean(), aux


def train(x, labels, seed=0):
    optimizer = optax.adam(3e-3)
    params = init(jax.random.key(seed))

    @jax.jit
    def step(params, opt_state, thresholds: ThresholdState, x, labels):
        (loss, (mu, k)), grads = jax.value_and_grad(loss_fn, has_aux=True)(params, x, labels)
        updates, opt_state = optimizer.update(grads, opt_state)
        return optax.apply_updates(params, updates), opt_state, threshold_update(thresholds, mu, k, len(labels)), loss

    opt_state, thresholds = optimizer.init(params), threshold_init(10)
    rng = np.random.default_rng(seed)
    for _ in range(EPOCHS):
        order = rng.permutation(len(x))
        for i in range(0, len(x) - BATCH + 1, BATCH):
            at = order[i : i + BATCH]
            params, opt_state, thresholds, _ = step(params, opt_state, thresholds, x[at], labels[at])
    return params, thresholds


def main():
    x, labels = load_digits(return_X_y=True)
    x = (x / 16).astype(np.float32)
    x, x_test, labels, labels_test = train_test_split(x, labels, test_size=0.25, random_state=0, stratify=labels)
    params, thresholds = train(x, labels)
    logits = apply(params, x_test)
    with_thresholds = float(np.mean(predict(logits, thresholds, TAU) == labels_test))
    without = float(np.mean(jnp.argmax(logits, -1) == labels_test))
    print(f"test accuracy with thresholds {with_thresholds:.3f}, by plain argmax {without:.3f}")
    return with_thresholds, without


if __name__ == "__main__":
    main()
