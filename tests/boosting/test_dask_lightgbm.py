"""LightGBM on real Dask workers: it cannot reduce over them, so more than one is refused."""

import numpy as np
import pytest

from hypersimplex.boosting import HyperSimplexObjective
from tests.boosting.problems import data

lgb = pytest.importorskip("lightgbm")
distributed = pytest.importorskip("distributed")
dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")

# distributed closes its sockets in threads that outlive the test; LightGBM on Dask warns of its own default.
pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
    "ignore:Parameter n_jobs will be ignored",
)


def fit(workers):
    """A classifier of sorted labels: with a projection per worker, every row of a worker would be of one class."""
    x, y = data(2000)
    order = np.argsort(y, kind="stable")
    x, y = x[order], y[order]
    with (
        dask.config.set({"distributed.scheduler.work-stealing": False}),
        distributed.LocalCluster(
            n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        names = sorted(client.ncores())

        def dealt(array):
            halves = np.split(array, [len(y) // 2])
            places = [names[i % len(names)] for i in range(2)]
            futures = [client.scatter(h, workers=[p], hash=False) for h, p in zip(halves, places, strict=True)]
            blocks = [da.from_delayed(f, h.shape, h.dtype) for f, h in zip(futures, halves, strict=True)]
            return da.concatenate(blocks)

        model = lgb.DaskLGBMClassifier(objective=HyperSimplexObjective(), n_estimators=20, client=client, verbose=-1)
        model.fit(dealt(x), dealt(y))
        return model.to_local().predict(x, raw_score=True), x, y


def test_two_workers_are_refused_with_the_reason():
    with pytest.raises(ValueError, match=r"num_machines must be 1, got 2: .* use XGBoost on Dask"):
        fit(2)


def test_one_worker_is_one_machine():
    scores, x, y = fit(1)
    alone = lgb.LGBMClassifier(objective=HyperSimplexObjective(), n_estimators=20, verbose=-1).fit(x, y)
    found, expected = (
        HyperSimplexObjective().calibrate(y, each).error_rate(y, each)
        for each in (scores, alone.predict(x, raw_score=True))
    )
    assert found == pytest.approx(expected, abs=0.01)
