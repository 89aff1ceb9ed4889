"""What is measured on the test set: its name, the better direction, and how it is written."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Measure:
    name: str
    title: str
    percent: bool  # written in percent, differences in points; otherwise with four decimals
    higher: bool = True  # is better

    @property
    def axis(self) -> str:
        return f"test {self.title}, %" if self.percent else f"test {self.title}"

    @property
    def unit(self) -> str:
        return "points" if self.percent else self.title

    @property
    def scale(self) -> float:
        return 100.0 if self.percent else 1.0

    def text(self, value: float) -> str:
        """
        >>> MEASURES["accuracy"].text(0.9125), MEASURES["auc"].text(0.80091)
        ('91.25', '0.8009')
        """
        if math.isnan(value):
            return "—"
        return f"{100 * value:.2f}" if self.percent else f"{value:.4f}"

    def with_sign(self, value: float) -> str:
        if math.isnan(value):
            return "—"
        return f"{100 * value:+.2f}" if self.percent else f"{value:+.4f}"


MEASURES = {
    m.name: m
    for m in (
        Measure("accuracy", "accuracy", percent=True),
        Measure("auc", "AUC", percent=False),
        Measure("error", "error rate", percent=True, higher=False),
        Measure("log_loss", "log loss after calibration", percent=False, higher=False),
    )
}
# Shown beside the AUC of boosted trees.
OTHERS = ("error", "log_loss")
# What the others are compared with unless somebody names another: by the measure that runs are chosen by.
BASELINES = {"accuracy": "cross-entropy", "auc": "binary"}
