"""The explorer page: its numbers are the library's, it answers to the keyboard, and it fits a telephone."""

import json
import re

import numpy as np
import pytest

import hypersimplex as hs
from hypersimplex import reference
from tests.browser import look_at, needs_browser
from tests.docs.pages import ROOT

MINUS = "\N{MINUS SIGN}"
PAGE = (ROOT / "docs/explorer.html").read_text(encoding="utf-8")


def problems():
    rng = np.random.default_rng(0)
    for n in (2, 3, 4, 6, 12):
        for k in (0.5, 1, 1.75, n / 2, n - 1, n - 0.25):
            for tau in (0.05, 0.4, 1, 10):
                yield {
                    "x": np.round(rng.normal(0, 1.5, n), 2).tolist(),
                    "k": k,
                    "tau": tau,
                    "v": rng.normal(size=n).tolist(),
                }
    yield {"x": [1.0, 1.0, 1.0, 0.0], "k": 2, "tau": 0.5, "v": [1.0, 2.0, 3.0, 4.0]}  # ties
    yield {"x": [0.0, 1.0, 2.0], "k": 1, "tau": 0.5, "v": [1.0, 0.0, 0.0]}  # an interval of thresholds


CASES = list(problems())
COMPUTE = (
    f"const cases = {json.dumps(CASES)};"
    + """
return cases.map(c => { const y = project(c.x, c.k, c.tau);
  return { y, mu: threshold(c.x, c.k, c.tau), gradient: gradients(y, c.v, c.tau) }; });"""
)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What the scripts of this module give, in one start of the browser."""
    parts = {"compute": COMPUTE, "landscape": LANDSCAPE, "handle": HANDLE, "assignment": ASSIGNMENT}
    script = ", ".join(f"{name}: (() => {{ {body} }})()" for name, body in parts.items())
    return look_at(PAGE, tmp_path_factory.mktemp("explorer"), script=f"return {{ {script} }}")["found"]


@needs_browser
def test_projection_threshold_and_gradients_are_the_librarys(found):
    assert len(found["compute"]) > 100
    for case, got in zip(CASES, found["compute"], strict=True):
        x, k, tau = np.array(case["x"]), case["k"], case["tau"]
        y = hs.soft_binary_argmax(x, k, tau)
        np.testing.assert_allclose(got["y"], y, atol=1e-9, err_msg=str(case))
        np.testing.assert_allclose(got["mu"], hs.threshold(x, k, tau), atol=1e-9, err_msg=str(case))
        # Rounding may lift an entry off its end of the ramp; the page takes it for the end.
        settled = np.where(np.abs(y - np.round(y)) < 1e-12, np.round(y), y)
        to_x, to_k, to_tau = reference.vjp(settled, case["v"], tau)
        np.testing.assert_allclose(got["gradient"]["x"], to_x, atol=1e-7, err_msg=str(case))
        np.testing.assert_allclose([got["gradient"]["k"], got["gradient"]["tau"]], [to_k, to_tau], atol=1e-7)


LANDSCAPE = """const out = [];
for (const a of [-3, -0.6, 0.1, 2]) for (const b of [-2.5, -0.1, 0.4, 3]) for (const tau of [0.05, 1, 4])
  out.push([a, b, tau, LOSSES.hs(a, b, tau), LOSSES.ce(a, b), LOSSES.zo(a, b, tau, "order").value,
    LOSSES.zo(a, b, tau, "zero").value]);
return out;"""


@needs_browser
def test_landscapes_are_the_losses(found):
    torch = pytest.importorskip("torch")
    from hypersimplex.torch import hypersimplex_loss

    target = torch.tensor([1.0, 0.0], dtype=torch.float64)
    assert len(found["landscape"]) == 48
    for a, b, tau, ours, cross, order, zero in found["landscape"]:
        logits = torch.tensor([a, b], dtype=torch.float64, requires_grad=True)
        for value, got in (
            (hypersimplex_loss(logits, target, tau=tau, reduction="sum"), ours),
            (torch.nn.functional.binary_cross_entropy_with_logits(logits, target), cross),
        ):
            (slope,) = torch.autograd.grad(value, logits)
            np.testing.assert_allclose(got["value"], value.detach(), atol=1e-9)
            np.testing.assert_allclose(got["slope"], slope, atol=1e-9)
        assert order == float(a < b)
        assert zero == ((a < 0) + (b > 0)) / 2


HANDLE = """const press = (element, key) => element.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
const set = (id, value) => { $(id).value = value; $(id).dispatchEvent(new Event("input", { bubbles: true })); };
const rows = () => [...document.querySelectorAll("#numbers tbody tr")].map(r => [...r.cells].map(c => c.textContent));
const handle = i => document.querySelector(`.handle[data-i="${i}"]`);
const before = rows();
handle(2).focus();
press(document.activeElement, "ArrowRight");
press(document.activeElement, " ");
const kept = document.activeElement.dataset.i;
const after = rows();
const k = $("k").value;
set("k", 2.5); set("tau", 0);
const last = { rows: rows(), facts: [...document.querySelectorAll("#facts dd")].map(d => d.textContent) };
$("add").click();
const added = rows().length;
const turned = ["solid", "hs"].map(id => { const look = () => id === "solid" ? $(id).innerHTML : $(id).toDataURL();
  const was = look(); press($(id), "ArrowLeft"); return was !== look(); });
