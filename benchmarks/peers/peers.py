"""Who is compared: what each peer computes, how to install it, and how to call it.

A peer is imported when it is measured and not before. The adapters are in `adapters.py`; none of a peer's own code is
part of this package.
"""

import importlib.metadata
import shlex
import subprocess
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.peers import adapters, plain

# (x, k, dim) -> y for torch, (x, k) -> y along the last axis for JAX.
Function = Callable[..., Any]

OURS, SOFTMAX = "hypersimplex", "torch.softmax"
PROJECTION, SOFT, OTHER = "projection", "other soft top-k", "other"
FOLDER = "PEERS_FOLDER"


@dataclass(frozen=True)
class Peer:
    name: str
    kind: str  # PROJECTION: means to compute the same y; SOFT: another y in [0, 1]^n with sum k; OTHER: neither
    computes: str
    load: Callable[[Path], Function]
    install: str = ""
    distribution: str = ""
    clone: str = ""  # the repository's folder inside the peers' folder
    jax: bool = False
    only_k_one: bool = False

    def version(self, folder: Path) -> str:
        if self.clone:
            command = ["git", "-C", str(folder / self.clone), "log", "-1", "--format=%h of %as"]
            done = subprocess.run(command, capture_output=True, text=True)
            return done.stdout.strip() or "unknown"
        return importlib.metadata.version(self.distribution or "hypersimplex")


def _clone(address: str, more: str = "") -> str:
    return f"git clone https://github.com/{address} {FOLDER}/{address.split('/')[1]}{more}"


PEERS = [
    Peer(OURS, PROJECTION, "the projection, `hypersimplex.torch.soft_binary_argmax`", adapters.ours),
    Peer(
        "hypersimplex, k = 1",
        PROJECTION,
        "the same at k = 1, beside sparsemax",
        adapters.ours,
        only_k_one=True,
    ),
    Peer(
        "hypersimplex.jax",
        PROJECTION,
        "the projection, in JAX, compiled by `jax.jit`",
        adapters.ours_in_jax,
        "pip install 'jax>=0.4.30'",
        jax=True,
    ),
    Peer(
        SOFTMAX,
        OTHER,
        "a softmax, no top-k: the yardstick of speed",
        adapters.softmax,
        distribution="torch",
    ),
    Peer(
        "sort in torch",
        PROJECTION,
        "the projection by sorted breakpoints, twenty lines of torch in `benchmarks.peers.plain`",
        lambda _: plain.by_sorting,
        distribution="torch",
    ),
    Peer(
        "bisection in torch",
        PROJECTION,
        "the projection by 40 halvings, in the same file",
        lambda _: plain.by_bisection,
        distribution="torch",
    ),
    Peer(
        "entmax budget_bisect",
        PROJECTION,
        "the projection by 50 halvings in torch",
        adapters.entmax_budget,
        "pip install entmax",
        "entmax",
    ),
    Peer(
        "entmax sparsemax",
        PROJECTION,
        "the projection for k = 1 only, by a sort",
        adapters.entmax_sparsemax,
        "pip install entmax",
        "entmax",
        only_k_one=True,
    ),
    Peer(
        "torchsort PAV",
        PROJECTION,
        "the projection, built by us from torchsort's sort-and-pool kernel with k ones for weights; torchsort itself "
        "offers no top-k",
        adapters.torchsort_pav,
        "pip install --no-build-isolation torchsort",
        "torchsort",
    ),
    Peer(
        "torchsort soft_rank",
        OTHER,
        "soft ranks of all entries, from which a top-k mask can be made: a different function with a different sum",
        adapters.torchsort_rank,
        "pip install --no-build-isolation torchsort",
        "torchsort",
    ),
    Peer(
        "paper's kernel",
        PROJECTION,
        "the projection by a sort and pooling, the code released with the paper, compiled as it asks to be",
        adapters.paper,
        _clone("camilog04/Differentiable-Zero-One-Loss-via-Hypersimplex-Projections"),
        clone="Differentiable-Zero-One-Loss-via-Hypersimplex-Projections",
    ),
    Peer(
        "fast-soft-sort",
        PROJECTION,
        "the projection onto the permutahedron of k ones by its `Projection` class (NumPy and Numba), a row at a time",
        adapters.fast_soft_sort,
        _clone("google-research/fast-soft-sort", " && pip install numba scipy"),
        clone="fast-soft-sort",
    ),
    Peer(
        "jaxopt box section",
        PROJECTION,
        "the projection by bisection in JAX, `projection_box_section` under `jax.vmap` and `jax.jit`",
        adapters.jaxopt,
        "pip install jax jaxopt",
        "jaxopt",
        jax=True,
    ),
    Peer(
        "sparse soft top-k PAV",
        PROJECTION,
        "the projection for its p = 2, l = 1, by pooling in Numba behind JAX (its default p = 4/3 is a smoother map)",
        adapters.sparse_pav,
        _clone("google-research/google-research", " && pip install jax numba"),
        clone="google-research",
        jax=True,
    ),
    Peer(
        "sparse soft top-k Dykstra",
        PROJECTION,
        "the projection by 500 steps of Dykstra's algorithm in JAX: approaches it",
        adapters.sparse_dykstra,
        _clone("google-research/google-research", " && pip install jax numba"),
        clone="google-research",
        jax=True,
    ),
    Peer(
        "cvxpylayers",
        PROJECTION,
        "the projection as a quadratic program, to the solver's tolerance",
        adapters.cvxpylayers,
        "pip install cvxpylayers",
        "cvxpylayers",
    ),
    Peer(
        "LML",
        SOFT,
        "sigmoid(x + nu) with sum k: the same polytope with an entropy in place of the square, so never exactly 0 or 1",
        adapters.lml,
        _clone("locuslab/lml", " && pip install semantic_version"),
        clone="lml",
    ),
    Peer(
        "LapSum",
        SOFT,
        "sums of Laplace distribution functions with sum k: smooth everywhere, never exactly 0 or 1",
        adapters.lapsum,
        _clone("gmum/LapSum"),
        clone="LapSum",
    ),
    Peer(
        "softtorch",
        SOFT,
        "the k rows of SoftSort (a softmax of distances to each of the k largest), added up: sum k, an entry may "
        "exceed 1",
        adapters.softtorch,
        "pip install softtorch",
        "softtorch",
    ),
    Peer(
        "difftopk",
        SOFT,
        "the top k rows of a relaxed bitonic sorting network, added up: sum k",
        adapters.difftopk,
        "pip install difftopk",
        "difftopk",
    ),
]
NAMES = [peer.name for peer in PEERS]


def find(name: str) -> Peer:
    return PEERS[NAMES.index(name)]


@dataclass(frozen=True)
class Missing:
    peer: Peer
    reason: str
    folder: Path

    def __str__(self) -> str:
        command = self.peer.install.replace(FOLDER, shlex.quote(str(self.folder)))
        return f"{self.peer.name} is missing ({self.reason}); install it with: {command}"


def present(names: Collection[str], folder: Path) -> tuple[list[Peer], list[Missing]]:
    """The peers that can be imported here, and those that can't, in the order of the table."""
    found, missing = [], []
    for peer in PEERS:
        if peer.name not in names:
            continue
        try:
            peer.load(folder)
        except Exception as error:  # a peer may fail to import in its own way, and that is its reason
            missing.append(Missing(peer, f"{type(error).__name__}: {' '.join(str(error).split())[:160]}", folder))
        else:
            found.append(peer)
    return found, missing
