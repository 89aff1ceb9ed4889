"""The derivatives of box_section: by formula, by finite differences, to second order, in every mode.

With A the free entries, w their weights, nu = mu/tau and m = sum_A(w v)/sum_A(w w), the gradient of sum(v y) is

    to x        (v - w m)/tau on A                       to total    m
    to a bound  v - w m for an entry that sits on it     to tau      -sum_A (v - w m) (y + nu w)/tau
    to weight   -m y, and -nu (v - w m) on A as well

and where an `at_most` is not reached, the same with m = nu = 0.
"""

import contextlib

import numpy as np
import pytest
import torch

import hypersimplex.torch as hst
from hypersimplex.torch import backends

NAMES = ("x", "total", "lower", "upper", "weight", "tau")
plain_or_not = pytest.mark.parametrize("plain", [False, True])


def chosen(plain):
    return backends.plain_only() if plain else contextlib.nullcontext()


def problem(seed=0, rows=3, n=6):
    """Feasible also with one row's total and another row's bounds."""
    rng = np.random.default_rng(seed)
    lower, upper = rng.uniform(-1, -0.5, (rows, n)), rng.uniform(0.5, 1, (rows, n))
    numbers = (
        np.linspace(-0.1, 0.1, rows) * n,
        lower,
        upper,
        rng.uniform(0.5, 2, (rows, n)),
        np.linspace(0.7, 0.9, rows),
    )
    return [torch.tensor(v, requires_grad=True) for v in (rng.normal(size=(rows, n)), *numbers)]


def by_formula(y, v, x, total, lower, upper, weight, tau, slack):
    tau = tau[:, None]
    low, high = y <= lower, y >= upper
    free = ~(low | high)
    squares = np.where(free, weight**2, 0).sum(-1, keepdims=True)
    m = np.where(slack, 0, np.where(free, weight * v, 0).sum(-1, keepdims=True) / np.maximum(squares, 1e-300))
    nu = np.where(free, (x / tau - y) / weight, 0).max(-1, keepdims=True)
    nu = np.where(nu == 0, np.where(free, (x / tau - y) / weight, 0).min(-1, keepdims=True), nu)
    rest = v - weight * m
    return {
        "x": np.where(free, rest / tau, 0),
        "total": m[:, 0],
        "lower": np.where(low, rest, 0),
        "upper": np.where(high & ~low, rest, 0),
        "weight": -m * y - np.where(free, nu * rest, 0),
        "tau": -np.where(free, rest * (y + nu * weight), 0).sum(-1) / tau[:, 0],
    }


@plain_or_not
@pytest.mark.parametrize("at_most", [False, True])
@pytest.mark.parametrize("meet", [False, True], ids=["bounds apart", "some bounds meet"])
def test_gradients_are_those_of_the_formula(plain, at_most, meet):
    arguments = problem(rows=20, n=9)
    if meet:  # an entry at both bounds gives its gradient to the lower one alone
        arguments[3].data[:, ::4] = arguments[2].detach()[:, ::4]
    v = torch.tensor(np.random.default_rng(1).normal(size=(20, 9)))
    with chosen(plain):
        y = hst.box_section(*arguments, at_most=at_most)
        y.backward(v)
    given = [t.detach().numpy() for t in arguments]
    y = y.detach().numpy()
    slack = ((given[4] * y).sum(-1) < given[1] - 1e-9)[:, None]
    assert slack.any() == at_most
    wanted = by_formula(y, v.numpy(), *given, slack)
    for name, t in zip(NAMES, arguments, strict=True):
        np.testing.assert_allclose(t.grad.numpy(), wanted[name], rtol=1e-9, atol=1e-9, err_msg=name)
        assert np.abs(wanted[name]).max() > 0.01


@plain_or_not
@pytest.mark.parametrize("at_most", [False, True])
@pytest.mark.parametrize("dim", [0, -1])
def test_the_gradient_to_the_input_alone_is_the_same(plain, at_most, dim):
    x, total, lower, upper, weight, tau = problem(rows=7, n=7)
    rest = (total, lower, upper[0], weight[:1], tau)
    with chosen(plain):
        y = hst.box_section(x, *rest, dim, at_most=at_most)
        v = torch.linspace(-1, 1, 49, dtype=torch.float64).view(7, 7) ** 3
        wanted, _ = torch.autograd.grad(y, (x, total), v)
        alone = hst.box_section(x, *(t.detach() for t in rest), dim, at_most=at_most)
        assert torch.equal(alone, y)
        torch.testing.assert_close(torch.autograd.grad(alone, x, v)[0], wanted)
    assert (wanted != 0).any()


