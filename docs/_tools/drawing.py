"""Line drawings as SVG: axes, curves, dots and words, with the colors of both schemes in one file."""

from collections.abc import Iterable, Sequence
from html import escape

import numpy as np

STYLE = """
svg { --ink: #1f2328; --dim: #59636e; --rule: #d0d7de; --c0: #c2410c; --c1: #1d6fc0; --c2: #15803d; --c3: #7c4dbd;
  --c4: #a16207; --c5: #0e7490; }
@media (prefers-color-scheme: dark) { svg { --ink: #e6edf3; --dim: #9da7b3; --rule: #3d444d; --c0: #fb8f44;
  --c1: #6cb6ff; --c2: #4ac26b; --c3: #b78cf2; --c4: #e3b341; --c5: #56d4dd; } }
text { font: 14px system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif; fill: var(--ink); }
.small { font-size: 12px; fill: var(--dim); } .axis { stroke: var(--dim); fill: none; }
.rule { stroke: var(--rule); fill: none; } .dash { stroke-dasharray: 5 4; }
.line { fill: none; stroke-width: 2.4; stroke-linejoin: round; stroke-linecap: round; }
"""
COLORS = tuple(f"var(--c{i})" for i in range(6))


class Plot:
    """One panel: data coordinates to a rectangle of the page."""

    def __init__(
        self, x: tuple[float, float], y: tuple[float, float], box: tuple[float, float, float, float], log: bool = False
    ):
        self.x, self.y, self.box, self.log = x, y, box, log
        self.parts: list[str] = []

    def at(self, x: float, y: float) -> tuple[float, float]:
        left, top, width, height = self.box
        low, high = (np.log(self.x) if self.log else np.asarray(self.x)).tolist()
        across = ((np.log(x) if self.log else x) - low) / (high - low)
        return left + width * float(across), top + height * (1 - (y - self.y[0]) / (self.y[1] - self.y[0]))

    def curve(self, xs: Iterable[float], ys: Iterable[float], color: str, extra: str = "") -> None:
        points = " ".join(f"{a:.2f},{b:.2f}" for a, b in (self.at(x, y) for x, y in zip(xs, ys, strict=True)))
        self.parts.append(f'<polyline class="line {extra}" stroke="{color}" points="{points}"/>')

    def line(self, start: tuple[float, float], end: tuple[float, float], kind: str = "axis") -> None:
        (a, b), (c, d) = self.at(*start), self.at(*end)
        self.parts.append(f'<line class="{kind}" x1="{a:.2f}" y1="{b:.2f}" x2="{c:.2f}" y2="{d:.2f}"/>')

    def dot(self, x: float, y: float, color: str, radius: float = 5) -> None:
        a, b = self.at(x, y)
        self.parts.append(f'<circle cx="{a:.2f}" cy="{b:.2f}" r="{radius}" fill="{color}"/>')

    def word(
        self, x: float, y: float, text: str, move: tuple[float, float] = (0, 0), anchor: str = "start", kind: str = "",
        color: str | None = None,
    ) -> None:  # fmt: skip
        a, b = self.at(x, y)
        fill = f' style="fill: {color}"' if color else ""
        where = f'x="{a + move[0]:.2f}" y="{b + move[1]:.2f}" text-anchor="{anchor}"'
        self.parts.append(f'<text class="{kind}" {where}{fill}>{escape(text)}</text>')

    def axes(self, x_ticks: Sequence[float], y_ticks: Sequence[float], x_name: str, y_name: str) -> None:
        for tick in y_ticks:
            self.line((self.x[0], tick), (self.x[1], tick), "rule")
            self.word(self.x[0], tick, f"{tick:g}", (-8, 4), "end", "small")
        self.line((self.x[0], self.y[0]), (self.x[1], self.y[0]))
        for tick in x_ticks:
            self.word(tick, self.y[0], f"{tick:g}", (0, 18), "middle", "small")
        self.word(self.x[1], self.y[0], x_name, (0, 36), "end")
        self.word(self.x[0], self.y[1], y_name, (0, -12))


def picture(title: str, size: tuple[int, int], *plots: Plot, motion: str = "") -> str:
    width, height = size
    body = "\n".join(part for plot in plots for part in plot.parts)
    size_of = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size_of} role="img">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n"
        + (f'<style class="motion">{motion}</style>\n' if motion else "")
        + f"{body}\n</svg>\n"
    )
