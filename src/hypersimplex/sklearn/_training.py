"""The network of HyperSimplexMLPClassifier and its training loop."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from numbers import Integral
from typing import Any

import numpy as np
from scipy import sparse

from hypersimplex._checks import missing
from hypersimplex.sklearn._calibration import Array

try:
    import torch
except ModuleNotFoundError as error:
    raise missing("HyperSimplexMLPClassifier", "PyTorch", "sklearn") from error

from torch import Tensor, nn

from hypersimplex.boosting import HyperSimplexObjective
from hypersimplex.torch import _tracking, hypersimplex_loss

ACTIVATIONS = {"relu": nn.ReLU, "tanh": nn.Tanh, "gelu": nn.GELU}
ROWS_AT_ONCE = 1 << 16
ENTRIES_AT_ONCE = 1 << 24  # of sparse rows made dense
SMALL = 10_000_000  # multiplications of a batch, below which a second thread costs more than it saves


class Training:
    """One network, its optimizer and its random numbers: what must survive between two calls of partial_fit."""

    def __init__(self, options: Any, features: int, columns: int, dtype: Any, seed: int) -> None:
        if options.activation not in ACTIVATIONS:
            raise ValueError(f"activation must be one of {sorted(ACTIVATIONS)}, got {options.activation!r}")
        self.options = options
        self.dtype = torch.float64 if dtype == np.float64 else torch.float32
        self.random = torch.Generator().manual_seed(seed)
        self.hidden, self.activation = _widths(options.hidden_layer_sizes), options.activation
        widths = [features, *self.hidden, columns]
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
        self.seen = np.zeros(columns)  # how many rows it is made of

    def go_on(self) -> "Training":
        """With the settings of now, except those that the network was made by."""
        now = self.options
        pairs = {"hidden_layer_sizes": (self.hidden, _widths(now.hidden_layer_sizes))}
        for name, (was, given) in (pairs | {"activation": (self.activation, now.activation)}).items():
            if was != given:
                raise ValueError(f"{name} must be {was!r}, as in the training that goes on, got {given!r}")
        for group in self.optimiser.param_groups:
            group.update(lr=now.learning_rate, weight_decay=now.alpha)
        return self

    def run(self, x: Any, y: Array, weights: Any, held: tuple[Any, Array, Any] | None) -> None:
        """Epochs until the loss stops improving."""
        options, best, waited = self.options, float("inf"), 0
        best_state = None
        for epoch in range(options.max_iter):
            loss = self.epoch(x, y, weights)
            if held is not None:
                loss = float(self._loss(self.logits(held[0]), *self._targets(*held[1:])))
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

    def epoch(self, x: Any, y: Array, weights: Any) -> float:
        """One pass over the rows in random order; the mean loss of its batches."""
        rows = x if sparse.issparse(x) else _tensor(x).to(self.options.device, self.dtype)
        labels, given = self._targets(y, weights)
        size = min(200, len(y)) if self.options.batch_size == "auto" else int(self.options.batch_size)
        if size < 2 and self.options.batch_size != "auto":
            raise ValueError(f"batch_size must be at least 2, for a gradient, or 'auto', got {size}")
        with _one_thread_if(size * sum(w.numel() for w in self.network.parameters() if w.dim() == 2) < SMALL):
            return self._batches(rows, labels, given, size)

    def _batches(self, rows: Any, labels: Tensor, given: Tensor | None, size: int) -> float:
        total = 0.0
        for batch in torch.randperm(len(labels), generator=self.random).split(size):
            where = batch.to(labels.device)
            weight = None if given is None else given[where]
            if weight is not None and not bool((weight > 0).any()):
                continue
            part = self._dense(rows[batch.numpy()]) if sparse.issparse(rows) else rows[where]
            loss = self._loss(self.network(part), labels[where], weight)
            self.optimiser.zero_grad(set_to_none=True)
            loss.backward()
            self.optimiser.step()
            total += float(loss.detach()) * len(batch)
        self.losses.append(total / len(labels))
        return self.losses[-1]

    @torch.no_grad()
    def logits(self, x: Any) -> Tensor:
        """One column for each class, or one for two classes."""
        step = max(1, min(ROWS_AT_ONCE, ENTRIES_AT_ONCE // x.shape[1]))
        parts = (x[begin : begin + step] for begin in range(0, x.shape[0], step))
        return torch.cat([self.network(self._dense(part)) for part in parts])

    def raw(self, x: Any) -> Array:
        return self.logits(x).cpu().numpy()

    def settle(self, x: Any, y: Array, weights: Any) -> Array:
        """The thresholds of these rows, all of them projected together."""
        self.average = self._thresholds(x, y, weights).astype(np.float64)
        self.seen = np.where(_has_both_sides(y, weights, len(self.average)), len(y), 0.0)
        return self.average.copy()

    def follow(self, x: Any, y: Array, weights: Any) -> Array:
        """The running average of the thresholds, as in HyperSimplexLoss; inf for a class that has none yet.

        A class without weight here, or with all of it, has no threshold here and keeps what it had.
        """
        here, moves = self._thresholds(x, y, weights), _has_both_sides(y, weights, len(self.average))
        average, seen, mu, which = (_tensor(array) for array in (self.average, self.seen, here, moves))
        _tracking.follow(average, seen, mu, which, len(y), None)  # in place: the arrays share their memory
        return np.where(self.seen > 0, self.average, np.inf)

    def _thresholds(self, x: Any, y: Array, weights: Any) -> Array:
        raw = self.raw(x)
        return _find_thresholds(_as_columns(y, raw.shape[1]), raw, weights, self.options.tau, self.options.prior)

    def _loss(self, logits: Tensor, target: Tensor, weights: Tensor | None) -> Tensor:
        options = self.options
        if weights is not None:
            return _weighted_loss(logits, target, weights, options.tau, options.prior)
        return hypersimplex_loss(logits, target, prior=options.prior, tau=options.tau)

    def _targets(self, y: Array, weights: Any) -> tuple[Tensor, Tensor | None]:
        device, target = self.options.device, _tensor(_as_columns(y, len(self.average)))
        given = None if weights is None else _tensor(weights).to(device, self.dtype)
        return target.to(device, self.dtype if target.ndim == 2 else torch.int64), given

    def _dense(self, x: Any) -> Tensor:
        return _tensor(x.toarray() if sparse.issparse(x) else x).to(self.options.device, self.dtype)


@contextmanager
def _one_thread_if(small: bool) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1 if small else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _as_columns(y: Array, columns: int) -> Array:
    """Classes as they are, unless two of them share one column."""
    return y[:, None] if y.ndim < 2 and columns == 1 else y


def _has_both_sides(y: Array, weights: Any, columns: int) -> Array:
    """For every column, whether both its class and the others have weight."""
    y = _as_columns(y if weights is None else y[weights > 0], columns)
    counts = y.sum(0) if y.ndim == 2 else np.bincount(y, minlength=columns)
    return np.asarray((counts > 0) & (counts < len(y)))


def _widths(sizes: Any) -> list[int]:
    """The widths of the hidden layers, given as a list or as a single number."""
    widths = list(sizes) if np.iterable(sizes) else [sizes]
    for width in widths:
        if not isinstance(width, Integral) or width < 1:
            raise ValueError(f"hidden_layer_sizes must be whole numbers above 0, got {sizes!r}")
    return [int(width) for width in widths]


def _tensor(array: Array) -> Tensor:
    """Without a copy where PyTorch allows it: it wants arrays that may be written."""
    return torch.from_numpy(np.require(array, requirements=["C", "W"]))


def _find_thresholds(target: Array, raw: Array, weights: Array | None, tau: Any, prior: Any) -> Array:
    """The loss of all columns of raw scores. The target holds classes (n,), or 0 and 1 in one column per class."""
    if target.ndim == 1:
        return np.asarray(HyperSimplexObjective(tau, prior=prior).calibrate(target, raw, weights).threshold)
    each = [np.broadcast_to(value, raw.shape[1:]) for value in (tau, prior)]
    columns = zip(target.T, raw.T, *each, strict=True)
    return np.concatenate(
        [HyperSimplexObjective(t, prior=p).calibrate(y, x, weights).threshold for y, x, t, p in columns]
    )


def _weighted_loss(logits: Tensor, target: Tensor, weights: Tensor, tau: Any, prior: Any) -> Tensor:
    """The mean loss where a row of weight w counts as w rows, in k as well.

    The thresholds come from the boosting objective's search; their dependence on the logits is put back by hand: the
    threshold moves with the weighted mean of the active logits.
    """
    labels, shown, given = (part.detach().cpu().numpy() for part in (target, logits, weights))
    mu = torch.as_tensor(_find_thresholds(labels, shown, given, tau, prior), dtype=logits.dtype, device=logits.device)
    tau = torch.as_tensor(tau, dtype=logits.dtype, device=logits.device)
    scaled = (logits.detach() - mu) / tau
    active = ((scaled > 0) & (scaled < 1)) * weights[:, None]
    share = active / active.sum(0).clamp(min=torch.finfo(logits.dtype).tiny)
    mu = mu + (share * (logits - logits.detach())).sum(0)
    projected = ((logits - mu) / tau).clamp(0, 1)
    if target.ndim == 1:
        target = nn.functional.one_hot(target, logits.shape[1])
    errors: Tensor = (projected - target).square().sum(1)
    return (errors * weights).sum() / (2 * weights.sum())
