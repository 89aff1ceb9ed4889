"""The comparison in sentences: the verdict, the advice, and what is said instead of tested."""

import io

import numpy as np
import pytest
from rich.console import Console

from hypersimplex_study.console import cell_table
from hypersimplex_study.speed import Reach
from hypersimplex_study.stats import Result, cells
from hypersimplex_study.verdict import advice, budget, footnotes, needed, next_steps, verdict


def test_the_verdict_says_what_the_corrected_tests_allow():
    def row(loss, batch, seed, accuracy):
        return Result(f"{loss}{batch}{seed}", "d", loss, batch, seed, "lr 1", 0.5, 0, accuracy, accuracy)

    rng = np.random.default_rng(0)
    rows = []
    for batch, gain in ((128, 0.05), (256, -0.05), (512, 0.001)):
        for seed in range(5):
            base = 0.8 + rng.normal(0, 0.003)
            rows.append(row("cross-entropy", batch, seed, base))
            rows.append(row("hypersimplex", batch, seed, base + gain + rng.normal(0, 0.002)))
    text = verdict(cells(rows))
    assert text.startswith(
        "hypersimplex is better than cross-entropy by accuracy on d at batch size 128, +5.00 points (95 % interval "
        "+4.80 to +5.20). hypersimplex is worse than cross-entropy by accuracy on d at batch size 256, -5.01 points"
    )
    assert (
        "The difference of hypersimplex to cross-entropy on d at batch size 512 is +0.14 points (95 % interval " in text
    )
    assert ". If that is its true size, it is less than 0.5 points, which makes no difference in practice" in text
    assert text.endswith("Tested over 5 seeds, at p < 0.05 after Holm's correction over 3 comparisons.")
    assert "cannot be told from" not in text


@pytest.mark.parametrize("losses", [("mse", "hypersimplex"), ("hypersimplex", "mse")])
def test_the_first_loss_that_is_not_hypersimplex_is_the_baseline(losses):
    found = cells(pairs([0.05, 0.051, 0.052], losses=losses))
    assert {c.baseline for c in found} == {"mse"}
    assert "than mse by accuracy on d at batch size 128" in verdict(found)


@pytest.mark.parametrize(
    ("losses", "said"),
    [
        (
            ("cross-entropy", "mse"),
            "No finished run is of HyperSimplex: there is nothing to compare with cross-entropy.",
        ),
        (
            ("hypersimplex", "hypersimplex"),
            "All finished runs are of HyperSimplex: there is nothing to compare it with.",
        ),
    ],
)
def test_a_study_without_one_of_the_two_losses_says_so(losses, said):
    found = cells(pairs([0.05, 0.051, 0.052], losses=losses))
    assert verdict(found) == said
    assert advice(found) == "What to do: run 3 or more seeds of HyperSimplex and of another loss."


def test_losses_without_a_seed_in_common_are_not_compared_yet():
    rows = [r for r in pairs([0.05] * 4) if (r.loss == "hypersimplex") == (r.seed < 2)]
    assert verdict(cells(rows)) == (
        "No HyperSimplex run can be compared with cross-entropy yet: 3 seeds of both are needed."
    )


def test_a_foil_is_never_the_question():
    rows = pairs([-0.3, 0.28, 0.1], losses=("hypersimplex", "hypersimplex-argmax"))
    rows += [r for r in pairs([0.01, 0.02, 0.03], losses=("hinge", "cross-entropy")) if r.loss == "cross-entropy"]
    found = cells(rows, "hypersimplex")
    assert not any(c.primary for c in found)
    assert verdict(found) == (
        "The baseline is hypersimplex, and no other HyperSimplex loss was run: every comparison is secondary."
    )
    assert advice(found) == "What to do: name another loss as the baseline."


def pairs(gains, dataset="d", measure="accuracy", batch=128, losses=("cross-entropy", "hypersimplex"), setting="lr 1"):
    """Results of two losses over seeds, the second better by these."""
    return [
        Result(f"{dataset}{loss}{s}", dataset, loss, batch, s, setting, 0.5, 0, v, v, False, measure)
        for s, gain in enumerate(gains)
        for loss, v in zip(losses, (0.8, 0.8 + gain), strict=True)
    ]


