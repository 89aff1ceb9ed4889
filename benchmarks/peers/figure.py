"""Time against n on logarithmic axes, as an SVG file of its own."""

from pathlib import Path
from typing import Any

from benchmarks.peers.peers import NAMES, OURS, SOFTMAX
from benchmarks.peers.results import read

COLORS = ["#2b83ba", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7b5ea7", "#8c6d31"]
MARKERS = ["o", "s", "v", "^", "P", "X", "<", ">"]


def draw(folder: Path, path: Path) -> bool:
    """Write the figure if there is anything to draw."""
    rows = [row for row in read(folder, "growth") if not row["failed"]]
    if not rows:
        return False
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    settings: Any = {"svg.fonttype": "none", "svg.hashsalt": "peers", "font.family": "sans-serif", "font.size": 9}
    with rc_context(settings):
        figure = Figure(figsize=(9.0, 5.2), layout="constrained")
        axes = figure.subplots()
        for number, name in enumerate(NAMES):
            points = sorted((int(row["n"]), float(row["both_us"]) / 1e6) for row in rows if row["peer"] == name)
            if not points:
                continue
            color, marker = COLORS[number % len(COLORS)], MARKERS[number % len(MARKERS)]
            style = {OURS: ("#d55e00", "D", 2.6), SOFTMAX: ("#888888", "o", 1.8)}.get(name, (color, marker, 1.1))
            axes.plot(*zip(*points, strict=True), label=name, color=style[0], marker=style[1], linewidth=style[2], ms=4)
        axes.set(xscale="log", yscale="log", xlabel="n, one slice", ylabel="seconds, forward and backward")
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        figure.legend(loc="outside right upper", frameon=False, fontsize=8)
        figure.savefig(path, format="svg", metadata={"Date": None, "Title": "Time against n", "Creator": None})
    return True
