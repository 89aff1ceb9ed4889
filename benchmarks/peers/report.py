"""Tables from the files of a comparison, for a terminal or in Markdown."""

from collections.abc import Iterator
from pathlib import Path

from benchmarks import timing
from benchmarks.cases import count
from benchmarks.peers.edges import RIGHT, SKIPPED
from benchmarks.peers.peers import FOLDER, NAMES, OURS, PEERS, PROJECTION, Peer
from benchmarks.peers.results import Row, read

BEGIN, END = "<!-- tables: begin -->", "<!-- tables: end -->"
ENDS = {"time": "time", "memory": "memory", "error": "an error", "crash": "a crash", "wrong sum": "a wrong sum"}


def text(folder: Path, parts: list[str], *, markdown: bool = False) -> str:
    sections = {
        "peers": _peers,
        "exact": _exact,
        "times": _times,
        "memory": _memory,
        "growth": _growth,
        "edges": _edges,
    }
    blocks = []
    for part, section in sections.items():
        if part not in parts:
            continue
        for title, header, lines in section(folder):
            if lines:
                heading = f"### {title}" if markdown else title
                blocks.append(f"{heading}\n\n{timing.table(header, lines, markdown=markdown)}")
    return "\n\n".join(blocks)


def into_page(page: Path, folder: Path) -> None:
    """Put the tables between the two marks of a page, in place of those that stand there."""
    old = page.read_text()
    if BEGIN not in old or END not in old:
        raise ValueError(f"page must hold the marks {BEGIN} and {END}, got {page}")
    head, tail = old[: old.index(BEGIN)], old[old.index(END) :]
    tables = text(folder, ["peers", "exact", "times", "memory", "growth", "edges"], markdown=True)
    page.write_text(f"{head}{BEGIN}\n\n{tables}\n\n{tail}")


Section = Iterator[tuple[str, list[str], list[list[str]]]]


def _peers(folder: Path) -> Section:
    about = {peer.name: peer for peer in PEERS}
    rows = sorted(read(folder, "peers"), key=_order)
    found = [[row["peer"], row["version"], about[row["peer"]].computes] for row in rows if not row["missing"]]
    yield "Who is compared", ["peer", "version", "computes"], found
    lines = [[row["peer"], row["missing"], f"`{_command(about[row['peer']])}`"] for row in rows if row["missing"]]
    yield "Missing", ["peer", "why", "command that installs it"], lines


def _command(peer: Peer) -> str:
    return peer.install.replace(FOLDER, "peers")  # the option's default


def _exact(folder: Path) -> Section:
    header = ["peer", "y", "sum of y - k", "gradient"]
    rows = sorted(read(folder, "exact"), key=_order)
    for title, same in (("Distance to the reference", True), ("Distance of the other soft top-k", False)):
        lines = [
            [row["peer"], *(f"{float(row[name]):.1e}" for name in ("distance", "sum", "gradient"))]
            for row in rows
            if (row["kind"] == PROJECTION) == same
        ]
        yield title, header, lines


def _times(folder: Path) -> Section:
    rows = sorted(read(folder, "times"), key=_order)
    for threads in sorted({row["threads"] for row in rows}):
        for way, words in (("both", "Forward and backward"), ("forward", "Forward")):
            chosen = [row for row in rows if row["threads"] == threads]
            shapes = list(dict.fromkeys((row["shape"], row["dim"]) for row in chosen))
            peers = list(dict.fromkeys(row["peer"] for row in chosen))
            cells = {(row["peer"], row["shape"], row["dim"]): _time_cell(row, way) for row in chosen}
            ours = {row["shape"]: row[f"{way}_us"] for row in chosen if row["peer"] == OURS}
            header = ["peer", *(f"{shape}, dim {dim}" for shape, dim in shapes)]
            lines = [[f"{OURS}, us", *(number(ours.get(shape, "")) for shape, _ in shapes)]]
            lines += [[peer, *(cells.get((peer, *shape), "") for shape in shapes)] for peer in peers]
            title = f"{words}, {threads} thread{'s' * (threads != '1')}: times ours (times softmax)"
            yield title, header, lines if chosen else []


def _time_cell(row: Row, way: str) -> str:
    if row["failed"] or not row[f"{way}_us"]:
        return ENDS[row["failed"]]
    star = "*" if row["rounds"] == "1" else ""
    return f"{number(row[f'{way}_over_ours'])}{star} ({number(row[f'{way}_over_softmax'])})"


def _memory(folder: Path) -> Section:
    rows = sorted(read(folder, "memory"), key=_order)
    sizes = sorted({int(row["n"]) for row in rows})
    cells = {
        (row["peer"], int(row["n"])): number(row["megabytes"]) if row["megabytes"] else ENDS[row["failed"]]
        for row in rows
    }
    peers = list(dict.fromkeys(row["peer"] for row in rows))
    header = ["peer", *(f"n = {count(n)}, MB (x itself {4 * n / 2**20:.2g})" for n in sizes)]
    yield (
        "Peak memory of forward and backward, besides x and the incoming gradient",
        header,
        [[peer, *(cells.get((peer, n), "") for n in sizes)] for peer in peers],
    )


def _growth(folder: Path) -> Section:
    rows = sorted(read(folder, "growth"), key=_order)
    lines = []
    for peer in dict.fromkeys(row["peer"] for row in rows):
        good = [row for row in rows if row["peer"] == peer and not row["failed"]]
        bad = [row for row in rows if row["peer"] == peer and row["failed"]]
        last = max(good, key=lambda row: int(row["n"]), default=None)
        end = f"{ENDS[bad[0]['failed']]} at {count(int(bad[0]['n']))}" if bad else "not reached"
        largest = [count(int(last["n"])), f"{float(last['both_us']) / 1000:.3g}"] if last else ["none", ""]
        lines.append([peer, *largest, end])
    yield "The largest n, by powers of ten", ["peer", "largest n", "ms there, forward and backward", "ended by"], lines


def _edges(folder: Path) -> Section:
    rows = sorted(read(folder, "edges"), key=_order)
    lines = []
    for peer in dict.fromkeys(row["peer"] for row in rows):
        asked = [row for row in rows if row["peer"] == peer and row["outcome"] != SKIPPED]
        wrong = [row for row in asked if not row["outcome"].startswith(RIGHT)]
        words: dict[str, list[str]] = {}
        for row in wrong:
            words.setdefault(row["outcome"], []).append(row["edge"])
        if asked:
            rest = "; ".join(f"{outcome}: {', '.join(names)}" for outcome, names in words.items())
            lines.append([peer, f"{len(asked) - len(wrong)} of {len(asked)}", rest])
    yield "The table of edges", ["peer", "right", "otherwise"], lines


def number(cell: str) -> str:
    if not cell:
        return ""
    value = float(cell)
    return f"{value:.3g}" if abs(value) < 999.5 else f"{value:,.0f}"


def _order(row: Row) -> int:
    return NAMES.index(row["peer"])
