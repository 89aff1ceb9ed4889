"""Statistics against formulas written here, against SciPy's own tests, and against numbers worked out by hand."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from hypersimplex_study import published
from hypersimplex_study.stats import (
    LEAST_SEEDS,
    Result,
    cells,
    choose_settings,
    compare,
    holm,
    paired_bootstrap,
    seeds_needed,
    summarize,
)

A = [0.8917, 0.8921, 0.8899, 0.8930, 0.8905]
B = [0.8885, 0.8893, 0.8880, 0.8899, 0.8901]


def result(loss, seed, accuracy, *, setting="lr 0.001", validation=0.5, tuning=False, batch=128, dataset="digits"):
    key = f"{loss}{seed}{setting}"
    return Result(key, dataset, loss, batch, seed, setting, validation, 3, accuracy, accuracy + 0.01, tuning)


def test_paired_t_is_scipys():
    against, expected = compare(A, B), scipy.stats.ttest_rel(A, B)
    assert against.t == pytest.approx(expected.statistic, rel=1e-9)
    assert against.p == pytest.approx(expected.pvalue, rel=1e-9)


def test_paired_t_by_hand():
    # differences 1, 2, 3: mean 2, standard deviation 1, so t = 2 * sqrt(3) with two degrees of freedom
    against = compare([2.0, 4.0, 6.0], [1.0, 2.0, 3.0])
    assert against.t == pytest.approx(2 * math.sqrt(3))
    assert against.p == pytest.approx(1 - math.sqrt(12 / 14), rel=1e-9)


@pytest.mark.parametrize("gain", [0.1, 0.0, -0.1])
@pytest.mark.parametrize("n", [2, 3, 5])
def test_differences_without_spread_are_no_test(gain, n):
    # 0.3 - 0.2 and 0.2 - 0.1 differ in their last bit, which is no spread
    base = [0.2, 0.1, 0.4, 0.6, 0.7][:n]
    against = compare([b + gain for b in base], base)
    assert (against.n, against.difference) == (n, pytest.approx(gain))
    told = (against.low, against.bootstrap_high, against.t, against.p, against.effect)
    assert all(map(math.isnan, told)), told


def test_a_test_takes_three_seeds():
    assert LEAST_SEEDS == 3
    assert math.isnan(compare(A[:2], B[:2]).p)
    assert math.isnan(compare(A[:2], B[:2]).low)
    assert compare(A[:3], B[:3]).p == pytest.approx(scipy.stats.ttest_rel(A[:3], B[:3]).pvalue)


def test_one_pair_is_no_test():
    against = compare([0.9], [0.8])
    assert against.difference == pytest.approx(0.1)
    assert math.isnan(against.p)
    assert math.isnan(against.bootstrap_low)


def test_pairs_must_match():
    with pytest.raises(ValueError, match="a and b must pair up, got 5 and 4 values"):
        compare(A, B[:4])


def test_confidence_interval_covers_as_often_as_it_says():
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(2000):
        s = summarize(rng.normal(3.0, 2.0, size=5).tolist())
        hits += s.low <= 3.0 <= s.high
    assert 0.935 < hits / 2000 < 0.965


def test_bootstrap_is_repeatable_and_brackets_the_mean():
    low, high = paired_bootstrap(A, B)
    assert (low, high) == paired_bootstrap(A, B)
    assert low < np.mean(np.subtract(A, B)) < high


def test_effect_size_is_t_over_root_n():
    assert compare(A, B).effect == pytest.approx(compare(A, B).t / math.sqrt(5))


def test_holm_by_hand():
    # sorted: 0.005 x 4 = 0.02, 0.01 x 3 = 0.03, 0.03 x 2 = 0.06, 0.04 x 1 = 0.04 -> 0.06
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_holm_leaves_out_what_is_no_test():
    adjusted = holm([math.nan, 0.02, 0.6])
    assert math.isnan(adjusted[0])
    assert adjusted[1:] == pytest.approx([0.04, 0.6])


@given(st.lists(st.floats(0, 1), max_size=20))
def test_holm_keeps_order_and_never_lowers_a_p(p):
    adjusted = holm(p)
    assert all(value <= a <= 1 for value, a in zip(p, adjusted, strict=True))
    order = np.argsort(p, kind="stable")
    assert all(adjusted[i] <= adjusted[j] for i, j in itertools.pairwise(order))
    if p:
        assert adjusted[order[0]] == min(1.0, len(p) * p[order[0]])


def test_cells_pair_by_seed_not_by_position():
    rows = [result("cross-entropy", s, v) for s, v in [(0, 0.1), (1, 0.2), (2, 0.3)]]
    rows += [result("mse", s, v) for s, v in [(2, 0.4), (1, 0.25), (3, 0.9)]]
    base, mse = cells(rows)
    assert base.against is None
    # the shared seeds are 1 and 2: differences 0.05 and 0.1
    assert mse.against.n == 2
    assert mse.against.difference == pytest.approx(0.075)
    assert mse.summary.mean == pytest.approx((0.4 + 0.25 + 0.9) / 3)


RATES = [f"lr {lr:g}" for lr in (0.1, 0.01, 1e-05, 0.001, 0.03)]


def test_of_equal_settings_the_middle_is_chosen():
    """The lowest rate would make a loss slow, and the text 1e-05 is not the highest."""
    rows = [result("mse", 7, 0.5, setting=s, validation=0.9, tuning=True) for s in RATES]
    assert choose_settings(rows) == {("digits", "mse", 128): "lr 0.01"}
    better = [replace(r, validation=0.95 + noise) for r, noise in zip(rows[3:], (0.0, 1e-15), strict=True)]
    assert choose_settings([*rows[:3], *better]) == {("digits", "mse", 128): "lr 0.001"}


def test_of_equal_settings_one_that_was_compared_stays():
    rows = [result("mse", 7, 0.5, setting=s, validation=0.9, tuning=True) for s in RATES]
    compared = result("mse", 0, 0.5, setting="lr 0.1", validation=0.1)
    assert choose_settings([*rows, compared]) == {("digits", "mse", 128): "lr 0.1"}
    assert choose_settings(rows, {("digits", "mse", 128, "lr 0.03")}) == {("digits", "mse", 128): "lr 0.03"}


def test_settings_are_chosen_on_validation_and_never_on_test():
    rows = [
        result("mse", 7, 0.99, setting="lr 0.1", validation=0.6, tuning=True),
        result("mse", 7, 0.50, setting="lr 0.01", validation=0.7, tuning=True),
        result("mse", 0, 0.88, setting="lr 0.1", validation=0.99),
        result("mse", 0, 0.77, setting="lr 0.01", validation=0.1),
    ]
    assert choose_settings(rows) == {("digits", "mse", 128): "lr 0.01"}
    (cell,) = cells(rows)
    assert cell.scores == (0.77,)
    assert cells(rows, paper_rule=True)[0].scores == (pytest.approx(0.78),)


def test_a_diverged_setting_is_never_chosen_and_a_diverged_seed_is_left_out():
    rows = [
        result("mse", 7, math.nan, setting="lr 1", validation=None, tuning=True),
        result("mse", 7, 0.5, setting="lr 0.1", validation=0.2, tuning=True),
        result("mse", 0, math.nan, setting="lr 0.1"),
        result("mse", 1, 0.6, setting="lr 0.1"),
        result("cross-entropy", 0, 0.5),
        result("cross-entropy", 1, 0.5),
        result("mse", 2, 0.8, setting="lr 0.1"),
        result("cross-entropy", 2, math.nan),
    ]
    mse = cells(rows)[1]
    assert mse.setting == "lr 0.1"
    assert mse.summary.n == 2
    assert mse.against.n == 1
    assert mse.against.difference == pytest.approx(0.1)


# HyperSimplex against cross-entropy: the differences that the paper prints.
PRINTED = {
    "cifar-10": (0.0032, 0.0030, 0.0050, 0.0045, 0.0066, 0.0090, 0.0108),
    "fashion-mnist": (0.0011, 0.0040, 0.0033, 0.0040, 0.0058, 0.0069, 0.0077),
}


def test_published_table_agrees_with_itself():
    rows = published.table()
    assert len(rows) == 14
    for row in rows:
        printed = PRINTED[row.dataset][published.BATCH_SIZES.index(row.batch_size)]
        # means and differences are printed to four digits each
        assert row.difference == pytest.approx(printed, abs=1.01e-4)
    first = {(r.dataset, r.batch_size): r for r in rows}
    # p-values the paper prints
    assert first["cifar-10", 128].p == pytest.approx(0.084, abs=5e-4)
    assert first["cifar-10", 256].p == pytest.approx(0.026, abs=5e-4)
    assert first["fashion-mnist", 128].p == pytest.approx(0.262, abs=2e-3)
    assert first["fashion-mnist", 256].p == pytest.approx(0.012, abs=5e-4)
    assert all(r.holm_p >= r.p for r in rows)


def test_holm_runs_over_one_protocol_and_says_over_how_many():
    def protocol(name, values):
        rows = [result("cross-entropy", s, v, dataset=f"digits ({name})") for s, v in enumerate(B)]
        rows += [result("mse", s, v, dataset=f"digits ({name})") for s, v in enumerate(values)]
        return [replace(r, protocol=name) for r in rows]

    alone = cells(protocol("epochs 3", A))[1]
    both = cells(protocol("epochs 3", A) + protocol("epochs 9", B[::-1]))
    assert [c for c in both if c.dataset == "digits (epochs 3)"][1] == alone
    assert (alone.holm_p, alone.comparisons) == (alone.against.p, 1)
    # two data sets of one protocol are one family
    other = [replace(r, dataset="other") for r in protocol("epochs 3", B[::-1])]
    shared = cells(protocol("epochs 3", A) + other)[1]
    assert (shared.holm_p, shared.comparisons) == (pytest.approx(2 * alone.against.p), 2)


def test_without_cross_entropy_the_first_loss_is_the_baseline():
    rows = [result(loss, s, 0.5 + s / 10) for loss in ("mse", "hinge") for s in range(2)]
    assert [(c.loss, c.baseline, c.against is None) for c in cells(rows)] == [
        ("hinge", "mse", False),
        ("mse", "mse", True),
    ]


@pytest.mark.parametrize(("effect", "level"), [(0.8, 0.05), (1.5, 0.05 / 6), (-0.5, 0.05)])
def test_seeds_needed_find_the_effect_four_times_of_five(effect, level):
    n = seeds_needed(effect, level)
    rng = np.random.default_rng(0)

    def power(count):
        samples = rng.normal(effect, 1.0, size=(20_000, count))
        return (scipy.stats.ttest_1samp(samples, 0.0, axis=1).pvalue < level).mean()

    assert power(n) > 0.79
    assert power(n - 1) < 0.81


def test_seeds_needed_of_nothing():
    assert seeds_needed(0.0) is None
    assert seeds_needed(math.nan) is None
    assert seeds_needed(0.01) is None
    assert seeds_needed(math.inf) == seeds_needed(1e6) == LEAST_SEEDS


def test_a_foil_takes_the_setting_of_its_training():
    rows = [
        result("hypersimplex", 7, 0.5, setting="lr 1", validation=0.9, tuning=True),
        result("hypersimplex", 7, 0.5, setting="lr 2", validation=0.8, tuning=True),
        result("hypersimplex-argmax", 7, 0.5, setting="lr 1", validation=0.1, tuning=True),
        result("hypersimplex-argmax", 7, 0.5, setting="lr 2", validation=0.2, tuning=True),
    ]
    assert set(choose_settings(rows).values()) == {"lr 1"}
    assert set(choose_settings(rows[2:]).values()) == {"lr 2"}  # alone it is no foil
