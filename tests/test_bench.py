"""The comparison with peers, as far as it is our own: what it says of the peers needs them installed."""

import csv
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from benchmarks import timing
from benchmarks.peers import __main__ as command
from benchmarks.peers import edges, parts, peers, plain, report, results, worker
from benchmarks.peers.steps import array, steps
from hypersimplex import reference

OWN = ["hypersimplex", "sort in torch", "bisection in torch"]


def bench(folder, *arguments):
    return CliRunner().invoke(command.app, ["--output", str(folder), "--peers-folder", str(folder), *arguments])


@pytest.mark.parametrize("function", [plain.by_sorting, plain.by_bisection])
@pytest.mark.parametrize("k", [0, 1, 2.5, 7, 12])
@pytest.mark.parametrize("dim", [0, 1])
def test_the_few_lines_of_torch_are_the_projection(function, k, dim):
    x = 2 * torch.randn((12, 12), generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    v = torch.randn((12, 12), generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    x.requires_grad_()
    y = function(x, k, dim)
    right = reference.soft_binary_argmax(x.detach().numpy(), k, axis=dim)
    np.testing.assert_allclose(y.detach().numpy(), right, atol=1e-9)
    (gradient,) = torch.autograd.grad(y, x, v)
    np.testing.assert_allclose(gradient.numpy(), reference.vjp(right, v.numpy(), axis=dim)[0], atol=1e-9)


@pytest.mark.parametrize("edge", edges.EDGES, ids=lambda edge: edge.name)
def test_the_operator_is_right_at_every_edge(edge, tmp_path):
    ours = peers.find(peers.OURS)
    assert edges.outcome(edge, ours, ours.load(tmp_path)) == edges.RIGHT


@pytest.mark.parametrize(
    ("wrong", "edge", "word"),
    [
        (lambda x, k, dim: x * 0 + k / x.shape[dim], "k = 1.7", "wrong value"),
        (lambda x, k, dim: x * torch.nan, "k = 1.7", "NaN"),
        (lambda x, k, dim: x.clamp(0, 1), "k > n", "no error"),
        (lambda x, k, dim: plain.by_sorting(x, k, dim).float(), "float64", "gives float32"),
        (lambda x, k, dim: plain.by_sorting(x.detach(), k, dim) + 2 * (x - x.detach()), "k = 1.7", "wrong gradient"),
        (lambda x, k, dim: plain.by_sorting(x.nan_to_num(), k, dim), "NaN in one row of two", "hides the NaN"),
    ],
)
def test_what_is_wrong_is_called_so(wrong, edge, word):
    peer = peers.Peer("wrong", peers.PROJECTION, "", lambda _: wrong)
    assert edges.outcome(edges.find(edge), peer, wrong) == word


def test_sparsemax_is_asked_nothing_about_k(tmp_path):
    names = [edge.name for edge in edges.EDGES if not edges.asked(edge, peers.find("entmax sparsemax"))]
    assert names == ["k = 0", "k = n", "k = 1.7", "k < 0", "k > n", "k above the entries not masked"]


def test_a_missing_peer_is_named_with_its_command(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "entmax", None)
    done = bench(tmp_path, "--part", "exact", "--peer", "entmax budget_bisect", "--peer", "paper's kernel")
    assert done.exit_code == 0, done.output
    assert "pip install entmax" in done.output
    assert "git clone https://github.com/camilog04/" in done.output
    assert "PEERS_FOLDER" not in done.output
    assert {row["peer"] for row in results.read(tmp_path, "peers")} == {"entmax budget_bisect", "paper's kernel"}


def test_files_figure_and_page_are_written(tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    own = [argument for name in OWN for argument in ("--peer", name)]
    monkeypatch.setattr(worker, "run", in_this_process)
    monkeypatch.setattr(timing, "interleave", at_known_speed)
    wanted = [argument for part in ("exact", "growth", "times") for argument in ("--part", part)]
    done = bench(tmp_path / "out", "--quick", "--page", str(page), "--peer", "torch.softmax", *own, *wanted)
    assert done.exit_code == 0, done.output
    with (tmp_path / "out/exact.csv").open() as file:
        exact = {row["peer"]: float(row["distance"]) for row in csv.DictReader(file)}
    assert exact.keys() == set(OWN)
    assert max(exact.values()) < 1e-6
    check_ratios(results.read(tmp_path / "out", "times"))
    assert "<svg" in (tmp_path / "out/growth.svg").read_text()
    text = page.read_text()
    assert text.startswith("before")
    assert text.endswith("after\n")
    assert "old" not in text
    assert "| bisection in torch |" in text


SECONDS = {"hypersimplex": 1e-5, "torch.softmax": 2e-5, "sort in torch": 3e-5, "bisection in torch": 7e-5}


def at_known_speed(steps, rounds, *_, **__):
    """Every step runs, but the clock is ours: a busy machine is no fault."""
    for step in steps.values():
        step()
    return {name: rounds * [SECONDS[name]] for name in steps}


def check_ratios(rows):
    """A ratio belongs to its own row and base."""
    assert {row["peer"] for row in rows} == SECONDS.keys()
    for row in rows:
        seconds = SECONDS[row["peer"]]
        assert float(row["both_us"]) == pytest.approx(1e6 * seconds)
        for base, name in (("ours", "hypersimplex"), ("softmax", "torch.softmax")):
            assert float(row[f"both_over_{base}"]) == pytest.approx(seconds / SECONDS[name])


def test_a_ratio_is_the_median_over_the_rounds():
    times = {"a": [2.0, 4.0, 9.0], "b": [1.0, 4.0, 3.0], "seldom": [30.0]}
    assert timing.ratio(times, "a", "b") == 2
    assert timing.ratio(times, "b", "a") == 0.5
    assert timing.ratio(times, "seldom", "b") == 10


def test_one_peer_alone_takes_turns_with_ours_and_softmax(tmp_path, monkeypatch):
    monkeypatch.setattr(worker, "run", in_this_process)
    done = bench(tmp_path, "--quick", "--part", "times", "--peer", "sort in torch")
    assert done.exit_code == 0, done.output
    (row,) = [row for row in results.read(tmp_path, "times") if row["peer"] == "sort in torch"]
    assert float(row["both_over_ours"]) > 0
    assert float(row["forward_over_softmax"]) > 0


def test_an_output_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "file").touch()
    done = bench(tmp_path / "file", "--part", "exact", "--peer", "hypersimplex")
    assert done.exit_code == 1
    assert "error: " in done.output


def in_this_process(peer, tasks, folder, limits, *, stop=False):
    for task in tasks:
        yield task, worker._answer(task, peer, peer.load(folder), limits)


def test_a_process_of_its_own_answers_and_may_die():
    ours, limits = peers.find(peers.OURS), worker.Limits(seconds=1e-4)
    tasks = [worker.Task("edge", edge="k = 0"), worker.Task("time", (1, 10**6))]
    assert [a for _, a in worker.run(ours, tasks[:1], parts.Path(), worker.Limits())] == [{"outcome": "right"}]
    assert [a for _, a in worker.run(ours, tasks[1:], parts.Path(), limits)] == [{"failed": "time"}]


def test_rows_measured_again_replace_the_old(tmp_path):
    results.merge(tmp_path, "growth", [{"peer": "a", "n": 10}, {"peer": "a", "n": 100}, {"peer": "b", "n": 10}])
    results.merge(tmp_path, "growth", [{"peer": "a", "n": 10}], forget="a")
    assert [(row["peer"], row["n"]) for row in results.read(tmp_path, "growth")] == [("b", "10"), ("a", "10")]


@pytest.mark.parametrize(("option", "value"), [("--peer", "nobody"), ("--shape", "3x3")])
def test_unknown_names_are_refused(tmp_path, option, value):
    done = bench(tmp_path, option, value)
    assert done.exit_code == 1
    assert "must be one of" in done.output
    assert f"got {value}" in done.output


def test_bench_says_what_is_wrong(tmp_path):
    assert "error: output must hold results of earlier parts, got" in bench(tmp_path / "no", "--part", "report").output
    done = bench(tmp_path, "--seconds", "-1")
    assert done.exit_code == 2
    assert "--seconds" in done.output


def test_the_suite_of_a_checkout_runs_as_a_module(tmp_path):
    script = [sys.executable, "-m", "benchmarks.peers", "--part", "report", "--output", str(tmp_path)]
    done = subprocess.run(script, cwd=Path(__file__).parents[1], capture_output=True, text=True)
    assert done.returncode == 1
    assert "output must hold results of earlier parts" in done.stderr


def test_peers_that_know_rows_only_get_rows():
    peer = peers.Peer("rows", peers.PROJECTION, "", lambda _: None)
    function = peers.adapters._along_last(lambda x, k: plain.by_sorting(x, k))
    x = torch.randn((6, 4), generator=torch.Generator().manual_seed(5))
    y = array(steps(peer, function, x, x, 2, 0).forward())
    np.testing.assert_allclose(y, reference.soft_binary_argmax(x.numpy(), 2, axis=0), atol=1e-6)
