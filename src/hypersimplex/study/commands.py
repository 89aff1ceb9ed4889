"""What the commands do, without the parsing of their options."""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from hypersimplex.study import catalog, checkpoint, estimate, setup, tabular
from hypersimplex.study.config import TREES, RunConfig, one_of
from hypersimplex.study.console import Live, batch_text, cell_table, narrow_table, state_of, status_tables
from hypersimplex.study.data import NAMES
from hypersimplex.study.engines import Engine, InProcess, Processes
from hypersimplex.study.locks import is_claimed
from hypersimplex.study.measures import OTHERS
from hypersimplex.study.presets import PRESETS
from hypersimplex.study.results import results
from hypersimplex.study.stats import cells
from hypersimplex.study.store import Run, Store
from hypersimplex.study.sweep import Study, from_toml, override, run_study, trainings
from hypersimplex.study.train import Runtime
from hypersimplex.study.verdict import budget, settings_tried, verdict


def make_study(preset: str | None, file: Path | None, given: Mapping[str, Any]) -> Study:
    """A preset, changed by a file, changed by options; options that are no field of a study are somebody else's."""
    study = PRESETS[preset] if preset else Study()
    given = {f.name: given[f.name] for f in fields(Study) if f.name in given}
    if file is not None:
        study = from_toml(file, study)
    study = override(study, given)
    if given.get("tau") and study.network in TREES:
        name = study.network
        raise ValueError(f"tau must be left out with network {name}, whose losses have their own, got {study.tau[0]}")
    return study


def make_engine(name: str | None, processes: int | None, address: str | None, retries: int) -> Engine:
    for option, value, engine in (("processes", processes, "processes"), ("address", address, "ray")):
        if value is not None and name not in (None, engine):
            raise ValueError(f"{option} must be left out with engine {name}, it is of engine {engine}, got {value}")
    if name is None and processes and address:
        raise ValueError(f"processes must be left out with an address of a Ray cluster, got {processes}")
    name = name or ("processes" if processes else "ray" if address else "process")
    if name == "ray":
        from hypersimplex.study.ray_engine import RayEngine

        return RayEngine(address, retries)
    return Processes(processes or 2, retries) if name == "processes" else InProcess()


def dry_run(study: Study, runtime: Runtime, processes: int, path: Path) -> None:
    console = Console()
    todo = [("tuning", trainings(study.tuning()))] if study.tunes else []
    # Which setting is chosen is not known yet; it does not change the time.
    todo.append(("compared", trainings(study.at_one_setting())))
    setup.check([c for _, configs in todo for c in configs], runtime)
    done = set()
    if path.exists():
        with Store(path, read_only=True) as store:
            done = {r.training for r in store.runs() if r.state in ("done", "diverged")}
    columns = ("", "batch", "losses", "settings", "seeds", "number", "epochs", "each", "all")
    tables: dict[str, Table] = {}
    times = estimate.seconds([c for _, configs in todo for c in configs], runtime)
    loading = [speed.loading / speed.train for _, speed in times.values()]
    trees = all(c.is_trees for _, configs in todo for c in configs)
    total = sum(cost for cost, _ in times.values())
    left = sum(cost for key, (cost, _) in times.items() if key not in done)
    for name, configs in todo:
        groups: dict[tuple[str, int], list[RunConfig]] = {}
        for c in configs:
            groups.setdefault((c.dataset, c.batch_size), []).append(c)
        for (dataset, batch), group in groups.items():
            cost = sum(times[c.key()][0] for c in group)
            kinds = (len({c.loss for c in group}), len({c.setting() for c in group}), len({c.seed for c in group}))
            each = estimate.in_words(cost / len(group))
            row = (name, batch_text(batch), *kinds, len(group), group[0].epochs, each, estimate.in_words(cost))
            table = tables.setdefault(dataset, narrow_table(f"trainings on {dataset}", columns, columns[:1]))
            table.add_row(*map(str, row))
    console.print("losses: " + ", ".join(study.loss), highlight=False)
    for table in tables.values():
        console.print(table)
    count = sum(len(c) for _, c in todo)
    console.print(
        f"{count} trainings, about {estimate.in_words(total / processes)} with --processes {processes}, "
        f"{estimate.in_words(left / processes)} still to do."
        + ("" if trees else f" Loading and augmentation take at most {max(loading):.1%} of a step."),
        highlight=False,
    )
    how = "by ten rounds of each kind; most stop early" if trees else "at up to 512 samples a step"
    console.print(f"measured now, {how}; another load on this machine changes it", style="dim")