def kernel_and_formula(arguments, v, **options):
    """The kernel's gradients, and those that could be differentiated again."""
    wanted = [t for t in arguments if isinstance(t, torch.Tensor) and t.requires_grad]
    y = hst.box_section(*arguments, **options)
    once = torch.autograd.grad(y, wanted, v, retain_graph=True)
    return once, torch.autograd.grad(y, wanted, v, create_graph=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", [1, 3, 8, 17, 300, 1200])
@pytest.mark.parametrize("how", ["numbers", "tensors", "broadcast", "mixed"])
def test_the_kernel_has_the_gradients_of_the_formula(dtype, n, how):
    arguments = [t.detach() for t in problem(rows=4, n=n)]
    if how == "broadcast":
        arguments[1:] = [arguments[1][1], arguments[2][:, :1], arguments[3][:1], arguments[4][0], arguments[5][2]]
    arguments = [t.to(dtype).requires_grad_() for t in arguments]
    if how == "numbers":
        arguments[1:] = [0, -0.7, 0.6, 1.5, 0.8]
    elif how == "mixed":
        arguments[2:5] = [-0.7, arguments[3].detach().double().requires_grad_(), arguments[4]]
    v = torch.randn(4, n, dtype=dtype, generator=torch.Generator().manual_seed(n))
    for at_most in (False, True):
        once, again = kernel_and_formula(arguments, v, at_most=at_most)
        for a, b in zip(once, again, strict=True):
            assert a.shape == b.shape
            assert a.dtype == b.dtype
            torch.testing.assert_close(a, b, rtol=3e-5 if dtype == torch.float32 else 1e-9, atol=3e-5 * n**0.5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(3, 1), (1, 7), (5, 33), (2, 140_000)])
def test_one_number_for_all_entries_is_a_gradient_as_any_other(dtype, shape):
    """As of a sum: an expanded tensor, read without a copy."""
    rng = np.random.default_rng(0)
    numbers = [rng.normal(size=shape), rng.uniform(-1, 0, shape), rng.uniform(0, 1, shape), rng.uniform(1, 2, shape)]
    leaves = [torch.from_numpy(a).to(dtype).requires_grad_() for a in numbers]
    y = hst.box_section(leaves[0], 0.05 * shape[1], *leaves[1:])
    v = torch.tensor(-0.7, dtype=dtype).expand(shape)
    one, other = (torch.autograd.grad(y, leaves, u, retain_graph=True) for u in (v, v.contiguous()))
    for a, b in zip(one, other, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


def test_a_bound_that_the_dtype_does_not_hold_is_still_reached():
    lower = torch.tensor(0.1, dtype=torch.float64, requires_grad=True)  # above it in float32
    x = torch.tensor([-5.0, 1.0, 1.5], requires_grad=True)
    once, again = kernel_and_formula((x, 1.0, lower), torch.tensor([1.0, 0.0, 0.0]))
    assert torch.equal(once[0], again[0])
    assert once[1] == again[1] == 1


@plain_or_not
def test_a_total_that_the_input_meets_as_it_is_has_the_gradient_of_any_other(plain):
    """mu is 0 there, as where the total of an `at_most` is not reached, which has another gradient."""
    x = torch.tensor([[-1.0, -0.5, 0.5, 1.0]] * 5, requires_grad=True)
    total = torch.zeros(5, requires_grad=True)
    with chosen(plain):
        y = hst.box_section(x, total, -1.5, 1.5)
        y.backward(torch.tensor([1.0, 2.0, 3.0, 6.0]).expand(5, 4))
    assert torch.equal(y, x)
    assert x.grad.tolist() == [[-2.0, -1.0, 0.0, 3.0]] * 5
    assert total.grad.tolist() == [3.0] * 5


@plain_or_not
def test_infinite_entries_that_share_a_budget_have_no_gradient(plain):
    x = torch.tensor([torch.inf, torch.inf, 0.0], requires_grad=True)
    total = torch.tensor(1.0, requires_grad=True)
    weight = torch.tensor([1.0, 1.0, 1.0], requires_grad=True)
    v = torch.tensor([1.0, 2.0, 5.0])
    with chosen(plain):
        once, again = kernel_and_formula((x, total, 0.0, 1.0, weight), v)
        assert torch.equal(once[0], torch.zeros(3))
        assert torch.equal(again[0], torch.zeros(3))
        assert once[1] == again[1] == 1.5
        assert once[2].tolist() == again[2].tolist() == [-1, -0.5, 0]
        alone = hst.box_section(x, 1.0)
        assert torch.equal(torch.autograd.grad(alone, x, v)[0], torch.zeros(3))


@pytest.mark.parametrize("shape", [(1, 140_001), (3, 70_000), (900, 100)])
def test_threads_do_not_change_a_bit_of_the_gradients(shape):
    arguments = [t.detach().float().requires_grad_() for t in problem(rows=shape[0], n=shape[1])]
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3, 5):
            torch.set_num_threads(threads)
            y = hst.box_section(*arguments)
            found.append([y.detach(), *torch.autograd.grad(y, arguments, y.detach() + 1)])
    finally:
        torch.set_num_threads(before)
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))


