"""What a person sees in the terminal."""

import math
import re
from collections import Counter
from collections.abc import Sequence
from types import TracebackType

from rich import box
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from hypersimplex.study.config import RunConfig
from hypersimplex.study.measures import MEASURES
from hypersimplex.study.stats import Cell
from hypersimplex.study.store import Epoch, Run


class Live:
    """Progress of a study, an epoch a tick; plain lines where the output is not a terminal."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("epochs"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[latest]}", style="dim"),
            console=console,
            disable=not console.is_terminal,
        )
        self.task: TaskID | None = None
        self.total = self.done = self.told = 0

    def __enter__(self) -> "Live":
        self.progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.progress.stop()

    def phase(self, name: str, epochs: int) -> None:
        self.total, self.done, self.told = epochs, 0, 0
        self.task = self.progress.add_task(name, total=epochs, latest="")
        if not self.console.is_terminal:
            self.console.print(f"{name}: {epochs} epochs to do")

    def epoch(self, config: RunConfig, epoch: Epoch) -> None:
        self.done += 1
        assert self.task is not None
        either = (epoch.val_auc, epoch.test_auc) if config.is_trees else (epoch.val_accuracy, epoch.test_accuracy)
        score = either[0] if either[0] is not None else either[1]
        shown = "" if score is None else f" · {score:.3f}"
        self.progress.update(self.task, advance=1, latest=f"{config.describe()}{shown}")
        # Twenty lines a phase in a log file, and one for every epoch of a long run.
        tenth = 20 * self.done // max(1, self.total)
        if not self.console.is_terminal and (tenth > self.told or epoch.seconds > 5):
            self.told = tenth
            line = f"{self.done}/{self.total}  {config.describe()} · epoch {epoch.epoch}{shown}"
            self.console.print(line, markup=False, highlight=False, soft_wrap=True)


def batch_text(batch_size: int) -> str:
    return str(batch_size or "all")


def p_text(p: float) -> str:
    if math.isnan(p):
        return "—"
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def cell_table(cells: Sequence[Cell], title: str) -> Table:
    """The comparison on one data set by one measure, narrow enough for 80 columns."""
    measure, baseline = MEASURES[cells[0].measure], cells[0].baseline
    seeds = "/".join(map(str, sorted({c.summary.n for c in cells})))
    caption = f"{title}; mean ± half the 95 % interval, {seeds} seeds; difference to {baseline}, "
    caption += "p by paired t-test, Holm's over "
    caption += f"{cells[0].comparisons} comparison{'s' * (cells[0].comparisons != 1)}"
    table = Table(
        title=cells[0].dataset,
        caption=caption,
        box=box.SIMPLE_HEAD,
        padding=(0, 1),
        collapse_padding=True,
        pad_edge=False,
    )
    shown = f"{measure.title}, %" if measure.percent else measure.title
    sized = any(c.batch_size for c in cells)
    for name in (*["batch"] * sized, "loss", "setting", shown, "difference", "p", "p Holm"):
        left, narrow = name in ("loss", "setting"), name in ("batch", "p", "p Holm")
        table.add_column(name, justify="left" if left else "right", no_wrap=narrow, overflow="fold")
    previous = cells[0].batch_size
    for c in cells:
        if previous != c.batch_size:
            table.add_section()
        previous = c.batch_size
        half = (c.summary.high - c.summary.low) / 2
        against = c.against
        difference = "" if against is None else measure.with_sign(against.difference)
        table.add_row(
            *[batch_text(c.batch_size)] * sized,
            c.loss,
            c.setting,
            f"{measure.text(c.summary.mean)} ± {measure.text(half)}",
            f"[bold]{difference}[/bold]" if against is not None and c.holm_p < 0.05 else difference,
            "" if against is None else p_text(against.p),
            "" if against is None else p_text(c.holm_p),
        )
    # Names and headings may be broken, numbers may not.
    table.columns[sized].min_width = min(13, max(len(c.loss) for c in cells))
    for column in table.columns[2 + sized : 4 + sized]:
        texts = [*str(column.header).split(), *(re.sub(r"\[/?bold\]", "", str(v)) for v in column.cells)]
        column.min_width = max(map(len, texts))
    return table


def narrow_table(title: str, columns: Sequence[str], left: Sequence[str]) -> Table:
    """Columns as wide as their content: eighty characters hold ten of them."""
    table = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1), collapse_padding=True, pad_edge=False)
    for name in columns:
        table.add_column(name, justify="left" if name in left else "right", no_wrap=True)
    return table


def status_tables(runs: Sequence[Run], live: set[str]) -> list[Table]:
    """For each data set its runs by loss and batch size; one marked running that nobody holds was interrupted."""
    everywhere = {state_of(r, live) for r in runs}
    states = [s for s in ("done", "running", "interrupted", "pending", "diverged", "failed") if s in everywhere]
    tables = []
    for dataset in dict.fromkeys(r.config.dataset for r in runs):
        table = narrow_table(dataset, ("loss", "batch", *states, "epochs"), ("loss",))
        groups: dict[tuple[str, int], list[Run]] = {}
        for r in runs:
            if r.config.dataset == dataset:
                groups.setdefault((r.config.loss, r.config.batch_size), []).append(r)
        for (loss, batch), group in groups.items():
            count = Counter(state_of(r, live) for r in group)
            done, total = sum(len(r.epochs) for r in group), sum(r.config.epochs for r in group)
            table.add_row(loss, batch_text(batch), *(str(count[s] or "") for s in states), f"{done}/{total}")
        tables.append(table)
    return tables


def state_of(run: Run, live: set[str]) -> str:
    return "interrupted" if run.state == "running" and run.training not in live else run.state
