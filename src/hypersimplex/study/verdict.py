"""The comparison in sentences: what the corrected tests allow to say."""

import math
from collections.abc import Sequence

from hypersimplex.study.measures import MEASURES, gain
from hypersimplex.study.stats import Cell, Result

LEVEL = 0.05


def verdict(rows: Sequence[Cell]) -> str:
    """Say in a sentence for each HyperSimplex variant what the corrected tests allow to say."""
    sentences, seeds = [], set()
    for loss in dict.fromkeys(c.loss for c in rows if c.loss.startswith("hypersimplex")):
        tested = [c for c in rows if c.loss == loss and c.against is not None and not math.isnan(c.holm_p)]
        places: dict[str, dict[str, list[str]]] = {
            w: {} for w in ("is better than", "is worse than", "cannot be told from")
        }
        for c in tested:
            assert c.against is not None
            word = "cannot be told from" if c.holm_p >= LEVEL else f"is {_better_or_worse(c)} than"
            sizes = places[word].setdefault(c.dataset, [])
            sizes += [str(c.batch_size)] if c.batch_size else []
            seeds.add(c.against.n)
        if tested:
            by = "" if tested[0].measure == "accuracy" else f" by {MEASURES[tested[0].measure].title}"
            parts = [f"{word} {tested[0].baseline}{by} on {_listed(found)}" for word, found in places.items() if found]
            sentences.append(f"{loss} {'; it '.join(parts)}.")
    if sentences:
        count = "/".join(map(str, sorted(seeds)))
        return " ".join(sentences) + f" Tested over {count} seeds, at p < {LEVEL} after Holm's correction."
    baselines = " or ".join(sorted({c.baseline for c in rows}))
    return f"No HyperSimplex run can be compared with {baselines} yet: two seeds of both are needed."


def _better_or_worse(cell: Cell) -> str:
    assert cell.against is not None
    return "better" if gain(cell.measure, cell.against.difference) > 0 else "worse"


def _listed(found: dict[str, list[str]]) -> str:
    sized = [f"{dataset} at batch size {', '.join(sizes)}" for dataset, sizes in found.items() if sizes]
    return " and on ".join(sized) if sized else ", ".join(found)


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
