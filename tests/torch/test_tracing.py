"""Tracing, transforms and modes: recorded calls compute, and what only watches changes nothing."""

import os

import pytest
import torch
from torch import Tensor

from hypersimplex.torch import HyperSimplexLoss, hypersimplex_loss, soft_binary_argmax, threshold
from tests.torch.boundaries import gradient

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="runs what may crash in a forked child")


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore::DeprecationWarning")
def test_a_traced_operator_computes():
    from hypersimplex.torch import SoftBinaryArgmax

    class Thresholds(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return threshold(x, 2)

    for module in (SoftBinaryArgmax(2), Thresholds()):
        traced = torch.jit.trace(module, (torch.randn(4, 6),), check_trace=False)
        other = torch.randn(4, 6)
        torch.testing.assert_close(traced(other), module(other))
        leaf = other.clone().requires_grad_()
        own = other.clone().requires_grad_()
        traced(leaf).square().sum().backward()
        module(own).square().sum().backward()
        torch.testing.assert_close(leaf.grad, own.grad)


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_a_traced_loss_computes(reduction):
    def loss(x: Tensor, y: Tensor) -> Tensor:
        return hypersimplex_loss(x, y, reduction=reduction)

    traced = torch.jit.trace(loss, (torch.randn(6, 3), torch.tensor([0, 1, 2, 0, 1, 1])), check_trace=False)
    x, y = torch.randn(6, 3), torch.tensor([2, 2, -100, 0, 1, 1])
    torch.testing.assert_close(traced(x, y), loss(x, y))


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
@pytest.mark.parametrize("pre_dispatch", [False, True])
def test_make_fx_records_the_operator(mode, pre_dispatch):
    from torch.fx.experimental.proxy_tensor import make_fx

    def project(x: Tensor) -> Tensor:
        return soft_binary_argmax(x, 2)

    x, y = torch.randn(6, 3), torch.tensor([0, 1, 2, 0, 1, 1])
    other, labels = torch.randn(6, 3), torch.tensor([2, 2, -100, 0, 1, 1])
    graph = make_fx(project, tracing_mode=mode, pre_dispatch=pre_dispatch)(x)
    torch.testing.assert_close(graph(other), project(other))
    graph = make_fx(lambda x, y: hypersimplex_loss(x, y), tracing_mode=mode, pre_dispatch=pre_dispatch)(x, y)
    torch.testing.assert_close(graph(other, labels), hypersimplex_loss(other, labels))


@pytest.mark.filterwarnings("ignore")
def test_legacy_onnx_export_names_the_operator(tmp_path):
    pytest.importorskip("onnx")
    from hypersimplex.torch import SoftBinaryArgmax

    with pytest.raises(Exception, match="hypersimplex::project"):
        torch.onnx.export(SoftBinaryArgmax(2), (torch.randn(4, 6),), str(tmp_path / "m.onnx"), dynamo=False)


def test_fake_tensor_mode():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        x, y = torch.randn(6, 3, requires_grad=True), torch.randint(3, (6,))
        assert soft_binary_argmax(x, 2).shape == (6, 3)
        assert threshold(x, 2, dim=0).shape == (3,)
        for reduction in ("none", "mean", "sum"):
            loss = hypersimplex_loss(x, y, torch.rand(3), reduction=reduction)
            assert loss.shape == ((6,) if reduction == "none" else ())
            loss.sum().backward()
            assert x.grad is not None
            assert x.grad.shape == (6, 3)
        criterion = HyperSimplexLoss()
        criterion(x, y).backward()
        assert hypersimplex_loss(x, torch.rand(6, 3)).shape == ()


def test_a_mode_that_only_watches_changes_nothing():
    from torch.utils._python_dispatch import TorchDispatchMode

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    x, y = torch.randn(6, 3), torch.randint(3, (6,))
    want = hypersimplex_loss(x, y), soft_binary_argmax(x, 2), gradient(x, 2)
    with Watch():
        torch.testing.assert_close((hypersimplex_loss(x, y), soft_binary_argmax(x, 2), gradient(x, 2)), want)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_results_stay_on_the_input_s_device(reduction):
    x, y = torch.randn(6, 3), torch.randint(3, (6,))
    dense, ks = torch.rand(6, 3), torch.full((6,), 2.0)
    want = [
        hypersimplex_loss(x, y, torch.ones(3), reduction=reduction, tau=0.5),
        hypersimplex_loss(x, dense, reduction=reduction, prior=[0.1, 0.2, 0.3]),
        soft_binary_argmax(x, ks),
        soft_binary_argmax(x, np_array([2.0] * 6)),
        threshold(x, 2),
        gradient(x, ks),
    ]
    weight = torch.ones(3)
    with torch.device("meta"):
        criterion = HyperSimplexLoss(reduction=reduction).to_empty(device="cpu")
        criterion.reset_parameters()
        first = criterion(x.clone().requires_grad_(), y).detach()
        leaf = x.clone().requires_grad_()
        got = [
            hypersimplex_loss(x, y, weight, reduction=reduction, tau=0.5),
            hypersimplex_loss(x, dense, reduction=reduction, prior=[0.1, 0.2, 0.3]),
            soft_binary_argmax(x, ks),
            soft_binary_argmax(x, np_array([2.0] * 6)),
            threshold(x, 2),
            torch.autograd.grad(
                soft_binary_argmax(leaf, ks), leaf, torch.linspace(-1, 1, 18, device="cpu").reshape(6, 3)
            )[0],
        ]
        decided = criterion.predict(x)
    torch.testing.assert_close(got, want)
    assert first.device == decided.device == criterion.threshold.device == torch.device("cpu")
    torch.testing.assert_close(criterion.threshold, threshold_after(x, y))


def np_array(values: list[float]) -> object:
    import numpy as np

    return np.array(values)


def threshold_after(x: Tensor, y: Tensor) -> Tensor:
    criterion = HyperSimplexLoss()
    criterion(x.detach().requires_grad_(), y)
    assert criterion.threshold is not None
    return criterion.threshold


def test_a_function_transform_leaves_a_fresh_loss_as_it_was():
    from copy import deepcopy

    criterion = HyperSimplexLoss()
    x, y = torch.randn(6, 3), torch.randint(3, (6,))
    grad = torch.func.grad(lambda logits: criterion(logits, y))(x)
    leaf = x.clone().requires_grad_()
    HyperSimplexLoss()(leaf, y).backward()
    torch.testing.assert_close(grad, leaf.grad)
    criterion(leaf, y)
    deepcopy(criterion)
    torch.testing.assert_close(criterion.threshold, threshold_after(x, y))
