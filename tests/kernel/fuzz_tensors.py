"""Strange tensors for torch's front end: `python -m tests.kernel.fuzz_tensors SEED`. Only a crash stops it.

Tensors without memory, with the memory of others, of any dtype and layout, wrapped or fake: each is computed rightly or
refused with an exception, and what the kernel did not own is untouched.
"""

from __future__ import annotations

import random
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import hypersimplex.torch as hst

SHAPES = [(6,), (5, 4), (4, 1), (1, 9), (3, 2, 5), (0, 3), (3, 0), (40, 33), ()]
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.complex64, torch.bool]


class Wrapped(Tensor):
    """A subclass whose own address is 0, as wrappers around other tensors have it."""

    @staticmethod
    def __new__(cls, inner: Tensor) -> Wrapped:
        return Tensor._make_wrapper_subclass(cls, inner.shape, strides=inner.stride(), dtype=inner.dtype)

    def __init__(self, inner: Tensor) -> None:
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def unwrap(value: Any) -> Any:
            if isinstance(value, Wrapped):
                return value.inner
            return type(value)(map(unwrap, value)) if type(value) in (list, tuple) else value

        return func(*unwrap(args), **{name: unwrap(v) for name, v in (kwargs or {}).items()})


def resized(t: Tensor) -> Tensor:
    t = t.clone()
    t.untyped_storage().resize_(0)
    return t


STRANGE: dict[str, Callable[[Tensor], Tensor]] = {
    "plain": lambda t: t,
    "transposed": lambda t: t.mT.contiguous().mT if t.dim() > 1 else t,
    "strided": lambda t: torch.stack([t, t + 1], -1)[..., 0],
    "expanded": lambda t: t.flatten()[:1].expand(t.shape) if t.numel() else t,
    "negated": lambda t: torch._neg_view(-t) if t.dtype.is_floating_point else t,
    "offset": lambda t: torch.cat([t.flatten(), t.flatten()])[t.numel() :].view(t.shape),
    "zero": lambda t: torch._efficientzerotensor(t.shape, dtype=t.dtype),
    "meta": lambda t: t.to("meta"),
    "sparse": lambda t: t.to_sparse() if t.dim() else t,
    "resized": resized,
    "wrapped": Wrapped,
    "parameter": lambda t: torch.nn.Parameter(t) if t.dtype.is_floating_point else t,
    "inference": lambda t: torch.inference_mode()(t.clone)(),
    "infinite": lambda t: t.masked_fill(t > 1, torch.inf) if t.dtype.is_floating_point else t,
}


# torch itself crashes when it prints or reads a tensor whose storage is gone: only logits and targets are such.
SAFE = sorted(set(STRANGE) - {"resized"})


def strange(
    rng: random.Random, shape: tuple[int, ...], dtype: torch.dtype | None = None, odds: float = 0.6, kinds: Any = SAFE
) -> Tensor:
    dtype = dtype or (rng.choice(DTYPES[:2]) if rng.random() < 0.7 else rng.choice(DTYPES))
    t = torch.randn(shape, generator=torch.Generator().manual_seed(rng.getrandbits(32))).to(dtype)
    return STRANGE[rng.choice(kinds)](t) if rng.random() < odds else t


def number(rng: random.Random, shape: tuple[int, ...], low: float, high: float) -> Any:
    way = rng.random()
    if way < 0.5:
        return rng.choice([1, 1.0, 0.5, 2, 0, -1, 1e39, 10**400, float("nan"), None, "text", True])
    values = torch.empty(shape, dtype=rng.choice(DTYPES[:4])).uniform_(low, high)
    return STRANGE[rng.choice(SAFE)](values) if way < 0.8 else values


def operate(rng: random.Random) -> str:
    x = strange(rng, rng.choice(SHAPES), kinds=sorted(STRANGE))
    dim = rng.choice([-1, 0, 0, 1, -2, 7, None, 1.5, "dim"]) if rng.random() < 0.5 else -1
    slices = x.shape[:-1]
    name = rng.choice(["soft_binary_argmax", "threshold", "binary_argmax"])
    given = [number(rng, slices, 0, 2)] + ([] if name == "binary_argmax" else [number(rng, slices, 0.1, 2)])
    if x.is_floating_point() and x.is_leaf and rng.random() < 0.5 and not x.is_inference():
        x.requires_grad_()
    y = getattr(hst, name)(x, *given, dim=dim)
    if y.requires_grad:
        torch.autograd.grad(y, x, strange(rng, tuple(y.shape), y.dtype), allow_unused=True)
    return "accepted"


def lose(rng: random.Random) -> str:
    shape = rng.choice([(6, 3), (40, 5), (7, 1), (5, 3, 4), (6,), (0, 3)])
    x = strange(rng, shape, odds=0.4, kinds=sorted(STRANGE))
    target = torch.randint(0, shape[1] if len(shape) > 1 else 2, (shape[0], *shape[2:]))
    target = STRANGE[rng.choice(sorted(STRANGE))](target) if rng.random() < 0.4 else target
    if rng.random() < 0.3:
        target = strange(rng, shape).abs()
    classes = (shape[1],) if len(shape) > 1 else (1,)
    settings = {name: number(rng, classes, 0.1, 1) for name in ("weight", "k", "prior", "tau") if rng.random() < 0.2}
    if x.is_floating_point() and x.is_leaf and rng.random() < 0.7 and not x.is_inference():
        x.requires_grad_()
    criterion = hst.HyperSimplexLoss(**settings)
    for _ in range(2):
        loss = criterion(x, target)
        if loss.requires_grad:
            torch.autograd.grad(loss, x, strange(rng, (), loss.dtype, 0.3))
        buffer = rng.choice(list(dict(criterion.named_buffers())) or ["threshold"])
        if rng.random() < 0.4:
            setattr(criterion, buffer, strange(rng, rng.choice([classes, (), (2, 2)])))
    return "accepted"


def main(seed: int, calls: int = 1500) -> None:
    rng, outcomes = random.Random(seed), Counter[str]()
    warnings.simplefilter("ignore")
    for _ in range(calls):
        try:
            outcomes[rng.choice([operate, lose])(rng)] += 1
        except Exception as error:  # torch has many kinds of its own
            outcomes[type(error).__name__] += 1
    print(*(f"{name}:{count}" for name, count in sorted(outcomes.items())))


if __name__ == "__main__":
    main(int(sys.argv[1]))
