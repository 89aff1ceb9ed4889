"""The moving figures: every state is computed by the library, and CSS moves from one to the next.

Without motion, as a reader may ask of the browser, a figure shows the state it was drawn in.
"""

from collections.abc import Callable, Sequence

import numpy as np
from drawing import COLORS, Plot, picture

import hypersimplex as hs

SECONDS = 6
HEAD = """@media (prefers-reduced-motion: no-preference) {{
.moves {{ animation: {seconds}s linear infinite alternate; }} svg:hover .moves {{ animation-play-state: paused; }}
{rules}
}}"""


class Motion:
    """A figure's moving parts: an SVG transform for every state, the one at `rest` being drawn."""

    def __init__(self, name: str, rest: int):
        self.name, self.rest, self.rules = name, rest, list[str]()

    def part(self, svg: str, states: Sequence[tuple[float, float, float]]) -> str:
        """`svg`, moved to (across, down) and stretched across by the third number of each state."""
        name = f"{self.name}-{len(self.rules)}"
        steps = " ".join(
            f"{100 * i / (len(states) - 1):.4g}% {{ transform: translate({x:.2f}px, {y:.2f}px) scale({s:.4g}, 1); }}"
            for i, (x, y, s) in enumerate(states)
        )
        self.rules.append(f"@keyframes {name} {{ {steps} }} .{name} {{ animation-name: {name}; }}")
        x, y, s = states[self.rest]
        return f'<g class="moves {name}" transform="translate({x:.2f} {y:.2f}) scale({s:.4g} 1)">{svg}</g>'

    def style(self) -> str:
        return HEAD.format(seconds=SECONDS, rules="\n".join(self.rules))


def _dial(motion: Motion, plot: Plot, ticks: Sequence[float], values: Sequence[float], name: str) -> None:
    """A value on a scale of its own, with a marker that moves along it."""
    plot.line((plot.x[0], 0), (plot.x[1], 0))
    for tick in ticks:
        plot.line((tick, -0.2), (tick, 0.2))
        plot.word(tick, 0, f"{tick:g}", (0, 20), "middle", "small")
    plot.word(plot.x[0], 0, name, (-14, 5), "end")
    dot = f'<circle r="7" fill="{COLORS[3]}"/>'
    plot.parts.append(motion.part(dot, [(*plot.at(v, 0), 1.0) for v in values]))


def _ramp(
    name: str, title: str, x: np.ndarray, values: np.ndarray, rest: int, of: Callable[[float], tuple[float, float]],
    ticks: Sequence[float], log: bool,
) -> str:  # fmt: skip
    """The entries of x on the ramp clip((x - mu)/tau, 0, 1), while `of` a value changes k and tau."""
    motion = Motion(name, rest)
    plot = Plot((-1.8, 3.2), (0, 1), (46, 40, 650, 200))
    plot.axes([], [0, 0.5, 1], "x", "y")
    settings = [of(v) for v in values]
    mus = [float(hs.threshold(x, k, tau)) for k, tau in settings]
    unit = plot.at(1, 0)[0] - plot.at(0, 0)[0]
    bottom, top = plot.at(0, 0)[1], plot.at(0, 1)[1]
    line = f"M-9999 {bottom:.2f}H0L{unit:.2f} {top:.2f}H9999"
    shape = f'<path class="line" vector-effect="non-scaling-stroke" stroke="{COLORS[1]}" d="{line}"/>'
    states = [(plot.at(mu, 0)[0], 0.0, tau) for mu, (_, tau) in zip(mus, settings, strict=True)]
    clip = f'<clipPath id="{name}-box"><rect x="46" y="30" width="650" height="220"/></clipPath>'
    plot.parts.append(f'{clip}<g clip-path="url(#{name}-box)">{motion.part(shape, states)}</g>')
    ys = np.array([hs.soft_topk(x, k, tau) for k, tau in settings])
    for i, color in enumerate(COLORS):
        plot.line((x[i], 0), (x[i], 1), "rule dash")
        plot.word(x[i], 0, f"{x[i]:g}", (0, 18), "middle", "small")
        plot.parts.append(motion.part(f'<circle r="6" fill="{color}"/>', [(*plot.at(x[i], y), 1.0) for y in ys[:, i]]))
    dial = Plot((ticks[0], ticks[-1]), (-1, 1), (140, 280, 480, 40), log)
    _dial(motion, dial, ticks, values.tolist(), name)
    return picture(title, (720, 340), plot, dial, motion=motion.style())