def run(study: Study, path: Path, engine: Engine, runtime: Runtime, resume: bool, command: str) -> bool:
    """Run a study and print its table; return whether every run reached an end."""
    console = Console()
    with Store(path) as store:
        if not resume:
            for r in store.runs():
                if r.state not in ("done", "diverged") and not is_claimed(store.work_folder, r.training):
                    checkpoint.remove(store.work_folder, r.training)
        known = len(store.events())
        with Live(console) as live:
            run_study(study, store, engine, runtime, live.phase, live.epoch, command)
        for _, _, what in store.events()[known:]:
            console.print(f"note: {what}", style="yellow", markup=False, highlight=False, soft_wrap=True)
        wanted = {c.key() for c in [*study.first(), *study.second(store)]}
        runs = [r for r in store.runs() if r.key in wanted]
        _print_cells(console, runs, None, False)
        failed = [r for r in runs if r.state not in ("done", "diverged")]
        for r in failed[:10]:
            _print_failure(console, r)
        if failed:
            console.print(f"{len(failed)} of {len(runs)} runs have no result; the same command tries them again")
        console.print(
            f"store: {path}; `hypersimplex study report --store {path}` writes the report",
            highlight=False,
            soft_wrap=True,
        )
        return not failed


def _print_failure(console: Console, run: Run) -> None:
    text = f"{run.state}: {run.config.describe()}: {run.error}"
    console.print(text, style="red", markup=False, highlight=False, soft_wrap=True)


def _print_cells(console: Console, runs: list[Run], baseline: str | None, paper_rule: bool) -> None:
    finished = results(runs)
    diverged = [r.config.describe() for r in runs if r.state == "diverged"]
    if diverged:
        console.print(
            f"diverged: {'; '.join(diverged[:10])}{' …' * (len(diverged) > 10)}", style="yellow", markup=False
        )
    validated = all(r.validation is not None for r in finished)
    if paper_rule:
        rule = "best epoch on the test set: the paper's rule, optimistic"
    else:
        rule = "test set, at the epoch the validation split chose" if validated else "test set, at the last epoch"
    rows = cells(finished, baseline, paper_rule)
    for name in [] if paper_rule else OTHERS:
        rows += cells(finished, baseline, other=name)
    for part in dict.fromkeys((c.dataset, c.measure) for c in rows):
        console.print(cell_table([c for c in rows if (c.dataset, c.measure) == part], rule))
    if rows and not paper_rule:
        console.print(verdict([c for c in rows if c.measure not in OTHERS]), markup=False, highlight=False)
        if len(set(settings_tried(finished).values())) > 1:
            console.print(budget(finished), markup=False, highlight=False)


def compare(store: Store, baseline: str | None, paper_rule: bool) -> None:
    runs = store.runs()
    losses = sorted({r.config.loss for r in runs if r.state == "done"})
    if not losses:
        raise ValueError(f"store {store.path} has no finished run yet; `hypersimplex study run` makes them")
    if baseline is not None:
        one_of("baseline", baseline, losses)
    _print_cells(Console(), runs, baseline, paper_rule)


def status(store: Store) -> None:
    console, runs = Console(), store.runs()
    live = {r.training for r in runs if r.state == "running" and is_claimed(store.work_folder, r.training)}
    for table in status_tables(runs, live):
        console.print(table)
    seconds = {r.training: sum(e.seconds for e in r.epochs) for r in runs}
    console.print(
        f"{len(runs)} runs, {len(seconds)} trainings, {estimate.in_words(sum(seconds.values()))} of computing"
    )
    for r in runs:
        if state_of(r, live) in ("failed", "diverged"):
            _print_failure(console, r)
    for _, at, what in store.events()[-10:]:
        console.print(f"{at}  {what}", style="dim", markup=False, highlight=False)


def data_list(folder: str | None) -> None:
    root = catalog.data_folder(folder)
    table = Table(title=f"data folder {root}")
    for column in ("name", "what", "files"):
        table.add_column(column)
    table.add_row("digits", "1,797 scanned digits, 8 x 8, inside scikit-learn", "no file needed")
    for source in catalog.SOURCES.values():
        missing = [f for f, there in catalog.present(source.name, root) if not there]
        table.add_row(source.name, source.about, "there" if not missing else f"missing: {missing[0]}, …")
    for name, one in tabular.SOURCES.items():
        table.add_row(
            name, (tabular.note(name) or "").rstrip("."), "there" if tabular.present(one, root) else "missing"
        )
    Console().print(table)


def known_source(name: str, check: bool = False) -> str:
    if name == "digits":
        raise ValueError("digits comes inside scikit-learn: there is no file to fetch or check")
    if name in tabular.SOURCES and check:
        raise ValueError(f"{name} has no known hash to check; `hypersimplex data list` says whether it is there")
    if name in tabular.SOURCES:
        raise ValueError(f"{name} is not fetched by this command; get it from {tabular.SOURCES[name].get}")
    one_of("name", name, [n for n in NAMES if n != "digits"])
    return name


def data_fetch(names: list[str], folder: str | None, mirror: str | None) -> None:
    for name in [known_source(n) for n in names]:
        where = catalog.fetch(name, catalog.data_folder(folder), mirror)
        Console().print(f"{name}: {where}", highlight=False)


def data_check(names: list[str], folder: str | None) -> bool:
    good = True
    for name in [known_source(n, check=True) for n in names or catalog.SOURCES]:
        for file, found in catalog.check(name, catalog.data_folder(folder)):
            good = good and found == "ok"
            Console().print(
                f"{name}  {file}: {found}", style=None if found == "ok" else "red", markup=False, highlight=False
            )
    return good
