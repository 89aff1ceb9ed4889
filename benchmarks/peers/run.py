"""Measure the chosen parts, write their files, print their tables."""

import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks import timing
from benchmarks.cases import CASES, LARGE, Case, size
from benchmarks.peers import figure, parts, peers, report, results
from benchmarks.peers.parts import Options
from benchmarks.peers.worker import Limits
from hypersimplex._version import __version__

__all__ = ["Limits", "Options", "main"]


def main(
    chosen: Sequence[str],
    names: Sequence[str] | None,
    shapes: Sequence[str] | None,
    output: Path,
    options: Options,
    *,
    small: bool = False,
    markdown: bool = False,
    page: Path | None = None,
) -> None:
    for name in names or []:
        if name not in peers.NAMES:
            raise ValueError(f"peer must be one of {', '.join(map(repr, peers.NAMES))}, got {name}")
    cases = _cases(shapes, CASES[:1] if small else CASES + LARGE)
    if chosen:
        with parts.pinned(options.threads):
            _measure(chosen, names or peers.NAMES, cases, output, options)
    elif not any((output / f"{part}.csv").is_file() for part in results.KEYS):
        raise ValueError(f"output must hold results of earlier parts, got {output}")
    drawn = figure.draw(output, output / "growth.svg")
    print(report.text(output, ["peers", *chosen] if chosen else [*results.KEYS], markdown=markdown))
    print(f"\nFiles in {output}: {', '.join(sorted(path.name for path in output.iterdir()))}", file=sys.stderr)
    if not drawn:
        print("no figure: it is drawn from the part growth", file=sys.stderr)
    if page is not None:
        report.into_page(page, output)


def _measure(
    chosen: Sequence[str], names: Sequence[str], cases: Sequence[Case], output: Path, options: Options
) -> None:
    print(f"{timing.machine()}, hypersimplex {__version__}\n", flush=True)
    found, missing = peers.present(names, options.folder)
    about = [{"peer": p.name, "version": p.version(options.folder), "missing": ""} for p in found]
    about += [{"peer": m.peer.name, "version": "", "missing": m.reason} for m in missing]
    results.merge(output, "peers", about)
    for absent in missing:
        print(absent, flush=True)
    for part in chosen:
        print(f"{part} ...", file=sys.stderr, flush=True)
        for rows in _rows(part, found, cases, output, options):
            results.merge(output, part, rows, forget=rows[0]["peer"] if part == "growth" else None)
            print(f"  {_label(part, rows[0])}", file=sys.stderr, flush=True)
        command = shlex.join(["python", "-m", "benchmarks.peers", *sys.argv[1:]])
        results.merge(output, "run", [{"part": part, "machine": timing.machine(), "command": command}])


def _rows(
    part: str, found: Sequence[peers.Peer], cases: Sequence[Case], output: Path, options: Options
) -> Iterator[list[results.Row]]:
    if part == "probe":
        yield from parts.probe(found, options, cases)
    elif part == "times":
        # Ratios are taken in turns with ours and with softmax, whoever else was asked for.
        found, _ = peers.present({*(peer.name for peer in found), *parts.BASES}, options.folder)
        known = [{row[name] for name in ("threads", "shape", "dim", "peer")} for row in results.read(output, "probe")]
        wanted = [{str(options.threads), size(shape), str(dim)} for shape, dim in cases]
        new = [peer for peer in found if any(place | {peer.name} not in known for place in wanted)]
        for rows in parts.probe(new, options, cases):
            results.merge(output, "probe", rows)
        yield from filter(None, parts.times(found, options, cases, results.read(output, "probe")))
    else:
        yield from filter(None, getattr(parts, part)(found, options))


def _label(part: str, row: results.Row) -> str:
    return f"{row['shape']}, dim {row['dim']}" if part == "times" else str(row["peer"])


def _cases(shapes: Sequence[str] | None, default: Sequence[Case]) -> Sequence[Case]:
    if not shapes:
        return default
    known = {f"{shape[0]}x{shape[1]}": (shape, dim) for shape, dim in CASES + LARGE}
    for shape in shapes:
        if shape not in known:
            raise ValueError(f"shape must be one of {', '.join(known)}, got {shape}")
    return [known[shape] for shape in shapes]
