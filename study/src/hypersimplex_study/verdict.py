"""The comparison in sentences: what the tests of the primary question allow to say, and what to do."""

import math
from collections.abc import Iterable, Sequence

from hypersimplex_study.config import PRIMARY, RunConfig
from hypersimplex_study.measures import MEASURES, gain
from hypersimplex_study.records import Run
from hypersimplex_study.schema import FINISHED
from hypersimplex_study.speed import Reach, headline
from hypersimplex_study.stats import LEAST_SEEDS, Cell, Result, seeds_needed

LEVEL = 0.05
MANY_SEEDS = 100  # nobody is told to run more


def asked(rows: Sequence[Cell]) -> list[Cell]:
    """The cells of the primary question."""
    return [c for c in rows if c.primary and c.against is not None]


def outcome(cell: Cell) -> str:
    """What the corrected test of a difference allows to say, and whether the difference matters."""
    assert cell.against is not None
    if math.isnan(cell.holm_p):
        return "untested"
    if abs(cell.against.difference) < MEASURES[cell.measure].matters:
        return "small"
    if cell.holm_p >= LEVEL:
        return "open"
    return "better" if gain(cell.measure, cell.against.difference) > 0 else "worse"


def place(of: Cell | RunConfig) -> str:
    return f"{of.dataset} at batch size {of.batch_size}" if of.batch_size else of.dataset


def amount(cell: Cell) -> str:
    """
    >>> from hypersimplex_study.stats import cells
    >>> rows = [Result("k", "d", loss, 8, s, "lr 1", 0.5, 0, v + s * v, v) for loss, v in
    ...         (("cross-entropy", 0.25), ("hypersimplex", 0.375)) for s in (0, 0.5, 1)]
    >>> amount(cells(rows)[1])
    '+18.75 points (95 % interval +3.22 to +34.28)'
    """
    measure, against = MEASURES[cell.measure], cell.against
    assert against is not None
    interval = f" (95 % interval {measure.with_sign(against.low)} to {measure.with_sign(against.high)})"
    return f"{measure.with_sign(against.difference)} {measure.unit}" + ("" if math.isnan(against.low) else interval)


def least(cell: Cell) -> str:
    """The smallest difference of interest, in words."""
    measure = MEASURES[cell.measure]
    return f"{measure.scale * measure.matters:g} {measure.unit}"


def needed(cell: Cell) -> int | None:
    """How many seeds would find the difference, or the smallest one of interest, four times of five, as corrected."""
    against = cell.against
    assert against is not None
    if math.isnan(against.p):
        return None
    wanted = max(abs(against.difference), MEASURES[cell.measure].matters)
    return seeds_needed(wanted / against.sd, LEVEL / max(1, cell.comparisons))


def verdict(rows: Sequence[Cell]) -> str:
    """Answer the primary question in one paragraph."""
    return " ".join(answers(rows))


def answers(rows: Sequence[Cell]) -> list[str]:
    """Answer the primary question: for each loss, baseline and measure, what the corrected tests allow to say."""
    found = asked(rows)
    if not found:
        return [_unanswered(rows)[0]]
    sentences = []
    for kind in dict.fromkeys((c.loss, c.baseline, c.measure) for c in found):
        sentences += _answers([c for c in found if (c.loss, c.baseline, c.measure) == kind])
    tested = [c for c in found if not math.isnan(c.holm_p)]
    if tested:
        seeds = "/".join(map(str, sorted({c.against.n for c in tested if c.against})))
        counts = "/".join(map(str, sorted({c.comparisons for c in tested})))
        over = f"Holm's correction over {counts} comparison{'s' * (counts != '1')}"
        sentences.append(f"Tested over {seeds} seeds, at p < {LEVEL} after {over}.")
    return sentences


