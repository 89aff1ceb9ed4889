"""Run by test_sharding.py in its own process, which has four devices: every way of spreading a batch equals one."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import hypersimplex.jax as hsj

assert jax.device_count() == 4
MESH = jax.make_mesh((4,), ("batch",), axis_types=(jax.sharding.AxisType.Auto,))
RNG = np.random.default_rng(0)
X = RNG.normal(size=(64, 5)).astype(np.float32)
LABELS = np.where(np.arange(64) < 16, 0, RNG.integers(0, 4, size=64))  # class 4 absent; one device sees class 0 alone
KEPT = RNG.random(64) < 0.8
V = RNG.normal(size=64).astype(np.float32)


def weighted(x, labels, kept, v, **more):
    losses, (mu, k) = hsj.loss_and_threshold(x, labels, where=kept, tau=0.7, **more)
    return jnp.sum(v * losses), (losses, mu, k)


def same(got, want):
    for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(np.asarray(g), np.asarray(w), rtol=1e-6, atol=2e-6)


(_, (LOSSES, MU, K)), TO_X = jax.jit(jax.value_and_grad(weighted, has_aux=True))(X, LABELS, KEPT, V)

# Plain sharded arrays under jit.
spread = [jax.device_put(a, NamedSharding(MESH, P("batch"))) for a in (X, LABELS, KEPT, V)]
(_, (losses, mu, k)), to_x = jax.jit(jax.value_and_grad(weighted, has_aux=True))(*spread)
assert len(to_x.sharding.device_set) == 4
same((losses, mu, k, to_x), (LOSSES, MU, K, TO_X))

# Rows on different devices stay there: no device gathers them.
solve_rows = jax.jit(lambda x: hsj.soft_binary_argmax(x, 2.5, 0.5)).lower(spread[0]).compile()
assert "all-gather" not in solve_rows.as_text()
assert solve_rows(spread[0]).sharding.is_equivalent_to(spread[0].sharding, 2)
print("sharded arrays under jit")


# A mesh with Explicit axes, where shardings are part of the types.
WIDE = RNG.normal(size=(4, 40_000)).astype(np.float32)


def operators(x, k, axis):
    y = hsj.soft_binary_argmax(x, k, 0.5, axis=axis)
    return y, hsj.threshold(x, k, 0.5, axis=axis), hsj.binary_argmax(x, k, axis=axis)


def boxed(x, total, lower, upper):
    y = hsj.box_section(x, total, lower, upper, weight=1.5, tau=0.5)
    return y, hsj.box_section(x, 3.0, upper=upper, at_most=True, axis=0)


def box_gradients(*given):
    return jax.grad(lambda *a: sum((y * jnp.cos(y)).sum() for y in boxed(*a)), argnums=(0, 1, 2, 3))(*given)


def explicit_boxes(mesh):
    given = X, np.linspace(0.5, 3, 64, dtype=np.float32), np.float32(-0.25), np.abs(X) + np.float32(0.5)
    want = boxed(*given), box_gradients(*given)
    with jax.set_mesh(mesh):
        place = NamedSharding(mesh, P("batch"))
        x, total, lower, upper = (a if a.ndim == 0 else jax.device_put(a, place) for a in given)
        got = jax.jit(boxed)(x, total, lower, upper)
        assert got[0].sharding.spec == P("batch", None)
        same((got, jax.jit(box_gradients)(x, total, lower, upper)), want)


def explicit():
    mesh = jax.make_mesh((4,), ("batch",), axis_types=(jax.sharding.AxisType.Explicit,))
    want = [operators(X, 13, 0), operators(X, 2, 1), operators(WIDE, 100, 1)]
    (value, aux), to_x = jax.value_and_grad(weighted, has_aux=True)(X, LABELS, KEPT, V)
    with jax.set_mesh(mesh):
        x, labels, kept, v = (jax.device_put(a, NamedSharding(mesh, P("batch"))) for a in (X, LABELS, KEPT, V))
        wide = jax.device_put(WIDE, NamedSharding(mesh, P(None, "batch")))
        run = jax.jit(operators, static_argnums=(1, 2))
        got = [run(x, 13, 0), run(x, 2, 1), run(wide, 100, 1)]
        same(got, want)
        assert got[2][0].sharding.spec == P(None, "batch")
        got = jax.jit(jax.value_and_grad(weighted, has_aux=True))(x, labels, kept, v)
        assert len(got[1].sharding.device_set) == 4
        same(got, ((value, aux), to_x))
        k = jax.device_put(np.full(64, 2), NamedSharding(mesh, P("batch")))
        same(jax.jit(lambda x, k: operators(x, k, 1))(x, k), want[1])
        deep = hsj.hypersimplex_loss(x.reshape(16, 4, 5), labels.reshape(16, 4))
        same(deep.reshape(64), hsj.hypersimplex_loss(X, LABELS))
    explicit_boxes(mesh)


explicit()
print("a mesh with Explicit axes")


# shard_map: the gradient taken outside, and inside.
def local(x, labels, kept, v):
    return hsj.loss_and_threshold(x, labels, where=kept, tau=0.7, axis_name="batch")


mapped = jax.shard_map(local, mesh=MESH, in_specs=P("batch"), out_specs=(P("batch"), (P(), P())))
losses, (mu, k) = jax.jit(mapped)(X, LABELS, KEPT, V)
same((losses, mu, k), (LOSSES, MU, K))
outside = jax.jit(jax.grad(lambda x: jnp.dot(V, mapped(x, LABELS, KEPT, V)[0])))(X)
same(outside, TO_X)


def inside(x, labels, kept, v):
    return jax.grad(lambda x: weighted(x, labels, kept, v, axis_name="batch")[0])(x)


same(jax.jit(jax.shard_map(inside, mesh=MESH, in_specs=P("batch"), out_specs=P("batch")))(X, LABELS, KEPT, V), TO_X)


# Slices that lie on one device each: no axis_name.
def rows(x):
    y, pull = jax.vjp(lambda x: hsj.soft_binary_argmax(x, 2.5, 0.5), x)
    boxes, pull_boxes = jax.vjp(lambda x: hsj.box_section(x, 0.5, -0.5, 0.7, tau=0.5), x)
    return y, hsj.threshold(x, 2.5, 0.5), pull(x)[0], boxes, pull_boxes(x)[0]


for check in (True, False):
    apart = jax.shard_map(rows, mesh=MESH, in_specs=P("batch"), out_specs=P("batch"), check_vma=check)
    same(jax.jit(apart)(X), rows(X))
same(jax.jit(rows)(spread[0]), rows(X))
print("shard_map")

# The operator along a sharded axis, with +inf, -inf, a flat slice and long slices.
ROWS = RNG.normal(size=(6, 20_000)).astype(np.float32)
ROWS[1, ::3], ROWS[2, :2], ROWS[3] = -np.inf, np.inf, 1.0
KS = np.array([2000, 17.5, 1, 100, 0, 20_000], np.float32)
across = jax.shard_map(
    lambda x, k: (
        hsj.soft_binary_argmax(x, k, 0.5, axis_name="batch"),
        hsj.threshold(x, k, 0.5, axis_name="batch"),
    ),
    mesh=MESH,
    in_specs=(P(None, "batch"), P()),
    out_specs=(P(None, "batch"), P()),
)
y, mu = jax.jit(across)(ROWS, KS)
same((y, mu), (hsj.soft_binary_argmax(ROWS, KS, 0.5), hsj.threshold(ROWS, KS, 0.5)))
print("the operator across devices")

# pmap, with its leading axis of devices.
with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    quarters = [a.reshape(4, 16, *a.shape[1:]) for a in (X, LABELS, KEPT, V)]
    (_, (losses, mu, k)), to_x = jax.pmap(
        lambda x, labels, kept, v: jax.value_and_grad(
            lambda x: weighted(x, labels, kept, v, axis_name="batch"), has_aux=True
        )(x),
        axis_name="batch",
    )(*quarters)
same((losses.reshape(64), mu[0], k[0], to_x.reshape(64, 5)), (LOSSES, MU, K, TO_X))
print("pmap")
