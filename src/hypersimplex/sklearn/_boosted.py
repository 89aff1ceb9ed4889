"""What the classifiers of boosted trees share: everything but the library that grows the trees."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from scipy import sparse
from sklearn.utils.validation import _check_sample_weight

from hypersimplex.boosting import HyperSimplexObjective
from hypersimplex.sklearn._base import ThresholdClassifier
from hypersimplex.sklearn._calibration import Array
from hypersimplex.sklearn._categories import Categories

Self = TypeVar("Self", bound="BoostedClassifier")
Rows = tuple[Any, Array, Any]  # features, labels, weights or None


class Training(NamedTuple):
    """What a library is asked to do."""

    rows: Rows
    rounds: int
    evals: Sequence[Rows]
    callbacks: Sequence[Any]
    start: Any  # a booster, or None
    objective: HyperSimplexObjective
    gradients: Callable[[Any, Any], tuple[Array, Array]]  # the objective, with its thresholds noted


class Trained(NamedTuple):
    """And what it has done."""

    booster: Any  # up to its best round
    made: int  # rounds, with those after the best one
    losses: dict[str, Any]  # of the sets in `evals`
    scores: Array | None  # of the training rows, where the best round is the last


class BoostedClassifier(ThresholdClassifier):
    """A subclass provides `_boost(training)`, `_scores(x)`, `_booster(model)`, `_rounds(booster)` and `_given`, the
    library's parameters."""

    booster_: Any
    n_iter_: int
    _read_once = ("classes_", "_categorical")
    _takes_categories = True

    def fit(
        self: Self,
        X: Any,  # noqa: N803
        y: Any,
        sample_weight: Any = None,
        *,
        eval_set: Any = None,
        eval_sample_weight: Sequence[Any] | None = None,
        categorical_feature: Any = "auto",
        callbacks: Sequence[Any] | None = None,
        init_model: Any = None,
    ) -> Self:
        """Train on rows X and labels y. A row of weight w counts as w rows.

        Args:
            X, y, sample_weight: as usual.
            eval_set: (X, y) or a list of such pairs. Their loss is in `evals_result_` afterwards. early_stopping uses
                them instead of held-out rows.
            eval_sample_weight: a list with the weights of each pair.
            categorical_feature: names or indices of the columns that are categories. "auto" means pandas' unordered
                categories.
            callbacks: callbacks of the library.
            init_model: a booster, the file of one, or a fitted classifier. n_estimators trees are added to it.
        """
        again = bool(self.warm_start) and hasattr(self, "booster_")
        x, y, weights = self._read(X, y, sample_weight, again)
        self._check_calibration(y)
        names = getattr(self, "feature_names_in_", ())
        self._categorical = self._categories.split_as_such(categorical_feature, names, x.shape[1])
        start, rounds = init_model, self.n_estimators
        if again and init_model is None:
            start, rounds = self.booster_, self.n_estimators - self.n_iter_
            if rounds < 1:
                rule = f"n_estimators must be above {self.n_iter_}, the rounds of the fit before, with warm_start"
                raise ValueError(f"{rule}, got {self.n_estimators}")
        evals = self._read_evals(eval_set, eval_sample_weight)
        rows = x, y, weights
        if self.early_stopping and not evals:
            rows, held = self._hold_out(x, y, weights)
            evals = [held]
        before = self._learn(*rows, rounds, start, evals, callbacks or ())
        if self.calibration is not None:
            as_many = self.n_iter_ if init_model is None else self.n_iter_ - before
            self._calibrate(x, y, weights, as_many, init_model)
        return self

    def _learn(
        self,
        x: Any,
        y: Array,
        weights: Any,
        rounds: int,
        start: Any,
        evals: Sequence[Rows] = (),
        callbacks: Sequence[Any] = (),
    ) -> int:
        """Train, find the thresholds, and say how many rounds there were before."""
        objective = HyperSimplexObjective(self.tau, prior=self.prior, hessian=self.hessian)
        objective._most_threads = self.n_jobs if self.n_jobs is not None and self.n_jobs > 0 else None
        thresholds: list[Any] = []  # of the scores before every round

        # A function, since LightGBM copies its parameters deeply, though not functions.
        def gradients(scores: Any, data: Any) -> tuple[Array, Array]:
            answer = objective(scores, data)
            thresholds.append(objective.threshold)
            return answer

        start = self._booster(start)
        before = 0 if start is None else self._rounds(start)
        trained = self._boost(Training((x, y, weights), rounds, evals, callbacks, start, objective, gradients))
        self.booster_, self.n_iter_ = trained.booster, self._rounds(trained.booster)
        self.__dict__.pop("evals_result_", None)
        if evals:
            self.evals_result_ = trained.losses
        # Where every round has made a tree and none is dropped, the objective has seen the scores after any of them.
        steady = trained.made - before == len(thresholds) and "dart" not in map(str, self._given.values())
        if trained.scores is None and steady:
            self.threshold_ = thresholds[self.n_iter_ - before]
        else:
            scores = self._scores(x) if trained.scores is None else trained.scores
            self.threshold_ = np.asarray(objective.calibrate(y, scores, weights).threshold)
        self.tau_ = self.tau
        return before

    def _read_evals(self, eval_set: Any, eval_sample_weight: Sequence[Any] | None) -> list[Rows]:
        pairs = [] if eval_set is None else [eval_set] if isinstance(eval_set, tuple) else list(eval_set)
        weights = [None] * len(pairs) if eval_sample_weight is None else list(eval_sample_weight)
        if len(weights) != len(pairs):
            raise ValueError(
                f"eval_sample_weight must have one entry for each of the {len(pairs)} sets of eval_set, "
                f"got {len(weights)}"
            )
        rows = []
        for (x, y), weight in zip(pairs, weights, strict=True):
            x = self._check(x, reset=False)
            weight = None if weight is None else _check_sample_weight(weight, x, ensure_non_negative=True)
            rows.append((x, self._indices(np.asarray(y), "in fit"), weight))
        return rows

    def _raw(self, x: Any) -> Array:
        return np.reshape(self._scores(x), (x.shape[0], -1))

    def _check(self, X: Any, *y: Any, reset: bool) -> Any:  # noqa: N803
        if reset:
            self._categories = Categories(X)
        checked = self._validate(
            self._categories.encode(X),
            *y,
            reset=reset,
            accept_sparse=("csr", "csc"),
            dtype=[np.float64, np.float32],
            ensure_all_finite="allow-nan",
        )
        return (_as_matrix(checked[0]), checked[1]) if isinstance(checked, tuple) else _as_matrix(checked)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        return tags


def without_objective(name: str, given: dict[str, Any] | None, names: set[str]) -> dict[str, Any]:
    """The other parameters of the library, none of which may be an objective."""
    given = dict(given or {})
    for key in names & given.keys():
        raise ValueError(
            f"{name} must not hold an objective, since this classifier has its own, got {key}={given[key]!r}"
        )
    return given


def _as_matrix(x: Any) -> Any:
    """LightGBM takes scipy's sparse matrices, not its sparse arrays."""
    if not sparse.issparse(x):
        return x
    return sparse.csr_matrix(x) if x.format == "csr" else sparse.csc_matrix(x)
