"""What a call does around its launches, on CUDA tensors without values: nothing is computed, copied or waited for.

The kernels are replaced by ones that only note their launch. A mode sees every operation that torch dispatches.
"""

from contextlib import nullcontext

import pytest
import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from hypersimplex.torch import _columns
from hypersimplex.torch._batch import Batch, Settings
from hypersimplex.torch._boundary import as_numbers
from hypersimplex.torch.backends import plain
from hypersimplex.torch.backends import triton as backend
from hypersimplex.torch.backends.triton import _kernels, _loss_kernels

# Operations that launch nothing and touch no memory.
FREE = {
    "device", "empty", "empty_like", "detach", "view", "_unsafe_view", "reshape", "expand", "alias", "select",
    "transpose", "as_strided", "unsqueeze", "squeeze", "slice", "t", "permute", "_reshape_alias",
}  # fmt: skip
# Operations that wait for the device, or whose result has as many entries as the values say.
WAITS = {"_local_scalar_dense", "item", "nonzero", "masked_select", "equal", "is_nonzero", "unique_dim", "_unique2"}


class Calls(TorchDispatchMode):
    """Every operation by name; those that no CUDA graph may hold by what is wrong with them."""

    def __init__(self):
        super().__init__()
        self.names, self.illegal = [], []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        result = function(*args, **(kwargs or {}))
        self.names.append(name)
        if name in WAITS:
            self.illegal.append(name)
        made = isinstance(result, torch.Tensor) and result.is_cuda
        given = [each for each in args if isinstance(each, torch.Tensor)]
        if name in {"_to_copy", "copy_", "lift_fresh"} and any(each.is_cuda != made for each in given):
            self.illegal.append(f"{name} between host and device")
        return result

    @property
    def beyond_views(self):
        return [name for name in self.names if name not in FREE]


@pytest.fixture
def calls(monkeypatch):
    """A function that makes a call on fake CUDA tensors; what was launched, and what was dispatched around it."""
    launched = []
    for module, names in ((_kernels, ("project", "pullback")), (_loss_kernels, ("count", "loss", "finish"))):
        for name in names:
            stub = type(
                "Stub", (), {"__getitem__": lambda self, grid, name=name: lambda *_, **__: launched.append(name)}
            )
            monkeypatch.setattr(module, name, stub())
    monkeypatch.setattr(torch.cuda, "device_of", lambda x: nullcontext())
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)

    def make(backend, prepare, call):
        launched.clear()
        with FakeTensorMode():
            given = prepare()
            with Calls() as seen:
                call(backend, *given)
        return launched, seen

    return make


DEVICE = {"name": "cuda"}


def cuda(*shape, dtype=torch.float32):
    return torch.ones(shape, dtype=dtype, device=DEVICE["name"])


def each(*shape):
    return cuda(*shape, dtype=torch.float64)


# What makes the tensors, and the call.
FORWARD = {
    "numbers": (lambda: (cuda(6, 40),), lambda b, x: b.project(x, 3.0, 0.7, 1)),
    "a tensor without dims": (lambda: (cuda(6, 40), each()), lambda b, x, k: b.project(x, k, 0.7, 1)),
    "a k and a tau for each slice": (lambda: (cuda(6, 40), each(6)), lambda b, x, k: b.project(x, k, k, 1)),
    "not contiguous": (lambda: (cuda(6, 40), cuda(6, 2)), lambda b, x, k: b.project(x, k.select(1, 1), 1.0, 1)),
    "thresholds alone": (lambda: (cuda(6, 5, 4), each(6, 4)), lambda b, x, k: b.project(x, k, 1, 1, want_y=False)),
    "float64": (lambda: (each(6, 40),), lambda b, x: b.project(x, 3.0, 0.7, 1)),
    "half precision": (lambda: (cuda(6, 40, dtype=torch.float16),), lambda b, x: b.project(x, 3, 0.7, -1)),
}
BACKWARD = {
    "numbers": (lambda: (cuda(6, 40),), lambda b, y: b.pullback(y, y, 0.7, 1, (True, False, False))),
    "float64": (lambda: (each(6, 40),), lambda b, y: b.pullback(y, y, 0.7, 1)),
    "all gradients": (lambda: (cuda(6, 40), each(6)), lambda b, y, tau: b.pullback(y, y, tau, 1)),
}


