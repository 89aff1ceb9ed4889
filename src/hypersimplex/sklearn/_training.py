"""The network of HyperSimplexMLPClassifier and its training loop."""

import copy
from itertools import pairwise
from numbers import Integral
from typing import Any

import numpy as np

from hypersimplex.boosting import HyperSimplexObjective
from hypersimplex.sklearn._base import Array

try:
    import torch
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "HyperSimplexMLPClassifier needs PyTorch; install it with: pip install 'hypersimplex[torch]'"
    ) from error

from torch import Tensor, nn

from hypersimplex.sklearn._weighted import weighted_loss
from hypersimplex.torch import hypersimplex_loss

ACTIVATIONS = {"relu": nn.ReLU, "tanh": nn.Tanh, "gelu": nn.GELU}
ROWS_AT_ONCE = 1 << 16


class Training:
    """One network, its optimizer and its random numbers: what must survive between two calls of partial_fit."""

    def __init__(self, options: Any, features: int, classes: int, dtype: Any, seed: int) -> None:
        if options.activation not in ACTIVATIONS:
            raise ValueError(f"activation must be one of {sorted(ACTIVATIONS)}, got {options.activation!r}")
        self.options = options
        self.dtype = torch.float64 if dtype == np.float64 else torch.float32
        self.random = torch.Generator().manual_seed(seed)
        columns = 1 if classes == 2 else classes
        widths = [features, *_widths(options.hidden_layer_sizes), columns]
        layers: list[nn.Module] = []
        with torch.random.fork_rng(devices=[]):  # leave the caller's random numbers alone
            torch.manual_seed(seed)
            for wide, next_wide in pairwise(widths):
                layers += [nn.Linear(wide, next_wide), ACTIVATIONS[options.activation]()]
        self.network = nn.Sequential(*layers[:-1]).to(options.device, self.dtype)
        self.optimiser = torch.optim.Adam(
            self.network.parameters(), lr=options.learning_rate, weight_decay=options.alpha
        )
        self.losses: list[float] = []
        self.held_losses: list[float] = []
        self.average = np.zeros(columns)  # of the thresholds
        self.seen = np.zeros(columns)  # how many thresholds it is made of

    def run(self, x: Array, y: Array, weights: Array | None, held: tuple[Array, Array, Array | None] | None) -> None:
        """Epochs until the loss stops improving."""
        options, best, waited = self.options, float("inf"), 0
        best_state = None
        for epoch in range(options.max_iter):
            loss = self.epoch(x, y, weights)
            if held is not None:
                with torch.no_grad():
                    loss = float(self._loss(*self._tensors(*held)))
                self.held_losses.append(loss)
            if options.verbose and epoch % int(options.verbose) == 0:
                print(
                    f"epoch {epoch + 1}: loss {self.losses[-1]:.6f}"
                    + ("" if held is None else f", held out {loss:.6f}")
                )
            waited = 0 if loss < best - options.tol else waited + 1
            if loss < best:
                best = loss
                if held is not None:
                    best_state = copy.deepcopy(self.network.state_dict())
            if waited >= options.n_iter_no_change:
                break
        if best_state is not None:
            self.network.load_state_dict(best_state)

    def epoch(self, x: Array, y: Array, weights: Array | None) -> float:
        """One pass over the rows in random order; the mean loss of its batches."""
        rows, labels, given = self._tensors(x, y, weights)
        size = min(200, len(rows)) if self.options.batch_size == "auto" else int(self.options.batch_size)
        if size < 1:
            raise ValueError(f"batch_size must be at least 1 or 'auto', got {self.options.batch_size!r}")
        total = 0.0
        for batch in torch.randperm(len(rows), generator=self.random).to(rows.device).split(size):
            weight = None if given is None else given[batch]
            if weight is not None and not bool((weight > 0).any()):
                continue
            loss = self._loss(rows[batch], labels[batch], weight)
            self.optimiser.zero_grad(set_to_none=True)
            loss.backward()
            self.optimiser.step()
            total += float(loss.detach()) * len(batch)
        self.losses.append(total / len(rows))
        return self.losses[-1]

    @torch.no_grad()
    def raw(self, x: Array) -> Array:
        """Raw scores, one column for each class, or one for two classes."""
        rows = _tensor(x).split(ROWS_AT_ONCE)
        parts = [self.network(part.to(self.options.device, self.dtype)).cpu().numpy() for part in rows]
        return np.concatenate(parts)

    def settle(self, x: Array, y: Array, weights: Array | None) -> Array:
        """The thresholds of these rows, all of them projected together; they count as one for every epoch."""
        self.average = self._thresholds(x, y, weights)
        self.seen = np.where(_has_both_sides(y, weights, len(self.average)), len(self.losses), 0.0)
        return self.average.copy()

    def follow(self, x: Array, y: Array, weights: Array | None) -> Array:
        """The running average of thresholds, inf for a class that has none yet.

        A class without weight here, or with all of it, has no threshold here and keeps what it had.
        """
        here, moves = self._thresholds(x, y, weights), _has_both_sides(y, weights, len(self.average))
        self.seen += moves
        rate = np.maximum(1 / np.maximum(self.seen, 1), 0.1)
        self.average += np.where(moves, rate * (here - self.average), 0.0)
        return np.where(self.seen > 0, self.average, np.inf)

    def _thresholds(self, x: Array, y: Array, weights: Array | None) -> Array:
        raw = self.raw(x)
        objective = HyperSimplexObjective(self.options.tau, prior=self.options.prior)
        threshold = objective.calibrate(y, raw[:, 0] if raw.shape[1] == 1 else raw, weights).threshold
        assert threshold is not None
        return threshold

    def _loss(self, rows: Tensor, labels: Tensor, weights: Tensor | None) -> Tensor:
        logits, options = self.network(rows), self.options
        if weights is not None:
            return weighted_loss(logits, labels, weights, options.tau, options.prior)
        target = labels[:, None].to(logits.dtype) if logits.shape[1] == 1 else labels
        return hypersimplex_loss(logits, target, prior=options.prior, tau=options.tau)

    def _tensors(self, x: Array, y: Array, weights: Array | None) -> tuple[Tensor, Tensor, Tensor | None]:
        device = self.options.device
        given = None if weights is None else _tensor(weights).to(device, self.dtype)
        return _tensor(x).to(device, self.dtype), _tensor(y).to(device), given


def _has_both_sides(y: Array, weights: Array | None, columns: int) -> Array:
    """Of every column, whether its class and the others both have weight."""
    y = y if weights is None else y[weights > 0]
    classes = [1] if columns == 1 else range(columns)
    return np.array([0 < np.count_nonzero(y == c) < len(y) for c in classes])


def _widths(sizes: Any) -> list[int]:
    """Of the hidden layers, from a list of them or from a single number."""
    widths = list(sizes) if np.iterable(sizes) else [sizes]
    for width in widths:
        if not isinstance(width, Integral) or width < 1:
            raise ValueError(f"hidden_layer_sizes must be whole numbers above 0, got {sizes!r}")
    return [int(width) for width in widths]


def _tensor(array: Array) -> Tensor:
    """Without a copy where PyTorch allows it: it wants arrays that may be written."""
    return torch.from_numpy(np.require(array, requirements=["C", "W"]))
