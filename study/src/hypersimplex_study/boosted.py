"""One training of boosted trees by LightGBM: the same data, rounds, seeds and candidates for every loss.

An epoch is ten rounds. A training stops early once the validation AUC has not improved for some epochs. It has no
checkpoints: an interrupted one starts again.
"""

import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from hypersimplex.boosting import HyperSimplexObjective
from hypersimplex_study.batches import split
from hypersimplex_study.config import RunConfig
from hypersimplex_study.evaluation import area, by_decision
from hypersimplex_study.formats import Array
from hypersimplex_study.records import Epoch
from hypersimplex_study.samples import Data
from hypersimplex_study.tabular import SOURCES
from hypersimplex_study.train import DivergedError, Runtime

try:
    import lightgbm as lgb
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "network lightgbm needs LightGBM; install it with: pip install 'lightgbm>=4.0'"
    ) from error

ROUNDS = 10  # an epoch
# Fixed with the data's bins, so that all losses share them.
BINS = {"max_bin": 255, "feature_pre_filter": False, "verbosity": -1, "data_random_seed": 1}
SETTINGS: dict[str, dict[str, Any]] = {
    "lightgbm": {"bagging_fraction": 0.8, "bagging_freq": 1, "feature_fraction": 0.8},
    # Without bagging_freq LightGBM leaves bagging_fraction unused, there as here.
    "lightgbm-paper": {
        "bagging_fraction": 0.8,
        "feature_fraction": 0.8,
        "min_data_in_leaf": 1,
        "min_sum_hessian_in_leaf": 100,
    },
}
PATIENCE = {"lightgbm": 3, "lightgbm-paper": 1}  # epochs without a better validation AUC


class Rows(lgb.Sequence):  # type: ignore[misc, unused-ignore]
    """Some rows of an array on disk, read in pieces."""

    batch_size = 65536

    def __init__(self, x: Array, rows: Array) -> None:
        self.x, self.rows = x, rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, which: Any) -> Array:
        # LightGBM takes nothing else from a sequence.
        return np.asarray(self.x[self.rows[which]], dtype=np.float64)


def check_classes(data: Data) -> None:
    if len(data.classes) != 2 or data.train_x.ndim != 2:
        raise ValueError(
            f"network lightgbm needs rows of numbers in two classes, got {len(data.classes)} in {data.name}"
        )


def usable(data: Data, subset: int | None, validation: float) -> tuple[Array, Array]:
    """Return the rows to train on and to validate on."""
    # A preset has one size for all its sets: a smaller set is used whole.
    subset = None if subset is None or subset >= len(data.train_y) else subset
    return split(data, subset, 0.0 if data.validation else validation)


@lru_cache(maxsize=2)
def prepare(data: Data, subset: int | None, validation: float, threads: int) -> dict[str, Any]:
    """Bin the parts of a data set once a process: the runs of a study share them. "validation" may be None."""
    check_classes(data)
    rows, held = usable(data, subset, validation)

    def dataset(x: Any, y: Array, which: Array | None, reference: Any = None) -> Any:
        if which is not None and len(which) < len(y):
            x, y = Rows(x, which) if isinstance(x, np.memmap) else x[which], y[which]
        categories: Any = sorted(data.categories.values()) or "auto"
        params = {**BINS, "num_threads": threads}
        made = lgb.Dataset(x, y, reference=reference, params=params, categorical_feature=categories)
        return made.construct()

    train = dataset(data.train_x, data.train_y, rows)
    parts = {"train": train, "validation": None, "test": dataset(data.test_x, data.test_y, None, train)}
    if data.validation is not None:
        parts["validation"] = dataset(*data.validation, None, train)
    elif len(held):
        parts["validation"] = dataset(data.train_x, data.train_y, held, train)
    return parts


class Loss:
    """A built-in objective of LightGBM, by its name, and how its scores decide."""

    def __init__(self, name: str) -> None:
        self.objective = {"binary": "binary", "squared-error": "regression"}[name]
        self.gradients: Callable[..., Any] | None = None

    def decide(self, scores: Array) -> Array:
        # Scores as LightGBM hands them out: probabilities for "binary".
        return np.asarray(scores > 0.5)

    def linear(self, scores: Array) -> Array:
        """Scores on the scale on which a sigmoid is fitted to them."""
        if self.objective == "regression":
            return scores
        p = np.clip(scores, 1e-15, 1 - 1e-15)
        return np.asarray(np.log(p) - np.log1p(-p))

    def value(self, y: Array, scores: Array) -> float:
        if self.objective == "regression":
            return float(np.mean((scores - y) ** 2))
        return log_loss(y, scores)


class HyperSimplex:
    def __init__(self, config: RunConfig) -> None:
        assert config.tau is not None
        hessian = "gauss-newton" if config.loss == "hypersimplex" else "ones"
        self.gradients = HyperSimplexObjective(config.tau, prior=config.prior, hessian=hessian)
        self.objective = "none"

    def decide(self, scores: Array) -> Array:
        return self.gradients.predict(scores) > 0

    def linear(self, scores: Array) -> Array:
        return scores

    def value(self, y: Array, scores: Array) -> float:
        """The mean loss; the thresholds become those of these scores, the training rows'."""
        return self.gradients.calibrate(y, scores).loss(y, scores)


