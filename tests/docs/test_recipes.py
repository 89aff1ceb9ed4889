"""Every recipe: its script runs, prints what its page quotes, and keeps what the page promises."""

import importlib.util
import re
import sys

import pytest

from tests.docs.pages import BLOCK, ROOT

pytest.importorskip("torch")
pytest.importorskip("sklearn")

SCRIPTS = ROOT / "examples/recipes"
NUMBER = re.compile(r"\d+(?:\.\d+)?%?")
# What a recipe needs beyond the default environment.
NEEDS = {
    "lightning-module": ("lightning",),
    "huggingface-trainer": ("transformers", "accelerate"),
    "serve": ("onnx", "onnxscript", "onnxruntime"),
}
NAMES = sorted(page.stem for page in (ROOT / "docs/recipes").glob("*.md") if page.stem != "index")
# Its table takes minutes of training; tests/torch/test_balanced_experts.py runs it on the digits.
LONG = {"balanced-experts"}
SCRIPTED = [name for name in NAMES if (SCRIPTS / f"{name.replace('-', '_')}.py").exists()]


def script(name):
    return SCRIPTS / f"{name.replace('-', '_')}.py"


def page(name):
    return (ROOT / f"docs/recipes/{name}.md").read_text(encoding="utf-8")


@pytest.fixture
def printed(monkeypatch, capsys):
    """Run a recipe's script as it stands and return its lines."""
    monkeypatch.syspath_prepend(SCRIPTS)
    monkeypatch.setattr("sys.argv", ["recipe"])
    threads = pytest.importorskip("torch").get_num_threads()

    def run(name):
        for package in NEEDS.get(name, ()):
            pytest.importorskip(package, reason=f"this recipe runs where {package} is installed: make test-docs")
        spec = importlib.util.spec_from_file_location(script(name).stem, script(name))
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, spec.name, module)  # processes that a recipe starts find its functions by name
        spec.loader.exec_module(module)
        capsys.readouterr()
        module.main()
        return capsys.readouterr().out.splitlines()

    yield run
    pytest.importorskip("torch").set_num_threads(threads)


def last_number(line):
    """The measured one: not what stands in brackets after it, and 0 for a heading."""
    return float(["0", *NUMBER.findall(line.split("(")[0])][-1].rstrip("%"))


def words(lines):
    return [NUMBER.sub("#", " ".join(line.split("(")[0].split())) for line in lines]


def row(lines, start):
    """The numbers of the one line that begins so."""
    (line,) = [line for line in lines if line.strip().startswith(start)]
    return [float(number.rstrip("%")) for number in NUMBER.findall(line.strip().removeprefix(start))]


EXPERT_ROWS = [f"{tau:20} {kind}" for tau in ("tau 1", "tau from 1 to 0.1") for kind in ("soft gates", "exactly 2")]


def check_experts(lines):
    active = [row(lines, f"tau {tau} ")[-1] for tau in ("1.0", "0.5", "0.1", "0.01")]
    assert 3.6 < active[0] < 4
    assert active == sorted(active, reverse=True)
    assert active[-1] < 2.1
    soft, cut, annealed, annealed_cut = (row(lines, start) for start in EXPERT_ROWS)
    assert cut[0] == annealed_cut[0] == 2, "exactly two"
    assert soft[1] - cut[1] > 0.03, "cutting soft gates costs accuracy"
    assert abs(annealed[1] - annealed_cut[1]) < 0.02, "annealed gates are nearly binary"
    assert annealed_cut[1] > cut[1] + 0.02


def check_sparse_autoencoder(lines):
    mean, fewest, most, _ = row(lines, "budget for the batch, training")
    assert mean == 6
    assert fewest < 6 < most
    assert row(lines, "budget for the batch, test, threshold")[0] == pytest.approx(6, abs=0.6)
    assert row(lines, "budget for the batch, test, threshold")[-1] > 0.77
    assert row(lines, "6 for every sample, test")[:3] == [6, 6, 6]


def check_pruning(lines):
    kept = {name: row(lines, name) for name in ("dense", "largest weights, one budget", "learned scores, one budget")}
    assert kept["dense"][0] == 17024
    for name in ("largest weights, one budget", "learned scores, one budget"):
        assert kept[name][0] == 851 == sum(kept[name][1:4])
    assert kept["learned scores, one budget"][-1] > kept["largest weights, one budget"][-1] + 0.005
    assert kept["learned scores, one budget"][-1] > 0.94


def check_sharded_pruning(lines):
    kept = [sum(row(lines, f"rank {rank}: 8512 weights, of which kept by layer")) for rank in (0, 1)]
    assert sum(kept) == 851 == row(lines, "kept in all:")[0]
    assert any(line.endswith("the largest of all weights: True") for line in lines)
    dense, pruned, again = (row(lines, f"accuracy, {name}")[0] for name in ("dense", "pruned", "trained on"))
    assert dense > 0.9
    assert again > pruned + 0.1
    assert again > 0.8


def check_batch_topk_ranks(lines):
    without, revived = (row(lines, f"{word} the loss for dead latents") for word in ("without", "with"))
    assert without[0] == revived[0] == 6
    assert revived[1] < without[1], "fewer are dead"
    assert revived[2] > without[2] - 0.01
    assert sum(line.endswith("as in one process: True") for line in lines) == 2


