"""The comparison in sentences: what the tests of the primary question allow to say, and what to do."""

import math
from collections.abc import Iterable, Sequence

from hypersimplex.study.measures import MEASURES, gain
from hypersimplex.study.speed import Reach, headline
from hypersimplex.study.stats import Cell, Result, seeds_needed

LEVEL = 0.05


def asked(rows: Sequence[Cell]) -> list[Cell]:
    """The cells of the primary question that could be tested."""
    return [c for c in rows if c.primary and c.against is not None and not math.isnan(c.holm_p)]


def is_better(cell: Cell) -> bool:
    """Whether the difference, whatever it is worth, is for the better."""
    assert cell.against is not None
    return gain(cell.measure, cell.against.difference) > 0


def place(cell: Cell) -> str:
    return f"{cell.dataset} at batch size {cell.batch_size}" if cell.batch_size else cell.dataset


def amount(cell: Cell) -> str:
    """
    >>> from hypersimplex.study.stats import cells
    >>> rows = [Result("k", "d", loss, 8, s, "lr 1", 0.5, 0, v + s / 10, v) for loss, v in
    ...         (("cross-entropy", 0.5), ("hypersimplex", 0.625)) for s in (0, 1)]
    >>> amount(cells(rows)[1])
    '+12.50 points (95 % interval +12.50 to +12.50)'
    """
    measure, against = MEASURES[cell.measure], cell.against
    assert against is not None
    interval = f" (95 % interval {measure.with_sign(against.low)} to {measure.with_sign(against.high)})"
    unit = " points" if measure.percent else f" {measure.title}"
    return f"{measure.with_sign(against.difference)}{unit}" + ("" if math.isnan(against.low) else interval)


def needed(cell: Cell) -> int | None:
    """How many seeds would find the difference that was seen, four times of five, with the correction there is."""
    assert cell.against is not None
    return seeds_needed(cell.against.effect, LEVEL / max(1, cell.comparisons))


def verdict(rows: Sequence[Cell]) -> str:
    """Answer the primary question: for each loss, baseline and measure, what the corrected tests allow to say."""
    tested = asked(rows)
    if not tested:
        baselines = " or ".join(sorted({c.baseline for c in rows}))
        return f"No HyperSimplex run can be compared with {baselines} yet: two seeds of both are needed."
    sentences = []
    for kind in dict.fromkeys((c.loss, c.baseline, c.measure) for c in tested):
        sentences += _answers([c for c in tested if (c.loss, c.baseline, c.measure) == kind])
    seeds = "/".join(map(str, sorted({c.against.n for c in tested if c.against})))
    counts = "/".join(map(str, sorted({c.comparisons for c in tested})))
    over = f"Holm's correction over {counts} comparison{'s' * (counts != '1')}"
    return " ".join(sentences) + f" Tested over {seeds} seeds, at p < {LEVEL} after {over}."


def _answers(cells: Sequence[Cell]) -> list[str]:
    loss, baseline, title = cells[0].loss, cells[0].baseline, MEASURES[cells[0].measure].title
    sure = [c for c in cells if c.holm_p < LEVEL]
    parts = []
    for word in ("better", "worse"):
        found = [c for c in sure if is_better(c) == (word == "better")]
        if found:
            listed = _listed(f"on {place(c)}, {amount(c)}" for c in found)
            parts.append(f"{loss} is {word} than {baseline} by {title} {listed}.")
    return parts + [_undecided(c) for c in cells if c.holm_p >= LEVEL]


def _undecided(cell: Cell) -> str:
    assert cell.against is not None
    wanted = needed(cell)
    would = f"about {wanted} would do" if wanted else "even 1,000 would not do for one as small as this"
    return (
        f"The difference of {cell.loss} to {cell.baseline} on {place(cell)} is {amount(cell)}; {cell.against.n} seeds "
        f"are too few to call it, {would}."
    )


def _listed(items: Iterable[str]) -> str:
    found = list(items)
    return found[0] if len(found) == 1 else ", ".join(found[:-1]) + " and " + found[-1]


def advice(rows: Sequence[Cell], reached: Sequence[Reach] = ()) -> str:
    """Say in one sentence what to do."""
    parts: list[str] = []
    settings = {(c.dataset, c.batch_size, c.loss): c.setting for c in rows}
    for c in asked(rows):
        assert c.against is not None
        if c.holm_p < LEVEL and is_better(c):
            fast = headline(reached, c)
            parts.append(f"use {c.loss} ({c.setting}) on {place(c)}{f', which {fast.sentence}' if fast else ''}")
        elif c.holm_p < LEVEL:
            theirs = settings.get((c.dataset, c.batch_size, c.baseline), "")
            parts.append(f"stay with {c.baseline} ({theirs}) on {place(c)}")
        else:
            more = (needed(c) or 0) - c.against.n
            seeds = f"add about {more} seeds" if more > 0 else "take either loss"
            parts.append(f"{seeds} to settle {place(c)}" if more > 0 else f"{seeds} on {place(c)}")
    return f"What to do: {'; '.join(parts)}." if parts else "What to do: run two or more seeds of both losses."


def next_steps(rows: Sequence[Cell], reached: Sequence[Reach]) -> list[str]:
    """Say for each data set and batch size which loss, at which setting, and how many more seeds."""
    steps = []
    settings = {(c.dataset, c.batch_size, c.loss): c.setting for c in rows}
    for c in asked(rows):
        assert c.against is not None
        theirs = settings.get((c.dataset, c.batch_size, c.baseline), "")
        fast = headline(reached, c)
        speed = f" It {fast.sentence}." if fast else ""
        if c.holm_p < LEVEL:
            loss, setting = (c.loss, c.setting) if is_better(c) else (c.baseline, theirs)
            steps.append(f"{place(c)}: use {loss} with {setting}; the difference is {amount(c)}.{speed}")
        else:
            wanted = needed(c)
            more = (
                f"{wanted - c.against.n} more seeds, {wanted} in all, would call it"
                if wanted
                else ("no affordable number of seeds would call a difference this small: choose by what is simpler")
            )
            both = f"{c.loss} with {c.setting} or {c.baseline} with {theirs}"
            steps.append(f"{place(c)}: take {both}; the difference is {amount(c)}; {more}.{speed}")
        steps += _best_of_the_others(c, rows)
    return steps


def _best_of_the_others(cell: Cell, rows: Sequence[Cell]) -> list[str]:
    here = [c for c in rows if (c.dataset, c.batch_size, c.measure) == (cell.dataset, cell.batch_size, cell.measure)]
    here = [c for c in here if not c.foil and not math.isnan(c.summary.mean)]
    measure = MEASURES[cell.measure]
    best = (max if measure.higher else min)(here, key=lambda c: c.summary.mean)
    if best.loss in (cell.loss, cell.baseline):
        return []
    unit = " %" if measure.percent else ""
    shown = f"{measure.text(best.summary.mean)}{unit}"
    text = f"{place(cell)}: {best.loss} with {best.setting} has the best mean, {shown} over {best.summary.n} seeds"
    return [f"{text}; this is a secondary comparison."]


def footnotes(rows: Sequence[Cell]) -> list[str]:
    """What plain argmax makes of trainings that thresholds decide: beside the table, never in it."""
    notes = []
    for c in rows:
        if c.foil and c.summary.n:
            measure = MEASURES[c.measure]
            against = "" if c.against is None else f" ({measure.with_sign(c.against.difference)} to {c.baseline})"
            unit = " %" if measure.percent else ""
            notes.append(f"{c.loss} on {place(c)}: {measure.text(c.summary.mean)}{unit}{against}")
    return notes


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
