"""Half precision and autocast, digits in float32, and how much memory the loss takes."""

import gc
import subprocess
import sys
import warnings

import pytest
import torch
from torch import Tensor

from hypersimplex.torch import HyperSimplexLoss, hypersimplex_loss
from tests.torch.losses import every_path, formula, labels_of, normal, one_hot, using

HALF = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])


@every_path
@HALF
def test_half_logits_are_computed_in_float32(path, dtype):
    """The result is the formula's for the very same logits, rounded once."""
    logits, target = normal(3000, 5, dtype=torch.float32).to(dtype), labels_of(3000, classes=5)
    losses, grad = formula(logits, one_hot(target, 5))
    x = logits.clone().requires_grad_()
    with using(path):
        loss = hypersimplex_loss(x, target)
        (got,) = torch.autograd.grad(loss * 64, x)
    assert loss.dtype == got.dtype == dtype
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(loss.double(), losses.mean(), rtol=eps, atol=0)
    torch.testing.assert_close(got.double(), grad * 64 / 3000, rtol=2 * eps, atol=1e-6)


@every_path
@HALF
def test_autocast(path, dtype):
    torch.manual_seed(0)
    model, inputs, target = torch.nn.Linear(6, 5), torch.randn(200, 6), labels_of(200, classes=5)
    criterion = HyperSimplexLoss()
    with using(path), torch.autocast("cpu", dtype=dtype):
        logits = model(inputs)
        logits.retain_grad()
        loss = criterion(logits, target)
    with using(path):
        (loss * 1024).backward()  # as a GradScaler does
    assert logits.dtype == dtype
    assert loss.dtype == torch.float32
    losses, grad = formula(logits, one_hot(target, 5))
    torch.testing.assert_close(loss.detach().double(), losses.mean(), rtol=1e-5, atol=0)
    assert logits.grad.dtype == dtype
    torch.testing.assert_close(logits.grad.double(), grad * 1024 / 200, rtol=2 * torch.finfo(dtype).eps, atol=1e-5)


@every_path
@pytest.mark.parametrize(("shift", "scale", "tau"), [(0, 1, 1.0), (1e4, 1, 1.0), (0, 1e-3, 1e-3), (100, 30, 5.0)])
def test_float32_keeps_its_digits(path, shift, scale, tau):
    logits, target = (normal(2000, 6) * scale + shift).float(), labels_of(2000, classes=6)
    losses, grad = formula(logits, one_hot(target, 6), tau=tau)
    x = logits.clone().requires_grad_()
    with using(path):
        loss = hypersimplex_loss(x, target, tau=tau)
        (got,) = torch.autograd.grad(loss, x)
    torch.testing.assert_close(loss.double(), losses.mean(), rtol=2e-6, atol=0)
    torch.testing.assert_close(got.double(), grad / 2000, rtol=1e-4, atol=4e-6 * float(grad.abs().max()) / 2000)


def test_counts_beyond_2_to_the_24_are_exact():
    """2^24 + 3 does not exist in float32. One count off, and the seven negatives would share it."""
    target = torch.ones(2**24 + 10)
    target[-7:] = 0
    assert hypersimplex_loss(target.clone(), target, reduction="sum") == 0


def tensors_alive():
    gc.collect()
    with warnings.catch_warnings():
        # Looking at every object there is wakes some that are deprecated.
        warnings.simplefilter("ignore")
        found = [t for t in gc.get_objects() if type(t) is Tensor and t.layout is torch.strided]
        return {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in found}


@pytest.mark.parametrize("target", ["indices", "dense"])
def test_backward_needs_one_array_besides_logits_and_targets(target):
    """What autograd keeps goes through the hooks; what the function itself keeps is a tensor that is alive."""
    saved = []
    logits, labels = normal(64, 50).requires_grad_(), labels_of(64, classes=50)
    labels = labels if target == "indices" else one_hot(labels, 50)
    before = tensors_alive()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        loss = hypersimplex_loss(logits, labels)
    given = {t.data_ptr() for t in (logits, labels)}
    kept = tensors_alive() | {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in saved}
    kept = {address: size for address, size in kept.items() if address not in before and address not in given}
    del kept[loss.data_ptr()]
    assert 0 < max(kept.values(), default=0) == logits.nbytes
    assert sum(kept.values()) <= logits.nbytes + 4 * 8 * 50, "more than the gradient and a few numbers a class"


@pytest.mark.parametrize("target", ["indices", "dense"])
def test_torch_allocates_one_array_of_the_logits_size(target):
    logits = normal(500, 40, dtype=torch.float32).requires_grad_()
    labels = labels_of(500, classes=40)
    labels = labels if target == "indices" else one_hot(labels, 40).float()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        hypersimplex_loss(logits, labels).backward()
    taken = sum(max(event.self_cpu_memory_usage, 0) for event in profile.events())
    size = logits.numel() * 4
    assert size <= taken <= 1.02 * size


# Not getrusage: a child begins with the peak of the process that started it.
PEAK = """
import torch
from hypersimplex.torch import hypersimplex_loss
def peak():
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))
torch.set_num_threads(1)
n, classes = 100_000, 200
target = torch.arange(n) % classes
small = torch.randn(50, classes, requires_grad=True)
hypersimplex_loss(small, target[:50]).backward()
logits = torch.randn(n, classes).requires_grad_()
before = peak()
hypersimplex_loss(logits, target).backward()
print((peak() - before) / (logits.numel() * 4))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")
def test_the_process_grows_by_one_array():
    """80 MB of logits: the gradient is one array, a one-hot array or a transposed copy would be a second."""
    out = subprocess.run([sys.executable, "-c", PEAK], capture_output=True, text=True, check=True, timeout=300)
    assert 0.9 < float(out.stdout) < 1.2


@pytest.mark.slow
def test_classes_of_more_than_2_to_the_24_samples_are_counted():
    n = 2**24 + 422_784
    x = torch.zeros(1, 1, n)
    x[0, 0, : n // 2] = 1
    labels = torch.zeros(1, n, dtype=torch.long)
    labels[0, -100:] = -100
    tau = torch.ones((), requires_grad=True)
    assert hypersimplex_loss(x, labels) == hypersimplex_loss(x, labels, tau=tau) == 0
    assert hypersimplex_loss(torch.zeros(n + 3), torch.ones(n + 3), tau=tau) == 0


def test_dense_targets_keep_their_digits_beside_half_logits():
    x, target = normal(64, 10).half(), torch.full((64, 10), 0.3333)
    for reduction in ("sum", "none"):
        got = hypersimplex_loss(x, target, reduction=reduction)
        assert torch.equal(got, hypersimplex_loss(x.float(), target, reduction=reduction).half())
    assert hypersimplex_loss(x.float(), target) != hypersimplex_loss(x.float(), target.half().float())
