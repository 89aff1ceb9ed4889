# ruff: noqa: N803 (what Triton fixes at compile time is written in capitals)
"""The kernels are compared with plain torch before they serve: right ones pass in silence, wrong ones are found."""

import sys
import threading
import time
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from hypersimplex.torch import backends
from hypersimplex.torch.backends import plain
from hypersimplex.torch.backends import triton as backend
from hypersimplex.torch.backends.triton import _backend, _kernels, _self_check


@pytest.fixture(autouse=True)
def anew(monkeypatch):
    monkeypatch.setattr(_self_check, "_trusted", {})
    monkeypatch.setattr(_self_check, "_distrusted", set())
    monkeypatch.setattr(_backend, "TILE", 128)
    monkeypatch.setattr(_backend, "LEAST", 128)


def as_on_a_device(dtype=torch.float32):
    """What `pick` looks at of a CUDA tensor, but for the device, where the interpreter runs."""
    return SimpleNamespace(is_cpu=False, is_cuda=True, device=torch.device("cpu"), dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_right_kernels_pass_in_silence(dtype):
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        warnings.filterwarnings("ignore", module="triton.runtime.interpreter")
        assert list(_self_check.differences(torch.device("cpu"), dtype)) == []


@triton.jit
def forgets_the_mean(y, v, mean, inverse):
    return tl.where((y > 0) & (y < 1), v * inverse[None, :], 0.0)


@triton.jit
def forgets_the_last_tile(
    x, labels, ignored, slices, start, c, e, inverse, n, inner, count,
    LABELS: tl.constexpr, ROWS: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    less = n - BLOCK_N
    return right_sweep(x, labels, ignored, slices, start, c, e, inverse, less, inner, count, LABELS, ROWS, BLOCK_N)


@triton.jit
def takes_one_end(x, c, e, tau):
    zero = tl.max(x, 0)
    return zero, zero


@triton.jit
def adds_a_little(x, share, tau, c, e, mu, flat):
    return right_projected(x, share, tau, c, e, mu, flat) + 1e-3


right_sweep, right_projected = _kernels.sweep, _kernels.projected


@triton.jit
def does_not_compile(x, k, n, tau, WIDE: tl.constexpr):
    return tl.no_such_function(x)


@pytest.mark.parametrize(
    ("name", "wrong", "said"),
    [
        ("pulled_back", forgets_the_mean, "short rows in float32: gradient to x by"),
        ("sweep", forgets_the_last_tile, "long rows in float32: y by"),
        ("ends", takes_one_end, "mu by"),
        ("projected", adds_a_little, "short rows in float32: y by 0.001"),
        ("guess", does_not_compile, "no_such_function"),
    ],
)
def test_wrong_kernels_are_found(name, wrong, said, monkeypatch):
    monkeypatch.setattr(_kernels, name, wrong)
    # pytest.warns passes on what it did not wait for, as errors: NumPy must not warn at all.
    with np.errstate(all="ignore"), pytest.warns(RuntimeWarning, match=said) as caught:
        assert backends.pick(as_on_a_device()) is plain
    assert len([w for w in caught if "Please report" in str(w.message)]) == 1
    # One warning is enough, whatever is asked for next.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert backends.pick(as_on_a_device()) is plain
        assert backends.pick(as_on_a_device(torch.float64)) is plain


def test_a_triton_that_cannot_be_imported_is_one_that_differs(monkeypatch):
    monkeypatch.delattr(backend, "_kernels")
    monkeypatch.setitem(sys.modules, _kernels.__name__, None)
    with pytest.warns(RuntimeWarning, match="ModuleNotFoundError"):
        assert backends.pick(as_on_a_device()) is plain


def test_a_wrong_loss_alone_is_found(monkeypatch):
    right = _backend.loss

    def wrong(batch, settings, with_gradient):
        outcome = right(batch, settings, with_gradient)
        return outcome._replace(gradient=2 * outcome.gradient)

    monkeypatch.setattr(_backend, "loss", wrong)
    monkeypatch.setattr(_self_check, "problems", lambda: iter(()))
    found = list(_self_check.differences(torch.device("cpu"), torch.float32))
    assert len(found) == 4
    assert found[0].startswith("short loss with labels in float32: gradient by")


def counted(monkeypatch, found=()):
    calls = []

    def differences(device, dtype):
        calls.append(dtype)
        time.sleep(0.05)
        yield from found

    monkeypatch.setattr(_self_check, "differences", differences)
    return calls


def test_each_dtype_is_checked_once_whoever_asks(monkeypatch):
    calls = counted(monkeypatch)
    threads = [threading.Thread(target=backends.pick, args=(as_on_a_device(),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert calls == [torch.float32]
    assert backends.pick(as_on_a_device(torch.float64)) is backend
    assert calls == [torch.float32, torch.float64]


def test_nothing_unchecked_is_captured(monkeypatch):
    calls = counted(monkeypatch)
    x = as_on_a_device()
    x.device = torch.device("cuda:0")
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert backends.pick(x) is plain
    assert calls == []
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    assert backends.pick(x) is backend
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert backends.pick(x) is backend
    assert calls == [torch.float32]
