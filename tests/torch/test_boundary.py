"""What the kernel is given is plain memory of the size and kind it expects, whatever stands in front of it."""

import os
import textwrap

import pytest
import torch

from hypersimplex.torch import HyperSimplexLoss, hypersimplex_loss, soft_binary_argmax
from tests.torch.boundaries import alone

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="runs what may crash in a forked child")


# Tensors without memory of their own


def test_a_gradient_that_is_a_zero_tensor():
    alone("""
        x = torch.randn(64, 128, requires_grad=True)
        soft_binary_argmax(x, 2).sgn().sum().backward()
        assert x.grad.abs().sum() == 0
    """)


@pytest.mark.parametrize("name", ["k", "tau"])
def test_a_zero_tensor_is_read_as_zeros(name):
    alone(f"""
        x = torch.randn(64, 128)
        zeros = torch._efficientzerotensor(64)
        given = dict(k=2.0, tau=1.0) | dict({name}=zeros)
        try:
            y = soft_binary_argmax(x, **given)
        except ValueError as error:
            assert "{name}" == "tau" and "tau must be positive, got 0.0" in str(error), error
        else:
            assert "{name}" == "k" and y.sum() == 0
    """)


def test_a_zero_tensor_as_input_and_as_dense_target():
    alone("""
        zeros = torch._efficientzerotensor(64, 128)
        assert torch.equal(soft_binary_argmax(zeros, 2), soft_binary_argmax(torch.zeros(64, 128), 2))
        assert torch.equal(binary_argmax(zeros, 2), binary_argmax(torch.zeros(64, 128), 2))
        x = torch.randn(64, 128, requires_grad=True)
        assert torch.equal(hypersimplex_loss(x, zeros), hypersimplex_loss(x, torch.zeros(64, 128)))
        labels = torch._efficientzerotensor(64, dtype=torch.int64)
        assert torch.equal(hypersimplex_loss(x, labels), hypersimplex_loss(x, labels.clone() * 1))
        assert torch.equal(hypersimplex_loss(zeros, labels), hypersimplex_loss(torch.zeros(64, 128), labels))
    """)


@pytest.mark.parametrize("what", ["x", "y", "weight", "k"])
def test_storage_resized_to_nothing_is_an_error(what):
    alone(f"""
        x, y = torch.randn(8, 4), torch.randint(4, (8,))
        weight, k = torch.rand(4), torch.full((4,), 2.0)
        {what}.untyped_storage().resize_(0)
        for call in (
            lambda: hypersimplex_loss(x, y, weight, k=k),
            lambda: hypersimplex_loss(x.requires_grad_(), y, weight, k=k),
        ):
            try:
                call()
            except (RuntimeError, ValueError, TypeError) as error:
                assert "storage" in str(error), error
            else:
                raise AssertionError("no error")
    """)


@pytest.mark.parametrize("what", ["x", "target", "weight", "k", "tau"])
def test_fake_tensors_outside_their_mode_are_an_error(what):
    alone(f"""
        from torch._subclasses.fake_tensor import FakeTensorMode
        given = dict(x=torch.randn(8, 4), target=torch.randint(4, (8,)), weight=torch.rand(4), k=torch.ones(4),
                     tau=torch.ones(4))
        given["{what}"] = FakeTensorMode().from_tensor(given["{what}"])
        try:
            hypersimplex_loss(given.pop("x"), given.pop("target"), **given)
        except Exception as error:
            assert str(error), error
        else:
            raise AssertionError("no error")
    """)


WRAPPERS = """
    import torch.distributed as dist
    from torch.distributed._functional_collectives import AsyncCollectiveTensor
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
    from torch.distributed.tensor import DTensor, Replicate, init_device_mesh
    mesh = init_device_mesh("cpu", (1,))
    def distributed(t):
        return DTensor.from_local(t, mesh, [Replicate()])
    x, y = torch.randn(16, 4), torch.randint(4, (16,))
    weight, k, tau = torch.rand(4), torch.tensor([2.0, 5.0, 3.0, 6.0]), torch.rand(4) + 0.5
"""


def wrapped(code: str) -> None:
    alone(textwrap.dedent(WRAPPERS) + textwrap.dedent(code) + "\ndist.destroy_process_group()\n")


