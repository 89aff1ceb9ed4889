"""`python -m benchmarks.peers`. Nothing heavy is imported before it runs."""

import os
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer


class Part(str, Enum):
    exact = "exact"
    edges = "edges"
    memory = "memory"
    growth = "growth"
    probe = "probe"
    times = "times"
    budgets = "budgets"
    report = "report"


def bench(
    part: Annotated[
        list[Part] | None,
        typer.Option(
            help="exact: distance to the reference. edges: the table of edges. memory: peak of forward and backward. "
            "growth: time against n, and the largest n. times: all in turn at the shapes of the operator's benchmark. "
            "probe: who manages those shapes; times asks it of peers not yet probed. "
            "budgets: box sections, segments and assignments beside their own peers; only printed. "
            "report: only print what --output holds. Repeatable; default: all but budgets."
        ),
    ] = None,
    peer: Annotated[
        list[str] | None,
        typer.Option(help="Measure this peer alone; for times beside ours and softmax. Repeatable."),
    ] = None,
    shape: Annotated[list[str] | None, typer.Option(help="For times: 10x8192, say. Repeatable; default: all.")] = None,
    output: Annotated[
        Path, typer.Option(help="Folder of the CSV files and the figure; parts measured again replace their rows.")
    ] = Path("bench-results"),
    peers_folder: Annotated[
        Path,
        typer.Option(help="Folder of clones, for peers that are on no index.", envvar="HYPERSIMPLEX_PEERS"),
    ] = Path("peers"),
    threads: Annotated[int, typer.Option(min=1)] = 1,
    rounds: Annotated[int, typer.Option(min=1, help="Turns of every peer at a shape; slow ones take fewer.")] = 15,
    seconds: Annotated[float, typer.Option(min=0.1, help="A call that takes longer counts as failed.")] = 10.0,
    gigabytes: Annotated[float, typer.Option(min=0.1, help="And one that asks for more memory.")] = 8.0,
    largest: Annotated[int, typer.Option(min=100, help="For growth: the largest n to try.")] = 10**8,
    quick: Annotated[bool, typer.Option(help="Few rounds, small sizes: does everything run?")] = False,
    markdown: Annotated[bool, typer.Option(help="Print the tables as Markdown.")] = False,
    page: Annotated[
        Path | None, typer.Option(help="Also put the tables between the marks of this Markdown file.", exists=True)
    ] = None,
) -> None:
    """Compare the operator with every public way to do the same or a similar job.

    Peers that are not installed are named, with the command that installs them.
    """
    try:
        from benchmarks.peers import run
    except ModuleNotFoundError as error:
        typer.echo(f"error: this benchmark needs {error.name}; install it with: pip install -e '.[dev]'")
        raise typer.Exit(1) from None

    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    if part and Part.budgets in part:
        budgets(threads, 3 if quick else rounds)
        part = [p for p in part if p is not Part.budgets]
        if not part:
            return
    try:
        run.main(
            [p.value for p in part or Part if p not in (Part.report, Part.budgets)],
            peer,
            shape,
            output,
            run.Options(
                peers_folder.absolute(),
                threads=threads,
                rounds=3 if quick else rounds,
                limits=run.Limits(seconds, gigabytes),
                memory_sizes=(10**4,) if quick else (10**4, 10**6),
                largest=min(largest, 10**4) if quick else largest,
            ),
            small=quick,
            markdown=markdown,
            page=page,
        )
    except (OSError, ValueError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None


def budgets(threads: int, rounds: int) -> None:
    """Peers that are not installed are left out."""
    from benchmarks import assignment
    from benchmarks.peers import box, segments
    from benchmarks.peers.parts import pinned

    with pinned(threads):
        box.table(rounds)
        box.issue_205()
        print()
        segments.table(rounds)
        for problem in assignment.PEER_PROBLEMS:
            assignment.beside_peers(*problem, rounds)


app = typer.Typer(context_settings={"help_option_names": ["-h", "--help"]})
app.command()(bench)

if __name__ == "__main__":
    app()
