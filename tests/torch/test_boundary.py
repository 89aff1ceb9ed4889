"""What the kernel is given is plain memory of the size and kind it expects, whatever stands in front of it."""

import os
import tempfile
import textwrap
import traceback

import pytest
import torch
from torch import Tensor

from hypersimplex.torch import HyperSimplexLoss, hypersimplex_loss, soft_binary_argmax, threshold

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="runs what may crash in a forked child")
SIZES = [(64, 128), (6, 5)]


def alone(code: str) -> None:
    """Run in a child process, where a segmentation fault is a failed test; forked, so that torch is there already."""
    source = "import torch\nfrom hypersimplex.torch import *\ntorch.manual_seed(0)\n" + textwrap.dedent(code)
    with tempfile.TemporaryFile("w+") as said:
        child = os.fork()
        if child == 0:
            try:
                exec(compile(source, "<alone>", "exec"), {})
                os._exit(0)
            except SystemExit:
                os._exit(0)
            except BaseException:
                said.write(traceback.format_exc())
                said.flush()
                os._exit(1)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        said.seek(0)
        assert status == 0, said.read() or f"ended by signal {-status}"


def gradient(x: Tensor, *args: object) -> Tensor:
    leaf = x.detach().clone().requires_grad_()
    v = torch.linspace(-1, 1, x.numel(), dtype=x.dtype).reshape(x.shape)
    return torch.autograd.grad(soft_binary_argmax(leaf, *args), leaf, v)[0]


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


# Buffers of the loss


BUFFERS = """
    def step(c, n=20):
        torch.manual_seed(1)
        for _ in range(n):
            c(torch.randn(16, 10, requires_grad=True), torch.randint(10, (16,)))
        return c
"""


@pytest.mark.parametrize("name", ["threshold", "seen", "share", "samples"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.int64])
def test_buffers_of_any_dtype(name, dtype):
    alone(
        BUFFERS
        + f"""
    one, two = step(HyperSimplexLoss()), step(HyperSimplexLoss())
    setattr(two, "{name}", getattr(two, "{name}").to({dtype}))
    setattr(one, "{name}", getattr(two, "{name}").to(torch.float32))
    step(one)
    try:
        step(two)
    except TypeError as error:
        assert {dtype} == torch.int64 and str(error) == "{name} must be floating point, got torch.int64", error
        raise SystemExit
    assert {dtype} != torch.int64 or "{name}" in ("seen", "samples")
    for b in ("threshold", "seen", "share", "samples"):
        if {dtype} in (torch.float32, torch.float64) or b != "{name}":
            torch.testing.assert_close(getattr(one, b), getattr(two, b), check_dtype=False, rtol=1e-4, atol=1e-4)
    """
    )


def test_assigned_state_of_another_dtype():
    alone(
        BUFFERS
        + """
    c = step(HyperSimplexLoss())
    state = {name: value.double() for name, value in c.state_dict().items()} | {"samples": torch.tensor([7])}
    one = HyperSimplexLoss()
    one.load_state_dict(state, assign=True)
    step(one, 1)
    assert float(one.samples) == 23.0, one.samples
    """
    )


@pytest.mark.parametrize("name", ["threshold", "seen", "share"])
def test_a_buffer_of_another_size_is_an_error(name):
    alone(
        BUFFERS
        + f"""
    c = step(HyperSimplexLoss())
    c.{name} = torch.zeros(1)
    try:
        step(c)
    except ValueError as error:
        assert ("{name}" in str(error) or "{name}" == "threshold") and "10" in str(error), error
    else:
        raise AssertionError("no error")
    """
    )


@pytest.mark.parametrize("name", ["threshold", "seen", "share"])
def test_buffers_that_are_views(name):
    alone(
        BUFFERS
        + f"""
    one, two = step(HyperSimplexLoss()), step(HyperSimplexLoss())
    wide = torch.full((10, 3), 7.0)
    wide[:, 1] = two.{name}
    two.{name} = wide[:, 1]
    step(one), step(two)
    torch.testing.assert_close(two.{name}, one.{name})
    assert bool((wide[:, [0, 2]] == 7).all())
    """
    )


# What is saved for backward


