"""From the runs of a store to the table that is compared."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial

from hypersimplex_study.config import RunConfig
from hypersimplex_study.measures import gain
from hypersimplex_study.records import Run
from hypersimplex_study.schema import FINISHED
from hypersimplex_study.stats import Result

# Everything else of a configuration is the protocol: losses are only compared within one.
COMPARED = {"loss", "batch_size", "seed", "lr", "tau", "prior", "code", "bias_rate", "smoothing"}


def protocol(config: RunConfig) -> dict[str, object]:
    """Everything but what is compared; a shorter tuning run has that of the runs it chooses for."""
    found = {k: v for k, v in asdict(config).items() if k not in COMPARED}
    return found | {"epochs": config.tunes_for or config.epochs, "tunes_for": None}


def dataset_names(configs: Sequence[RunConfig]) -> dict[str, str]:
    """Name the protocol of every run: the data set, and what sets it apart where one data set has several."""
    by_dataset: dict[str, list[dict[str, object]]] = {}
    for c in configs:
        known = by_dataset.setdefault(c.dataset, [])
        if protocol(c) not in known:
            known.append(protocol(c))
    names = {}
    for c in configs:
        own, known = protocol(c), by_dataset[c.dataset]
        apart = [f"{k} {v}" for k, v in own.items() if any(p[k] != v for p in known)]
        names[c.key()] = f"{c.dataset} ({', '.join(apart)})" if apart else c.dataset
    return names


def best_epoch(run: Run) -> int:
    """Return the epoch the validation split chooses (the first of equals), or the last without a split."""
    values = [v for v, _ in run.scores()]
    if not values or any(v is None for v in values):
        return len(values) - 1
    return max(range(len(values)), key=lambda i: (gain(run.measure, values[i] or 0.0), -i))


def result(run: Run, dataset: str) -> Result:
    """Reduce a finished run. A diverged one has no accuracy: it is shown as diverged and never chosen."""
    c = run.config
    # Data sets that share all the rest are one study.
    shared = json.dumps({k: v for k, v in protocol(c).items() if k not in ("dataset", "label")})
    # It has epochs up to where it diverged.
    scores = [] if run.state == "diverged" else run.scores()
    best = best_epoch(run) if scores else -1
    validation, test = scores[best] if scores else (None, None)
    tests = [t for _, t in scores if t is not None]
    return Result(
        run.key,
        dataset,
        c.loss,
        c.batch_size,
        c.seed,
        c.setting(),
        validation,
        best,
        math.nan if test is None else test,
        max(tests, key=partial(gain, run.measure), default=math.nan),
        run.tuning,
        run.measure,
        others(run, best) if scores else {},
        shared,
    )


def beside(runs: Sequence[Run]) -> list[Run]:
    """What plain argmax makes of the finished trainings that are decided otherwise, where nobody asked for it."""
    there, found = {r.key for r in runs}, []
    for r in runs:
        config = r.config.beside
        if r.state == "done" and config is not None and config.key() not in there:
            found.append(replace(r, key=config.key(), config=config))
    return found


def others(run: Run, epoch: int) -> dict[str, float]:
    """The other measures of boosted trees at an epoch."""
    if not run.config.is_trees:
        return {}
    e = run.epochs[epoch]
    found = {"error": None if e.test_accuracy is None else 1 - e.test_accuracy, "log_loss": e.test_log_loss}
    return {name: value for name, value in found.items() if value is not None}


def results(runs: Sequence[Run]) -> list[Result]:
    """Reduce all finished runs."""
    # A run without a result, of a mistyped option perhaps, must not rename the others.
    finished = [r for r in runs if r.state in FINISHED]
    names = dataset_names([r.config for r in finished])
    return [result(r, names[r.key]) for r in finished]