def settings(**given):
    every = {"weight": None, "ignore_index": -100, "reduction": "mean", "k": None, "prior": None, "tau": 1.0}
    return Settings(**{**every, **given})


def loss(dense=False, dtype=torch.float32, **given):
    def prepare():
        target = cuda(30, 5) if dense else cuda(30, dtype=torch.int64)
        return (
            cuda(30, 5, dtype=dtype),
            target,
            {name: value() if callable(value) else value for name, value in given.items()},
        )

    def call(b, x, target, values):
        return b.loss(Batch(x, target, dense, (30,)), settings(**values), True)

    return prepare, call


LOSSES = {
    "labels": (loss(), ["count", "loss", "finish"]),
    "float64": (loss(dtype=torch.float64), ["count", "loss", "finish"]),
    "the sum, weights and numbers": (
        loss(reduction="sum", weight=lambda: cuda(5), tau=lambda: each(5), k=3.0), ["count", "loss", "finish"]
    ),
    "weights and a prior": (loss(weight=lambda: cuda(5), prior=lambda: cuda(5)), ["count", "loss", "finish"]),
    "dense targets": (loss(dense=True), ["count", "loss", "finish"]),
    "dense targets and a k": (loss(dense=True, k=4.0), ["loss", "finish"]),
}  # fmt: skip


@pytest.mark.parametrize("name", FORWARD)
def test_forward_is_one_launch(name, calls):
    launched, seen = calls(backend, *FORWARD[name])
    assert launched == ["project"]
    assert seen.beyond_views == []


@pytest.mark.parametrize("name", BACKWARD)
def test_backward_is_one_launch(name, calls):
    launched, seen = calls(backend, *BACKWARD[name])
    assert launched == ["pullback"]
    assert seen.beyond_views == []


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_is_at_most_three_launches(name, calls):
    call, want = LOSSES[name]
    launched, seen = calls(backend, *call)
    assert launched == want
    assert seen.beyond_views == []


EVERY = {f"forward: {n}": c for n, c in FORWARD.items()} | {f"backward: {n}": c for n, c in BACKWARD.items()}
EVERY |= {f"loss: {n}": c for n, (c, _) in LOSSES.items()}


@pytest.mark.parametrize("name", EVERY)
def test_plain_torch_waits_for_nothing_while_it_is_captured(name, monkeypatch):
    """It serves a capture that nothing was checked before. Here it computes on the CPU, and is told otherwise."""
    prepare, call = EVERY[name]
    monkeypatch.setitem(DEVICE, "name", "cpu")
    given = prepare()
    monkeypatch.setattr(plain, "_check", lambda *_, **__: None)
    monkeypatch.setattr(_columns, "is_readable", lambda x: False)
    monkeypatch.setattr(plain, "is_captured", lambda x: True)
    with Calls() as seen:
        call(plain, *given)
    assert seen.names
    assert seen.illegal == []


def test_without_a_capture_plain_torch_asks_whether_it_is_done():
    with Calls() as seen:
        plain.project(torch.randn(3, 9), 2.0, 1.0, 1)
    assert "_local_scalar_dense" in seen.illegal


def test_a_number_becomes_a_tensor_without_a_copy():
    with FakeTensorMode(), Calls() as seen:
        assert as_numbers(3.0, torch.float64, torch.device("cuda")).is_cuda
    assert "full" in seen.names
    assert seen.illegal == []


@pytest.mark.parametrize(
    "wrong",
    [
        lambda _, x: torch.as_tensor(3.0, device=x.device),
        lambda _, x: torch.zeros(3, device="cpu").to(x.device),
        lambda _, x: x.nonzero(),
        lambda _, x: bool(x.sum() > 0),
        lambda _, x: x.cpu(),
    ],
)
def test_what_a_capture_cannot_hold_is_seen(wrong, calls):
    """It is noted, or impossible without a device and without values."""
    try:
        _, seen = calls(backend, lambda: (cuda(3),), wrong)
    except (RuntimeError, DataDependentOutputException, DynamicOutputShapeException):
        return
    assert seen.illegal