def _unanswered(rows: Sequence[Cell]) -> tuple[str, str]:
    """Say why there is nothing to answer the primary question by, and what to do about it."""
    base = " or ".join(sorted({c.baseline for c in rows}))
    ours = [c.loss in PRIMARY for c in rows]
    run = f"run {LEAST_SEEDS} or more seeds of HyperSimplex and of another loss"
    if any(c.primary for c in rows):
        why = f"No HyperSimplex run can be compared with {base} yet: {LEAST_SEEDS} seeds of both are needed."
        return why, f"run {LEAST_SEEDS} or more seeds of both losses"
    if all(ours):
        return "All finished runs are of HyperSimplex: there is nothing to compare it with.", run
    if any(ours):
        why = f"The baseline is {base}, and no other HyperSimplex loss was run: every comparison is secondary."
        return why, "name another loss as the baseline"
    return f"No finished run is of HyperSimplex: there is nothing to compare with {base}.", run


def _answers(cells: Sequence[Cell]) -> list[str]:
    loss, baseline, title = cells[0].loss, cells[0].baseline, MEASURES[cells[0].measure].title
    parts = []
    for word in ("better", "worse"):
        found = [c for c in cells if outcome(c) == word]
        if found:
            listed = _listed(f"on {place(c)}, {amount(c)}" for c in found)
            parts.append(f"{loss} is {word} than {baseline} by {title} {listed}.")
    return parts + [_not_called(c) for c in cells if outcome(c) not in ("better", "worse")]


def _not_called(cell: Cell) -> str:
    """Say of a difference that is small, or that no test has called, how large it is and what would call it."""
    against, wanted, kind = cell.against, needed(cell), outcome(cell)
    assert against is not None
    would = _about(wanted)
    if kind == "open":
        rest = f". {against.n} seeds are too few to call it; {would} would do"
    elif kind == "small":
        unsure = cell.holm_p >= LEVEL and (wanted is None or wanted > against.n)
        rest = ". That is" if cell.holm_p < LEVEL else ". If that is its true size, it is"
        rest += f" less than {least(cell)}, which makes no difference in practice"
        rest += f"; {would} seeds would tell" * unsure
    elif against.n < LEAST_SEEDS:
        rest = f" over {against.n} seed{'s' * (against.n > 1)}; a test needs {LEAST_SEEDS} or more"
    else:
        rest = f", the same for all {against.n} seeds: nothing to test it by"
    return f"The difference of {cell.loss} to {cell.baseline} on {place(cell)} is {amount(cell)}{rest}."


def _about(seeds: int | None) -> str:
    return "more than 1,000" if seeds is None else f"about {seeds}"


def _listed(items: Iterable[str]) -> str:
    found = list(items)
    return found[0] if len(found) == 1 else ", ".join(found[:-1]) + " and " + found[-1]


def action(cell: Cell, rows: Sequence[Cell], fast: Reach | None) -> str:
    """What to do about one data set and batch size; where the losses end alike, the steps they take decide."""
    kind, wanted = outcome(cell), needed(cell)
    assert cell.against is not None
    far = kind == "open" and (wanted is None or wanted > MANY_SEEDS)
    alike = kind == "small" or far
    mine = f"use {cell.loss} with {cell.setting}"
    beside = [c for c in rows if (c.dataset, c.batch_size, c.loss) == (cell.dataset, cell.batch_size, cell.baseline)]
    theirs = f"use {cell.baseline} with {beside[0].setting}" if beside else f"use {cell.baseline}"
    if fast and (kind == "better" or (alike and fast.high < 1)):
        return f"{mine}, which {fast.sentence},"
    if fast and alike and fast.low > 1:
        return f"{theirs} ({cell.loss} {fast.sentence})"
    if far:
        return f"take either loss (it would take {_about(wanted)} seeds to tell them apart)"
    if kind == "open":
        assert wanted is not None
        return f"add about {wanted - cell.against.n} seeds, for {wanted} in all, to settle the difference"
    return {
        "better": mine,
        "worse": theirs,
        "small": f"take either loss (a difference below {least(cell)} makes no difference in practice)",
        "untested": f"run {max(LEAST_SEEDS, cell.against.n + 1)} seeds or more of both losses",
    }[kind]


def actions(rows: Sequence[Cell], reached: Sequence[Reach] = ()) -> dict[str, list[str]]:
    """What to do, and where: on which data sets, at which batch sizes."""
    places: dict[str, list[str]] = {}
    for c in asked(rows):
        places.setdefault(action(c, rows, headline(reached, c)), []).append(place(c))
    return places or {_unanswered(rows)[1]: []}


