"""Time against n on logarithmic axes, as an SVG file of its own: one panel for each group, a label at every line."""

from pathlib import Path
from typing import Any

from benchmarks.peers.peers import OTHER, OURS, PEERS, PROJECTION, SOFT, SOFTMAX
from benchmarks.peers.results import read

GROUPS = (("the same projection", (PROJECTION,)), ("other soft top-k, and soft ranks", (SOFT, OTHER)))
COLORS = ("#1d6fc0", "#15803d", "#7c4dbd", "#a16207", "#0e7490", "#be185d")
STYLES = {OURS: ("#d55e00", 2.6), SOFTMAX: ("#777777", 1.8)}  # in both panels
PAPER = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.6}  # under a label, over the lines
LEAST = 0.22  # between two labels, in powers of ten

Point = tuple[float, float]


def _apart(ends: dict[str, Point]) -> dict[str, float]:
    """Where the labels stand: at the ends of their lines, moved up where others close by would be written over."""
    places: dict[str, float] = {}
    for name in sorted(ends, key=lambda name: ends[name][1]):
        n, height = ends[name]
        near = sorted(place for other, place in places.items() if abs(ends[other][0] - n) < 1.5)
        for place in near:
            height = place + LEAST if abs(height - place) < LEAST else height
        places[name] = height
    return places


def _panel(axes: Any, title: str, lines: dict[str, list[Point]]) -> None:
    from matplotlib.ticker import LogLocator

    ends = {name: points[-1] for name, points in lines.items()}
    places = _apart(ends)
    for number, (name, points) in enumerate(lines.items()):
        color, width = STYLES.get(name, (COLORS[number % len(COLORS)], 1.2))
        xs, ys = zip(*((10**n, 10**t) for n, t in points), strict=True)
        axes.plot(xs, ys, color=color, marker="o", linewidth=width, ms=3)
        where = (1.25 * xs[-1], 10 ** places[name])
        axes.annotate(name, (xs[-1], ys[-1]), where, color=color, fontsize=7.5, va="center", bbox=PAPER)
    axes.set(xscale="log", yscale="log", xlim=(60, 6e9), ylim=(3e-6, 30), xlabel="n, one slice", title=title)
    axes.xaxis.set_major_locator(LogLocator(numticks=12))
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def draw(folder: Path, path: Path) -> bool:
    """Write the figure if there is anything to draw."""
    from math import log10

    rows = [row for row in read(folder, "growth") if not row["failed"]]
    if not rows:
        return False
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    settings: Any = {"svg.fonttype": "none", "svg.hashsalt": "peers", "font.family": "sans-serif", "font.size": 9}
    with rc_context(settings):
        figure = Figure(figsize=(11.0, 6.4), layout="constrained")
        for axes, (title, kinds) in zip(figure.subplots(1, 2, sharey=True), GROUPS, strict=True):
            lines: dict[str, list[Point]] = {}
            for peer in PEERS:
                points = [(float(r["n"]), float(r["both_us"]) / 1e6) for r in rows if r["peer"] == peer.name]
                if points and (peer.kind in kinds or peer.name in STYLES):
                    lines[peer.name] = sorted((log10(n), log10(t)) for n, t in points)
            _panel(axes, title, lines)
        figure.axes[0].set_ylabel("seconds, forward and backward")
        figure.savefig(path, format="svg", metadata={"Date": None, "Title": "Time against n", "Creator": None})
    return True
