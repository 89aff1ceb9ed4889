"""Soft top-k, threshold and binary argmax of slices whose entries lie on many ranks, as if one process had them all.

Every rank keeps its entries. What travels for each slice are counts of infinities, if there are any, the ends of a
bracket, and three sums for each step of the search (see _rank_search.py); in the backward pass two or four sums, at
once. A binary argmax counts the entries above fifteen pivots for each four bits of the k-th largest entry.

What a rank's gradient is. Each rank makes a number of its own entries of y; the objective is the sum of these numbers
over the ranks. The gradient of a rank's entries is theirs in the joined slice, without a factor; those of k and tau are
whole on each rank. All ranks must run the backward pass.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from hypersimplex import _checks
from hypersimplex._curves import CURVES, parts
from hypersimplex._solve import Slices, loop, solve
from hypersimplex.torch._batch import Number
from hypersimplex.torch._boundary import computed, has_memory, is_eager, kind, slices
from hypersimplex.torch._projection import TENSORS, check_input, over_slices
from hypersimplex.torch._rank_gradients import Solved
from hypersimplex.torch._rank_search import find, flat_slices, gap, thresholds
from hypersimplex.torch._ranks import (
    Ranks,
    dtype_code,
    exchange,
    fingerprint,
    members,
    same,
    same_dtype,
    same_values,
)
from hypersimplex.torch._special import is_dtensor
from hypersimplex.torch.backends import pick, plain

MOST_STEPS = 200  # nothing else is there to fall back on; a bracket of float64 is halved at most so often
DIGIT = 4  # bits of a key that are found with one message


class Call(NamedTuple):
    """What all ranks agree on, and this rank's entries."""

    rows: Tensor  # (slices, entries)
    k: Tensor  # of every slice
    tau: Tensor
    dim: int
    sizes: list[int]  # entries of a slice on each rank
    finite: bool  # all entries of all ranks
    learns: tuple[bool, bool, bool]  # whether input, k and tau require gradients
    shape: torch.Size  # of the slices
    curve: str

    @property
    def size(self) -> int:
        return sum(self.sizes)

    def joined(self, rows: Tensor) -> Tensor:
        """Rows in the shape of the input."""
        along = self.dim % (len(self.shape) + 1)
        return rows.reshape(*self.shape, rows.shape[-1]).movedim(-1, along)


def soft_topk(input: Tensor, k: Number, tau: Number, dim: int, *, hard: bool, curve: str, group: Any) -> Tensor:
    ranks = members(group, input)
    call = _agree(ranks, "soft_topk", input, k, tau, dim, curve, hard)
    y = call.joined(_project(ranks, call, want_mu=False)[0])
    return binary_argmax(input, k, dim, group) + (y - y.detach()) if hard else y


def threshold(input: Tensor, k: Number, tau: Number, dim: int, *, curve: str, group: Any) -> Tensor:
    ranks = members(group, input)
    call = _agree(ranks, "threshold", input, k, tau, dim, curve)
    if not call.finite:  # an infinite entry does not move the threshold
        rows = call.rows
        call = call._replace(rows=torch.where(rows.isinf(), rows.detach(), rows))
    mu = _project(ranks, call, want_mu=True)[1].reshape(call.shape)
    return mu if input.dtype is torch.float64 else mu.to(torch.float32)


def binary_argmax(input: Tensor, k: Number, dim: int, group: Any) -> Tensor:
    ranks = members(group, input)
    call = _agree(ranks, "binary_argmax", input.detach() if isinstance(input, Tensor) else input, k, 1.0, dim)
    found = _count(ranks, call, whole=True)
    x = call.rows.detach().to(computed(call.rows.dtype))
    key, wanted = plain.order(x), call.k.detach().unsqueeze(-1)
    if call.size and len(x):
        edge, count = plain.kth_largest(key, wanted, ranks.sum, DIGIT)
        if bool((count == wanted.clamp(min=1)).all()):
            chosen = key >= edge
        else:
            equal = (key == edge).sum(-1, keepdim=True)
            of_ranks = torch.stack(ranks.gather(equal, [len(x)] * ranks.size))
            above = count - of_ranks.sum(0)
            chosen = plain.at_least(key, edge, wanted - above - of_ranks[: ranks.rank].sum(0))
        x = (chosen & (wanted > 0)).to(x.dtype)
    y = torch.where(found.nan.unsqueeze(-1), torch.nan, x)
    return call.joined(y.to(call.rows.dtype))


