"""Accuracy against steps: crossings, areas and ratios by hand, and what a store's runs make of them."""

import math
from dataclasses import replace

import numpy as np
import pytest

from hypersimplex_study.caveats import caveats
from hypersimplex_study.config import RunConfig
from hypersimplex_study.figures import curves_figure
from hypersimplex_study.records import Run
from hypersimplex_study.report import reach_table
from hypersimplex_study.results import results
from hypersimplex_study.speed import Curve, area, compare, curve, headline, levels, ratio, reach
from hypersimplex_study.stats import cells
from trainings import epoch

SLOW = (0.2, 0.5, 0.8, 0.9)  # what the test double adds 0.01 to
FAST = (0.5, 0.8, 0.9, 0.92)


def made(loss, seed, scores, *, lr=0.001, tuning=False, steps=10, samples=1000, test=1000, share=0.2, batch=100):
    config = RunConfig(loss=loss, seed=seed, lr=lr, batch_size=batch, epochs=len(scores))
    known = {"recompute_seconds": 0.025, "evaluate_seconds": 0.05, "one_class": share}
    epochs = tuple(
        replace(epoch(i, own=v, argmax=v), steps=steps and steps * (i + 1), **known) for i, v in enumerate(scores)
    )
    training, made = config.training().key(), {"samples": {"train": 9, "validation": samples, "test": test}}
    return Run(config.key(), training, config, tuning, "done", 1, None, made, epochs)


def compared(runs):
    rows = cells(results(runs))
    return rows, *compare(rows, {r.key: r for r in runs})


def test_a_crossing_is_on_the_line_between_two_evaluations():
    found = Curve((10, 20, 30), (1, 2, 3), (0.2, 0.6, 0.5))
    assert reach(found, 0.3) == (12.5, 1.25)
    assert reach(found, 0.6) == (20, 2)
    assert reach(found, 0.1) == (10, 1)  # before the first evaluation nothing is known
    assert all(map(math.isnan, reach(found, 0.61)))


def test_the_area_is_the_mean_over_the_steps():
    assert area(Curve((10, 20, 40), (1, 2, 4), (0.2, 0.6, 0.6))) == pytest.approx((0.4 * 10 + 0.6 * 20) / 30)
    assert area(Curve((10,), (1,), (0.3,))) == 0.3


def test_a_ratio_is_the_geometric_mean_of_pairs():
    value, low, high = ratio([10, 40, 10, 40], [20, 20, 20, 20])
    assert value == pytest.approx(1.0)
    assert (low, high) == pytest.approx((0.5, 2.0))
    # two pairs are too few for an interval
    assert all(map(math.isnan, ratio([10, 40], [20, 20])[1:]))
    # pairs, not means: nearly the same factor in every pair has next to no spread
    assert ratio([5, 50, 501], [10, 100, 1000]) == pytest.approx((0.5, 0.5, 0.5), abs=1e-2)


def test_seconds_are_of_training_alone():
    found = curve(made("mse", 0, (0.5, 0.6)))
    assert found.seconds == pytest.approx((0.05, 0.1))  # 0.125 of an epoch, 0.075 of it evaluation
    assert found.steps == (10, 20)


def test_runs_from_before_steps_were_recorded_count_epochs():
    assert curve(made("mse", 0, (0.5, 0.6), steps=None)).steps == (1, 2)


def test_levels_are_reached_by_every_run_of_the_pair_and_not_at_once():
    pair = [{0: Curve((1, 2, 3), (1, 2, 3), s)} for s in ((0.31, 0.6, 0.72), (0.2, 0.5, 0.66))]
    assert levels(pair) == [0.55, 0.6, 0.65]
    assert levels([pair[0], {0: Curve((1,), (1,), (0.9,))}]) == []


def test_no_level_is_above_what_the_pair_ends_with():
    """A test score that a run only passes on the way, and that nobody gets, is not what it reaches."""
    passing = (0.2, 0.93, 0.96, 0.8, 0.7)
    runs = [made(loss, s, passing) for loss in ("cross-entropy", "hypersimplex") for s in range(3)]
    # without the validation's choice of an epoch the last one counts
    runs = [replace(r, epochs=tuple(replace(e, val_accuracy=None) for e in r.epochs)) for r in runs]
    rows, reached, _ = compared(runs)
    assert {round(c.summary.mean, 2) for c in rows} == {0.71}
    assert {r.level for r in reached} == {0.6, 0.65, 0.7}


