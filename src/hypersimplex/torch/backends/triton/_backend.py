"""The contract of a backend on top of the kernels: layouts, dtypes, the numbers of each class, and what to launch.

A projection and its gradients are one launch each, a loss is at most three. Around them nothing is computed and nothing
waits for the device: a number is an argument of the kernel, a tensor goes with its strides. The kernels take contiguous
arrays; others are copied. Triton is imported by the first launch, so that the self-check sees it fail.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from hypersimplex import _checks
from hypersimplex.torch import _batch
from hypersimplex.torch._batch import Batch, Number, Outcome, Settings
from hypersimplex.torch._boundary import slices
from hypersimplex.torch.backends import plain

FLOATS = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})
NUMBERS = FLOATS | {torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8}

# Entries in a tile, at most, and why. What ptxas makes of each is printed by tests.triton.ptx.assembled.
TILE = 4096  # of slices that fit: they stay in registers, 16 entries per thread
LOSS_TILE = 2048  # of classes that fit: beside the projection there are labels and errors
LONG_TILE = 1024  # of longer slices: sums and places need registers too, and several programs hide each other's waiting
LEAST = 1024  # many short slices share a program, which then has about so many

# By the most entries of a tile: warps of a program, few, since they wait for each other at barriers; and registers per
# thread, at most, so that three or two programs fit a multiprocessor, and no fewer, since ptxas would rather spill.
PROGRAMS = ((2048, 4, 168), (TILE, 8, 128))


class Plan(NamedTuple):
    """An array as (outer, n, inner), and the tiles that cover it."""

    n: int
    inner: int
    slices: int
    block_n: int
    block_c: int

    @property
    def is_long(self) -> bool:
        return self.n > self.block_n

    @property
    def grid(self) -> tuple[int]:
        return (-(-self.slices // self.block_c),)

    @property
    def sizes(self) -> dict[str, int]:
        warps, registers = next(each for most, *each in PROGRAMS if self.block_n * self.block_c <= most)
        tile = {"BLOCK_N": self.block_n, "BLOCK_C": self.block_c, "LONG": self.is_long, "ROWS": self.inner == 1}
        return tile | {"num_warps": warps} | ({"maxnreg": registers} if torch.version.hip is None else {})


def _power(n: int) -> int:
    """The next power of two."""
    return 1 << max(n - 1, 0).bit_length()


def plan(shape: torch.Size, dim: int, most: int | None = None) -> Plan:
    most = TILE if most is None else min(most, TILE)
    dim = dim % len(shape)
    n, inner = shape[dim], shape[dim + 1 :].numel()
    slices = shape[:dim].numel() * inner
    if inner == 1:
        columns = max(1, min(32, LEAST // _power(n), _power(slices)))
    else:
        columns = min(32, _power(inner))
        # Eight neighboring float32 are one sector of memory: fewer would be read in vain.
        while columns > 8 and n * columns > most:
            columns //= 2
    tile = most if n * columns <= most else min(most, LONG_TILE)
    return Plan(n, inner, slices, min(_power(n), tile // columns), columns)


def _even(x: Tensor) -> Tensor:
    """x in a dtype that the kernels load, contiguous; copied only if it must be."""
    return (x if x.dtype in FLOATS else x.float()).detach().contiguous().resolve_neg()


class Numbers(NamedTuple):
    """A number for each slice as a kernel takes it: by its place and strides, or the same for all."""

    at: Tensor
    value: float
    outer: int
    inner: int
    is_tensor: bool

    @property
    def of_class(self) -> tuple[Tensor, float, int]:
        return self.at, self.value, self.inner


def _numbers(value: Number, x: Tensor, shape: torch.Size, dim: int) -> Numbers:
    """Of slices of this shape, which is x's without dim. What is not read is x's memory."""
    if not isinstance(value, Tensor) or (value.dim() == 0 and value.is_cpu and not x.is_cpu):
        return Numbers(x, float(value), 0, 0, False)
    value = value.detach()
    if value.dtype not in NUMBERS or value.device != x.device:
        value = value.to(x.device, torch.float64)
    outer = shape[: dim % x.dim()].numel()
    # A view, but for a tensor of several dims whose strides fit nowhere.
    value = value.expand(shape).reshape(outer, -1).resolve_neg()
    return Numbers(value, 0.0, value.stride(0), value.stride(1), True)


def project(
    x: Tensor,
    k: Number,
    tau: Number,
    dim: int,
    *,
    want_y: bool = True,
    want_mu: bool = True,
    curve: str = "ramp",
) -> tuple[Tensor | None, Tensor]:
    _checks.check_numbers(k, tau, x.shape[dim], f"dim {dim}")
    shape = slices(x, dim)
    if x.numel() == 0:
        return torch.empty_like(x), torch.zeros(shape, dtype=torch.float64, device=x.device)
    from hypersimplex.torch.backends.triton import _kernels

    p, even, mu = plan(x.shape, dim), _even(x), torch.empty(shape, dtype=torch.float64, device=x.device)
    y = torch.empty_like(even) if want_y else even  # which is not written then
    *each_k, many_k = _numbers(k, even, shape, dim)
    *each_tau, many_tau = _numbers(tau, even, shape, dim)
    with torch.cuda.device_of(x):
        _kernels.project[p.grid](
            even, *each_k, *each_tau, y, mu, p.n, p.inner, p.slices,
            K_TENSOR=many_k, TAU_TENSOR=many_tau, WRITE=want_y, **p.sizes,
        )  # fmt: skip
    return y.to(x.dtype) if want_y else None, mu


def pullback(
    y: Tensor,
    v: Tensor,
    tau: Number,
    dim: int,
    needs: tuple[bool, ...] = (True, True, True),
    *,
    curve: str = "ramp",
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    shape, new = slices(y, dim), torch.empty if y.numel() else torch.zeros
    even, v_even = _even(y), _even(v)
    to_x, to_k, to_tau = torch.empty_like(v_even), v_even, v_even  # numbers that nobody needs are not written
    if needs[1] or needs[2]:
        to_k, to_tau = (new(shape, dtype=torch.float64, device=y.device) for _ in range(2))
    if y.numel():
        from hypersimplex.torch.backends.triton import _kernels

        p = plan(y.shape, dim)
        *each_tau, many_tau = _numbers(tau, even, shape, dim)
        with torch.cuda.device_of(y):
            _kernels.pullback[p.grid](
                even, v_even, *each_tau, to_x, to_k, to_tau, p.n, p.inner, p.slices,
                TAU_TENSOR=many_tau, NUMBERS=needs[1] or needs[2], **p.sizes,
            )  # fmt: skip
    # Autograd's `needs` may go on, for arguments of its own.
    return to_x.to(v.dtype) if needs[0] else None, to_k if needs[1] else None, to_tau if needs[2] else None


def _of_class(name: str, value: Any, classes: int, x: Tensor) -> Numbers:
    """A number per class."""
    if type(value) is not float and not isinstance(value, Tensor):  # what is no number is an error
        value = float(_batch.per_class(name, value, 1, torch.device("cpu")))
    if isinstance(value, float):
        return Numbers(x, value, 0, 0, False)
    _batch.check_per_class(name, value, classes)
    return _numbers(value, x, torch.Size([classes]), 0)


def _count(p: Plan, x: Tensor, target: Tensor, dense: bool, ignored: int) -> Tensor:
    """The sum of every class's targets and, of labels, the samples that count behind them.

    A label that is no class makes every count NaN, and with that the loss.
    """
    from hypersimplex.torch.backends.triton import _loss_kernels

    classes = p.slices
    counts = torch.empty(classes if dense else classes + 1, dtype=torch.float64, device=x.device)
    sizes = {name: value for name, value in p.sizes.items() if name != "LONG"}
    with torch.cuda.device_of(x):
        _loss_kernels.count[p.grid](target, target, ignored, counts, p.n, classes, LABELS=not dense, **sizes)
    return counts


def loss(batch: Batch, settings: Settings, with_gradient: bool) -> Outcome:
    if batch.logits.numel() == 0:
        return plain.loss(batch, settings, with_gradient)
    shape, classes = batch.logits.shape, batch.classes
    x, target, dense, _ = batch.rows()
    even, target, p, ignored = _even(x), target.contiguous(), plan(x.shape, 0, LOSS_TILE), settings.ignore_index
    is_counted = settings.k is None and settings.prior is None
    counts = _count(p, x, target, dense, ignored) if is_counted or not dense else None
    given = settings.prior if settings.k is None else settings.k
    k = _of_class("prior" if settings.k is None else "k", 0.0 if is_counted else given, classes, even)
    tau = _of_class("tau", settings.tau, classes, even)
    weight = None if settings.weight is None else _of_class("weight", settings.weight, classes, even)
    at_counts = even if counts is None else counts
    at_weight, _, weight_stride = (even, 0.0, 0) if weight is None else weight.of_class
    gradient = torch.empty_like(even) if with_gradient else even  # which is not written then
    losses = torch.empty(classes, dtype=torch.float64, device=x.device)
    numbers = torch.empty(2, classes, dtype=torch.float64, device=x.device)
    value = torch.empty((), dtype=_batch.result_dtype(x), device=x.device)
    flags = {"WEIGHT": weight is not None, "MEAN": settings.reduction == "mean", "LABELS": not dense}
    from hypersimplex.torch.backends.triton import _loss_kernels

    with torch.cuda.device_of(x):
        _loss_kernels.loss[p.grid](
            even, target, target, ignored, at_counts, *k.of_class, *tau.of_class, at_weight, weight_stride,
            gradient, losses, numbers, p.n, classes, COUNTED=is_counted, PRIOR=settings.k is None,
            K_TENSOR=k.is_tensor, TAU_TENSOR=tau.is_tensor, WRITE=with_gradient, **flags, **p.sizes,
        )  # fmt: skip
        _loss_kernels.finish[(1,)](
            losses, at_counts, at_weight, weight_stride, value, p.n, classes, **flags, BLOCK=128, num_warps=4
        )
    if len(shape) == 3:
        gradient = gradient.reshape(shape[0], shape[2], classes).transpose(1, 2)
    samples = p.n if counts is None or dense else counts.select(0, classes)
    return Outcome(value, numbers, samples, gradient if with_gradient else None)
