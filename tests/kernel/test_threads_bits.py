"""The number of threads, who works along, and what other threads do meanwhile must not change a single bit."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

import hypersimplex as hs
from hypersimplex import _kernel
from hypersimplex.torch import _batch, binary_argmax, hypersimplex_loss, soft_binary_argmax, threshold
from hypersimplex.torch.backends import kernel, plain

SIZES = _kernel.constants()
ROW, WORTH = SIZES["parallel_row"], SIZES["parallel_worth"]

# Shape and dim: long rows, more of them than threads and fewer, short rows, wide and narrow columns, long and short.
PROBLEMS = [
    *(((1, ROW + i), 1) for i in (-1, 0, 1)),
    ((1, 1_300_000), 1),
    ((2, 300_007), 1),
    ((9, 150_001), 1),
    ((5, 40_000), 1),
    ((6000, 31), 1),
    ((3000, 64), 1),
    ((140, 1000), 1),
    ((74, 2049), 1),
    ((300_001, 1), 0),
    ((200_003, 3), 0),
    ((30_011, 17), 0),
    ((20_011, 150), 0),
    ((8000, 20), 0),
    ((1000, 10), 0),
    ((40, 3, 2001), 1),
    ((2, 150_011, 2), 1),
]


def operator(shape, dim):
    generator = torch.Generator().manual_seed(sum(shape))
    x = torch.randn(shape, generator=generator, requires_grad=True)
    v = torch.randn(shape, generator=generator)
    # One of each per slice: for a single one torch would add up the slices' gradients, by as many threads as it likes.
    slices = [size for axis, size in enumerate(shape) if axis != dim]
    tau = torch.rand(slices, generator=generator).add_(0.5).requires_grad_()
    k = torch.rand(slices, generator=generator).mul_(shape[dim]).requires_grad_()

    def run():
        y = soft_binary_argmax(x, k, tau, dim=dim)
        mu = threshold(x.detach(), shape[dim] / 7, dim=dim)
        ones = binary_argmax(x.detach(), shape[dim] // 7, dim=dim)
        return [t.detach() for t in (y, mu, ones, *torch.autograd.grad(y, (x, k, tau), v))]

    return run


def loss(samples, classes, dense):
    generator = torch.Generator().manual_seed(samples + classes)
    x = torch.randn(samples, classes, generator=generator, requires_grad=True)
    target = torch.randint(0, classes, (samples,), generator=generator)
    if dense:
        target = torch.rand(samples, classes, generator=generator)
    else:
        target[:: samples // 3] = -100

    def run():
        value = hypersimplex_loss(x, target)
        return [value.detach(), torch.autograd.grad(value, x)[0]]

    return run


def part_of_a_rank(samples, classes, backend=kernel):
    generator = torch.Generator().manual_seed(samples + classes)
    x = torch.randn(samples, classes, generator=generator)
    target = torch.randint(classes, (samples,), generator=generator)
    target[:: samples // 3] = -100
    tau, mu, low, mean, factor = torch.rand(5, classes, generator=generator, dtype=torch.float64) + 0.1
    batch = _batch.fit(x, target)
    return lambda: [
        backend.sums(batch, -100, tau, mu, low * 1e-9),
        backend.gradient(batch, -100, tau, mu, low * 1e-9, mean, factor),
    ]


# Around the size from which rows are cut into blocks: of ten classes, of a whole tile of them and of a tile and a bit.
TILE = SIZES["loss_wide_tile"]
PARTS = [(ROW // 10 + 1, 10), *((ROW // TILE + i, TILE) for i in (-1, 0, 1)), (ROW // TILE, TILE + 1), (100_001, 3)]

CASES = {
    **{f"{shape}-dim{dim}": operator(shape, dim) for shape, dim in PROBLEMS},
    **{
        f"loss-{samples}x{classes}-{'dense' if dense else 'labels'}": loss(samples, classes, dense)
        for samples, classes in [(ROW, 2), (300_001, 1), (5000, 10), (2000, 70), (450, 300), (20_000, 17)]
        for dense in (False, True)
    },
    **{f"part-{samples}x{classes}": part_of_a_rank(samples, classes) for samples, classes in PARTS},
}


def on(threads, run):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        return run()
    finally:
        torch.set_num_threads(before)


def assert_same_bits(one, other):
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


@pytest.mark.parametrize("name", CASES)
def test_every_number_of_threads_gives_the_same_bits(name):
    alone = on(1, CASES[name])
    for threads in (2, 3, 4, 7):
        for _ in range(2):
            assert_same_bits(on(threads, CASES[name]), alone)


@pytest.mark.parametrize(
    "names", [list(CASES)[:9], list(CASES)[9:18], list(CASES)[18:]], ids=["rows", "columns", "losses"]
)
def test_calls_at_the_same_time_give_the_same_bits(names):
    alone = [on(1, CASES[name]) for name in names]
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        with ThreadPoolExecutor(3) as pool:
            for _ in range(3):
                for one, other in zip(alone, pool.map(lambda name: CASES[name](), names), strict=True):
                    assert_same_bits(other, one)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("threads", ["1", "3"])
@pytest.mark.parametrize(("shape", "axis"), [((20_000, 40), 1), ((40, 20_000), 0), ((60, 30_000), 1)])
def test_of_several_bad_slices_the_first_is_named(shape, axis, threads, monkeypatch):
    """Whoever finds one first: the message must not depend on who works along."""
    monkeypatch.setenv("HYPERSIMPLEX_NUM_THREADS", threads)
    slices = shape[1 - axis]
    x, k = np.random.default_rng(0).normal(size=shape).astype(np.float32), np.full(slices, 2.0)
    for part, few in zip((0.2, 0.5, 0.97), (5, 4, 6), strict=True):
        bad = int(part * slices)
        k[bad] = 7 + few
        x[(bad, slice(few, None)) if axis else (slice(few, None), bad)] = -np.inf
    for _ in range(5):
        with pytest.raises(ValueError, match="k must be at most 5, the number of entries that are not -inf, got 12"):
            hs.soft_binary_argmax(x, k, axis=axis)


@pytest.mark.parametrize(("samples", "classes"), PARTS)
def test_a_part_in_blocks_is_what_plain_torch_says(samples, classes):
    found = part_of_a_rank(samples, classes)()
    for one, other in zip(found, part_of_a_rank(samples, classes, plain)(), strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-5, atol=1e-5)
