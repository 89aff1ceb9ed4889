"""The boosting objective against a NumPy logistic one, LightGBM's built-in `binary`, and itself written with a sort.

Run with `python -m benchmarks.boosting`. One call at every size, then a training of 100 rounds. All candidates take
turns, so that a busy moment hits them alike; the tables show medians, and medians of every round's ratio. `--quick` is
for trying it out.
"""

import argparse
import statistics
import time
import tracemalloc

import lightgbm as lgb
import numpy as np

from benchmarks import timing
from hypersimplex.boosting import HyperSimplexObjective

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


def training(n: int, boosting_rounds: int, repeats: int) -> list[list[str]]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 28)).astype(np.float32)
    y = (x[:, 0] + x[:, 1] * x[:, 2] + rng.normal(size=n) > 0).astype(int)
    data = lgb.Dataset(x, y, free_raw_data=False)
    data.construct()
    candidates = {OURS: HyperSimplexObjective(), BUILT_IN: "binary", LOGISTIC: _as_objective(logistic)}
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for repeat in range(repeats):
        names = list(candidates)
        for name in names[repeat % 3 :] + names[: repeat % 3]:
            begin = time.perf_counter()
            lgb.train({"objective": candidates[name], "verbose": -1}, data, boosting_rounds)
            seconds[name].append(time.perf_counter() - begin)
    ratios = {
        name: statistics.median(a / b for a, b in zip(seconds[name], seconds[BUILT_IN], strict=True))
        for name in seconds
    }
    rows = []
    for name, times in seconds.items():
        middle = statistics.median(times)
        rows.append([name, f"{middle:.2f}", f"{1000 * middle / boosting_rounds:.1f}", f"{ratios[name]:.2f}"])
    return rows


def _as_objective(function):
    return lambda scores, data: function(data.get_label(), scores)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes, few rounds")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--calls", action="store_true", help="without the training")
    parser.add_argument("--training", action="store_true", help="without the calls")
    arguments = parser.parse_args()
    print(f"{timing.machine()}, lightgbm {lgb.__version__}\n")
    if not arguments.training:
        sizes = [(10**4, 5)] if arguments.quick else [(10**5, 41), (10**6, 21), (10**7, 7)]
        header = [
            "rows",
            f"{OURS} ms",
            f"{LOGISTIC} ms",
            f"{SORTED} ms",
            "ours/logistic",
            "ours/sort",
            "peak in scores",
        ]
        print(timing.table(header, [one_call(*size) for size in sizes], markdown=arguments.markdown))
    if arguments.calls:
        return
    n, rounds, repeats = (5000, 5, 1) if arguments.quick else (10**6, 100, 3)
    print(f"{'' if arguments.training else chr(10)}Training, {rounds} rounds on {n} x 28:\n")
    header = ["objective", "seconds", "ms a round", "to built-in"]
    print(timing.table(header, training(n, rounds, repeats), markdown=arguments.markdown))


if __name__ == "__main__":
    main()
