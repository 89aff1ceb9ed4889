"""The figures of the documentation, computed by the library: `python docs/_tools/figures.py` writes docs/figures."""

import sys
from pathlib import Path

import numpy as np

import hypersimplex as hs

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "examples")]
import first_figure  # noqa: E402
import motion  # noqa: E402
from drawing import COLORS, Plot, picture  # noqa: E402

SIX = np.array([-0.9, 0.1, 0.5, 1.0, 1.35, 2.4])


def projection() -> str:
    """README's figure: the same six numbers under three ramps."""
    plot = Plot((-1.8, 3.2), (0, 1), (46, 40, 650, 200))
    plot.axes([], [0, 0.5, 1], "x", "y")
    for x in SIX:
        plot.line((x, 0), (x, 1), "rule dash")
        plot.word(x, 0, f"{x:g}", (0, 18), "middle", "small")
    grid = np.linspace(-1.8, 3.2, 501)
    for tau, color in zip((0.2, 1.0, 3.0), COLORS, strict=False):
        mu = float(hs.threshold(SIX, 2, tau))
        plot.curve(grid, np.clip((grid - mu) / tau, 0, 1), color)
        for x, y in zip(SIX, hs.soft_binary_argmax(SIX, 2, tau), strict=True):
            plot.dot(x, y, color)
    for row, (tau, color) in enumerate(zip((0.2, 1.0, 3.0), COLORS, strict=False)):
        plot.word(-1.8, 1, f"tau = {tau:g}", (14, 22 + 20 * row), color=color)
    plot.word(3.2, 1, "y = clip((x - mu) / tau, 0, 1), sum y = k = 2", (0, -12), "end", "small")
    return picture("Soft-Binary-Argmax@2 of six numbers for three tau", (720, 290), plot)


def newton() -> str:
    tau, k = 1.0, 2
    plot = Plot((-2.2, 2.8), (0, 6), (46, 40, 650, 240))
    plot.axes([-2, -1, 0, 1, 2], [0, 2, 4, 6], "mu", "sum of clip((x - mu) / tau, 0, 1)")
    grid = np.union1d(np.linspace(-2.2, 2.8, 101), np.concatenate([SIX, SIX - tau]))
    plot.curve(grid, [np.clip((SIX - m) / tau, 0, 1).sum() for m in grid], COLORS[1])
    plot.line((-2.2, k), (2.8, k), "axis dash")
    plot.word(2.8, k, "k = 2", (0, -8), "end")
    mu = -0.85
    for step in range(4):
        y = np.clip((SIX - mu) / tau, 0, 1)
        plot.dot(mu, y.sum(), COLORS[0])
        plot.word(mu, y.sum(), str(step), (9, -7), color=COLORS[0])
        if abs(y.sum() - k) < 1e-9:
            break
        new = mu + tau * (y.sum() - k) / np.sum((y > 0) & (y < 1))
        plot.line((mu, y.sum()), (new, k), "axis dash")
        plot.line((new, k), (new, np.clip((SIX - new) / tau, 0, 1).sum()), "axis dash")
        mu = new
    return picture("Newton's method on a piecewise linear sum", (720, 330), plot)


def over(name: str, values: np.ndarray, solve: object, ticks: list[float], log: bool) -> str:
    plot = Plot((float(values[0]), float(values[-1])), (0, 1), (46, 40, 600, 220), log)
    plot.axes(ticks, [0, 0.5, 1], name, "y")
    rows = np.array([solve(v) for v in values])  # type: ignore[operator]
    for i, (x, color) in enumerate(zip(SIX, COLORS, strict=True)):
        plot.curve(values, rows[:, i], color)
        plot.parts.append(f'<text class="small" x="664" y="{46 + 20 * (5 - i)}" style="fill: {color}">x = {x:g}</text>')
    return picture(f"Six entries against {name}", (740, 310), plot)


def tau() -> str:
    return over(
        "tau", np.geomspace(0.01, 100, 241), lambda t: hs.soft_binary_argmax(SIX, 2, t), [0.01, 0.1, 1, 10, 100], True
    )


def k() -> str:
    return over("k", np.linspace(0, 6, 241), lambda v: hs.soft_binary_argmax(SIX, v), [0, 1, 2, 3, 4, 5, 6], False)