@pytest.mark.parametrize("wrapper", ["AsyncCollectiveTensor", "distributed"])
@pytest.mark.parametrize("grad", [False, True])
def test_wrapped_settings_count(wrapper, grad):
    wrapped(f"""
        x.requires_grad_({grad})
        want = hypersimplex_loss(x, y, weight, k=k, tau=tau)
        for name in ("weight", "k", "tau"):
            given = dict(weight=weight, k=k, tau=tau)
            given[name] = {wrapper}(given[name])
            try:
                got = hypersimplex_loss(x, y, **given)
            except (TypeError, RuntimeError) as error:
                assert name in str(error), error
            else:
                torch.testing.assert_close(got, want)
    """)


@pytest.mark.parametrize("wrapper", ["AsyncCollectiveTensor", "distributed"])
def test_wrapped_targets_and_slices(wrapper):
    wrapped(f"""
        for given, want in ((y, hypersimplex_loss(x, y)), (x.sigmoid(), hypersimplex_loss(x, x.sigmoid()))):
            try:
                got = hypersimplex_loss(x, {wrapper}(given))
            except (TypeError, RuntimeError) as error:
                assert "target" in str(error), error
            else:
                torch.testing.assert_close(got, want)
        ks, taus = torch.arange(1.0, 17) / 8, torch.rand(16) + 0.5
        for given in (({wrapper}(ks), taus), (ks, {wrapper}(taus))):
            try:
                got = soft_binary_argmax(x, *given)
            except (TypeError, RuntimeError) as error:
                assert "DTensor" in str(error), error
            else:
                torch.testing.assert_close(got, soft_binary_argmax(x, ks, taus))
    """)


# What cannot be a number, a label to ignore or a buffer


@pytest.mark.parametrize("name", ["k", "prior", "tau"])
def test_a_number_that_no_float_holds(name):
    x, y = torch.randn(8, 3), torch.randint(3, (8,))
    for call in (lambda: hypersimplex_loss(x, y, **{name: 10**400}), lambda: HyperSimplexLoss(**{name: 10**400})):
        with pytest.raises(ValueError, match=f"^{name} must be a number that float64 holds, got one beyond 1e308$"):
            call()


@pytest.mark.parametrize("index", [-(2**63) - 1, 2**63])
def test_an_ignored_label_that_no_label_can_be(index):
    with pytest.raises(ValueError, match=f"^ignore_index must be a whole number of 64 bits, got {index}$"):
        hypersimplex_loss(torch.randn(8, 3), torch.randint(3, (8,)), ignore_index=index)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("threshold", torch.nn.Parameter(torch.zeros(3)), "threshold must be a buffer of the loss, got a parameter"),
        ("threshold", torch.tensor(1.0), r"threshold must have shape \(3,\), got \(\)"),
        ("seen", None, "seen must be a tensor, got None"),
    ],
)
def test_what_cannot_be_a_buffer_is_named(name, value, words):
    x, y = torch.randn(8, 3, requires_grad=True), torch.randint(3, (8,))
    criterion = HyperSimplexLoss()
    criterion(x, y)
    setattr(criterion, name, value)
    with pytest.raises((TypeError, ValueError), match=f"^{words}"):
        criterion(x, y)


@pytest.mark.parametrize("target", ["torch.rand(8, 3)", "torch.zeros(8, dtype=torch.int32)", "torch.zeros(8).long()"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_a_target_without_memory_is_not_converted(target, smoothing):
    alone(f"""
        target = {target}
        target.untyped_storage().resize_(0)
        try:
            hypersimplex_loss(torch.randn(8, 3, dtype=torch.float64), target, label_smoothing={smoothing})
        except TypeError as error:
            assert "target must be" in str(error) and "resized to 0" in str(error), error
        else:
            raise AssertionError("no error")
    """)


# Numbers


@pytest.mark.parametrize("tau", [1e39, 1e300, 1e-45, 1e-300])
def test_tau_beyond_float32_is_the_same_on_every_path(tau):
    import numpy as np

    x = torch.tensor([[0.1, 1.6, 1.0], [2.0, -3.0, 0.5]])
    want = soft_binary_argmax(x, 1, tau)
    assert not want.isnan().any()
    torch.testing.assert_close(soft_binary_argmax(x, np.float64(1), tau), want)
    torch.testing.assert_close(torch.compile(soft_binary_argmax, backend="eager")(x, 1, tau), want)
    torch.testing.assert_close(torch.func.vmap(lambda row: soft_binary_argmax(row, 1, tau))(x), want)
    leaf = x.clone().requires_grad_()
    soft_binary_argmax(leaf, np.float64(1), tau).square().sum().backward()
    assert leaf.grad is not None
    assert not leaf.grad.isnan().any()
    got = torch.func.grad(lambda t: soft_binary_argmax(t, 1, tau).square().sum())(x)
    torch.testing.assert_close(got, leaf.grad)
