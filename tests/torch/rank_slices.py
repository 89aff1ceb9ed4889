"""One problem for one process and for many ranks, whose slices lie over the ranks: values and gradients must agree."""

from contextlib import contextmanager

import torch
import torch.distributed as dist

from hypersimplex.torch import soft_topk, threshold
from tests.torch.ranks import ranks

NAMES = ["y", "y to input", "y to k", "y to tau", "mu", "mu to input", "mu to k", "mu to tau"]
OF_ENTRIES = {"y", "y to input", "mu to input"}
DOUBLE = torch.float64


@contextmanager
def messages():
    """A list that grows by the shape of every tensor that leaves this rank."""
    sent, calls = [], (dist.all_reduce, dist.all_gather)
    dist.all_reduce = lambda value, **rest: sent.append(tuple(value.shape)) or calls[0](value, **rest)
    dist.all_gather = lambda parts, value, **rest: sent.append(tuple(value.shape)) or calls[1](parts, value, **rest)
    try:
        yield sent
    finally:
        dist.all_reduce, dist.all_gather = calls


def learned(value):
    return torch.as_tensor(value, dtype=DOUBLE).detach().clone().requires_grad_()


def everything(x, v, u, k, tau, dim, **arguments):
    """The operator and the threshold, each with its gradients to input, k and tau."""
    x, k, tau = x.detach().clone().requires_grad_(), learned(k), learned(tau)
    y = soft_topk(x, k, tau, dim, **arguments)
    found = [y.detach(), *torch.autograd.grad((y * v).sum(), (x, k, tau))]
    mu = threshold(x, k, tau, dim, **arguments)
    # An infinite threshold times a number that is 0 would be NaN.
    return [*found, mu.detach(), *torch.autograd.grad(mu, (x, k, tau), u)]


def on_rank(group, split, x, v, u, k, tau, dim, arguments):
    rank = dist.get_rank(group)
    x, v = (t.split(split, dim)[rank] for t in (x, v))
    share = (2 * rank + 1) / len(split) ** 2  # the ranks' objectives are added up, and so are their parts of u
    return everything(x, v, u * share, k, tau, dim, group=group, **arguments)


def joined(answers, dim):
    """What all ranks found, as one process would; what each of them has whole must be the same on all."""
    results = []
    for at, name in enumerate(NAMES):
        parts = [answer[at] for answer in answers]
        if name in OF_ENTRIES:
            results.append(torch.cat(parts, dim))
        else:
            assert all(torch.equal(torch.nan_to_num(part), torch.nan_to_num(parts[0])) for part in parts)
            results.append(parts[0])
    return results


def check(split, x, k, tau=1.0, dim=-1, tolerance=1e-9, seed=1, **arguments):
    rng = torch.Generator().manual_seed(seed)
    v = torch.randn(x.shape, generator=rng, dtype=DOUBLE).to(x.dtype)
    shape = [size for at, size in enumerate(x.shape) if at != dim % x.dim()]
    u = torch.randn(shape, generator=rng, dtype=DOUBLE).to(DOUBLE if x.dtype is DOUBLE else torch.float32)
    expected = everything(x, v, u, k, tau, dim, **arguments)
    got = joined(ranks.run(len(split), on_rank, split, x, v, u, k, tau, dim, arguments), dim)
    for name, found, wanted in zip(NAMES, got, expected, strict=True):
        wanted_size = wanted.abs().nan_to_num(0, 0, 0).max() if wanted.numel() else 0
        torch.testing.assert_close(
            found, wanted, rtol=tolerance, atol=tolerance * max(1.0, float(wanted_size)), equal_nan=True,
            msg=lambda text, name=name: f"{name}: {text}",
        )  # fmt: skip
    return expected
