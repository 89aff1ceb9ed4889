"""What is measured on the test set: its name, the better direction, and how it is written."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Measure:
    name: str
    title: str
    percent: bool  # written in percent, differences in points; otherwise with four decimals
    matters: float  # the smallest difference of interest: what is below makes no difference in practice
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

    def text(self, value: float, sign: str = "") -> str:
        """
        >>> MEASURES["accuracy"].text(0.9125), MEASURES["auc"].text(0.80091)
        ('91.25', '0.8009')
        """
        if math.isnan(value):
            return "—"
        return f"{100 * value:{sign}.2f}" if self.percent else f"{value:{sign}.4f}"

    def shown(self, value: float) -> str:
        """
        >>> MEASURES["accuracy"].shown(0.9125)
        '91.25 %'
        """
        return self.text(value) + " %" * self.percent

    def with_sign(self, value: float) -> str:
        return self.text(value, "+")


MEASURES = {
    m.name: m
    for m in (
        Measure("accuracy", "accuracy", percent=True, matters=0.005),
        Measure("auc", "AUC", percent=False, matters=0.001),
        Measure("balanced_accuracy", "balanced accuracy", percent=True, matters=0.005),
        Measure("f1", "F1, mean over the classes", percent=True, matters=0.005),
        Measure("error", "error rate", percent=True, matters=0.005, higher=False),
        Measure("log_loss", "log loss after calibration", percent=False, matters=0.005, higher=False),
    )
}
# What runs can be chosen and compared by.
METRICS = ("accuracy", "balanced_accuracy", "f1", "auc", "log_loss")
# Shown beside the AUC of boosted trees.
OTHERS = ("error", "log_loss")


def gain(measure: str, value: float) -> float:
    """A value, or a difference, such that more is better.

    >>> max([0.5, 0.7], key=lambda value: gain("log_loss", value))
    0.5
    """
    return value if MEASURES[measure].higher else -value