def _agree(
    ranks: Ranks, name: str, input: Tensor, k: Number, tau: Number, dim: int, curve: str = CURVES[0], hard: bool = False
) -> Call:
    """Read this rank's call; raise on every rank if one of them cannot or if their calls do not fit together."""

    def tell() -> tuple[tuple[Any, ...], list[int]]:
        if not is_eager():
            raise RuntimeError("group does not work under torch.compile, torch.func or forward mode")
        along = check_input(input, dim)
        _checks.check_curve(curve)
        if is_dtensor(input):
            rule = "group must be None for a DTensor, whose mesh says which ranks share a slice"
            raise ValueError(f"{rule}, got {ranks.group}")
        if type(input) not in TENSORS or input.is_meta:
            raise _checks.no_values("input", kind(input))
        has_memory("input", input)
        shape = slices(input, along)
        numbers = [over_slices(name, value, input, along) for name, value in (("k", k), ("tau", tau))]
        flat = [value.expand(shape).reshape(shape.numel()) for value in numbers]
        learns = tuple(torch.is_grad_enabled() and t.requires_grad for t in (input, *numbers))
        rows = input.movedim(along, -1).reshape(shape.numel(), input.shape[along])
        finite = torch.isfinite(input.detach().sum(dtype=computed(input.dtype)))
        prints = [fingerprint(v.detach().cpu()) for v in (torch.tensor([*shape]), *flat)]
        told = [1, dtype_code(input.dtype), along, input.shape[along], int(finite), CURVES.index(curve), int(hard)]
        return (rows, *flat, learns, shape), [*told, *map(int, learns), *prints]

    given, (dtypes, dims, sizes, finite, curves, hards, *rest) = exchange(ranks, name, tell)
    rows, of_rows, of_tau, learns, shape = given
    same_dtype(dtypes)
    same("dim must be the same", dims)
    same("curve must be the same", [CURVES[at] for at in curves])
    same("hard must be the same", [bool(each) for each in hards])
    for what, prints in zip((f"the shape of input but for dim {dim}", "k", "tau"), rest[3:], strict=False):
        same_values(what, prints)
    for what, each in zip(("input", "k", "tau"), rest, strict=False):
        same(f"{what}.requires_grad must be the same", [bool(wanted) for wanted in each])
    return Call(rows, of_rows, of_tau, dim, sizes, all(finite), learns, shape, curve)


class Counts(NamedTuple):
    """For each slice, over all ranks."""

    above: Tensor  # how many entries are +inf
    finite: Tensor  # how many are finite
    nan: Tensor  # whether one is NaN


def _count(ranks: Ranks, call: Call, whole: bool = False) -> Counts:
    """The same numbers on every rank, and so are the errors that they lead to."""
    x = call.rows.detach()
    if call.finite:
        none = torch.zeros_like(call.k, requires_grad=False)
        found = Counts(none, none + call.size, none > 0)
    else:
        rows = [(x == torch.inf).sum(-1), torch.isfinite(x).sum(-1), x.isnan().sum(-1)]
        above, finite, nan = ranks.sum(torch.stack(rows).to(call.k.dtype))
        found = Counts(above, finite, nan > 0)
    numbers = call.k.detach(), call.tau.detach()
    plain.check_values(*numbers, call.size, (found.above + found.finite).long(), found.nan, call.dim, whole)
    return found


def _project(ranks: Ranks, call: Call, want_mu: bool) -> tuple[Tensor, Tensor]:
    """y of this rank's entries, and mu if it is wanted."""
    counts = _count(ranks, call)

    def solve() -> tuple[Tensor, Tensor]:
        if call.size and len(call.k):
            if call.curve != "ramp":
                return _solve_curve(ranks, call)
            return _solve(ranks, call, counts, want_mu)
        return torch.empty_like(call.rows), torch.zeros_like(call.k)

    if not any(call.learns):
        with torch.no_grad():
            return solve()
    apply: Any = Solved.apply
    found: tuple[Tensor, Tensor] = apply(call.rows, call.k, call.tau, solve, ranks, (call.curve, call.learns[2]))
    return found


