"""The paper's first figure: a point, and where Soft-Binary-Argmax@k takes it as tau grows.

Left, n = 3 and k = 1: the hypersimplex is the standard simplex. Right, n = 4 and k = 2: it is an octahedron, drawn in
the three-dimensional space of all y whose sum is 2.

Run with `python examples/first_figure.py [file.svg]`; the default is build/demo/first_figure.svg.
"""

import sys
from itertools import combinations
from pathlib import Path

import numpy as np

import hypersimplex as hs

TAUS = (1, 6)
TAU_NAMES = ("τ → 0", *(f"τ = {tau}" for tau in TAUS))
PATH_TAUS = np.geomspace(0.05, 1000.0, 400)
# Columns a, b, c: an orthonormal basis of the directions in R^4 whose entries sum to 0. In it the six vertices of the
# hypersimplex are the unit vectors and their opposites.
OCTAHEDRON = np.array([[1, -1, -1], [-1, -1, 1], [1, 1, 1], [-1, 1, -1]]) / 2

STYLE = """
text { font: 14px system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif; fill: #1f2328; }
.small { font-size: 12px; fill: #59636e; }
.title { font-size: 16px; font-weight: 600; }
.face { fill: #3b82c4; fill-opacity: 0.13; stroke: none; }
.line { fill: none; stroke: #59636e; stroke-width: 1.4; }
.hidden { fill: none; stroke: #59636e; stroke-width: 1; stroke-dasharray: 2 4; }
.ray { fill: none; stroke: #8a939d; stroke-width: 1.4; stroke-dasharray: 6 4; }
.path { fill: none; stroke: #7c4dbd; stroke-width: 3; stroke-linecap: round; stroke-linejoin: round; }
.point { fill: #1f2328; }
.hollow { fill: #ffffff; stroke: #1f2328; stroke-width: 1.6; }
.tau0 { fill: #c2410c; } .tau1 { fill: #1d6fc0; } .tau2 { fill: #15803d; }
@media (prefers-color-scheme: dark) {
  text, .point { fill: #e6edf3; }
  .small { fill: #9da7b3; }
  .face { fill: #58a6ff; fill-opacity: 0.16; }
  .line, .hidden { stroke: #9da7b3; }
  .path { stroke: #b78cf2; }
  .hollow { fill: #0d1117; stroke: #e6edf3; }
  .tau0 { fill: #fb8f44; } .tau1 { fill: #6cb6ff; } .tau2 { fill: #4ac26b; }
}
"""


class Panel:
    """Draws points of R^3, seen from a direction given in degrees, around a center on the page."""

    def __init__(
        self,
        title: str,
        left: float,
        center: tuple[float, float],
        scale: float,
        azimuth: float,
        elevation: float,
    ) -> None:
        a, e = np.radians([azimuth, elevation])
        self.center, self.scale = np.array(center), scale
        self.toward_viewer = np.array([np.cos(e) * np.cos(a), np.cos(e) * np.sin(a), np.sin(e)])
        right = np.array([-np.sin(a), np.cos(a), 0.0])
        self.axes = np.stack([right, -np.cross(self.toward_viewer, right)])  # the page's y grows downwards
        self.left = left
        self.parts = [f'<text class="title" x="{left}" y="34">{title}</text>']

    def page(self, points: np.ndarray) -> np.ndarray:
        return self.center + self.scale * points @ self.axes.T

    def line(self, style: str, *points: np.ndarray, tag: str = "polyline") -> None:
        coordinates = " ".join(f"{x:.1f},{y:.1f}" for x, y in self.page(np.array(points)))
        self.parts.append(f'<{tag} class="{style}" points="{coordinates}"/>')

    def dot(self, style: str, point: np.ndarray, radius: float = 6) -> None:
        x, y = self.page(point)
        self.parts.append(f'<circle class="{style}" cx="{x:.1f}" cy="{y:.1f}" r="{radius}"/>')

    def label(self, text: str, point: np.ndarray, dx: float, dy: float, style: str = "") -> None:
        x, y = self.page(point) + np.array([dx, dy])
        self.parts.append(f'<text class="{style}" x="{x:.1f}" y="{y:.1f}">{text}</text>')

    def mark(self, ys: list[np.ndarray], points: list[np.ndarray], offsets: list[tuple[float, float]]) -> None:
        """A dot and its tau at every solution, and below the drawing a line that spells the solution out."""
        for i, (tau, y, point, (dx, dy)) in enumerate(zip(TAU_NAMES, ys, points, offsets, strict=True)):
            self.dot(f"tau{i}", point)
            self.label(tau, point, dx, dy, f"tau{i}")
            row = 430 + 22 * i
            self.parts.append(f'<circle class="tau{i}" cx="{self.left + 6}" cy="{row - 5}" r="6"/>')
            self.parts.append(f'<text x="{self.left + 22}" y="{row}">{tau}</text>')
            self.parts.append(f'<text x="{self.left + 82}" y="{row}">y = {show(y)}</text>')


