"""The comparison in sentences: what the corrected tests allow to say."""

import math
from collections.abc import Sequence

from hypersimplex.study.measures import MEASURES
from hypersimplex.study.stats import Cell, Result

LEVEL = 0.05


def verdict(rows: Sequence[Cell]) -> str:
    """Say in a sentence for each data set what the corrected tests allow to say."""
    sentences = []
    for dataset in dict.fromkeys(c.dataset for c in rows):
        here = [c for c in rows if c.dataset == dataset]
        for loss in dict.fromkeys(c.loss for c in here):
            tested = [c for c in here if c.loss == loss and c.against is not None and not math.isnan(c.holm_p)]
            if not loss.startswith("hypersimplex") or not tested:
                continue
            baseline = tested[0].baseline
            sizes: dict[str, list[str]] = {"is better than": [], "is worse than": [], "cannot be told from": []}
            for c in tested:
                assert c.against is not None
                clear = c.holm_p < LEVEL
                word = (
                    ("is better than" if c.against.difference > 0 else "is worse than")
                    if clear
                    else "cannot be told from"
                )
                sizes[word].append(str(c.batch_size))
            at = " at batch size {}" if tested[0].batch_size else f" by {MEASURES[tested[0].measure].title}"
            parts = [f"{word} {baseline}{at.format(', '.join(s))}" for word, s in sizes.items() if s]
            seeds = min(c.against.n for c in tested if c.against)
            sentences.append(f"On {dataset}, {loss} {'; it '.join(parts)} ({seeds} seeds, Holm-corrected p < {LEVEL}).")
    if sentences:
        return " ".join(sentences)
    baselines = " or ".join(sorted({c.baseline for c in rows}))
    return f"No HyperSimplex run can be compared with {baselines} yet: two seeds of both are needed."


def settings_tried(results: Sequence[Result]) -> dict[str, int]:
    """Return among how many settings each loss could choose."""
    tried: dict[str, dict[tuple[str, int], set[str]]] = {}
    for r in results:
        tried.setdefault(r.loss, {}).setdefault((r.dataset, r.batch_size), set()).add(r.setting)
    return {loss: max(map(len, cells.values())) for loss, cells in tried.items()}


def budget(results: Sequence[Result]) -> str:
    """Say whether every loss could choose among as many settings."""
    counts = settings_tried(results)
    if len(set(counts.values())) < 2:
        return (
            "Every loss got the same budget: the same epochs, the same candidates for the learning rate, chosen on the "
            "validation split."
        )
    listed = ", ".join(f"{loss} {count}" for loss, count in counts.items())
    return f"The losses did not get the same budget: settings tried on the validation split: {listed}."
