"""What a store holds of a run."""

from dataclasses import dataclass, fields
from typing import Any

from hypersimplex_study.config import RunConfig


@dataclass(frozen=True)
class Epoch:
    """What one epoch leaves behind; the accuracies by the loss's own decision and by plain argmax."""

    epoch: int
    train_loss: float | None
    lr: float
    val_accuracy: float | None
    test_accuracy: float | None
    val_argmax: float | None
    test_argmax: float | None
    seconds: float
    # Area under the ROC curve; log loss after calibration on the validation split.
    val_auc: float | None = None
    test_auc: float | None = None
    test_log_loss: float | None = None
    # Of networks alone: the steps since the beginning; the seconds, within `seconds`, of recomputing statistics and
    # thresholds and of evaluating; the share of the test samples that one class, the most frequent, is decided for.
    steps: float | None = None
    recompute_seconds: float | None = None
    evaluate_seconds: float | None = None
    one_class: float | None = None
    # What --metric can choose by besides (`evaluation`); "argmax" as above.
    val_log_loss: float | None = None
    val_balanced_accuracy: float | None = None
    test_balanced_accuracy: float | None = None
    val_f1: float | None = None
    test_f1: float | None = None
    val_balanced_accuracy_argmax: float | None = None
    test_balanced_accuracy_argmax: float | None = None
    val_f1_argmax: float | None = None
    test_f1_argmax: float | None = None
    val_auc_argmax: float | None = None
    test_auc_argmax: float | None = None
    val_log_loss_argmax: float | None = None
    test_log_loss_argmax: float | None = None


# Everything after `seconds` is a row of the table `measures`, which stores of the first version do not have.
MEASURES = tuple(f.name for f in fields(Epoch))[8:]


@dataclass(frozen=True)
class Run:
    key: str
    training: str
    config: RunConfig
    tuning: bool
    state: str
    attempts: int
    error: str | None
    provenance: dict[str, Any]
    epochs: tuple[Epoch, ...]
    metric: str | None = None  # what somebody wants it to be chosen and compared by

    def accuracies(self) -> list[tuple[float | None, float | None]]:
        """Return (validation, test) accuracy of every epoch by this variant's decision."""
        if self.config.decision == "argmax":
            return [(e.val_argmax, e.test_argmax) for e in self.epochs]
        return [(e.val_accuracy, e.test_accuracy) for e in self.epochs]

    @property
    def measure(self) -> str:
        """Return what the run is chosen and compared by."""
        return self.metric or ("auc" if self.config.is_trees else "accuracy")

    def scores(self) -> list[tuple[float | None, float | None]]:
        """Return (validation, test) of every epoch by that measure."""
        if self.measure == "accuracy":
            return self.accuracies()
        name = self.measure + ("_argmax" if self.config.decision == "argmax" else "")
        return [(getattr(e, f"val_{name}"), getattr(e, f"test_{name}")) for e in self.epochs]