document.querySelector('input[name="n"][value="3"]').click();
const flat = $("solid-y").textContent;
const focusable = [...document.querySelectorAll("input, button, .handle, .turn")].filter(e => e.tabIndex < 0).length;
const unnamed = [...document.querySelectorAll("input")].filter(e => !e.labels.length).length;
return { before, kept, after, k, last, added, turned, flat, focusable, unnamed };"""


def number(text):
    return float(text.replace(MINUS, "-"))


@needs_browser
def test_keys_and_sliders_move_what_they_say(found):
    found = found["handle"]
    assert number(found["after"][2][2]) == pytest.approx(number(found["before"][2][2]) + 0.05)
    assert (found["before"][2][1], found["after"][2][1]) == (MINUS, "+")
    assert found["kept"] == "2", "the focus stays on the point"
    assert found["k"] == "3", "k follows the labels"
    x = np.array([number(row[2]) for row in found["last"]["rows"]])
    y = hs.soft_binary_argmax(x, 2.5)
    np.testing.assert_allclose([number(row[3]) for row in found["last"]["rows"]], y, atol=6e-4)
    labels = np.array([row[1] == "+" for row in found["last"]["rows"]], float)
    to_x, to_k, to_tau = reference.vjp(y, y - labels, 1.0)
    np.testing.assert_allclose([number(row[4]) for row in found["last"]["rows"]], to_x, atol=6e-4)
    mu, total, active, loss, slope_k, slope_tau = found["last"]["facts"]
    expected = [hs.threshold(x, 2.5), 2.5, np.sum((y - labels) ** 2) / 2, to_k, to_tau]
    np.testing.assert_allclose([number(v) for v in (mu, total, loss, slope_k, slope_tau)], expected, atol=6e-4)
    assert active == f"{np.sum((y > 0) & (y < 1))} of 6"
    assert found["added"] == 7
    assert found["turned"] == [True, True]
    assert found["flat"] == "y = (0.00, 0.80, 0.20)"
    assert found["focusable"] == found["unnamed"] == 0


@needs_browser
@pytest.mark.parametrize(("width", "dark"), [(390, False), (390, True), (1200, True)])
def test_it_fits_in_both_colors(tmp_path, width, dark):
    seen = look_at(PAGE, tmp_path, width, dark, "return document.querySelectorAll('.handle').length")
    assert seen["found"] == 6
    assert seen["overflow"] <= 0
    assert seen["wide"] == []
    assert seen["background"] == ("rgb(13, 17, 23)" if dark else "rgb(244, 245, 248)")


def test_the_page_needs_nothing_else():
    addresses = re.findall(r"""(?:src|href)\s*=\s*["']([^"'#]+)|url\(|@import|fetch\(|XMLHttpRequest""", PAGE)
    assert sorted(addresses) == ["data:,", "index.html"]
    ids = re.findall(r'\sid="([^"$]+)"', PAGE)
    assert len(ids) == len(set(ids))


ASSIGNMENTS = [
    {"k": k, "capacity": factor * k * 2, "tau": tau}
    for k in (1, 1.75, 3)
    for factor in (1, 1.2)
    for tau in (0.1, 0.5, 3)
]
ASSIGNMENT = (
    f"const problems = {json.dumps(ASSIGNMENTS)};"
    + """
const x = SCORES.map(row => row.map((v, j) => v + j));
return { x, answers: problems.map(p => assign(x, p.k, p.capacity, p.tau)) };"""
)


@needs_browser
def test_assignments_are_the_librarys(found):
    x = np.array(found["assignment"]["x"])
    for problem, got in zip(ASSIGNMENTS, found["assignment"]["answers"], strict=True):
        y, _ = hs.soft_assignment(x, problem["k"], problem["capacity"], problem["tau"])
        np.testing.assert_allclose(got["y"], y, atol=1e-3, err_msg=str(problem))