@plain_or_not
@pytest.mark.parametrize("at_most", [False, True])
def test_derivatives_of_both_orders_and_modes_by_finite_differences(plain, at_most):
    arguments = problem(rows=2, n=4)

    def f(*arguments):
        return hst.box_section(*arguments, at_most=at_most)

    with chosen(plain):
        assert torch.autograd.gradcheck(f, arguments, check_forward_ad=True, check_batched_grad=True)
        assert torch.autograd.gradgradcheck(f, arguments, atol=1e-4)


def test_nothing_is_free_and_nothing_is_divided_by_zero():
    x = torch.tensor([[0.0, 5.0, 9.0], [1.0, torch.nan, 2.0]], requires_grad=True)
    total = torch.tensor(2.0, requires_grad=True)
    y = hst.box_section(x, total, tau=0.01)
    y[0].sum().backward()
    assert torch.equal(x.grad, torch.zeros(2, 3))
    assert total.grad == 0


def test_gradients_beside_infinities():
    x = torch.tensor([-torch.inf, torch.inf, 1.0, 1.5], requires_grad=True)
    weight = torch.tensor([1.0, 2.0, 1.0, 1.0], requires_grad=True)
    y = hst.box_section(x, 3.0, weight=weight, upper=torch.tensor([torch.inf, 1.0, torch.inf, 1.0]))
    y[2].backward()
    assert torch.equal(y.detach(), torch.tensor([0.0, 1.0, 0.25, 0.75]))
    assert torch.equal(x.grad, torch.tensor([0.0, 0.0, 0.5, -0.5]))
    assert torch.isfinite(weight.grad).all()


def test_vmap_over_any_argument():
    arguments = [t.detach() for t in problem(rows=4, n=5)]
    whole = hst.box_section(*arguments)
    row = [t[0] for t in arguments]
    torch.testing.assert_close(torch.func.vmap(hst.box_section)(*arguments), whole)
    for i, name in enumerate(NAMES):

        def f(value, i=i):
            return hst.box_section(*row[:i], value, *row[i + 1 :], at_most=True)

        many = torch.func.vmap(f)(arguments[i])
        torch.testing.assert_close(many, torch.stack([f(v) for v in arguments[i]]), msg=name)
    jacobian = torch.func.vmap(torch.func.jacrev(hst.box_section))(*arguments)
    torch.testing.assert_close(jacobian, torch.func.vmap(torch.func.jacfwd(hst.box_section))(*arguments))


def test_compiles_with_gradients():
    arguments = problem(rows=3, n=5)

    def f(*arguments):
        return (hst.box_section(*arguments) ** 2).sum()

    wanted = torch.autograd.grad(f(*arguments), arguments)
    compiled = torch.compile(f, fullgraph=True)
    for a, b in zip(torch.autograd.grad(compiled(*arguments), arguments), wanted, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("at_most", [False, True])
def test_jax_derivatives_are_those_of_torch(at_most):
    jax = pytest.importorskip("jax", reason="JAX is in an environment of its own")
    import hypersimplex.jax as hsj

    arguments = problem(rows=3, n=5)
    given = [t.detach().numpy() for t in arguments]
    v = np.random.default_rng(3).normal(size=(3, 5))

    def torch_loss(*a):
        return (hst.box_section(*a, at_most=at_most) * torch.tensor(v)).sum()

    def jax_loss(*a):
        return (hsj.box_section(*a, at_most=at_most) * v).sum()

    every = tuple(range(6))
    with jax.enable_x64(True):
        for got, wanted in zip(
            jax.jit(jax.grad(jax_loss, every))(*given), torch.func.grad(torch_loss, every)(*arguments), strict=True
        ):
            np.testing.assert_allclose(got, wanted.detach(), rtol=1e-8, atol=1e-8)
        second = jax.jit(jax.hessian(jax_loss, (0, 4, 5)))(*given)
        expected = torch.func.hessian(torch_loss, (0, 4, 5))(*arguments)
        for a, b in zip(jax.tree.leaves(second), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(a, b.detach(), rtol=1e-6, atol=1e-6)
        y = jax.jit(jax.vmap(lambda *a: hsj.box_section(*a, at_most=at_most)))(*given)
        np.testing.assert_allclose(y, hst.box_section(*arguments, at_most=at_most).detach(), atol=1e-12)
        nan = jax.jit(lambda total: hsj.box_section(given[0], total))(99.0)
        assert np.isnan(nan).all()


def test_what_was_stored_in_another_shape_is_refused():
    x = torch.randn(3, 8, requires_grad=True)

    def run(pack):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t, pack):
            hst.box_section(x, 2.0, upper=torch.ones(8)).sum().backward()

    with pytest.raises(ValueError, match="shape"):
        run(lambda t: t[:, :4] if t.shape == (3, 8) else t)
    with pytest.raises(ValueError, match="upper must broadcast"):
        run(lambda t: t[:, :4] if t.shape == (1, 8) else t)