def check_selection(lines):
    everything, chosen, drawn = (row(lines, f"features: {name}") for name in ("all 30", "3 chosen", "3 at random"))
    assert chosen[0] > everything[0] - 0.04
    assert chosen[0] > drawn[0] + 0.03
    tokens = [line for line in lines if line.startswith("tokens")]
    assert all(line.startswith("tokens: 4 to 4 of 16") for line in tokens)
    assert last_number(tokens[0]) > last_number(tokens[1]) + 0.3


def check_conformal(lines):
    plain, trained = row(lines, "cross-entropy  "), row(lines, "cross-entropy + set size")
    assert plain[0] == pytest.approx(0.95, abs=0.01)
    assert trained[0] == pytest.approx(0.95, abs=0.01)
    assert trained[1] < plain[1]


def check_sampling(lines):
    exact, sampled = (row(lines, f"chosen how often, {how}") for how in ("exact", "sampled"))
    assert exact == pytest.approx(sampled, abs=0.01)
    assert sum(exact) == pytest.approx(2, abs=0.01)
    biases = {name: row(lines, name)[-1] for name in ("score function", "subsets hard, temperature 1")}
    assert biases["score function"] < 0.03
    assert biases["subsets hard, temperature 1"] > 0.15
    for kind in ("hard=True", "soft"):
        wide, narrow = (row(lines, f"soft_topk {kind}, tau {tau} ") for tau in ("1", "0.3"))
        assert narrow[1] < wide[1] < 0.15, "less bias"
        assert narrow[0] > wide[0], "for more spread"


def check_quantiles(lines):
    for tau in ("0.01", "0.0001", "1e-08"):
        _, whole, _, between = row(lines, f"tau {tau}")
        assert max(whole, between) <= 0.5
        assert tau == "0.01" or whole < 0.001, "the middle of a gap"
    assert any("torch.quantile: quantile() input tensor is too large" in line for line in lines)
    assert row(lines, "2^24 + 1 entries, threshold:")[-1] == pytest.approx(0.9, abs=1e-6)
    assert [row(lines, f"q {q}")[-1] for q in ("0.9    tau 1e-06", "0.9005 tau 1e-06")] == [0, 1]


def check_quantile_balancing(lines):
    step, quantile, assigned = (row(lines, way) for way in ("loss-free bias", "Quantile Balancing", "soft_assignment"))
    assert step[0] == quantile[0] == assigned[0] > 200
    assert max(quantile[1:] + assigned[1:]) < 30
    assert step[1] > 200


def check_retrieval(lines):
    means = {name: row(lines, name)[-1] for name in ("soft_topk, k = 10", "NT-Xent", "Multi-similarity", "the pixels")}
    assert means["soft_topk, k = 10"] > means["NT-Xent"] > means["the pixels"] + 10
    assert means["Multi-similarity"] > means["the pixels"] + 5


def check_precision_at_budget(lines):
    for name in ("cross-entropy  ", "+ cross-entropy", "+ precision"):
        mean, least, most = row(lines, name)
        assert 0.4 <= least <= mean <= most <= 0.75, "far above the 10 % of eights"


def check_lightning_module(lines):
    assert row(lines, "predict  ")[0] > 0.94
    assert row(lines, "predict  ")[0] > row(lines, "plain argmax")[0] + 0.02
    assert row(lines, "predict, from the checkpoint") == row(lines, "predict  ")


def check_huggingface_trainer(lines):
    assert row(lines, "predict  ")[0] > 0.85
    assert row(lines, "predict, from the saved model") == row(lines, "predict  ")


def check_serve(lines):
    assert row(lines, "plain argmax")[0] < 0.92
    for name in ("predict  ", "saved, loaded, folded", "torch.export", "ONNX"):
        accuracy, same = row(lines, name)
        assert accuracy > 0.94
        assert same == 100


# Libraries warn about themselves here; the library's own warnings are errors in its own tests.
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", sorted({*SCRIPTED} - LONG))
def test_the_recipe_keeps_its_promise_and_its_page(name, printed):
    lines = printed(name)
    globals()[f"check_{script(name).stem}"](lines)
    quoted = next(code for language, code in BLOCK.findall(page(name)) if language == "text").splitlines()
    assert words(lines) == words(quoted)
    for line, quote in zip(lines, quoted, strict=True):
        # Other machines round otherwise, and a training magnifies it.
        assert last_number(line) == pytest.approx(last_number(quote), rel=0.1, abs=0.06), line


@pytest.mark.parametrize("name", SCRIPTED)
def test_the_page_names_its_command_and_links_its_script(name):
    path = script(name).relative_to(ROOT).as_posix()
    assert f"python {path}" in page(name)
    assert f"(../../{path})" in page(name)


def test_every_script_has_a_page_and_every_page_is_listed():
    scripts = {path.stem.replace("_", "-") for path in SCRIPTS.glob("[a-z]*.py")}
    assert scripts <= set(NAMES)
    assert all(f"({name}.md)" in page("index") for name in NAMES)