class Boosting:
    def __init__(self, config: RunConfig, data: Data, runtime: Runtime) -> None:
        self.config, self.data, self.runtime = config.training(), data, runtime
        threads = runtime.threads or 0
        self.parts = prepare(data, config.subset, config.validation, threads)
        hypersimplex = config.loss.startswith("hypersimplex")
        self.loss: Loss | HyperSimplex = HyperSimplex(config) if hypersimplex else Loss(config.loss)
        settings = {
            **BINS,
            **SETTINGS[config.network],
            "objective": self.loss.objective,
            "num_leaves": config.width,
            "learning_rate": self.learning_rate(),
            "seed": config.seed,
            "deterministic": True,
            "metric": "None",
            "num_threads": threads,
        }
        self.booster = lgb.Booster(settings, self.parts["train"])
        for name in ("validation", "test"):
            if self.parts[name] is not None:
                self.booster.add_valid(self.parts[name], name)
        self.history: list[Epoch] = []
        self.stuck = False  # no tree can be split any more

    @property
    def sizes(self) -> dict[str, int]:
        return {name: 0 if part is None else part.num_data() for name, part in self.parts.items()}

    def learning_rate(self) -> float:
        """The released scripts take the gradient of the mean, some with another factor: with ones, a smaller step."""
        if self.config.loss != "hypersimplex-paper":
            return self.config.lr
        known = SOURCES.get(self.config.dataset)
        rows = self.sizes["train"]
        return self.config.lr * 2 / rows * (known.gradient_times if known else 1e-3)

    @property
    def finished(self) -> bool:
        if self.stuck or len(self.history) >= self.config.epochs:
            return True
        scores = [e.val_auc for e in self.history if e.val_auc is not None]
        return bool(scores) and len(scores) - 1 - scores.index(max(scores)) >= PATIENCE[self.config.network]

    def run_epoch(self) -> Epoch:
        """Boost ten rounds, evaluate, and return what is to be recorded."""
        began = time.perf_counter()
        for _ in range(ROUNDS):
            self.stuck = bool(self.booster.update(fobj=self.loss.gradients))
            if self.stuck:
                break
        epoch = self.evaluate(began)
        self.history.append(epoch)
        return epoch

    def evaluate(self, began: float) -> Epoch:
        scores, number = self.scores(), len(self.history)
        if not all(np.isfinite(s).all() for s in scores.values()):
            raise DivergedError(f"the scores after epoch {number} are not finite")
        y = {name: self.parts[name].get_label() for name in scores}
        value = self.loss.value(y["train"], scores["train"])
        found: dict[str, Any] = dict.fromkeys(("val_accuracy", "val_argmax", "test_argmax"))
        for name, part in (("validation", "val"), ("test", "test")):
            if name in scores:
                decided = self.loss.decide(scores[name])
                some = by_decision(y[name].astype(np.int64), decided.astype(np.int64))
                some |= {"accuracy": float(np.mean(decided == y[name])), "auc": area(y[name] > 0, scores[name])}
                found |= {f"{part}_{measure}": v for measure, v in some.items()}
        if "validation" in scores:
            held, test = (self.loss.linear(scores[name]) for name in ("validation", "test"))
            found["test_log_loss"] = log_loss(y["test"], calibrated(y["validation"], held, test))
            found["val_log_loss"] = log_loss(y["validation"], calibrated(y["validation"], held, held))
        return Epoch(number, value, self.config.lr, seconds=time.perf_counter() - began, **found)

    def scores(self) -> dict[str, Array]:
        """The scores of all parts as LightGBM keeps them: shown to metrics, so that nothing is predicted anew."""
        seen: dict[str, Array] = {}

        def look(scores: Array, data: Any) -> tuple[str, float, bool]:
            name = next(name for name, part in self.parts.items() if part is data)
            seen[name] = scores.astype(np.float64)
            return "look", 0.0, False

        self.booster.eval_train(look)
        self.booster.eval_valid(look)
        return seen

    def snapshot(self) -> bytes | None:
        """No checkpoint: a booster read back draws other random numbers, so that the run would become another one."""
        return None

    def restore(self, raw: bytes) -> None:
        raise NotImplementedError("boosted trees have no checkpoints")


def log_loss(y: Array, p: Array) -> float:
    p = np.clip(p, 1e-15, 1 - 1e-15)
    return float(-np.mean(np.where(y > 0, np.log(p), np.log1p(-p))))


def calibrated(y: Array, scores: Array, others: Array) -> Array:
    """Platt's calibration, fitted to some rows' scores, as probabilities of other rows.

    Its targets stop short of 0 and 1: a sigmoid fitted to separable scores would be a step, and so without doubt.
    """
    from sklearn.linear_model import LogisticRegression

    counts = np.bincount(y.astype(np.int64), minlength=2)
    target = np.where(y > 0, counts[1] + 1, 1) / (np.where(y > 0, counts[1], counts[0]) + 2)
    middle, spread = scores.mean(), scores.std()
    if np.ptp(scores) == 0:
        return np.full(len(others), target.mean())
    rows = np.tile((scores - middle) / spread, 2)[:, None]
    model = LogisticRegression(C=1e9, solver="newton-cholesky")
    model.fit(rows, np.repeat([1, 0], len(y)), np.concatenate([target, 1 - target]))
    probabilities: Array = model.predict_proba(((others - middle) / spread)[:, None])[:, 1]
    return probabilities