def test_networks_and_trees_in_one_store_are_each_named_with_their_own_baseline_and_measure():
    rows = pairs([0.05, 0.051, 0.052], "digits")
    rows += pairs([0.02, 0.021, 0.022], "adult", "auc", 0, ("binary", "hypersimplex"))
    text = verdict(cells(rows))
    assert "better than cross-entropy by accuracy on digits at batch size 128, +5.10 points" in text
    assert "better than binary by AUC on adult, +0.0210 AUC" in text
    assert "by AUC on digits" not in text


def test_advice_is_one_sentence_that_says_what_to_do():
    rows = pairs([0.05, 0.051, 0.052], "a") + pairs([-0.05, -0.051, -0.052], "b") + pairs([0.03, -0.01, 0.004], "c")
    rows += pairs([0.001, -0.001, 0.002], "d") + pairs([0.05, 0.051, 0.052], "a", batch=256)
    found = cells(rows)
    wanted = needed(next(c for c in found if c.dataset == "c" and c.primary))
    assert advice(found) == (
        "What to do: use hypersimplex with lr 1 on a at batch size 128 and a at batch size 256; "
        "use cross-entropy with lr 1 on b at batch size 128; "
        f"add about {wanted - 3} seeds, for {wanted} in all, to settle the difference on c at batch size 128; "
        "take either loss (a difference below 0.5 points makes no difference in practice) on d at batch size 128."
    )
    steps = next_steps(found, [])
    assert steps[0].startswith("a at batch size 128: use hypersimplex with lr 1; the difference is +5.10 points")
    assert steps[2].startswith("b at batch size 128: use cross-entropy with lr 1; the difference is -5.10 points")
    assert steps[3].startswith(f"c at batch size 128: add about {wanted - 3} seeds, for {wanted} in all")


def test_a_small_difference_asks_for_no_seeds_that_only_it_would_need():
    """Differences of 0.17 points, with a spread that would take hundreds of seeds to resolve."""
    rng = np.random.default_rng(1)
    gains = rng.normal(0, 0.01, 10)
    rows = pairs((gains - gains.mean() + 0.0017).tolist())
    found = cells(rows)
    text = verdict(found)
    assert "is +0.17 points (95 % interval " in text
    assert "less than 0.5 points, which makes no difference in practice" in text
    # seeds are counted for the smallest difference of interest
    (wanted,) = {needed(c) for c in found if c.primary}
    assert f"; about {wanted} seeds would tell." in text
    assert 10 < wanted < 60
    assert "take either loss" in advice(found)


def test_nobody_is_told_to_run_hundreds_of_seeds():
    """Differences of 0.6 points, above what matters, that only some hundreds of seeds would find."""
    gains = np.random.default_rng(1).normal(0, 0.06, 10)
    found = cells(pairs((gains - gains.mean() + 0.006).tolist()))
    (wanted,) = {needed(c) for c in found if c.primary}
    assert wanted > 200
    assert f"10 seeds are too few to call it; about {wanted} would do" in verdict(found)
    told = f"take either loss (it would take about {wanted} seeds to tell them apart) on d at batch size 128."
    assert advice(found) == f"What to do: {told}"
    assert "use hypersimplex with lr 1, which reaches 80 %" in advice(found, [reach(0.6, 0.5, 0.7)])


def test_a_difference_that_is_sure_but_small_is_called_so():
    found = cells(pairs([0.001, 0.0011, 0.0012]))
    assert "+0.11 points (95 % interval +0.09 to +0.13). That is less than 0.5 points" in verdict(found)
    assert advice(found).startswith("What to do: take either loss")


@pytest.mark.parametrize("gains", [[0.05, 0.06], [0.05]])
def test_too_few_seeds_are_said_instead_of_tested(gains):
    found = cells(pairs(gains))
    over = f"over {len(gains)} seed{'s' * (len(gains) > 1)}"
    assert f"on d at batch size 128 is {100 * np.mean(gains):+.2f} points" in verdict(found)
    assert f"{over}; a test needs 3 or more" in verdict(found)
    assert advice(found) == "What to do: run 3 seeds or more of both losses on d at batch size 128."