def advice(rows: Sequence[Cell], reached: Sequence[Reach] = ()) -> str:
    """Say in one sentence what to do."""
    found = (f"{what} on {_listed(where)}" if where else what for what, where in actions(rows, reached).items())
    return f"What to do: {'; '.join(found)}."


def advice_lines(rows: Sequence[Cell], reached: Sequence[Reach] = ()) -> list[str]:
    """The same with a line for each of several actions."""
    found = actions(rows, reached).items()
    if len(found) == 1:
        return [advice(rows, reached)]
    return ["What to do:", *(f"  {_listed(where)}: {what.rstrip(',')}" for what, where in found)]


def speeds(rows: Sequence[Cell], reached: Sequence[Reach], said: str) -> list[str]:
    """Say for each data set and batch size how many times the steps it takes, where that is not said yet."""
    found = ((c, headline(reached, c)) for c in asked(rows))
    return [f"On {place(c)} {c.loss} {fast.sentence}." for c, fast in found if fast and fast.sentence not in said]


def next_steps(rows: Sequence[Cell], reached: Sequence[Reach]) -> list[str]:
    """Say for each data set and batch size which loss, at which setting, and how many more seeds."""
    steps = []
    for c in asked(rows):
        fast = headline(reached, c)
        what = action(c, rows, fast)
        speed = f" {c.loss} {fast.sentence}." if fast and fast.sentence not in what else ""
        steps.append(f"{place(c)}: {what.rstrip(',')}; the difference is {amount(c)}.{speed}")
        steps += _best_of_the_others(c, rows)
    return steps


def _best_of_the_others(cell: Cell, rows: Sequence[Cell]) -> list[str]:
    here = [c for c in rows if (c.dataset, c.batch_size, c.measure) == (cell.dataset, cell.batch_size, cell.measure)]
    here = [c for c in here if not c.foil and not math.isnan(c.summary.mean)]
    measure = MEASURES[cell.measure]
    best = max(here, key=lambda c: gain(c.measure, c.summary.mean))
    if best.loss in (cell.loss, cell.baseline):
        return []
    shown = f"{measure.shown(best.summary.mean)} over {best.summary.n} seeds"
    text = f"{place(cell)}: {best.loss} with {best.setting} has the best mean, {shown}"
    return [f"{text}; this is a secondary comparison."]


def footnotes(rows: Sequence[Cell]) -> list[str]:
    """What plain argmax makes of trainings that thresholds decide: beside the table, never in it."""
    notes = []
    for c in rows:
        if c.foil and c.summary.n:
            measure = MEASURES[c.measure]
            against = "" if c.against is None else f" ({measure.with_sign(c.against.difference)} to {c.baseline})"
            notes.append(f"{c.loss} on {place(c)}: {measure.shown(c.summary.mean)}{against}")
    return notes


def settings_tried(results: Sequence[Result]) -> dict[str, int]:
    """Return among how many settings each loss could choose."""
    tried: dict[str, dict[tuple[str, int], set[str]]] = {}
    for r in results:
        tried.setdefault(r.loss, {}).setdefault((r.dataset, r.batch_size), set()).add(r.setting)
    return {loss: max(map(len, cells.values())) for loss, cells in tried.items()}


def decision(runs: Sequence[Run]) -> str:
    """Say how a class is decided: whether the baseline has as much help as HyperSimplex."""
    compared = [r.config for r in runs if r.state in FINISHED and not r.tuning and not r.config.is_trees]
    if not compared:
        return ""
    if all(c.evaluation == "offsets" for c in compared):
        return (
            "Every loss is decided by offsets fitted on the same training samples: one per class and one scale by log "
            "loss, for HyperSimplex its thresholds."
        )
    if any(c.tau is not None and c.decision == "own" for c in compared if c.evaluation != "offsets"):
        return (
            "These runs have no offsets for the losses without thresholds: the baseline is decided by plain argmax, "
            "HyperSimplex by thresholds, and a part of a difference may be the offsets'."
        )
    return "Every loss is decided by plain argmax."


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