def test_the_sentence_a_practitioner_wants():
    runs = [made("cross-entropy", s, [v + s / 1000 for v in SLOW]) for s in range(4)]
    runs += [made("hypersimplex", s, [v + s / 1000 for v in FAST]) for s in range(4)]
    runs += [made("mse", s, (0.1, 0.2, 0.3, 0.4)) for s in range(2)]
    rows, reached, areas = compared(runs)
    cell = next(c for c in rows if c.primary)
    best = headline(reached, cell)
    assert best.level == 0.9
    crossings = [10 * (0.89 - 0.8 - s / 1000) / 0.1 for s in range(4)]  # steps after the second or third evaluation
    expected = np.mean([np.log((20 + after) / (30 + after)) for after in crossings])
    assert best.ratio == pytest.approx(math.exp(expected), rel=1e-3)
    assert best.sentence.startswith(
        f"reaches 90 % in {best.ratio:.2f} times the steps of cross-entropy (95 % interval 0.7"
    )
    # a loss that does not get there has no ratio
    mse = [r for r in reached if r.loss == "mse"]
    assert {(r.reached, r.runs) for r in mse} == {(0, 2)}
    assert all(math.isnan(r.ratio) for r in mse)
    assert {line.split("mse")[1] for line in reach_table(mse)[2:-1]} == {" |  |  |  |  | 0 of 2 |"}
    gain = {a.loss: a.difference for a in areas}
    assert gain["cross-entropy"] is None
    assert gain["hypersimplex"] > 0.1 > 0 > gain["mse"]


def test_a_loss_that_reaches_a_level_in_some_seeds_only_has_no_ratio_there():
    """A mean over those that do would flatter it."""
    runs = [made(loss, s, scores) for loss, scores in (("cross-entropy", SLOW), ("hypersimplex", FAST)) for s in (0, 1)]
    runs += [made("hinge", 0, FAST), made("hinge", 1, (0.1, 0.3, 0.5, 0.86))]
    _, reached, _ = compared(runs)
    found = {r.level: r for r in reached if r.loss == "hinge"}
    assert {level: r.reached for level, r in found.items()} == {0.8: 2, 0.85: 2, 0.9: 1}
    assert all(math.isnan(r.ratio) == (r.reached < r.runs) for r in found.values())


def test_one_seed_has_a_ratio_without_an_interval():
    _, reached, _ = compared([made("cross-entropy", 0, SLOW), made("hypersimplex", 0, FAST)])
    assert "interval" not in next(r for r in reached if r.primary).sentence


@pytest.mark.parametrize(("seeds", "bands"), [(2, 0), (3, 1)])
def test_two_seeds_have_no_band(seeds, bands):
    """Their interval spans the whole axis, and the curves of the others with it."""
    drawn = curves_figure("c", "d", 100, {"mse": [made("mse", s, [v + s / 100 for v in SLOW]) for s in range(seeds)]})
    assert drawn.count('id="c-FillBetween') == bands


def warnings(runs):
    rows, reached, _ = compared(runs)
    return caveats(runs, results(runs), rows, reached)


RATES = (0.001, 0.003, 0.01, 0.03)


def grid(best, rates=RATES):
    runs = [made("mse", 7, (0.5 + (lr == best) / 10,), lr=lr, tuning=True) for lr in rates]
    return [*runs, made("mse", 0, (0.5,), lr=best)]


@pytest.mark.parametrize(("best", "which"), [(0.001, "lowest"), (0.003, None), (0.01, None), (0.03, "highest")])
def test_a_best_rate_at_the_edge_is_warned_of(best, which):
    found = warnings(grid(best))
    beyond = {"lowest": "below", "highest": "above"}.get(which)
    text = f"digits: the best learning rate is the {which} tried for mse at 100 ({best:g}); try one {beyond} it."
    assert found == ([text] if which else [])


def test_too_few_rates_are_warned_of():
    assert warnings(grid(0.003, RATES[:3])) == ["Only 3 learning rates were tried; 4 or more are a fair grid."]
    assert warnings([made("mse", 0, (0.5,))]) == [
        "The learning rate was not tuned: at one rate for all, a loss can look worse than it is."
    ]


