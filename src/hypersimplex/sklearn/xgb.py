"""Boosted trees by XGBoost, trained with the HyperSimplex loss."""

from os import PathLike
from typing import Any

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from hypersimplex._checks import missing
from hypersimplex.boosting import XGBoostMetric
from hypersimplex.sklearn._boosted import BoostedClassifier, Trained, Training, without_objective
from hypersimplex.sklearn._calibration import Array

try:
    import xgboost as xgb
except ModuleNotFoundError as error:
    raise missing("HyperSimplexXGBClassifier", "XGBoost", "xgboost") from error

# XGBoost's second names of the parameters that are set here.
SECOND = {
    "learning_rate": "eta",
    "reg_lambda": "lambda",
    "seed": "random_state",
    "nthread": "n_jobs",
}


class HyperSimplexXGBClassifier(BoostedClassifier):
    """Fit boosted trees whose scores, projected over the whole data set, come close to the labels.

    X may be a dense array, a pandas or polars frame, or a scipy sparse matrix. XGBoost handles missing values (NaN),
    and entries that a sparse matrix does not store. Columns of pandas categories are split as categories.

    Args:
        tau: temperature of the projection.
        prior: expected share of the positive class, or of every class. Default: the labels' own.
        hessian: "gauss-newton" or "ones", see `HyperSimplexObjective`.
        n_estimators, learning_rate, max_depth, min_child_weight, subsample, colsample_bytree, reg_lambda: as in
            XGBClassifier.
        xgb_params: any other parameters of XGBoost. They override the ones above, also under another name.
        class_weight: "balanced", or a weight per class, which multiplies the weights of its rows.
        early_stopping: hold out validation_fraction of the rows, or use the eval_set of fit, and stop when their loss
            has not improved for n_iter_no_change rounds.
        warm_start: fit continues from the trees it has, up to n_estimators in total.
        calibration: None, "sigmoid" (Platt) or "isotonic": how predict_proba is calibrated. It uses calibration_folds
            held-out folds, and each costs one more training.
        importance_type: "gain", "weight", "cover", "total_gain" or "total_cover", for feature_importances_.
        random_state, n_jobs, verbose: as usual; n_jobs limits the threads of the objective too; verbose=n prints the
            loss of the held-out rows every n rounds.

    Attributes:
        classes_: the classes, in the order of their columns.
        n_features_in_: the number of columns of X.
        feature_names_in_: the names of the columns of X, if it is a frame.
        booster_: the trained xgboost.Booster; it predicts raw scores with output_margin=True.
        threshold_: the threshold of every class, or of the second if there are two.
        tau_: the tau it was trained with.
        n_iter_: the number of rounds in use.
        evals_result_: the loss of held-out rows and of eval_set after every round, as valid_0, valid_1, ...

    >>> X, y = np.arange(80.0).reshape(-1, 1), np.repeat(["low", "high"], 40)
    >>> HyperSimplexXGBClassifier(n_estimators=20).fit(X, y).predict([[3.0], [70.0]]).tolist()
    ['low', 'high']
    """

    def __init__(
        self,
        *,
        tau: float = 1.0,
        prior: Any = None,
        hessian: str = "gauss-newton",
        n_estimators: int = 100,
        learning_rate: float = 0.3,
        max_depth: int = 6,
        min_child_weight: float = 1.0,
        subsample: float = 1.0,
        colsample_bytree: float = 1.0,
        reg_lambda: float = 1.0,
        xgb_params: dict[str, Any] | None = None,
        class_weight: Any = None,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 10,
        warm_start: bool = False,
        calibration: str | None = None,
        calibration_folds: int = 5,
        importance_type: str = "gain",
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self._keep(locals())

    @property
    def feature_importances_(self) -> Array:
        """The importance of every column, as importance_type says. The values sum to 1."""
        check_is_fitted(self)
        found = self.booster_.get_score(importance_type=self.importance_type)
        each = np.array([found.get(f"f{i}", 0.0) for i in range(self.n_features_in_)])
        return np.asarray(each / max(each.sum(), np.finfo(float).tiny))

    @property
    def _given(self) -> dict[str, Any]:
        return without_objective("xgb_params", self.xgb_params, {"objective"})

    def _boost(self, training: Training) -> Trained:
        given = self._given
        # Quantiles suffice for histograms, the default, though not for trees that were grown on others.
        histograms = given.get("tree_method", "hist") in ("auto", "hist") and given.get("booster") != "gblinear"
        kind = xgb.QuantileDMatrix if histograms and training.start is None else xgb.DMatrix
        data = self._matrix(kind, *training.rows)
        held = [
            (self._matrix(kind, *rows, **({} if kind is xgb.DMatrix else {"ref": data})), f"valid_{i}")
            for i, rows in enumerate(training.evals)
        ]
        callbacks = list(training.callbacks)
        if held and self.early_stopping:
            callbacks.append(xgb.callback.EarlyStopping(rounds=self.n_iter_no_change))
        last = _LastScores(data)
        losses: dict[str, Any] = {}
        booster = xgb.train(
            self._settings(given),
            data,
            training.rounds,
            evals=held,
            obj=training.gradients,
            custom_metric=XGBoostMetric(training.objective, "loss"),
            evals_result=losses,
            verbose_eval=self.verbose if held and self.verbose > 0 else False,
            xgb_model=training.start,
            callbacks=[*callbacks, last],
        )
        made, best = self._rounds(booster), int(booster.attr("best_iteration") or -1) + 1
        before = 0 if training.start is None else self._rounds(training.start)
        if before < best < made:
            return Trained(booster[:best], made, losses, None)
        return Trained(booster, made, losses, last.scores)

    def _matrix(self, kind: Any, x: Any, y: Any = None, weights: Any = None, **how: Any) -> Any:
        types = ["c" if i in self._categorical else "q" for i in range(x.shape[1])] if self._categorical else None
        return kind(
            x, y, weight=weights, feature_types=types, enable_categorical=types is not None, nthread=self.n_jobs, **how
        )

    def _settings(self, given: dict[str, Any]) -> dict[str, Any]:
        same = ("learning_rate", "max_depth", "min_child_weight", "subsample", "colsample_bytree", "reg_lambda")
        settings = {name: getattr(self, name) for name in same} | {
            "seed": int(check_random_state(self.random_state).randint(2**31 - 1)),
            "nthread": 0 if self.n_jobs is None else self.n_jobs,
            "disable_default_eval_metric": True,
        }
        if len(self.classes_) > 2:
            settings["num_class"] = len(self.classes_)
        return {name: value for name, value in settings.items() if SECOND.get(name) not in given} | given

    def _scores(self, x: Any) -> Array:
        rows = self._matrix(xgb.DMatrix, x)
        return np.asarray(self.booster_.predict(rows, output_margin=True))

    def _booster(self, model: Any) -> Any:
        if isinstance(model, str | PathLike):
            return xgb.Booster(model_file=model)
        return model.get_booster() if hasattr(model, "get_booster") else getattr(model, "booster_", model)

    def _rounds(self, booster: Any) -> int:
        return int(booster.num_boosted_rounds())


class _LastScores(xgb.callback.TrainingCallback):  # type: ignore[misc, unused-ignore]
    """The scores of the training rows, which XGBoost has at hand until the training ends. Later it needs all trees."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def after_training(self, model: Any) -> Any:
        self.scores = np.asarray(model.predict(self.data, output_margin=True))
        return model