def show(y: np.ndarray) -> str:
    return "(" + ", ".join(f"{value:.2f}".rstrip("0").rstrip(".") for value in y) + ")"


def solutions(x: np.ndarray, k: int) -> list[np.ndarray]:
    return [hs.binary_argmax(x, k), *(hs.soft_binary_argmax(x, k, tau) for tau in TAUS)]


def simplex() -> list[str]:
    x = np.array([0.1, 1.6, 1.0])
    panel = Panel("n = 3, k = 1: the simplex", 30, (165, 300), 190, azimuth=28, elevation=22)
    origin, unit = np.zeros(3), np.eye(3)
    for i in range(3):
        panel.line("hidden", origin, unit[i])
        panel.line("line", unit[i], 1.25 * unit[i])
        panel.label(f"y{'₁₂₃'[i]}", 1.32 * unit[i], -7, 5, "small")
    panel.line("face", *unit, tag="polygon")
    panel.line("line", *unit, tag="polygon")
    panel.line("ray", origin, x)
    ys = solutions(x, 1)
    for tau, y in zip(TAUS, ys[1:], strict=True):
        panel.line("hidden", x / tau, y)
        panel.dot("hollow" if tau > 1 else "point", x / tau, 4.5)
    panel.line("path", *(hs.soft_binary_argmax(x, 1, tau) for tau in PATH_TAUS))
    panel.label(f"x = {show(x)}", x, -60, -12)
    panel.label(f"x/{TAUS[-1]}", x / TAUS[-1], 9, 13)
    panel.mark(ys, ys, [(-10, 20), (13, 5), (-4, -13)])
    return panel.parts


def octahedron() -> list[str]:
    x = np.array([0.1, 1.6, 1.0, 0.4])
    panel = Panel("n = 4, k = 2: the octahedron", 510, (660, 235), 155, azimuth=130, elevation=18)

    def inside(y: np.ndarray) -> np.ndarray:
        """Coordinates in the figure of y, or of the nearest point whose sum is 2."""
        return y @ OCTAHEDRON

    corners = [np.isin(np.arange(4), pair).astype(float) for pair in combinations(range(4), 2)]
    for first, second in combinations(map(inside, corners), 2):
        if first @ second == 0:
            third = np.cross(first, second)
            seen = any((first + second + s * third) @ panel.toward_viewer > 0 for s in (-1, 1))
            panel.line("line" if seen else "hidden", first, second)
    for signs in np.array(np.meshgrid(*[[-1, 1]] * 3)).reshape(3, -1).T:
        if signs @ panel.toward_viewer > 0:
            panel.line("face", *np.diag(signs), tag="polygon")
    for corner in corners:
        panel.dot("point", inside(corner), 2.5)
        outwards = panel.axes @ inside(corner)
        dx, dy = 22 * outwards / np.linalg.norm(outwards)
        panel.label("".join(f"{bit:.0f}" for bit in corner), inside(corner), dx - 15, dy + 4, "small")
    panel.line("ray", np.zeros(3), inside(x))
    ys = solutions(x, 2)
    panel.line("hidden", inside(x), inside(ys[1]))
    panel.line("path", *(inside(hs.soft_binary_argmax(x, 2, tau)) for tau in PATH_TAUS))
    panel.dot("point", inside(x), 4.5)
    panel.label(f"x = {show(x)}", inside(x), 12, 5)
    panel.mark(ys, [inside(y) for y in ys], [(-62, 2), (-48, 29), (13, 5)])
    return panel.parts


def figure() -> str:
    return "\n".join(
        [
            '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 960 520" role="img" aria-labelledby="title desc">',
            '<title id="title">Soft-Binary-Argmax@k on the simplex and on the octahedron</title>',
            '<desc id="desc">Left: the point (0.1, 1.6, 1) and its projections onto the simplex in three dimensions. '
            "As tau goes to 0 the projection is the vertex (0, 1, 0); at tau 1 it lies on an edge, at tau 6 inside. "
            "Right: a point in four dimensions with k = 2, whose projections run from a vertex of an octahedron "
            "along its surface into its interior.</desc>",
            f"<style>{STYLE}</style>",
            *simplex(),
            *octahedron(),
            '<text class="small" x="30" y="508">The thick line is the projection of x/τ for every τ, from a vertex '
            "(τ → 0) toward the center (τ → ∞).</text>",
            "</svg>\n",
        ]
    )


def main() -> None:
    path = Path(sys.argv[1] if len(sys.argv) > 1 else "build/demo/first_figure.svg")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(figure(), encoding="utf-8")
    print(f"Figure written to {path}")


if __name__ == "__main__":
    main()
