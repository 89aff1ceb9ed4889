"""What identifies a run. Two runs with the same configuration are the same run, on any machine."""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from types import NoneType
from typing import Any, get_args, get_type_hints

DESCRIPTIONS = {
    "cross-entropy": "softmax cross-entropy",
    "label-smoothing": "softmax cross-entropy with a tenth of every label spread over all classes",
    "squentropy": "softmax cross-entropy plus the mean square of the wrong classes' logits (Hui, Belkin, Wright)",
    "cross-entropy-warmup": "softmax cross-entropy with its own schedule: a tenth of the steps warm-up, then cosine",
    "hinge": "multiclass hinge, margin 1, summed over the wrong classes",
    "mse": "mean squared error between softmax and one-hot",
    "hypersimplex": "HyperSimplex with k from the batch's labels, decision by thresholds",
    "hypersimplex-half": "HyperSimplex with k = n/2 for every class, decision by thresholds",
    "hypersimplex-first-quarter": "HyperSimplex for the first quarter of the steps, cross-entropy after it",
    "hypersimplex-first-half": "HyperSimplex for the first half of the steps, cross-entropy after it",
    # Boosted trees only, but for "hypersimplex".
    "binary": "LightGBM's built-in logistic objective",
    "squared-error": "LightGBM's default objective: what the released baseline of the paper trained",
    "hypersimplex-ones": "HyperSimplex with a hessian of ones",
    "hypersimplex-paper": "HyperSimplex as in the paper's released scripts: ones, tau 0.001, gradient of the mean",
}
# A variant is a loss and the way a class is decided. Only the loss is trained: both decisions of one training are
# recorded, so that asking for the second, plain argmax, costs nothing.
ARGMAX = "-argmax"
TREE_LOSSES = ("binary", "squared-error", "hypersimplex", "hypersimplex-ones", "hypersimplex-paper")
NETWORK_LOSSES = tuple(v for v in DESCRIPTIONS if v == "hypersimplex" or v not in TREE_LOSSES)
# LightGBM: with usual settings and `width` leaves, or exactly as in the paper's released scripts.
TREES = ("lightgbm", "lightgbm-paper")
# What only networks use, with the value that all runs of boosted trees have.
OF_NETWORKS: dict[str, Any] = {"batch_size": 0, "optimizer": "adam", "schedule": "constant", "momentum": 0.0}
OF_NETWORKS |= {"augment": False, "precision": "float32", "evaluation": "running", "min_steps": None}
OF_NETWORKS |= {"bias_rate": 1.0, "smoothing": 0.0, "weight_decay": 0.0, "flips": False}
# The one question of a study is asked of the first of these that it has, against the baseline.
PRIMARY = (
    "hypersimplex",
    "hypersimplex-half",
    "hypersimplex-half-argmax",
    "hypersimplex-ones",
    "hypersimplex-paper",
    "hypersimplex-argmax",
)
OPTIMIZERS = ("adam", "sgd", "nesterov")
SCHEDULES = ("constant", "linear", "cosine", "warmup", "triangular")
EVALUATIONS = ("offsets", "recomputed", "running")
PRECISIONS = ("float32", "bfloat16")
# Fields that came later, with the value that stands for the runs before them: their keys stay what they were.
LATER: dict[str, Any] = {"evaluation": "running", "min_steps": None, "tunes_for": None, "drop": (), "resize": None}
LATER |= {"code": None, "bias_rate": 1.0, "smoothing": 0.0, "weight_decay": 0.0, "flips": False}


