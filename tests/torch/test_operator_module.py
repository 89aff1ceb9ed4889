"""The module and torch's other ways of running: export, autocast, meta and fake tensors, opcheck, copies."""

import contextlib
import copy
import pickle

import numpy as np
import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from hypersimplex.torch import SoftBinaryArgmax, SoftTopK, binary_argmax, soft_binary_argmax, threshold


def normal(*shape, dtype=torch.float64, seed=0):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def same(got, expected, **kwargs):
    assert expected.abs().max() > 1e-3, "an expected zero proves nothing"
    torch.testing.assert_close(got, expected, **kwargs)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(7, 20)
        self.top = SoftBinaryArgmax(2.5, tau=0.7)

    def forward(self, x):
        return self.top(self.linear(x))


@pytest.mark.parametrize("dynamic", [False, True])
def test_export(dynamic):
    torch.manual_seed(0)
    model = Model()
    shapes = ({0: torch.export.Dim("batch", min=2)},) if dynamic else None
    program = torch.export.export(model, (torch.randn(3, 7),), dynamic_shapes=shapes)
    for rows in (3, 5) if dynamic else (3,):
        x = torch.randn(rows, 7)
        same(program.module()(x), model(x))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(dtype):
    """The linear layer gives a half type, and the projection takes it as it is; the weights get float32."""
    torch.manual_seed(0)
    model, x = Model(), torch.randn(4, 7)
    v = torch.randn(4, 20)
    with torch.autocast("cpu", dtype=dtype):
        logits = model.linear(x)
        y = model.top(logits)
    assert logits.dtype == y.dtype == dtype
    active = ((y > 0) & (y < 1)).float()
    (to_weight,) = torch.autograd.grad(y, model.linear.weight, v.to(dtype))
    mean = (v * active).sum(-1, keepdim=True) / active.sum(-1, keepdim=True)
    assert to_weight.dtype == torch.float32
    same(to_weight, (active * (v - mean) / 0.7).T @ x, rtol=0.05, atol=0.1)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_meta_and_fake_tensors(dtype):
    mu_dtype = torch.float64 if dtype == torch.float64 else torch.float32
    for mode, device in ((contextlib.nullcontext(), "meta"), (FakeTensorMode(), "cpu")):
        with mode:
            x = torch.empty(3, 4, 5, dtype=dtype, device=device, requires_grad=True)
            for dim in (0, 1, 2):
                y, mu = soft_binary_argmax(x, 2, 0.5, dim=dim), threshold(x, 2, 0.5, dim=dim)
                assert (y.shape, y.dtype, y.device.type) == (x.shape, dtype, device)
                assert (mu.shape, mu.dtype, mu.device.type) == (x.sum(dim).shape, mu_dtype, device)
                assert binary_argmax(x, 2, dim=dim).shape == x.shape
                y.sum().backward()
                assert x.grad.shape == x.shape
            k = torch.empty(3, 4, device=device)
            assert soft_binary_argmax(x, k).shape == x.shape


X = normal(4, 6, 5)
LAYOUTS = [X, X.mT, X[:, ::2], X.movedim(0, 2), X[:1].expand(4, 6, 5), X.bfloat16(), X[:0]]


@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("x", LAYOUTS, ids=lambda x: f"{tuple(x.shape)}-{x.stride()}-{x.dtype}")
def test_the_registered_operators_keep_their_promises(x, dim):
    """opcheck: schema, aliasing, fake tensors with the right strides, and tracing with dynamic shapes."""
    slices = x.sum(dim).shape
    k = torch.full(slices, min(1.0, x.shape[dim]), dtype=torch.float64)
    tau = torch.tensor(0.7, dtype=torch.float64)
    ops = torch.ops.hypersimplex
    torch.library.opcheck(ops.project, (x, k, tau, dim))
    torch.library.opcheck(ops.project, (x, k, tau.expand(slices), dim))
    torch.library.opcheck(ops.binary, (x, k, dim))


def numbers(value, *shape):
    return torch.full(shape, value, dtype=torch.float64)


BOX = [numbers(value) for value in (1.0, 0.0, 1.0, 1.0, 0.5)]
OTHERS = [
    ("box", (X, *BOX, False)),
    ("box", (X.mT.float(), numbers(2.0, 4, 5), 0 * X.mT, numbers(1.0, 6), 1 + X.mT.abs(), numbers(0.5, 4, 5), True)),
    ("box", (X[:0].bfloat16(), *BOX, False)),
    ("segments", (X[0, 0], torch.tensor([0, 3, 3, 5]), numbers(0.0, 3), numbers(0.5))),
    ("segments", (X[:, 0, 0].half(), torch.tensor([0, 1, 4]), numbers(1.0), numbers(0.5, 2))),
    ("assign", (X[0], numbers(1.0), numbers(2.0, 5), numbers(0.5))),
    ("assign", (X[0].T.bfloat16(), numbers(1.0, 5), numbers(1.0, 6), numbers(0.5))),
]


@pytest.mark.parametrize(("name", "arguments"), OTHERS)
def test_the_other_operators_keep_their_promises(name, arguments):
    torch.library.opcheck(getattr(torch.ops.hypersimplex, name), arguments)


def test_no_operator_is_left_out():
    found = {name.partition("::")[2] for name in torch._C._dispatch_get_all_op_names() if "hypersimplex::" in name}
    assert found == {"project", "binary"} | {name for name, _ in OTHERS}


def test_the_module_is_the_function():
    x, k, tau = normal(4, 9), torch.tensor(2.5), torch.tensor(0.7)
    same(SoftBinaryArgmax(2.5)(x), soft_binary_argmax(x, 2.5))
    same(SoftBinaryArgmax(k, tau, dim=0)(x), soft_binary_argmax(x, k, tau, dim=0))
    assert repr(SoftTopK(2, tau=0.5, dim=0)) == "SoftTopK(k=2, tau=0.5, dim=0, curve='ramp')"
    assert SoftBinaryArgmax is SoftTopK


@pytest.mark.parametrize("through", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_the_module_survives_copying(through):
    x = normal(4, 9)
    for module in (
        SoftBinaryArgmax(2.5, tau=0.7, dim=0),
        SoftBinaryArgmax(torch.tensor(2.5), nn.Parameter(torch.tensor(0.7))),
    ):
        copied = through(module)
        assert repr(copied) == repr(module)
        same(copied(x), module(x))


def test_a_learnable_tau_is_a_parameter():
    module = SoftBinaryArgmax(2.5, nn.Parameter(torch.tensor(0.7)))
    assert [name for name, _ in module.named_parameters()] == ["tau"]
    (module(normal(4, 9)) * normal(4, 9, seed=1)).sum().backward()
    assert module.tau.grad.abs() > 1e-3


def test_input_must_be_a_tensor():
    for wrong in (np.array([1.0, 2.0]), [1.0, 2.0], None):
        with pytest.raises(TypeError, match="input must be a tensor, got"):
            soft_binary_argmax(wrong, 1)


def test_k_and_tau_may_be_lists_and_arrays():
    x = torch.randn(2, 5)
    expected = soft_binary_argmax(x, torch.tensor([1.0, 2.0]), torch.tensor([0.5, 1.0]))
    for kind in (list, np.array):
        assert torch.equal(soft_binary_argmax(x, kind([1, 2]), kind([0.5, 1.0])), expected)
    with pytest.raises(TypeError, match="k must be a number or an array of numbers, got str"):
        soft_binary_argmax(x, "two")
