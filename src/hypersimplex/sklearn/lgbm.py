"""Boosted trees by LightGBM, trained with the HyperSimplex loss."""

from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data

from hypersimplex.boosting import HyperSimplexObjective, LightGBMMetric
from hypersimplex.sklearn._base import Array, ThresholdClassifier

try:
    import lightgbm as lgb
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "HyperSimplexLGBMClassifier needs LightGBM; install it with: pip install 'hypersimplex[boosting]'"
    ) from error


class HyperSimplexLGBMClassifier(ThresholdClassifier):
    """Fit boosted trees whose scores, projected over the whole data set, come close to the labels.

    Dense arrays, pandas and polars frames and scipy sparse matrices; missing values (NaN) are LightGBM's to place.

    Args:
        tau: temperature of the projection.
        prior: expected share of the positive class, or of every class. Default: as in the labels.
        hessian: "gauss-newton" or "ones", see `HyperSimplexObjective`.
        n_estimators, learning_rate, num_leaves, max_depth, min_child_samples, subsample, colsample_bytree, reg_lambda:
            as in LGBMClassifier.
        lgbm_params: any other parameters of LightGBM; of two names for one parameter the one given here counts.
        early_stopping: hold out validation_fraction of the rows, and stop once their loss has not improved for
            n_iter_no_change rounds.
        calibration: None, "sigmoid" (Platt) or "isotonic": how predict_proba is calibrated, on calibration_folds
            held-out folds; each costs one more training.
        random_state, n_jobs, verbose: as usual; verbose=n prints the loss of the held-out rows every n rounds.

    Attributes:
        classes_, n_features_in_, feature_names_in_: as usual.
        booster_: the trained lightgbm.Booster; it predicts raw scores.
        threshold_: of every class, or of the second if there are two.
        tau_: the tau it was trained with.
        n_iter_: rounds that are used.

    >>> X, y = np.arange(80.0).reshape(-1, 1), np.repeat(["low", "high"], 40)
    >>> HyperSimplexLGBMClassifier(n_estimators=20).fit(X, y).predict([[3.0], [70.0]]).tolist()
    ['low', 'high']
    """

    def __init__(
        self,
        *,
        tau: float = 1.0,
        prior: Any = None,
        hessian: str = "gauss-newton",
        n_estimators: int = 100,
        learning_rate: float = 0.1,
        num_leaves: int = 31,
        max_depth: int = -1,
        min_child_samples: int = 20,
        subsample: float = 1.0,
        colsample_bytree: float = 1.0,
        reg_lambda: float = 0.0,
        lgbm_params: dict[str, Any] | None = None,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 10,
        calibration: str | None = None,
        calibration_folds: int = 5,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.tau = tau
        self.prior = prior
        self.hessian = hessian
        self.n_estimators = n_estimators
        self.learning_rate = learning_rate
        self.num_leaves = num_leaves
        self.max_depth = max_depth
        self.min_child_samples = min_child_samples
        self.subsample = subsample
        self.colsample_bytree = colsample_bytree
        self.reg_lambda = reg_lambda
        self.lgbm_params = lgbm_params
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.calibration = calibration
        self.calibration_folds = calibration_folds
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "HyperSimplexLGBMClassifier":  # noqa: N803
        """Train on rows X and labels y; a row of weight w counts as w rows."""
        x, y, weights = self._read(X, y, sample_weight)
        self._calibrate(x, y, weights)
        held = None
        if self.early_stopping:
            x, held_x, y, held_y, weights, held_weights = self._hold_out(x, y, weights)
            held = lgb.Dataset(held_x, held_y, weight=held_weights)
        objective = HyperSimplexObjective(self.tau, prior=self.prior, hessian=self.hessian)
        training = lgb.Dataset(x, y, weight=weights)
        callbacks: list[Any] = []
        if held is not None:
            held.set_reference(training)
            callbacks.append(lgb.early_stopping(self.n_iter_no_change, verbose=False))
            if self.verbose > 0:
                callbacks.append(lgb.log_evaluation(self.verbose))
        self.booster_ = lgb.train(
            self._settings(objective),
            training,
            self.n_estimators,
            valid_sets=None if held is None else [held],
            feval=LightGBMMetric(objective, "loss"),
            callbacks=callbacks,
        )
        self.n_iter_ = self.booster_.best_iteration if held is not None else self.booster_.current_iteration()
        self.threshold_ = np.asarray(objective.calibrate(y, self._scores(x), weights).threshold)
        self.tau_ = self.tau
        return self

    def _settings(self, objective: HyperSimplexObjective) -> dict[str, Any]:
        given = self.lgbm_params or {}
        for name in _names("objective") & given.keys():
            raise ValueError(
                f"lgbm_params must not hold an objective, since this classifier has its own, got {name}={given[name]!r}"
            )
        subsample = next((given[name] for name in _names("bagging_fraction") & given.keys()), self.subsample)
        settings = {
            "learning_rate": self.learning_rate,
            "num_leaves": self.num_leaves,
            "max_depth": self.max_depth,
            "min_data_in_leaf": self.min_child_samples,
            "bagging_fraction": self.subsample,
            "bagging_freq": int(subsample < 1),
            "feature_fraction": self.colsample_bytree,
            "lambda_l2": self.reg_lambda,
            "seed": check_random_state(self.random_state).randint(2**31 - 1),
            "num_threads": 0 if self.n_jobs is None else self.n_jobs,
            "deterministic": True,
            # With a custom objective LightGBM stops where this filter leaves no feature: few rows, constant columns.
            "feature_pre_filter": False,
            "metric": "None",
            "verbosity": 1 if self.verbose > 0 else -1,
        }
        if len(self.classes_) > 2:
            settings["num_class"] = len(self.classes_)
        # Where a parameter comes under two names LightGBM takes its main one, which is ours.
        settings = {name: value for name, value in settings.items() if not _names(name) & given.keys()}
        return {**settings, **given, "objective": objective}

    def _scores(self, x: Any) -> Array:
        return np.asarray(self.booster_.predict(x, num_iteration=self.n_iter_, raw_score=True, validate_features=False))

    def _raw(self, x: Any) -> Array:
        return self._scores(x).reshape(x.shape[0], -1)

    def _check(self, *args: Any, reset: bool) -> Any:
        checked = validate_data(
            self,
            *args,
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


def _names(name: str) -> set[str]:
    """Of a parameter of LightGBM, which lists them in its documentation but through no public function."""
    return set(lgb.basic._ConfigAliases.get(name))


def _as_matrix(x: Any) -> Any:
    """LightGBM takes scipy's sparse matrices, not its sparse arrays."""
    if not sparse.issparse(x):
        return x
    return sparse.csr_matrix(x) if x.format == "csr" else sparse.csc_matrix(x)