@dataclass(frozen=True)
class RunConfig:
    """Everything that decides the numbers of one run; device and threads are only recorded.

    >>> RunConfig(loss="hypersimplex-argmax").training().loss
    'hypersimplex'
    """

    dataset: str = "digits"
    label: str | None = None  # the label column of a CSV or Parquet file
    subset: int | None = None  # training samples used, before the validation split
    validation: float = 0.1  # part of the training samples held out for every choice
    network: str = "mlp"
    width: int = 64
    loss: str = "cross-entropy"
    tau: float | None = None  # HyperSimplex only
    prior: float | None = None  # HyperSimplex only; None takes k from the batch's labels
    batch_size: int = 128  # 0 for boosted trees, which see all rows in every round
    seed: int = 0
    epochs: int = 20  # of boosted trees: ten rounds each
    optimizer: str = "adam"
    lr: float = 1e-3
    schedule: str = "constant"
    momentum: float = 0.9  # sgd and nesterov only
    augment: bool = False
    precision: str = "float32"
    # What decides on the evaluated samples: BatchNorm statistics, thresholds and the offsets of the losses without
    # thresholds, all of one pass over training samples before every evaluation; the same without offsets, as in
    # versions before 0.3; or the running averages of training.
    evaluation: str = "offsets"
    min_steps: int | None = None  # an epoch is as many passes over the samples as a training of so many steps needs
    tunes_for: int | None = None  # of a shorter tuning run: the epochs of the runs that it chooses for

    drop: tuple[str, ...] = ()  # columns of a CSV or Parquet file that are left out
    resize: int | None = None  # images of a folder are made this wide and high
    code: str | None = None  # of a loss `module:function`: a hash of its source
    bias_rate: float = 1.0  # sgd and nesterov: times the learning rate, that of BatchNorm's biases
    smoothing: float = 0.0  # cross-entropy only: the part of every label that is spread over all classes
    weight_decay: float = 0.0  # sgd and nesterov: decoupled from the learning rate
    flips: bool = False  # an image is decided by the mean of its logits and its mirror image's

    def __post_init__(self) -> None:
        object.__setattr__(self, "drop", tuple(self.drop))
        for name, value in vars(self).items():
            # A store is JSON, which has no other numbers.
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError(f"{name} must be finite, got {value}")
        if self.is_trees or not is_own(self.loss):
            one_of("loss", *((self.loss, TREE_LOSSES) if self.is_trees else (trained(self.loss), NETWORK_LOSSES)))
        if self.is_trees:
            # What only networks use is set to one value.
            width = {"width": 250} if self.network == "lightgbm-paper" else {}
            for name, value in (OF_NETWORKS | width).items():
                object.__setattr__(self, name, value)
        one_of("optimizer", self.optimizer, OPTIMIZERS)
        one_of("schedule", self.schedule, SCHEDULES)
        one_of("precision", self.precision, PRECISIONS)
        one_of("evaluation", self.evaluation, EVALUATIONS)
        batch = 0 if self.is_trees else 1
        least = {"width": 1, "batch_size": batch, "epochs": 1, "min_steps": 1, "subset": 2, "resize": 4}
        for name, bound in least.items():
            value = getattr(self, name)
            if value is not None and value < bound:
                raise ValueError(f"{name} must be at least {bound}, got {value}")
        if self.tunes_for is not None and self.tunes_for < self.epochs:
            raise ValueError(f"tunes_for must be at least epochs, {self.epochs}, got {self.tunes_for}")
        if not 0 <= self.validation < 1:
            raise ValueError(f"validation must be at least 0 and below 1, got {self.validation}")
        for name in ("lr", "bias_rate"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}")
        if not 0 <= self.smoothing < 1:
            raise ValueError(f"smoothing must be at least 0 and below 1, got {self.smoothing}")
        if self.weight_decay < 0:
            raise ValueError(f"weight_decay must be at least 0, got {self.weight_decay}")
        self._set_what_is_unused()

    def _set_what_is_unused(self) -> None:
        """What a loss or an optimizer does not use must not make two runs of one: it is set to one value."""
        base = trained(self.loss)
        simplex = base.startswith("hypersimplex")
        tau = (1.5 if self.tau is None else self.tau) if simplex else None
        if simplex and self.is_trees:
            # With its own hessian tau only sets the unit of the scores; the other two are defined by theirs.
            tau = 0.001 if base == "hypersimplex-paper" else 1.0
        prior = {"hypersimplex": self.prior, "hypersimplex-half": 0.5, "hypersimplex-ones": self.prior}.get(base)
        if tau is not None and not tau > 0:
            raise ValueError(f"tau must be positive, got {tau}")
        if prior is not None and not 0 < prior < 1:
            raise ValueError(f"prior must be between 0 and 1, got {prior}")
        object.__setattr__(self, "tau", tau)
        object.__setattr__(self, "prior", prior)
        object.__setattr__(self, "smoothing", self.smoothing if base == "cross-entropy" else 0.0)
        if self.optimizer == "adam":
            for name, value in {"momentum": 0.0, "bias_rate": 1.0, "weight_decay": 0.0}.items():
                object.__setattr__(self, name, value)

    @property
    def is_trees(self) -> bool:
        return self.network in TREES

    def training(self) -> "RunConfig":
        """Return the configuration of the training that serves this run."""
        return replace(self, loss=trained(self.loss))

    @property
    def decision(self) -> str:
        return "argmax" if self.loss.endswith(ARGMAX) else "own"

    @property
    def beside(self) -> "RunConfig | None":
        """Return the same training decided by plain argmax; None where the run's own decision is that, or of trees."""
        other = (self.evaluation == "offsets" or self.tau is not None) and not self.is_trees
        return replace(self, loss=self.loss + ARGMAX) if other and self.decision == "own" else None

    def key(self) -> str:
        fields = {k: v for k, v in asdict(self).items() if k not in LATER or v != LATER[k]}
        text = json.dumps(fields, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def describe(self) -> str:
        batch = "" if self.is_trees else f" · batch {self.batch_size}"
        return f"{self.dataset} · {self.loss}{batch} · lr {short(self.lr)} · seed {self.seed}"

    def shown(self) -> dict[str, Any]:
        """Return the fields that this kind of run uses and that are not None."""
        unused = OF_NETWORKS if self.is_trees else ()
        return {k: v for k, v in asdict(self).items() if v is not None and k not in unused}

    def setting(self) -> str:
        """Return what is tuned, as text: the report compares losses at the setting their validation split chose."""
        parts = [f"lr {short(self.lr)}"]
        if self.tau is not None and self.tau != 1.5 and not self.is_trees:
            parts.append(f"tau {short(self.tau)}")
        if trained(self.loss) in ("hypersimplex", "hypersimplex-ones") and self.prior is not None:
            parts.append(f"prior {short(self.prior)}")
        if self.bias_rate != 1:
            parts.append(f"bias {short(self.bias_rate)}")
        if self.smoothing:
            parts.append(f"smoothing {short(self.smoothing)}")
        return ", ".join(parts)


def trained(loss: str) -> str:
    """Return the loss that is trained for a variant.

    >>> trained("hypersimplex-argmax")
    'hypersimplex'
    """
    return loss.removesuffix(ARGMAX)


def is_own(loss: str) -> bool:
    """Whether a loss is a function, `module:function`."""
    module, _, function = trained(loss).partition(":")
    return bool(module and function)


def about(loss: str) -> str:
    """Describe a variant."""
    if loss.endswith(ARGMAX):
        return f"the training of {trained(loss)}, decided by plain argmax"
    return "one's own loss" if is_own(loss) else DESCRIPTIONS[loss]


def short(value: float) -> str:
    """
    >>> short(1e-3), short(0.1 + 0.2)
    ('0.001', '0.30000000000000004')
    """
    text = f"{value:g}"
    return text if float(text) == value else repr(value)


def from_mapping(values: Mapping[str, Any]) -> RunConfig:
    """Make a configuration from stored values, ignoring columns that belong to something else."""
    known = {f.name: values[f.name] for f in fields(RunConfig) if f.name in values}
    before = {name: value for name, value in LATER.items() if known.get(name) is None}
    return RunConfig(**known | before)


def kinds_of(made: type) -> dict[str, type]:
    """What the fields of a dataclass hold: of a tuple its items, of what may be None the other type.

    >>> kinds_of(RunConfig)["drop"], kinds_of(RunConfig)["tau"]
    (<class 'str'>, <class 'float'>)
    """
    hints = get_type_hints(made)
    return {name: next((t for t in get_args(hint) if t is not NoneType), hint) for name, hint in hints.items()}


def is_a(value: object, kind: type) -> bool:
    """Whether a value, of TOML or JSON, is of a kind: a whole number is a number too, a truth value is none."""
    return isinstance(value, int | float if kind is float else kind) and isinstance(value, bool) == (kind is bool)


def one_of(name: str, value: object, allowed: Any) -> None:
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {value!r}")


def question(losses: Iterable[str], trees: bool, baseline: str | None = None) -> tuple[str, str | None]:
    """Return the baseline of a study of these losses, and the one that its one question is about.

    Without a baseline it is cross-entropy, of boosted trees binary, otherwise the first loss that is not HyperSimplex.

    >>> question(["hypersimplex", "hypersimplex-argmax", "mse"], trees=False)
    ('mse', 'hypersimplex')
    """
    there = list(dict.fromkeys(losses))
    usual = [loss for loss in ("binary" if trees else "cross-entropy",) if loss in there]
    base = baseline or [*usual, *(loss for loss in there if loss not in PRIMARY), *there][0]
    asked = (loss for loss in PRIMARY if loss in there and loss != base and not is_foil(loss, there))
    return base, next(asked, None)


def is_foil(loss: str, losses: Iterable[str]) -> bool:
    """Whether a variant only shows what plain argmax makes of a training that is also decided in another way."""
    return loss.endswith(ARGMAX) and trained(loss) in losses