def shrinking_tau(x: np.ndarray) -> str:
    taus = np.geomspace(10, 0.1, 41)
    title = "A soft top-2 becomes hard: tau shrinks from 10 to 0.1 and the sum stays 2"
    return _ramp("tau", title, x, taus, 20, lambda tau: (2.0, tau), [0.1, 1, 10], True)


def growing_k(x: np.ndarray) -> str:
    ks = np.linspace(0.1, 5.9, 59)
    title = "k grows from 0 to 6: one entry after the other rises from 0 to 1"
    return _ramp("k", title, x, ks, 19, lambda k: (k, 1.0), range(7), False)


def train(steps: int = 61, batch: int = 100) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """A linear model trained by the binary loss: labels, logits of all samples, and both thresholds at every step."""
    rng = np.random.default_rng(3)
    x = rng.normal((4.0, 1.0), 1.0, size=(1000, 2))
    labels = (x @ [1.0, -1.5] + rng.normal(0, 0.6, 1000) > 2.5).astype(float)
    weights, running, rows = np.array([-0.3, 0.3]), 0.0, []
    for step in range(steps):
        chosen = rng.choice(1000, batch, replace=False)
        logits, k = x[chosen] @ weights, labels[chosen].sum()
        mu = float(hs.threshold(logits, k))
        running += (mu - running) * max(batch / 1000, 1 / (step + 1))  # as HyperSimplexLoss does
        rows.append((x[:30] @ weights, mu, running))
        y = hs.soft_topk(logits, k)
        active = (y > 0) & (y < 1)
        error = np.where(active, y - labels[chosen], 0.0)
        gradient = np.where(active, error - error.sum() / max(active.sum(), 1), 0.0)
        weights = weights - 0.003 * gradient @ x[chosen]
    return labels[:30], np.array([r[0] for r in rows]), np.array([r[1] for r in rows]), np.array([r[2] for r in rows])


def following_threshold() -> str:
    labels, logits, mus, running = train()
    last, keys = len(mus) - 1, range(0, len(mus), 4)
    motion = Motion("follow", len(keys) - 1)
    low, high = float(np.floor(logits.min())), float(np.ceil(logits.max()))
    plot = Plot((0, last), (low, high), (200, 40, 500, 260))
    plot.axes(
        [0, 20, 40, 60], np.arange(low, high + 1, 2).tolist(), "training step", "logits of 30 samples, and thresholds"
    )
    for step, mu in enumerate(mus):
        plot.dot(step, mu, "var(--dim)", 2.5)
    plot.curve(range(last + 1), running, COLORS[1])
    left = Plot((0, 1), (low, high), (40, 40, 120, 260))
    for i, label in enumerate(labels):
        states = [(*left.at((i + 0.5) / 30, v), 1.0) for v in logits[keys, i]]
        left.parts.append(motion.part(f'<circle r="4.5" fill="{COLORS[2 if label else 0]}"/>', states))
    ramp = left.at(0, 0)[1] - left.at(0, 1)[1]  # tau = 1
    line = f'<rect x="40" y="{-ramp:.2f}" width="120" height="{ramp:.2f}" fill="{COLORS[1]}" opacity="0.15"/>'
    line += f'<path class="line" stroke="{COLORS[1]}" d="M40 0H160"/>'
    left.parts.append(motion.part(line, [(0.0, left.at(0, v)[1], 1.0) for v in running[keys]]))
    marker = f'<circle r="6" fill="{COLORS[1]}"/>'
    plot.parts.append(motion.part(marker, [(*plot.at(s, v), 1.0) for s, v in zip(keys, running[keys], strict=True)]))
    for row, (text, color) in enumerate((("positive", COLORS[2]), ("negative", COLORS[0]))):
        left.parts.append(f'<text class="small" x="{40 + 62 * row}" y="336" style="fill: {color}">{text}</text>')
    left.parts.append(
        '<text class="small" x="164" y="336">threshold, and the ramp above it; small dots: each batch\'s own</text>'
    )
    title = "The threshold of a class follows its logits while the model trains"
    return picture(title, (740, 350), plot, left, motion=motion.style())
