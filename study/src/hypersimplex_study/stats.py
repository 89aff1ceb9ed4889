"""Statistics of a study: pure functions of numbers, and of a table of results."""

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
from scipy import stats as distributions

from hypersimplex_study.config import is_foil, question, trained
from hypersimplex_study.measures import gain

LEAST_SEEDS = 3  # to test a difference: two say next to nothing of its spread


@dataclass(frozen=True)
class Summary:
    """Mean, standard deviation and confidence interval of the mean (Student's t)."""

    n: int
    mean: float
    sd: float
    low: float
    high: float


@dataclass(frozen=True)
class Paired:
    """Differences a - b over the same seeds: t-test, t and bootstrap intervals, effect size.

    Fewer than LEAST_SEEDS of them, or equal ones, are no test: all but `n`, `difference` and `sd` is then NaN.
    """

    n: int
    difference: float
    sd: float
    low: float
    high: float
    bootstrap_low: float
    bootstrap_high: float
    t: float
    p: float
    effect: float


def summarize(values: Sequence[float], level: float = 0.95) -> Summary:
    """Return mean and confidence interval; the interval of a single value is NaN.

    >>> summarize([0.5, 1.0]).mean
    0.75
    """
    x = np.asarray(values, dtype=float)
    if x.size == 0:
        raise ValueError("values must hold at least one number, got none")
    mean = float(x.mean())
    if x.size == 1:
        return Summary(1, mean, math.nan, math.nan, math.nan)
    sd = float(x.std(ddof=1))
    half = float(distributions.t.ppf(0.5 + level / 2, x.size - 1)) * sd / math.sqrt(x.size)
    return Summary(int(x.size), mean, sd, mean - half, mean + half)


def differences(a: Sequence[float], b: Sequence[float]) -> npt.NDArray[np.float64]:
    if len(a) != len(b):
        raise ValueError(f"a and b must pair up, got {len(a)} and {len(b)} values")
    # Accuracies are counts divided by a size: what float subtraction leaves beyond 1e-12 is not a difference.
    exact: npt.NDArray[np.float64] = np.asarray(a, dtype=float) - np.asarray(b, dtype=float)
    return exact.round(12)


def has_a_spread(d: npt.NDArray[np.float64]) -> bool:
    """Whether differences are enough for a test, and have a spread to judge their mean by."""
    return d.size >= LEAST_SEEDS and bool(np.any(d != d[0]))


def p_of_t(t: float, n: int) -> float:
    """Return the two-sided p of the paired t-test."""
    return float(2 * distributions.t.sf(abs(t), n - 1))


def paired_bootstrap(
    a: Sequence[float], b: Sequence[float], level: float = 0.95, draws: int = 10_000, seed: int = 0
) -> tuple[float, float]:
    """Return the percentile interval of the mean difference, resampling pairs."""
    d = differences(a, b)
    if not has_a_spread(d):
        return math.nan, math.nan
    picks = np.random.default_rng(seed).integers(0, d.size, size=(draws, d.size))
    low, high = np.quantile(d[picks].mean(axis=1), [0.5 - level / 2, 0.5 + level / 2])
    return float(low), float(high)


def compare(a: Sequence[float], b: Sequence[float], level: float = 0.95) -> Paired:
    """Compare a with b; the effect is Cohen's d of paired samples, the mean difference in its own deviations."""
    d = differences(a, b)
    spread = summarize(d.tolist(), level)
    if not has_a_spread(d):
        return Paired(spread.n, spread.mean, spread.sd, *[math.nan] * 7)
    t = spread.mean / (spread.sd / math.sqrt(spread.n))
    interval = (spread.low, spread.high, *paired_bootstrap(a, b, level))
    return Paired(spread.n, spread.mean, spread.sd, *interval, t, p_of_t(t, spread.n), spread.mean / spread.sd)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm's adjusted p-values in the given order. NaN is no test: it stays NaN and does not count.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    adjusted = [math.nan] * len(p_values)
    tests = sorted((p, i) for i, p in enumerate(p_values) if not math.isnan(p))
    running = 0.0
    for rank, (p, i) in enumerate(tests):
        running = max(running, min(1.0, (len(tests) - rank) * p))
        adjusted[i] = running
    return adjusted


def seeds_needed(effect: float, level: float = 0.05, power: float = 0.8, most: int = 1000) -> int | None:
    """Return how many pairs a two-sided paired t-test needs to find an effect of this size; None above `most`.

    >>> seeds_needed(1.0)
    10
    """
    if math.isnan(effect) or effect == 0:
        return None

    def found(n: int) -> bool:
        least = distributions.t.ppf(1 - level / 2, n - 1)
        return bool(distributions.nct.sf(least, n - 1, min(abs(effect), 40.0) * math.sqrt(n)) >= power)

    n = 2 + bisect_left(range(2, most + 1), True, key=found)
    return None if n > most else max(n, LEAST_SEEDS)


@dataclass(frozen=True)
class Result:
    """One finished run, reduced to what is compared."""

    key: str
    dataset: str
    loss: str
    batch_size: int
    seed: int
    setting: str  # what was tuned, such as "lr 0.001": losses are compared at the setting their validation split chose
    validation: float | None  # best score on the validation split; None without a split
    best_epoch: int
    score: float  # on the test set, at the epoch the validation split chose; the last epoch without a split
    paper_score: float  # best over the epochs on the test set itself: the paper's rule
    tuning: bool = False  # only there to choose the setting
    measure: str = "accuracy"  # what the scores are
    others: Mapping[str, float] = field(default_factory=dict)  # other measures of the test set, at the same epoch
    protocol: str = ""  # epochs, network and the like; what comparisons are corrected together by