@pytest.mark.parametrize(("samples", "warned"), [(0, False), (199, True), (200, False)])
def test_a_tiny_validation_split_is_warned_of(samples, warned):
    runs = [*grid(0.01), made("mse", 1, (0.5,), lr=0.01, samples=samples)]
    expected = f"digits: the validation split has {samples} samples; what fewer than 200 choose is much chance."
    assert warnings(runs) == ([f"{expected} Raise --validation."] if warned else [])


@pytest.mark.parametrize(("samples", "warned"), [(199, True), (200, False)])
def test_a_tiny_test_set_is_warned_of(samples, warned):
    runs = [*grid(0.01), made("mse", 1, (0.5,), lr=0.01, test=samples), made("mse", 2, (0.5,), lr=0.01, test=samples)]
    expected = "digits: the test set has 199 samples; one more right is 0.5 points."
    assert warnings(runs) == ([expected] if warned else [])


@pytest.mark.parametrize(("share", "warned"), [(0.94, False), (0.95, True)])
def test_a_model_that_decides_one_class_is_warned_of(share, warned):
    runs = [*grid(0.01), made("mse", 1, (0.5,), lr=0.01, share=share)]
    where = "mse at batch size 100 for 95 % of the test samples in 1 of 2 runs"
    expected = f"digits: one class is decided by {where}: what is learned is little beside the majority class."
    assert warnings(runs) == ([expected] if warned else [])


def test_warnings_of_one_kind_are_one():
    kinds = [(loss, lr, b) for loss in ("mse", "hinge") for lr in RATES for b in (50, 100)]
    runs = [made(loss, 0, (0.5,), lr=lr, batch=b, share=1.0) for loss, lr, b in kinds]
    found = warnings(runs)
    assert sum("one class" in w for w in found) == 1
    assert sum("tried for" in w for w in found) <= 2


@pytest.mark.parametrize("lr", [0.01, 0.003])
def test_a_ratio_of_steps_at_two_rates_is_warned_of(lr):
    chosen = {"cross-entropy": 0.003, "hypersimplex": lr}
    runs = [
        made(loss, 7, [0.5 + (rate == best) / 10] * len(SLOW), lr=rate, tuning=True)
        for loss, best in chosen.items()
        for rate in RATES
    ]
    runs += [made(loss, s, SLOW, lr=chosen[loss]) for loss in chosen for s in range(3)]
    expected = (
        "digits: steps are compared at the learning rate of each loss, hypersimplex 0.01 and cross-entropy 0.003 at "
        "batch size 100; a part of the ratio may be the rate's."
    )
    assert warnings(runs) == ([expected] if lr == 0.01 else [])


def test_warnings_tell_apart_rates_that_are_equal_to_six_digits():
    near = 0.0030000001
    runs = [
        made(loss, s, SLOW, lr=lr) for loss, lr in (("cross-entropy", 0.003), ("hypersimplex", near)) for s in (0, 1)
    ]
    assert any(f"hypersimplex {near} and cross-entropy 0.003 at" in w for w in warnings(runs))
    runs = [made(loss, 0, SLOW, lr=lr) for loss in ("cross-entropy", "hypersimplex") for lr in (0.003, near)]
    assert any("the lowest tried for cross-entropy at 100 (0.003)" in w for w in warnings(runs))
    runs = [made("mse", 0, SLOW if lr == 0.003 else FAST, lr=lr) for lr in (0.003, near)]
    assert any(f"the highest tried for mse at 100 ({near})" in w for w in warnings(runs))


def test_what_is_not_finished_is_said():
    runs = [made(loss, s, SLOW) for loss in ("cross-entropy", "hypersimplex") for s in range(3)]
    assert not any("finished" in w for w in warnings(runs))
    left = [replace(r, state="pending", epochs=()) for r in runs[2:3]]
    other = [made(loss, 0, SLOW, batch=50, tuning=True) for loss in ("cross-entropy", "hypersimplex")]
    assert warnings([*runs[:2], *runs[3:], *left, *other])[0] == (
        "Not finished: 1 of 8 runs; what is significant now may not be at the end. "
        "Nothing is compared yet on digits at batch size 50."
    )
