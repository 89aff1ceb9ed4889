"""What a reader should be warned of: runs that are missing, choices at the edge of the grid, small splits, and more."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from hypersimplex_study.config import RunConfig, is_foil, short
from hypersimplex_study.records import Run
from hypersimplex_study.results import beside, best_epoch
from hypersimplex_study.schema import FINISHED
from hypersimplex_study.speed import Reach
from hypersimplex_study.stats import Cell, Result, choose_settings
from hypersimplex_study.verdict import place

FEW_RATES = 4  # learning rates are a fair grid from here on
FEW_SAMPLES = 200  # to validate on: at 90 % accuracy their standard error is two points
ONE_CLASS = 0.95  # of the test samples


def caveats(
    runs: Sequence[Run], results: Sequence[Result], cells: Sequence[Cell], reached: Sequence[Reach] = ()
) -> list[str]:
    config = {r.key: r.config for r in [*runs, *beside(runs)]}
    found = [*not_finished(runs, cells), *at_the_edge(config, results), *at_two_rates(config, cells, reached)]
    return [*found, *small_splits(runs), *one_class(runs, cells)]


def not_finished(runs: Sequence[Run], cells: Sequence[Cell]) -> list[str]:
    """How many runs have no result, and where there is nothing to compare yet."""
    left = sum(r.state not in FINISHED for r in runs)
    found = [f"Not finished: {left} of {len(runs)} runs; what is significant now may not be at the end."] * (left > 0)
    asked = {key for c in cells if c.primary and c.against is not None for key in c.keys}
    there = {place(r.config) for r in runs if r.key in asked}
    empty = [name for name in dict.fromkeys(place(r.config) for r in runs) if name not in there]
    if there and empty:
        found.append(f"Nothing is compared yet on {', '.join(empty)}.")
    return [" ".join(found)] if found else []


def at_two_rates(config: Mapping[str, RunConfig], cells: Sequence[Cell], reached: Sequence[Reach]) -> list[str]:
    """Where the compared pair runs at two learning rates, so that a ratio of steps is of both, losses and rates."""
    rate = {(c.dataset, c.batch_size, c.loss): config[c.keys[0]].lr for c in cells}
    apart: dict[str, list[str]] = defaultdict(list)
    for dataset, batch, loss, base in dict.fromkeys(
        (r.dataset, r.batch_size, r.loss, r.baseline) for r in reached if r.primary
    ):
        mine, theirs = rate[dataset, batch, loss], rate[dataset, batch, base]
        if mine != theirs:
            apart[dataset].append(f"{loss} {short(mine)} and {base} {short(theirs)} at batch size {batch}")
    return [
        f"{dataset}: steps are compared at the learning rate of each loss, {', '.join(where)}; a part of the ratio may "
        "be the rate's."
        for dataset, where in apart.items()
    ]


def at_the_edge(config: Mapping[str, RunConfig], results: Sequence[Result]) -> list[str]:
    """Where the best learning rate is the lowest or highest tried, a better one may lie beyond."""
    chosen = choose_settings(results)
    tried: dict[tuple[str, str, int], set[float]] = defaultdict(set)
    picked: dict[tuple[str, str, int], float] = {}
    for r in results:
        cell = (r.dataset, r.loss, r.batch_size)
        tried[cell].add(config[r.key].lr)
        if r.setting == chosen[cell]:
            picked[cell] = config[r.key].lr
    edges: dict[tuple[str, str], list[str]] = defaultdict(list)
    for (dataset, loss, batch), rates in tried.items():
        # A foil is at the setting of its training, where it may have no run.
        if is_foil(loss, [name for d, name, b in tried if (d, b) == (dataset, batch)]):
            continue
        best = picked[dataset, loss, batch]
        if len(rates) > 1 and best in (min(rates), max(rates)):
            which = "highest" if best == max(rates) else "lowest"
            edges[dataset, which].append(f"{loss}{f' at {batch}' if batch else ''} ({short(best)})")
    found = [
        f"{dataset}: the best learning rate is the {which} tried for {', '.join(where)}; try one "
        f"{'above' if which == 'highest' else 'below'} it."
        for (dataset, which), where in edges.items()
    ]
    fewest = min((len(rates) for rates in tried.values()), default=FEW_RATES)
    if fewest == 1:
        found.append("The learning rate was not tuned: at one rate for all, a loss can look worse than it is.")
    elif fewest < FEW_RATES:
        found.append(f"Only {fewest} learning rates were tried; {FEW_RATES} or more are a fair grid.")
    return found


def small_splits(runs: Sequence[Run]) -> list[str]:
    found = []
    for r in runs:
        samples = (r.provenance.get("samples") or {}) if r.state == "done" else {}
        held, test, name = samples.get("validation", 0), samples.get("test", 0), r.config.dataset
        if 0 < held < FEW_SAMPLES:
            chance = f"what fewer than {FEW_SAMPLES} choose is much chance. Raise --validation."
            found.append(f"{name}: the validation split has {held} samples; {chance}")
        if 0 < test < FEW_SAMPLES:
            found.append(f"{name}: the test set has {test} samples; one more right is {100 / test:.1f} points.")
    return list(dict.fromkeys(found))


def one_class(runs: Sequence[Run], cells: Sequence[Cell]) -> list[str]:
    """Models that decide (nearly) always the same class."""
    by_key = {r.key: r for r in runs}
    found: dict[str, list[str]] = defaultdict(list)
    for c in cells:
        if c.foil:
            continue
        there = [r for r in map(by_key.__getitem__, c.keys) if r.state == "done" and r.epochs]
        shares = [r.epochs[best_epoch(r)].one_class for r in there]
        worst = [s for s in shares if s is not None and s >= ONE_CLASS]
        if worst:
            at = f" at batch size {c.batch_size}" if c.batch_size else ""
            share = f"{100 * max(worst):.0f} % of the test samples in {len(worst)} of {len(there)} runs"
            found[c.dataset].append(f"{c.loss}{at} for {share}")
    return [
        f"{dataset}: one class is decided by {', '.join(where)}: what is learned is little beside the majority class."
        for dataset, where in found.items()
    ]
