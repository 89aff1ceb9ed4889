"""torch.compile, torch.func, checkpointing: the loss under a transform is the loss without it."""

import pytest
import torch
from torch import func, nn
from torch.utils.checkpoint import checkpoint

from hypersimplex.torch import HyperSimplexLoss, hypersimplex_loss
from tests.torch.losses import DOUBLE, formula, labels_of, normal, one_hot, project, same

SETTINGS = {
    "plain": {},
    "ignoring": {"ignore_index": 1},
    "weighted": {"weight": torch.tensor([1.0, 2.0, 0.5, 0.1, 3.0])},
    "prior": {"prior": 0.3, "tau": 2.0},
    "k": {"k": torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0]), "reduction": "sum"},
}


@pytest.fixture
def _fresh_dynamo():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def value_and_grad(function, logits, *rest, **kwargs):
    x = logits.detach().clone().requires_grad_()
    loss = function(x, *rest, **kwargs)
    return loss.detach(), torch.autograd.grad(loss.sum(), x)[0]


def same_pair(got, expected, **kwargs):
    for one, other in zip(got, expected, strict=True):
        same(one, other, **kwargs)


@pytest.mark.usefixtures("_fresh_dynamo")
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("setting", SETTINGS)
def test_compile(dynamic, setting):
    compiled = torch.compile(hypersimplex_loss, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    for n in (20, 33):
        args = normal(n, 5), labels_of(n, classes=5)
        kwargs = SETTINGS[setting]
        same_pair(value_and_grad(compiled, *args, **kwargs), value_and_grad(hypersimplex_loss, *args, **kwargs))


@pytest.mark.usefixtures("_fresh_dynamo")
@pytest.mark.parametrize("dynamic", [False, True])
def test_compile_with_inductor_inside_a_training_step(dynamic):
    torch.manual_seed(0)
    model, criterion, other = nn.Linear(8, 5), HyperSimplexLoss(), HyperSimplexLoss()

    def step(criterion, inputs, target):
        return criterion(model(inputs), target)

    compiled = torch.compile(step, fullgraph=True, dynamic=dynamic)
    for n in (20, 33, 20):
        inputs, target = normal(n, 8, dtype=torch.float32, seed=n), labels_of(n, classes=5, seed=n)
        grads = []
        for run, module in ((compiled, other), (step, criterion)):
            model.zero_grad()
            loss = run(module, inputs, target)
            loss.backward()
            grads.append((loss.detach(), model.weight.grad.clone()))
        same_pair(*grads, rtol=1e-4, atol=1e-6)
    same(other.threshold, criterion.threshold, rtol=1e-5, atol=1e-6)
    same(other.seen, criterion.seen)
    same(other.share, criterion.share)


@pytest.mark.usefixtures("_fresh_dynamo")
def test_compile_of_dense_and_position_targets():
    compiled = torch.compile(hypersimplex_loss, fullgraph=True, backend="aot_eager")
    cases = [
        (normal(20, 4), (normal(20, 4, seed=1) > 0).float()),
        (normal(20), labels_of(20, classes=2)),
        (normal(3, 4, 5), labels_of(3, 5, classes=4)),
    ]
    for case in cases:
        same_pair(value_and_grad(compiled, *case), value_and_grad(hypersimplex_loss, *case))


def test_func_grad_and_vmap():
    logits, target = normal(3, 20, 5), labels_of(3, 20, classes=5)
    expected = [value_and_grad(hypersimplex_loss, *pair) for pair in zip(logits, target, strict=True)]
    losses = func.vmap(hypersimplex_loss)(logits, target)
    same(losses, torch.stack([loss for loss, _ in expected]))
    grads = func.vmap(func.grad(hypersimplex_loss))(logits, target)
    same(grads, torch.stack([grad for _, grad in expected]))


def test_vmap_over_tau_and_over_k():
    logits, target, values = normal(20, 5), labels_of(20, classes=5), torch.tensor([0.5, 1.0, 4.0], dtype=DOUBLE)
    for name in ("tau", "k"):
        got = func.vmap(lambda v: hypersimplex_loss(logits, target, **{name: v}))(values)  # noqa: B023
        same(got, torch.stack([hypersimplex_loss(logits, target, **{name: v}) for v in values]))


def test_vmap_of_ignored_rows_and_dense_targets():
    logits, target = normal(3, 20, 5), labels_of(3, 20, classes=5)
    target[:, ::4] = -100
    expected = torch.stack([hypersimplex_loss(*pair) for pair in zip(logits, target, strict=True)])
    same(func.vmap(hypersimplex_loss)(logits, target), expected)
    dense = (normal(3, 20, 5, seed=3) > 0).to(DOUBLE)
    expected = torch.stack([hypersimplex_loss(*pair) for pair in zip(logits, dense, strict=True)])
    same(func.vmap(hypersimplex_loss)(logits, dense), expected)


def test_jvp_jacrev_jacfwd():
    logits, target, u = normal(20, 5), labels_of(20, classes=5), normal(20, 5, seed=3)
    losses, grad = formula(logits, one_hot(target, 5))
    value, tangent = func.jvp(lambda x: hypersimplex_loss(x, target, reduction="sum"), (logits,), (u,))
    same(value, losses.sum())
    same(tangent, (grad * u).sum())
    for jacobian in (func.jacrev, func.jacfwd):
        each = jacobian(lambda x: hypersimplex_loss(x, target, reduction="none"))(logits)
        same(each.sum(0), grad)


def test_hessian():
    """The gradient is J e/tau column by column, and J = (I - 11'/|A|) is locally constant: the Hessian is J/tau^2."""
    logits, target, tau = normal(12), labels_of(12, classes=2), 0.7
    p = project(logits, float(target.sum()), tau)
    active = ((p > 0) & (p < 1)).to(DOUBLE)
    expected = (torch.diag(active) - torch.outer(active, active) / active.sum()) / tau**2
    hessian = func.hessian(lambda x: hypersimplex_loss(x, target, reduction="sum", tau=tau))(logits)
    same(hessian, expected)
    same(
        torch.autograd.functional.hessian(lambda x: hypersimplex_loss(x, target, reduction="sum", tau=tau), logits),
        hessian,
    )


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpointing(use_reentrant):
    target = labels_of(20, classes=5)
    expected = value_and_grad(lambda x: hypersimplex_loss(x.tanh() * 3, target), normal(20, 5))
    got = (
        value_and_grad(
            lambda x: checkpoint(lambda x: hypersimplex_loss(x.tanh() * 3, target), x, use_reentrant=use_reentrant),
            normal(20, 5),
        )
        if not use_reentrant
        else _backward(target)
    )
    same_pair(got, expected)


def _backward(target):
    """Reentrant checkpoints serve .backward() only."""
    x = normal(20, 5).requires_grad_()
    loss = checkpoint(lambda x: hypersimplex_loss(x.tanh() * 3, target), x, use_reentrant=True)
    loss.backward()
    return loss.detach(), x.grad


def test_module_under_func_freezes_or_is_given_its_buffers():
    logits, target = normal(20, 5), labels_of(20, classes=5)
    criterion = HyperSimplexLoss()
    expected = value_and_grad(criterion, logits, target)
    before = {name: b.clone() for name, b in criterion.named_buffers()}
    grad, value = func.grad_and_value(criterion.eval())(logits, target)
    same_pair((value, grad), expected)
    assert torch.equal(criterion.threshold, before["threshold"])
    criterion.train()

    def loss(logits, buffers):
        buffers = {name: b.clone() for name, b in buffers.items()}
        value = func.functional_call(criterion, buffers, (logits, target))
        return value, buffers

    grad = func.grad_and_value(loss, has_aux=True)(logits, before)[0]
    value, after = loss(logits.clone().requires_grad_(), before)
    same_pair((value.detach(), grad), expected)
    assert torch.equal(criterion.threshold, before["threshold"])
    assert after["seen"].tolist() == [40.0] * 5  # samples of two batches


@pytest.mark.parametrize("dense", [False, True])
def test_buffers_that_a_transform_is_given_move(dense):
    """As those of BatchNorm: by torch.func.grad, and each of an ensemble by its own batch."""
    target = (normal(2, 20, 5, seed=4) > 0).double() if dense else labels_of(2, 20, classes=5)
    criterion, logits = HyperSimplexLoss(num_classes=5).double(), normal(2, 20, 5)
    buffers = dict(criterion.named_buffers())

    def loss(logits, buffers, target):
        value = func.functional_call(criterion, buffers, (logits, target))
        return value, buffers

    alone = []
    for x, y in zip(logits, target, strict=True):
        module = HyperSimplexLoss(num_classes=5).double()
        module(x.clone().requires_grad_(), y)
        alone.append(dict(module.named_buffers()))
        given = {name: b.clone() for name, b in buffers.items()}
        torch.testing.assert_close(func.grad(loss, has_aux=True)(x, given, y)[1], alone[-1])
    stacked = {name: torch.stack([b, b]) for name, b in buffers.items()}
    together = {name: torch.stack([each[name] for each in alone]) for name in buffers}
    torch.testing.assert_close(func.vmap(func.grad(loss, has_aux=True))(logits, stacked, target)[1], together)
    # Buffers that all of the ensemble share cannot move with each of it.
    func.vmap(func.grad(loss, has_aux=True), (0, None, 0), (0, None))(logits, buffers, target)
    assert not buffers["samples"].any()
