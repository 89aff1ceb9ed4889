"""What a person sees in the terminal."""

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from hypersimplex_study.config import RunConfig
from hypersimplex_study.measures import MEASURES
from hypersimplex_study.records import Epoch

if TYPE_CHECKING:
    from hypersimplex_study.stats import Cell

# Control characters but for tab and newline, marks that reverse the direction of text, and halves of characters.
UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
NARROW = 80


def visible(text: str) -> str:
    r"""Spell out characters that command a terminal instead of being shown by it.

    >>> print(visible("a\x1b[31mb"))
    a\x1b[31mb
    """
    return UNSAFE.sub(lambda found: found[0].encode("unicode_escape", "surrogatepass").decode(), text)


class Terminal(Console):
    """A console for texts that are not ours: names of files, errors, events. They are shown as they are written."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(visible(text), **{**options, "markup": False, "emoji": False})


class Live(Progress):
    """Progress of a study, an epoch a tick; plain lines where the output is not a terminal."""

    def __init__(self, console: Console) -> None:
        width = console.width
        self.bar = 10 if width < 80 else 20 if width < 110 else 40
        super().__init__(
            TextColumn("{task.description}", markup=False),
            BarColumn(self.bar),
            MofNCompleteColumn(),
            TextColumn("epochs"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[latest]}", style="dim", markup=False),
            console=console,
            disable=not console.is_terminal or console.quiet,
        )
        self.total = self.done = self.told = self.room = 0

    def phase(self, name: str, epochs: int) -> None:
        self.total, self.done, self.told = epochs, 0, 0
        # Name, bar, "12/34", "epochs", two times of seven characters, and a space between all of them.
        self.room = self.console.width - (len(name) + self.bar + 2 * len(str(epochs)) + 1 + 6 + 14 + 6)
        self.add_task(name, total=epochs, latest="")
        if not self.console.is_terminal:
            self.console.print(f"{name}: {epochs} epochs to do")

    def epoch(self, config: RunConfig, epoch: Epoch) -> None:
        self.done += 1
        either = (epoch.val_auc, epoch.test_auc) if config.is_trees else (epoch.val_accuracy, epoch.test_accuracy)
        score = either[0] if either[0] is not None else either[1]
        shown = "" if score is None else f" · {score:.3f}"
        self.update(self.task_ids[-1], advance=1, latest=self.fitting(config.describe(), shown))
        # Twenty lines a phase in a log file, and one for every epoch of a long run.
        tenth = 20 * self.done // max(1, self.total)
        if not self.console.is_terminal and (tenth > self.told or epoch.seconds > 5):
            self.told = tenth
            line = f"{self.done}/{self.total}  {config.describe()} · epoch {epoch.epoch}{shown}"
            self.console.print(line, soft_wrap=True)

    def fitting(self, run: str, score: str) -> str:
        """As much of a run's name as the line has room for, and its score."""
        run = visible(run)
        if len(run) + len(score) <= self.room:
            return run + score
        if self.room < 24:
            return ""
        return run[: self.room - len(score) - 1] + "…" + score


def batch_text(batch_size: int) -> str:
    return str(batch_size or "all")


def p_text(p: float) -> str:
    if math.isnan(p):
        return "—"
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def in_words(value: float) -> str:
    """
    >>> in_words(5400)
    '1 h 30 min'
    """
    if not math.isfinite(value):
        return "an unknown time"
    if value < 90:
        return f"{value:.0f} s"
    if value < 5400:
        return f"{value / 60:.0f} min"
    hours, minutes = divmod(round(value / 60), 60)
    if hours < 10:
        return f"{hours} h {minutes:02} min"
    return f"{value / 3600:.0f} h" if hours < 72 else f"{hours / 24:.0f} days"


def cell_table(cells: Sequence["Cell"], title: str, width: int = 80) -> Table:
    """The comparison on one data set by one measure; where it is narrow, with Holm's p alone."""
    measure, baseline = MEASURES[cells[0].measure], cells[0].baseline
    seeds = "/".join(map(str, sorted({c.summary.n for c in cells})))
    caption = f"{title}; mean ± half the 95 % interval, seeds: {seeds}; difference to {baseline} over the seeds that "
    caption += "both have, "
    primary = [c for c in cells if c.primary]
    count = max(c.comparisons for c in primary or cells)
    if not count:
        caption += "not tested"
    else:
        caption += f"p by paired t-test, Holm's over {count} "
        caption += f"{'secondary ' * (not primary)}comparison{'s' * (count != 1)}"
        if primary:
            caption += f" of {primary[0].loss}, the primary question; the other losses are corrected apart"
    table = narrow_table(cells[0].dataset)
    table.caption = caption
    shown = f"{measure.title}, %" if measure.percent else measure.title
    sized, both = any(c.batch_size for c in cells), width >= NARROW
    gain = "difference" if both else "diff."
    _add_columns(table, [*["batch"] * sized, "loss", "setting", shown, gain, *["p"] * both, "p Holm"], not both)
    previous = cells[0].batch_size
    for c in cells:
        if previous != c.batch_size:
            table.add_section()
        previous = c.batch_size
        half = (c.summary.high - c.summary.low) / 2
        against = c.against
        difference = "" if against is None else measure.with_sign(against.difference)
        bold = "bold" if against is not None and c.holm_p < 0.05 else ""
        table.add_row(
            *[batch_text(c.batch_size)] * sized,
            c.loss,
            c.setting,
            f"{measure.text(c.summary.mean)} ± {measure.text(half)}",
            Text(difference, style=bold),
            *["" if against is None else p_text(against.p)] * both,
            "" if against is None else p_text(c.holm_p),
        )
    _keep_numbers_whole(table, sized, min(13 if both else 8, max(len(c.loss) for c in cells)))
    return table


def _add_columns(table: Table, names: Sequence[str], narrow: bool) -> None:
    for name in names:
        left, whole = name in ("loss", "setting"), name in ("batch", "p", "p Holm")
        # Where it is narrow only names give way: rich would take width from the numbers too.
        heading = name.replace(" ", "\n") if narrow and not left and not whole else name
        whole = whole or (narrow and not left)
        table.add_column(heading, justify="left" if left else "right", no_wrap=whole, overflow="fold")


def _keep_numbers_whole(table: Table, first: int, name: int) -> None:
    """Names and headings may be broken, numbers may not."""
    table.columns[first].min_width = name
    for column in table.columns[2 + first : 4 + first]:
        column.min_width = max(map(len, [*str(column.header).split(), *map(str, column.cells)]))


def narrow_table(title: str, columns: Sequence[str] = (), left: Sequence[str] = ()) -> Table:
    """Columns as wide as their content: eighty characters hold ten of them."""
    table = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1), collapse_padding=True, pad_edge=False)
    for name in columns:
        table.add_column(name, justify="left" if name in left else "right", overflow="fold")
    return table