def test_in_place_changes_between_two_backward_passes_are_noticed():
    for name in ("weight", "k", "prior", "tau"):
        x, y = torch.randn(8, 4, requires_grad=True), torch.randint(4, (8,))
        value = torch.full((4,), 0.5)
        loss = hypersimplex_loss(x, y, **{name: value})
        loss.backward(retain_graph=True)
        value.mul_(0.5)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


def test_in_place_changes_are_noticed_by_second_order():
    x, y, tau = torch.randn(8, 4, requires_grad=True), torch.randint(4, (8,)), torch.full((4,), 0.5)
    loss = hypersimplex_loss(x, y, tau=tau)
    tau.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(loss, x, create_graph=True)


def test_in_place_changes_of_a_sliced_tau_are_noticed():
    x, tau = torch.randn(8, 4, requires_grad=True), torch.full((8,), 0.5, dtype=torch.float64)
    y = soft_binary_argmax(x, 2, tau)
    tau.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_in_place_changes_of_a_tau_that_was_converted_do_not_count():
    x, tau = torch.randn(8, 4, requires_grad=True), torch.full((8,), 0.5)
    y = soft_binary_argmax(x, 2, tau)
    tau.mul_(2)
    y.square().sum().backward()
    torch.testing.assert_close(x.grad, torch.autograd.grad(soft_binary_argmax(x, 2, 0.5).square().sum(), x)[0])


UNPACK = {
    "a view of a wider array": lambda t: torch.cat([t, t + 9], -1)[..., : t.shape[-1]] if t.dim() else t,
    "transposed": lambda t: t.t().contiguous().t() if t.dim() == 2 else t,
    "half and back": lambda t: t.half().float() if t.is_floating_point() else t,
    "double": lambda t: t.double() if t.is_floating_point() else t,
    "every second": lambda t: torch.stack([t, t], -1)[..., 0],
}


@pytest.mark.parametrize("unpack", UNPACK)
@pytest.mark.parametrize("given", ["numbers", "tensors", "k alone"])
@pytest.mark.parametrize("shape", SIZES)
def test_saved_tensors_may_come_back_another_way(unpack, given, shape):
    n = shape[0]
    tau = (torch.arange(n) % 4 + 2) / 4
    args = {"numbers": (2, 1.5), "tensors": (torch.full((n,), 2.0), tau), "k alone": (torch.full((n,), 2.0), 1.5)}
    for x in (torch.randn(shape), torch.randn(shape[::-1]).t()):
        want = gradient(x, *args[given])
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t.detach().clone(), UNPACK[unpack]):
            got = gradient(x, *args[given])
        # Half moves no entry in or out of the active set here, and its rounding is nowhere in the gradient to x.
        torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-3 if unpack == "half and back" else 1e-6)


@pytest.mark.parametrize("tau", [1.5, torch.tensor(1.5)])
def test_saved_tensors_of_another_shape_are_refused(tau):
    x = torch.randn(64, 128, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t.new_zeros(999, 9999) if t.dim() > 1 else t):
        y = soft_binary_argmax(x, 3, tau)
    with pytest.raises(ValueError, match=r"of shape \(64, 128\) as it was packed, got shape \(999, 9999\)"):
        y.backward(torch.ones(64, 128))


@pytest.mark.parametrize("unpack", UNPACK)
@pytest.mark.parametrize("dense", [False, True])
def test_the_loss_may_get_its_tensors_back_another_way(unpack, dense):
    x = torch.randn(64, 12)
    y = torch.rand(64, 12) if dense else torch.randint(12, (64,))
    weight, tau = torch.arange(1.0, 13) / 4, torch.full((12,), 1.5)

    def gradients() -> tuple[Tensor, Tensor]:
        leaf = x.clone().requires_grad_()
        loss = hypersimplex_loss(leaf, y, weight, tau=tau, reduction="sum")
        return tuple(torch.autograd.grad(loss, leaf, retain_graph=again)[0] for again in (True, False))  # type: ignore

    want = gradients()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.detach().clone(), UNPACK[unpack]):
        got = gradients()
    loose = {"rtol": 0.0, "atol": 0.05} if unpack == "half and back" else {}
    torch.testing.assert_close(got, want, **loose)


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


# Tracing and modes


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