def active() -> str:
    x = np.random.default_rng(0).normal(size=20_000)
    plot = Plot((0.01, 100), (0, 1), (46, 40, 600, 220), True)
    plot.axes([0.01, 0.1, 1, 10, 100], [0, 0.5, 1], "tau", "share of active entries")
    taus = np.geomspace(0.01, 100, 81)
    for row, (part, color) in enumerate(zip((2, 10, 100), COLORS, strict=False)):
        shares = [np.mean((y > 0) & (y < 1)) for y in (hs.soft_binary_argmax(x, len(x) // part, t) for t in taus)]
        plot.curve(taus, shares, color)
        plot.word(0.01, 1, f"k = n/{part}", (14, 24 + 20 * row), color=color)
    return picture("How many of 20,000 normal numbers are active", (720, 310), plot)


def landscape() -> str:
    plot = Plot((-4, 4), (0, 2), (46, 40, 600, 240))
    plot.axes([-4, -2, 0, 2, 4], [0, 1, 2], "logit of the positive - logit of the negative", "loss")
    d = np.linspace(-4, 4, 401)
    for t, color in zip((0.25, 1.0, 3.0), COLORS, strict=False):
        p = hs.soft_binary_argmax(np.stack([d, np.zeros_like(d)], 1), 1, t)
        plot.curve(d, 0.5 * np.sum((p - [1, 0]) ** 2, 1), color)
        plot.parts.append(f'<text x="530" y="{66 + 20 * COLORS.index(color)}" style="fill: {color}">tau = {t:g}</text>')
    logistic = np.log1p(np.exp(-d))
    plot.curve(d[logistic <= 2], logistic[logistic <= 2], COLORS[3], "dash")
    plot.parts.append(f'<text x="530" y="126" style="fill: {COLORS[3]}">logistic</text>')
    plot.curve([-4, 0, 0, 4], [1, 1, 0, 0], "var(--dim)", "dash")
    plot.parts.append('<text x="530" y="146" style="fill: var(--dim)">zero-one</text>')
    return picture("One positive and one negative sample", (720, 340), plot)


def thresholds() -> str:
    rng = np.random.default_rng(2)
    clouds = [rng.normal(center, 0.8, size=(60, 2)) for center in ((2.6, 2.4), (0.4, 4.4))]
    logits = np.concatenate(clouds)
    mu = hs.threshold(logits, 60, axis=0)
    plot = Plot((-2, 6), (-0.5, 7), (46, 40, 480, 360))
    plot.axes([0, 2, 4, 6], [0, 2, 4, 6], "logit of class 0", "logit of class 1")
    for cloud, color in zip(clouds, COLORS, strict=False):
        for a, b in cloud:
            plot.dot(a, b, color, 3.5)
    plot.line((-0.5, -0.5), (6, 6), "axis dash")
    plot.word(5.2, 5.2, "argmax", (14, 4), kind="small")
    shift = float(mu[1] - mu[0])
    plot.line((-2, -2 + shift), (7 - shift, 7))
    plot.word(7 - shift, 7, "equal scores", (8, 14), kind="small")
    plot.dot(float(mu[0]), float(mu[1]), "var(--ink)", 5)
    plot.word(float(mu[0]), float(mu[1]), "(mu_0, mu_1)", (-12, 18), "end", "small")
    return picture("Argmax compares logits with arbitrary zero points", (600, 450), plot)


def curves() -> str:
    """The four curves on the same six numbers."""
    plot = Plot((-1.8, 3.2), (0, 1), (46, 40, 650, 240))
    plot.axes([], [0, 0.5, 1], "x", "y")
    for x in SIX:
        plot.line((x, 0), (x, 1), "rule dash")
        plot.word(x, 0, f"{x:g}", (0, 18), "middle", "small")
    grid = np.linspace(-1.8, 3.2, 501)
    shapes = {
        "ramp": lambda t: np.clip(t, 0, 1),
        "exp": lambda t: np.exp(np.minimum(t, 0)),
        "logistic": lambda t: 1 / (1 + np.exp(-t)),
        "laplace": lambda t: np.where(t < 0, np.exp(t) / 2, 1 - np.exp(-t) / 2),
    }
    for row, ((curve, rise), color) in enumerate(zip(shapes.items(), COLORS, strict=False)):
        plot.curve(grid, rise((grid - float(hs.threshold(SIX, 2, 0.5, curve=curve))) / 0.5), color)
        for x, y in zip(SIX, hs.soft_topk(SIX, 2, 0.5, curve=curve), strict=True):
            plot.dot(x, y, color)
        plot.word(-1.8, 1, curve, (14, 22 + 20 * row), color=color)
    plot.word(3.2, 1, "y = S((x - mu) / tau), sum y = k = 2, tau = 0.5", (0, -12), "end", "small")
    return picture("Soft top-2 of six numbers on four curves", (720, 330), plot)


def write(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for figure in (projection, newton, tau, k, active, landscape, thresholds, curves):
        (folder / f"{figure.__name__}.svg").write_text(figure(), encoding="utf-8")
    moving = {"shrinking-tau": motion.shrinking_tau(SIX), "growing-k": motion.growing_k(SIX)}
    for name, drawn in (moving | {"following-threshold": motion.following_threshold()}).items():
        (folder / f"{name}.svg").write_text(drawn, encoding="utf-8")
    (folder / "polytopes.svg").write_text(first_figure.figure(), encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE.parent / "figures")
