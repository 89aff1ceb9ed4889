"""What identifies a run. Two runs with the same configuration are the same run, on any machine."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

# A variant is a loss and the way a class is decided. Only the loss is trained: both decisions of one training are
# recorded, so that asking for the second costs nothing.
VARIANTS: dict[str, tuple[str, str]] = {
    "cross-entropy": ("cross-entropy", "own"),
    "hinge": ("hinge", "own"),
    "mse": ("mse", "own"),
    "hypersimplex": ("hypersimplex", "own"),
    "hypersimplex-argmax": ("hypersimplex", "argmax"),
    "hypersimplex-half": ("hypersimplex-half", "own"),
    "hypersimplex-half-argmax": ("hypersimplex-half", "argmax"),
    # Boosted trees only, but for "hypersimplex".
    "binary": ("binary", "own"),
    "squared-error": ("squared-error", "own"),
    "hypersimplex-ones": ("hypersimplex-ones", "own"),
    "hypersimplex-paper": ("hypersimplex-paper", "own"),
}
TREE_LOSSES = ("binary", "squared-error", "hypersimplex", "hypersimplex-ones", "hypersimplex-paper")
NETWORK_LOSSES = tuple(v for v in VARIANTS if v == "hypersimplex" or v not in TREE_LOSSES)
# LightGBM: with usual settings and `width` leaves, or exactly as in the paper's released scripts.
TREES = ("lightgbm", "lightgbm-paper")
DESCRIPTIONS = {
    "cross-entropy": "softmax cross-entropy",
    "hinge": "multiclass hinge, margin 1, summed over the wrong classes",
    "mse": "mean squared error between softmax and one-hot",
    "hypersimplex": "HyperSimplex with k from the batch's labels, decision by thresholds",
    "hypersimplex-argmax": "the same training, decision by plain argmax",
    "hypersimplex-half": "HyperSimplex with k = n/2 for every class, decision by thresholds",
    "hypersimplex-half-argmax": "the same training, decision by plain argmax: the paper's released code",
    "binary": "LightGBM's built-in logistic objective",
    "squared-error": "LightGBM's default objective: what the released baseline of the paper trained",
    "hypersimplex-ones": "HyperSimplex with a hessian of ones",
    "hypersimplex-paper": "HyperSimplex as in the paper's released scripts: ones, tau 0.001, gradient of the mean",
}
OPTIMIZERS = ("adam", "sgd")
SCHEDULES = ("constant", "linear", "cosine")
PRECISIONS = ("float32", "bfloat16")
Decision = Literal["own", "argmax"]


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
    momentum: float = 0.9  # sgd only
    augment: bool = False
    precision: str = "float32"

    def __post_init__(self) -> None:
        one_of("loss", self.loss, TREE_LOSSES if self.is_trees else NETWORK_LOSSES)
        if self.is_trees:
            self._without_a_network()
        one_of("optimizer", self.optimizer, OPTIMIZERS)
        one_of("schedule", self.schedule, SCHEDULES)
        one_of("precision", self.precision, PRECISIONS)
        for name in ("width", "batch_size", "epochs"):
            if getattr(self, name) < (0 if self.is_trees and name == "batch_size" else 1):
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.subset is not None and self.subset < 2:
            raise ValueError(f"subset must be at least 2, got {self.subset}")
        if not 0 <= self.validation < 1:
            raise ValueError(f"validation must be at least 0 and below 1, got {self.validation}")
        if not self.lr > 0:
            raise ValueError(f"lr must be positive, got {self.lr}")
        # What a loss does not use must not make two runs of one: it is set to one value.
        base = VARIANTS[self.loss][0]
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
        object.__setattr__(self, "momentum", self.momentum if self.optimizer == "sgd" else 0.0)

    @property
    def is_trees(self) -> bool:
        return self.network in TREES

    def _without_a_network(self) -> None:
        """Set what only networks use to one value."""
        fixed: dict[str, Any] = {"batch_size": 0, "optimizer": "adam", "schedule": "constant"}
        fixed |= {"augment": False, "precision": "float32"}
        if self.network == "lightgbm-paper":
            fixed["width"] = 250
        for name, value in fixed.items():
            object.__setattr__(self, name, value)

    def training(self) -> "RunConfig":
        """Return the configuration of the training that serves this run."""
        return replace(self, loss=VARIANTS[self.loss][0])

    @property
    def decision(self) -> str:
        return VARIANTS[self.loss][1]

    def key(self) -> str:
        text = json.dumps(asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def describe(self) -> str:
        batch = "" if self.is_trees else f" · batch {self.batch_size}"
        return f"{self.dataset} · {self.loss}{batch} · lr {self.lr:g} · seed {self.seed}"

    def shown(self) -> dict[str, Any]:
        """Return the fields that this kind of run uses and that are not None."""
        unused = {"batch_size", "optimizer", "schedule", "momentum", "augment", "precision"} if self.is_trees else set()
        return {k: v for k, v in asdict(self).items() if v is not None and k not in unused}

    def setting(self) -> str:
        """Return what is tuned, as text: the report compares losses at the setting their validation split chose."""
        parts = [f"lr {self.lr:g}"]
        if self.tau is not None and self.tau != 1.5 and not self.is_trees:
            parts.append(f"tau {self.tau:g}")
        if VARIANTS[self.loss][0] in ("hypersimplex", "hypersimplex-ones") and self.prior is not None:
            parts.append(f"prior {self.prior:g}")
        return ", ".join(parts)


def from_mapping(values: Mapping[str, Any]) -> RunConfig:
    """Make a configuration from stored values, ignoring columns that belong to something else."""
    return RunConfig(**{f.name: values[f.name] for f in fields(RunConfig) if f.name in values})


def one_of(name: str, value: object, allowed: Any) -> None:
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {value!r}")
