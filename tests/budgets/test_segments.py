"""soft_topk_segments is soft_topk of every segment by itself, and of rows padded with -inf."""

import itertools
import re

import numpy as np
import pytest
import torch

import hypersimplex as hs
import hypersimplex.torch as hst
from hypersimplex import _kernel
from tests.frontends import eps, every_front_end, every_front_end_and_dtype


def ragged(sizes, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    x = rng.normal(size=offsets[-1]).astype(dtype)
    return x, np.asarray(sizes) * rng.random(len(sizes)), offsets, rng.uniform(0.1, 2, len(sizes))


@every_front_end_and_dtype()
def test_every_segment_is_solved_by_itself(fe, dtype):
    x, k, offsets, tau = ragged([3, 0, 1, 7, 40, 2, 5], dtype=dtype)
    x[4] = -np.inf
    k[3] = 5.0
    y = fe.soft_topk_segments(x, k, offsets, tau)
    assert y.dtype == dtype
    for i, (start, end) in enumerate(itertools.pairwise(offsets)):
        wanted = fe.soft_binary_argmax(x[start:end], k[i], tau[i])
        np.testing.assert_allclose(y[start:end].astype(float), wanted.astype(float), rtol=0, atol=4 * eps(dtype))


def test_ten_thousand_segments_are_rows_padded_with_minus_infinity():
    sizes = np.random.default_rng(1).integers(1, 201, 10_000)
    x, k, offsets, tau = ragged(sizes, 1, np.float32)
    inside = np.arange(200) < sizes[:, None]
    padded = np.full((10_000, 200), -np.inf, np.float32)
    padded[inside] = x
    wanted = hs.soft_binary_argmax(padded, k, tau)[inside]
    np.testing.assert_allclose(hs.soft_topk_segments(x, k, offsets, tau), wanted, rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_around_every_size_at_which_the_kernel_changes(dtype, monkeypatch):
    """Lengths around registers, short rows and long ones; numbers of segments around a task's."""
    c = _kernel.constants()
    edges = [c["float32_lanes"], c["rows_side_by_side_longest"], c["short_row"], c["sampled_row"], c["parallel_row"]]
    cases = [[edge + d for edge in edges for d in (-1, 0, 1)]]
    cases += [[50] * (c["task_segments"] + d) for d in (-1, 0, 1)] + [[2000] * (2 * c["task_segments"] + 1)]
    for sizes in cases:
        x, k, offsets, tau = ragged(sizes, len(sizes), dtype)
        results = []
        for threads in ("1", "3"):
            monkeypatch.setenv("HYPERSIMPLEX_NUM_THREADS", threads)
            results.append(hs.soft_topk_segments(x, k, offsets, tau))
        np.testing.assert_array_equal(*results)
        for i in {0, len(sizes) // 2, len(sizes) - 1}:
            part = slice(offsets[i], offsets[i + 1])
            wanted = hs.soft_binary_argmax(x[part], k[i], tau[i])
            np.testing.assert_allclose(results[0][part], wanted, rtol=0, atol=8 * np.finfo(dtype).eps)


@every_front_end
@pytest.mark.parametrize(
    ("k", "offsets", "tau", "message"),
    [
        (1, [0, 3], 1.0, "offsets must rise from 0 to 5 (the size of the input), got 3 in its place"),
        (1, [1, 5], 1.0, "offsets must rise from 0 to 5 (the size of the input), got 1 in its place"),
        (1, [0, 4, 3, 5], 1.0, "offsets must rise from 0 to 5 (the size of the input), got 3 in its place"),
        (1, [0, 9, 5], 1.0, "offsets must rise from 0 to 5 (the size of the input), got 5 in its place"),
        (1, [[0, 5]], 1.0, "offsets must be one more than there are segments, in one dimension, got shape (1, 2)"),
        (3, [0, 2, 5], 1.0, "k must be between 0 and 2 (the size of segment 0), got 3"),
        (np.array([1.0, -1.0]), [0, 2, 5], 1.0, "k must be between 0 and 3 (the size of segment 1), got -1"),
        (1, [0, 2, 5], 0.0, "tau must be positive, got 0.0"),
        (np.ones(3), [0, 2, 5], 1.0, "k must broadcast to the slices' shape (2,), got shape (3,)"),
    ],
)
def test_errors_name_the_argument_the_rule_and_the_value(fe, k, offsets, tau, message):
    with pytest.raises(ValueError, match="^" + re.escape(message) + "$"):
        fe.soft_topk_segments(np.zeros(5, np.float32), k, np.array(offsets), tau)


@pytest.mark.parametrize("front_end", [hs, hst])
def test_k_above_what_a_mask_leaves_is_that_segments_k(front_end):
    x, k = np.array([1.0, 2.0, -np.inf, 3.0, -np.inf]), np.array([1.0, 2.0])
    given = (x, k) if front_end is hs else (torch.from_numpy(x), torch.from_numpy(k))
    with pytest.raises(ValueError, match=r"^k must be at most 1, the number of entries that are not -inf, got 2$"):
        front_end.soft_topk_segments(*given, [0, 2, 5] if front_end is hs else torch.tensor([0, 2, 5]))


@every_front_end
def test_edges(fe):
    assert fe.soft_topk_segments(np.zeros(0, np.float32), 0, np.array([0])).shape == (0,)
    assert fe.soft_topk_segments(np.zeros(0, np.float32), 0, np.array([0, 0, 0])).shape == (0,)
    y = fe.soft_topk_segments(np.array([np.nan, 1.0, 2.0, 2.0], np.float32), 1, np.array([0, 2, 4]))
    np.testing.assert_array_equal(y, [np.nan, np.nan, 0.5, 0.5])
    with pytest.raises(ValueError, match=r"must have one dimension, got shape \(2, 2\)"):
        fe.soft_topk_segments(np.zeros((2, 2), np.float32), 1, np.array([0, 4]))
    with pytest.raises(TypeError, match="offsets must be whole numbers"):
        fe.soft_topk_segments(np.zeros(4, np.float32), 1, np.array([0.0, 4.0]))


@every_front_end
def test_one_number_may_be_an_array(fe):
    x, offsets = np.arange(5, dtype=np.float32), np.array([0, 2, 5])
    y = fe.soft_topk_segments(x, np.ones(1), offsets, np.full(1, 0.5))
    np.testing.assert_array_equal(y, fe.soft_topk_segments(x, 1, offsets, 0.5))


def test_tensors_without_values_have_a_shape():
    assert hst.soft_topk_segments(torch.zeros(5, device="meta"), 1, torch.tensor([0, 5], device="meta")).shape == (5,)


def segments(x, k, tau):
    return hst.soft_topk_segments(x, k, torch.tensor([0, 4, 4, 5, 11]), tau)


def problem():
    rng = np.random.default_rng(2)
    k = torch.tensor([1.4, 0.0, 0.5, 2.7], dtype=torch.float64)
    given = torch.tensor(rng.normal(size=11)), k, torch.tensor([1.5, 1.0, 2.0, 0.9], dtype=torch.float64)
    return [t.requires_grad_() for t in given]


def test_derivatives_of_both_orders_and_modes():
    x, k, tau = problem()

    def f(x, k, tau):
        return segments(x, k * torch.tensor([1.0, 0.0, 1.0, 1.0]), tau)

    assert torch.autograd.gradcheck(f, (x, k, tau), check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(f, (x, k, tau), atol=1e-4)
    one = torch.tensor(0.9, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, tau: segments(x, k.detach(), tau), (x, one))


def test_gradients_are_those_of_the_segments_by_themselves():
    x, k, tau = problem()
    v = torch.arange(11.0, dtype=torch.float64)
    got = torch.autograd.grad((segments(x, k, tau) * v).sum(), (x, k, tau))
    parts = [hst.soft_topk(x[a:b], k[i], tau[i]) for i, (a, b) in enumerate(((0, 4), (4, 4), (4, 5), (5, 11)))]
    wanted = torch.autograd.grad((torch.cat(parts) * v).sum(), (x, k, tau))
    for a, b in zip(got, wanted, strict=True):
        torch.testing.assert_close(a, b)


def test_vmap_and_compile():
    x, k, tau = (t.detach() for t in problem())
    many = torch.stack([x, -x, x + 1])
    wanted = torch.stack([segments(row, k, tau) for row in many])
    torch.testing.assert_close(torch.func.vmap(lambda row: segments(row, k, tau))(many), wanted)
    ks = torch.stack([k, k / 2, k / 3])
    torch.testing.assert_close(torch.func.vmap(lambda k: segments(x, k, tau))(ks)[1], segments(x, k / 2, tau))
    x.requires_grad_()
    compiled = torch.compile(lambda x: (segments(x, k, tau) ** 2).sum(), fullgraph=True)
    (got,) = torch.autograd.grad(compiled(x), x)
    (expected,) = torch.autograd.grad((segments(x, k, tau) ** 2).sum(), x)
    torch.testing.assert_close(got, expected)


def test_jax_derivatives_are_those_of_torch():
    jax = pytest.importorskip("jax", reason="JAX is in an environment of its own")
    import hypersimplex.jax as hsj

    x, k, tau = problem()
    v = np.arange(11.0)
    wanted = torch.autograd.grad((segments(x, k, tau) * torch.tensor(v)).sum(), (x, k, tau))
    with jax.enable_x64(True):
        given = [t.detach().numpy() for t in (x, k, tau)]
        f = jax.jit(jax.grad(lambda *a: (hsj.soft_topk_segments(*a[:2], [0, 4, 4, 5, 11], a[2]) * v).sum(), (0, 1, 2)))
        for a, b in zip(f(*given), wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)
    with pytest.raises(TypeError, match="offsets must be known"):
        jax.jit(lambda o: hsj.soft_topk_segments(np.zeros(3, np.float32), 1, o))(np.array([0, 3]))


NAN_ROW = torch.tensor([0.2, 1.0, 0.5, 1.1, torch.nan, 0.3, 0.9, 0.1, 0.4], dtype=torch.float64)


@pytest.mark.parametrize("way", ["kernel", "again", "func", "forward"])
def test_a_nan_spoils_the_gradients_of_its_own_segment_alone(way):
    given = NAN_ROW, torch.tensor([1.0, 1.5, 2.0]).double(), torch.tensor([1.0, 0.5, 2.0]).double()
    offsets, v = torch.tensor([0, 3, 6, 9]), torch.arange(9.0, dtype=torch.float64)

    def f(x, k, tau):
        return hst.soft_topk_segments(x, k, offsets, tau)

    wanted = [torch.full_like(t, torch.nan) for t in given]
    for i in (0, 2):
        at = slice(3 * i, 3 * i + 3)
        part = [t.clone().requires_grad_() for t in (given[0][at], given[1][i], given[2][i])]
        gradients = torch.autograd.grad(hst.soft_topk(*part), part, v[at])
        for w, where, gradient in zip(wanted, (at, i, i), gradients, strict=True):
            w[where] = gradient
    if way == "func":
        got = torch.func.grad(lambda *given: (f(*given) * v).sum(), argnums=(0, 1, 2))(*given)
    elif way == "forward":
        units = torch.eye(9, dtype=torch.float64)
        got = [
            torch.func.vmap(lambda u: (torch.func.jvp(lambda x: f(x, *given[1:]), given[:1], (u,))[1] * v)[:3].sum())(
                units
            )
        ]
        wanted = [torch.where(torch.arange(9) < 3, wanted[0], 0)]
    else:
        leaves = [t.clone().requires_grad_() for t in given]
        got = torch.autograd.grad(f(*leaves), leaves, v, create_graph=way == "again")
    for g, w in zip(got, wanted, strict=True):
        torch.testing.assert_close(g.detach(), w, equal_nan=True)


class Budgets(torch.nn.Module):
    def forward(self, x, offsets, k=1, tau=1.0):
        return hst.soft_topk_segments(x, k, offsets, tau)


OFFSETS = [[0, 4], [0, 4, 6, 9], [0, 5, 9], [0, 1]]


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("example", OFFSETS[:3])
def test_an_export_takes_any_number_of_segments(example, grad):
    n, s = torch.export.Dim("n"), torch.export.Dim("s")
    dynamic = ({0: n}, {0: s})
    x = torch.randn(example[-1]).requires_grad_(grad)
    exported = torch.export.export(Budgets(), (x, torch.tensor(example)), dynamic_shapes=dynamic).module()
    for offsets in OFFSETS:
        more, at = torch.randn(offsets[-1]).requires_grad_(grad), torch.tensor(offsets)
        torch.testing.assert_close(exported(more, at), Budgets()(more, at))
        if grad:
            v = torch.arange(float(len(more)))
            got, wanted = (torch.autograd.grad(f(more, at), more, v)[0] for f in (exported, Budgets()))
            torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)


def test_an_export_takes_a_number_for_each_segment():
    n, r = torch.export.Dim("n"), torch.export.Dim("r", min=2)
    given = torch.randn(9), torch.tensor([0, 4, 9]), torch.tensor([1.0, 2.5]), torch.tensor([0.5, 2.0])
    dynamic = ({0: n}, {0: r + 1}, {0: r}, {0: r})
    exported = torch.export.export(Budgets(), given, dynamic_shapes=dynamic).module()
    more = torch.randn(12), torch.tensor([0, 3, 3, 12]), torch.tensor([1.0, 0.0, 2.5]), torch.tensor([0.5, 1.0, 2.0])
    torch.testing.assert_close(exported(*more), Budgets()(*more))