def test_equal_differences_are_said_instead_of_tested():
    found = cells(pairs([0.05, 0.05, 0.05]))
    assert "is +5.00 points, the same for all 3 seeds: nothing to test it by" in verdict(found)
    assert np.isnan([c.holm_p for c in found]).all()
    assert "p < " not in verdict(found)


def reach(ratio, low, high):
    return Reach("d", 128, "hypersimplex", "cross-entropy", "accuracy", 0.8, 3, 3, 10, 1, ratio, low, high, True)


def test_where_the_end_is_the_same_the_faster_loss_is_named():
    found = cells(pairs([0.001, -0.001, 0.002]))
    faster, slower, open_ = (advice(found, [reach(*r)]) for r in ((0.6, 0.5, 0.7), (1.6, 1.5, 1.7), (0.9, 0.8, 1.1)))
    assert "use hypersimplex with lr 1, which reaches 80 % in 0.60 times the steps of cross-entropy" in faster
    assert "use cross-entropy with lr 1 (hypersimplex reaches 80 % in 1.60 times the steps" in slower
    assert "take either loss" in open_


def test_what_is_tested_beside_the_question_is_secondary_and_the_foil_a_footnote():
    rows = pairs([0.05, 0.051, 0.052]) + pairs([-0.3, -0.31, -0.32], losses=("cross-entropy", "hypersimplex-argmax"))
    rows += pairs([0.01, 0.02, 0.015], losses=("cross-entropy", "mse"))
    found = {c.loss: c for c in cells(list({r.key: r for r in rows}.values()))}
    assert [loss for loss, c in found.items() if c.primary] == ["hypersimplex"]
    assert [loss for loss, c in found.items() if c.foil] == ["hypersimplex-argmax"]
    # one primary comparison: nothing beside it costs power
    assert (found["hypersimplex"].comparisons, found["mse"].comparisons) == (1, 1)
    assert found["hypersimplex"].holm_p == found["hypersimplex"].against.p
    assert np.isnan(found["hypersimplex-argmax"].holm_p)
    assert footnotes(list(found.values())) == [
        "hypersimplex-argmax on d at batch size 128: 49.00 % (-31.00 to cross-entropy)"
    ]
    text = verdict(list(found.values()))
    assert "argmax" not in text
    assert "mse" not in text
    best = next_steps(list(found.values()), [])
    assert len(best) == 1  # the best loss is the one that was asked about


def rows_of(loss, settings, measure="accuracy", others=(), batch=128):
    return [
        Result(f"{loss}{i}{seed}", "d", loss, batch, seed, setting, 0.5 - i, 0, 0.8, 0.8, False, measure, dict(others))
        for i, setting in enumerate(settings)
        for seed in range(2)
    ]


def test_an_uneven_budget_is_said():
    fair = [*rows_of("cross-entropy", ["lr 1", "lr 2"]), *rows_of("hypersimplex", ["lr 1", "lr 2"])]
    assert budget(fair).startswith("Every loss got the same budget")
    unfair = [*rows_of("cross-entropy", ["lr 1"]), *rows_of("hypersimplex", ["lr 1", "lr 1, tau 0.5", "lr 1, tau 3"])]
    expected = "The losses did not get the same budget: settings tried on the validation split: "
    assert budget(unfair) == expected + "cross-entropy 1, hypersimplex 3."


@pytest.mark.parametrize("setting", ["lr 0.001", "lr 0.001, tau 0.5"])
@pytest.mark.parametrize("other", ["log_loss", None])
def test_eighty_columns_hold_every_number(other, setting):
    losses = ("binary", "hypersimplex-paper") if other else ("cross-entropy", "hypersimplex-half-argmax")
    kind, batch = ("auc", 0) if other else ("accuracy", 65536)
    rows = []
    for i, name in enumerate(losses):
        rows += rows_of(name, [setting], kind, {"log_loss": 0.5 + i / 100}, batch)
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(cell_table(cells(rows, other=other), "test set"))
    text = console.export_text()
    assert "…" not in text
    assert "p Holm" in text  # the last column is whole
    assert f"difference to {losses[0]}" in " ".join(text.split())
    assert ("+0.0100" if other else "+0.00") in text
