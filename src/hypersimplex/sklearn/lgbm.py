"""Boosted trees by LightGBM, trained with the HyperSimplex loss."""

from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from hypersimplex._checks import missing
from hypersimplex.boosting import LightGBMMetric
from hypersimplex.sklearn._boosted import BoostedClassifier, Trained, Training, without_objective
from hypersimplex.sklearn._calibration import Array

try:
    import lightgbm as lgb
except ModuleNotFoundError as error:
    raise missing("HyperSimplexLGBMClassifier", "LightGBM", "lightgbm") from error


class HyperSimplexLGBMClassifier(BoostedClassifier):
    """Fit boosted trees whose scores, projected over the whole data set, come close to the labels.

    X may be a dense array, a pandas or polars frame, or a scipy sparse matrix. LightGBM handles missing values (NaN).
    Columns of pandas categories are split as categories.

    Args:
        tau: temperature of the projection.
        prior: expected share of the positive class, or of every class. Default: the labels' own.
        hessian: "gauss-newton" or "ones", see `HyperSimplexObjective`.
        n_estimators, learning_rate, num_leaves, max_depth, min_child_samples, subsample, colsample_bytree, reg_lambda:
            as in LGBMClassifier.
        lgbm_params: any other parameters of LightGBM. They override the ones above, also under another name.
        class_weight: "balanced", or a weight per class, which multiplies the weights of its rows.
        early_stopping: hold out validation_fraction of the rows, or use the eval_set of fit, and stop when their loss
            has not improved for n_iter_no_change rounds.
        warm_start: fit continues from the trees it has, up to n_estimators in total.
        calibration: None, "sigmoid" (Platt) or "isotonic": how predict_proba is calibrated. It uses calibration_folds
            held-out folds, and each costs one more training.
        importance_type: "split" or "gain", for feature_importances_.
        random_state, n_jobs, verbose: as usual; n_jobs limits the threads of the objective too; verbose=n prints the
            loss of the held-out rows every n rounds.

    Attributes:
        classes_: the classes, in the order of their columns.
        n_features_in_: the number of columns of X.
        feature_names_in_: the names of the columns of X, if it is a frame.
        booster_: the trained lightgbm.Booster; it predicts raw scores.
        threshold_: the threshold of every class, or of the second if there are two.
        tau_: the tau it was trained with.
        n_iter_: the number of rounds in use.
        evals_result_: the loss of held-out rows and of eval_set after every round, as valid_0, valid_1, ...

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
        class_weight: Any = None,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 10,
        warm_start: bool = False,
        calibration: str | None = None,
        calibration_folds: int = 5,
        importance_type: str = "split",
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self._keep(locals())

    @property
    def feature_importances_(self) -> Array:
        """In how many splits every column is used, or with importance_type="gain" what these splits gained."""
        check_is_fitted(self)
        return np.asarray(self.booster_.feature_importance(self.importance_type))

    @property
    def _given(self) -> dict[str, Any]:
        return without_objective("lgbm_params", self.lgbm_params, _names("objective"))

    def _boost(self, training: Training) -> Trained:
        data = self._dataset(training.rows)
        held = [self._dataset(rows, data) for rows in training.evals]
        callbacks, losses = list(training.callbacks), dict[str, Any]()
        if held:
            callbacks.append(lgb.record_evaluation(losses))
            if self.early_stopping:
                callbacks.append(lgb.early_stopping(self.n_iter_no_change, verbose=False))
            if self.verbose > 0:
                callbacks.append(lgb.log_evaluation(self.verbose))
        booster = lgb.train(
            self._settings() | {"objective": training.gradients},
            data,
            training.rounds,
            valid_sets=held or None,
            feval=LightGBMMetric(training.objective, "loss"),
            init_model=training.start,
            keep_training_booster=True,
            callbacks=callbacks,
        )
        made = booster.current_iteration()
        scores = _training_scores(booster) if booster.best_iteration in (0, made) else None
        booster.model_from_string(booster.model_to_string()).free_dataset()  # the rounds after the best one go
        return Trained(booster, made, losses, scores)

    def _dataset(self, rows: Any, reference: Any = None) -> Any:
        x, y, weights = rows
        return lgb.Dataset(x, y, reference, weights, categorical_feature=self._categorical or "auto")

    def _settings(self) -> dict[str, Any]:
        given = self._given
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
        return {name: value for name, value in settings.items() if not _names(name) & given.keys()} | given

    def _scores(self, x: Any) -> Array:
        return np.asarray(self.booster_.predict(x, raw_score=True, validate_features=False))

    def _booster(self, model: Any) -> Any:
        if isinstance(model, str | Path):
            return lgb.Booster(model_file=model)
        return getattr(model, "booster_", model)

    def _rounds(self, booster: Any) -> int:
        return int(booster.current_iteration())


def _training_scores(booster: Any) -> Array:
    """The scores of the training rows. LightGBM hands them out only to a metric."""
    kept: dict[str, Array] = {}

    def keep(scores: Array, data: Any) -> tuple[str, float, bool]:
        kept["scores"] = scores.copy()
        return "kept", 0.0, False

    booster.eval_train(keep)
    return kept["scores"]


def _names(name: str) -> set[str]:
    """All names of a parameter of LightGBM. No public function lists them, only its documentation."""
    return set(lgb.basic._ConfigAliases.get(name))