def _solve(ranks: Ranks, call: Call, counts: Counts, want_mu: bool) -> tuple[Tensor, Tensor]:
    """Infinite entries are counted, not searched: -inf in their place has no part in any sum."""
    given, tau = call.rows, call.tau
    x = given.to(computed(given.dtype))
    above = x == torch.inf
    x = x if call.finite else torch.where(above, -torch.inf, x)
    left = call.k - counts.above
    settled = counts.nan | (left < 0)
    k = torch.where(settled, 0.0, left)
    part = Entries(x, tau)
    own = part.kept.sum(-1).to(k.dtype)
    n = counts.finite.clamp(min=1)
    found, edge = find(part, k, tau, ranks, n, own, MOST_STEPS, settled)
    flat = flat_slices(found, k, counts.finite) & ~settled
    t = plain.over_threshold(x, found.mu, found.low, tau)
    y = torch.where(flat.unsqueeze(-1), (t > 0.5).to(t), t.clamp(0, 1))
    y = torch.where(part.kept, y, 0)
    if not call.finite:
        share = torch.where(left < 0, call.k / counts.above, 1.0).unsqueeze(-1).to(y.dtype)
        y = torch.where(above, share, torch.where((left < 0).unsqueeze(-1), 0, y))
        y = torch.where(counts.nan.unsqueeze(-1), torch.nan, y)
    mu = found.mu
    if want_mu:
        edge = torch.where(edge.isfinite(), edge, 0)
        mu = thresholds(part, found, edge, k, tau, ranks, counts.finite, flat)
        mu = torch.where(counts.nan, torch.nan, torch.where(left < 0, torch.inf, mu))
    return y.to(given.dtype), mu


def _solve_curve(ranks: Ranks, call: Call) -> tuple[Tensor, Tensor]:
    """The same for another curve than the ramp."""
    x = call.rows.to(computed(call.rows.dtype))
    wide, key = call.k.dtype, plain.order(x)

    def most(entries: Tensor) -> Tensor:
        none = entries.new_full((len(entries), 1), -torch.inf)  # a rank without entries has no largest one
        return ranks.maximum(torch.cat((entries, none), -1).amax(-1, keepdim=True))

    def largest(_: Tensor, place: Tensor) -> Tensor:
        found = plain.kth_largest(key, place, ranks.sum, DIGIT)[0]
        return -most(torch.where(key >= found, -x, -torch.inf)).to(wide)

    find = loop(plain.add, torch.finfo(wide).eps, reduce=ranks.sum)
    each = Slices(lambda terms: ranks.sum(plain.add(terms)), most, largest, find)
    y, mu = solve(torch, call.curve, x.to(wide), call.k.unsqueeze(-1), call.tau.unsqueeze(-1), each)
    return y.to(call.rows.dtype), mu.squeeze(-1)


class Entries:
    """This rank's entries as `find` asks for them; those that are -inf are not there."""

    def __init__(self, x: Tensor, tau: Tensor) -> None:
        self.x, self.tau, self.dtype = x, tau, x.dtype
        self.kept = x != -torch.inf

    def solve(self, k: Tensor) -> Tensor | None:
        if not self.x.numel():
            return None
        mu: Tensor = pick(self.x).project(self.x, k, self.tau, -1, want_y=False)[1]
        return torch.where(self.kept.any(-1), mu, torch.nan)

    def sums(self, mu: Tensor, low: Tensor, error: Tensor) -> Tensor:
        t = torch.where(self.kept, plain.over_threshold(self.x, mu, low, self.tau), -torch.inf)
        return torch.stack([row.sum(-1, dtype=mu.dtype) for row in parts(torch, "ramp", t)])

    def gap(self, mu: Tensor, at: Tensor) -> Tensor:
        return gap(self.x[at], mu[at], self.tau[at], ~self.kept[at])