@dataclass(frozen=True)
class Cell:
    """One loss at one batch size: its scores over the seeds, and the comparison with the baseline."""

    dataset: str
    loss: str
    batch_size: int
    setting: str
    seeds: tuple[int, ...]
    scores: tuple[float, ...]
    summary: Summary
    against: Paired | None
    holm_p: float
    keys: tuple[str, ...]
    measure: str = "accuracy"
    baseline: str = "cross-entropy"
    comparisons: int = 0  # that Holm's correction ran over
    primary: bool = False  # the one question of the study; all others are secondary
    foil: bool = False  # plain argmax of a training that is also decided otherwise: shown, never tested


def choose_settings(
    results: Iterable[Result], begun: Collection[tuple[str, str, int, str]] = ()
) -> dict[tuple[str, str, int], str]:
    """For every data set, loss and batch size choose the setting with the best mean validation score.

    Tuning runs decide where there are any, the compared runs themselves otherwise. The test set is never looked at.
    Of equal settings one with compared runs, finished or `begun`, stays; otherwise it is the one in the middle, as the
    lowest learning rate of all would only make a loss slow.
    """
    scores: dict[tuple[str, str, int], dict[bool, dict[str, list[float]]]] = defaultdict(
        lambda: {True: defaultdict(list), False: defaultdict(list)}
    )
    for r in results:
        value = -math.inf if r.validation is None or math.isnan(r.validation) else gain(r.measure, r.validation)
        scores[r.dataset, r.loss, r.batch_size][r.tuning][r.setting].append(value)
    chosen = {}
    for cell, by_kind in scores.items():
        means = {s: round(sum(v) / len(v), 12) for s, v in (by_kind[True] or by_kind[False]).items()}
        equal = [s for s in means if means[s] == max(means.values())]
        equal = [s for s in equal if s in by_kind[False] or (*cell, s) in begun] or equal
        # By their numbers, "lr 1e-05, tau 0.5" before "lr 0.001, tau 0.5".
        equal.sort(key=lambda s: [float(part.split()[1]) for part in s.split(", ")])
        chosen[cell] = equal[(len(equal) - 1) // 2]
    # A foil is another decision of the same training, so at the setting of that.
    for dataset, loss, batch in chosen:
        if is_foil(loss, [name for d, name, b in chosen if (d, b) == (dataset, batch)]):
            chosen[dataset, loss, batch] = chosen[dataset, trained(loss), batch]
    return chosen


def cells(
    results: Sequence[Result], baseline: str | None = None, paper_rule: bool = False, other: str | None = None
) -> list[Cell]:
    """Compare every loss with the baseline over the seeds they share.

    The primary question, HyperSimplex against the baseline, is one test for each data set and batch size, and Holm's
    correction runs over those of one protocol; over the secondary ones it runs apart, and a foil is not tested.

    `question` says which baseline None is. `other` names another measure than the one that runs are chosen by; results
    without it are left out.
    """

    def value(r: Result) -> float:
        return r.others.get(other, math.nan) if other else r.paper_score if paper_rule else r.score

    chosen = choose_settings(results)
    groups: dict[tuple[str, int, str], list[Result]] = defaultdict(list)
    losses: dict[str, list[str]] = defaultdict(list)
    for r in results:
        if r.tuning:
            continue
        losses[r.dataset].append(r.loss)
        if (not other or other in r.others) and r.setting == chosen[r.dataset, r.loss, r.batch_size]:
            groups[r.dataset, r.batch_size, r.loss].append(r)
    rows: list[Cell] = []
    families: dict[tuple[str, bool], list[int]] = defaultdict(list)
    for (dataset, batch_size, loss), group in sorted(groups.items()):
        base, asked = question(losses[dataset], not batch_size, baseline)
        scores = {r.seed: value(r) for r in group}
        reference = {r.seed: value(r) for r in groups.get((dataset, batch_size, base), [])} if loss != base else {}
        cell = replace(
            _cell(group, scores, reference),
            measure=other or group[0].measure,
            baseline=base,
            primary=other is None and loss == asked,
            foil=is_foil(loss, losses[dataset]),
        )
        if not cell.foil:
            families[group[0].protocol, cell.primary].append(len(rows))
        rows.append(cell)
    for family in families.values():
        p_values = [against.p if (against := rows[i].against) else math.nan for i in family]
        count = sum(not math.isnan(p) for p in p_values)
        for i, p in zip(family, holm(p_values), strict=True):
            rows[i] = replace(rows[i], holm_p=p, comparisons=count)
    return rows


def _cell(group: Iterable[Result], scores: Mapping[int, float], reference: Mapping[int, float]) -> Cell:
    """The scores of one loss at one batch size by seed, and their comparison with the baseline's."""
    runs = sorted(group, key=lambda r: r.seed)
    seeds = list(dict.fromkeys(r.seed for r in runs))
    finite = [s for s in seeds if not math.isnan(scores[s])]
    shared = [s for s in finite if not math.isnan(reference.get(s, math.nan))]
    nothing = Summary(0, math.nan, math.nan, math.nan, math.nan)
    first = runs[0]
    return Cell(
        dataset=first.dataset,
        loss=first.loss,
        batch_size=first.batch_size,
        setting=first.setting,
        seeds=tuple(seeds),
        scores=tuple(scores[s] for s in seeds),
        summary=summarize([scores[s] for s in finite]) if finite else nothing,
        against=compare([scores[s] for s in shared], [reference[s] for s in shared]) if shared else None,
        holm_p=math.nan,
        keys=tuple(r.key for r in runs),
    )
