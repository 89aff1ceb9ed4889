"""XGBoost on real Dask workers: the projection spans the rows of all of them."""

import asyncio
import os

import numpy as np
import pytest

from hypersimplex.boosting import HyperSimplexObjective, XGBoostMetric
from tests.boosting.problems import data

xgb = pytest.importorskip("xgboost")
distributed = pytest.importorskip("distributed")
dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
dxgb = pytest.importorskip("xgboost.dask")

# distributed closes its sockets in threads that outlive the test.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")

# Features of few values: XGBoost then finds the same bins wherever the rows lie.
SETTINGS = {"tree_method": "hist", "nthread": 1, "base_score": 0.0, "max_depth": 4}
PARTS = {2: (1500, 100, 400), 3: (1200, 37, 463, 300)}


def coarse(classes):
    x, y = data(2000, classes)
    return np.round(x * 4) / 4, y


@pytest.fixture(scope="module", params=[2, 3], ids=["two workers", "three workers"])
def client(request):
    with (
        dask.config.set({"distributed.scheduler.work-stealing": False}),
        distributed.LocalCluster(
            n_workers=request.param, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        client.parts = PARTS[request.param]
        yield client


class Recording(HyperSimplexObjective):
    """Writes what it saw and returned to a file of its rank and round."""

    def __init__(self, folder, tau=1.0):
        super().__init__(tau)
        self.folder, self.round = folder, 0

    def __call__(self, y_true, y_pred, sample_weight=None):
        grad, hess = super().__call__(y_true, y_pred, sample_weight)
        rank = xgb.collective.get_rank()
        saved = {"scores": y_true, "y": y_pred.get_label(), "w": y_pred.get_weight(), "grad": grad, "hess": hess}
        np.savez(f"{self.folder}/{self.round}-{rank}", mu=self.threshold, **saved)
        self.round += 1
        return grad, hess


class Separated(HyperSimplexObjective):
    """Saves, by its rank, the threshold of scores that no rank has between the classes, and which differ by rank."""

    def __init__(self, folder):
        super().__init__()
        self.folder = folder

    def __call__(self, y_true, y_pred, sample_weight=None):
        rank = xgb.collective.get_rank()
        found = HyperSimplexObjective(0.5).calibrate(*separated_rows(rank)).threshold
        np.save(f"{self.folder}/{rank}", found)
        return super().__call__(y_true, y_pred, sample_weight)


def separated_rows(rank):
    return np.array([0, 0, 1]), np.array([-1.0 - rank, -9.0, 3.0 + 0.5 * rank])


class Dying(HyperSimplexObjective):
    """Ends the process of rank 1 in the third round, and leaves a note."""

    def __init__(self, note):
        super().__init__()
        self.note, self.round = note, 0

    def __call__(self, y_true, y_pred, sample_weight=None):
        self.round += 1
        if self.round == 3 and xgb.collective.get_rank() == 1:
            self.note.touch()
            os._exit(1)
        return super().__call__(y_true, y_pred, sample_weight)


def dealt_out(client, array):
    """The array in parts, one worker after the other: left to itself, Dask may give all of them to one."""
    workers, start, blocks = sorted(client.ncores()), 0, []
    for number, rows in enumerate(client.parts):
        part = array[start : start + rows]
        future = client.scatter(part, workers=[workers[number % len(workers)]], hash=False)
        blocks.append(da.from_delayed(future, part.shape, part.dtype))
        start += rows
    return da.concatenate(blocks)


def matrix(client, x, y, w=None):
    weight = None if w is None else dealt_out(client, w)
    return dxgb.DaskDMatrix(client, dealt_out(client, x), dealt_out(client, y), weight=weight)


@pytest.mark.parametrize("classes", [2, 3])
def test_workers_fit_the_trees_of_one_process(client, classes):
    x, y = coarse(classes)
    settings = SETTINGS if classes == 2 else {**SETTINGS, "num_class": classes}
    booster = dxgb.train(client, settings, matrix(client, x, y), 10, obj=HyperSimplexObjective())["booster"]
    alone = xgb.train(settings, xgb.DMatrix(x, y), 10, obj=HyperSimplexObjective())
    frames = [b.predict(xgb.DMatrix(x), pred_leaf=True) for b in (booster, alone)]
    np.testing.assert_array_equal(*frames)
    scores, expected = (b.predict(xgb.DMatrix(x), output_margin=True) for b in (booster, alone))
    np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("weighted", [False, True])
def test_gradients_are_those_of_one_process(client, weighted, tmp_path):
    x, y = coarse(2)
    w = np.random.default_rng(0).integers(1, 4, len(y)).astype(np.float32) if weighted else None
    dxgb.train(client, SETTINGS, matrix(client, x, y, w), 4, obj=Recording(str(tmp_path), 0.5))
    for round in range(4):
        ranks = [np.load(path) for path in sorted(tmp_path.glob(f"{round}-*.npz"))]
        assert len(ranks) == len(client.ncores())
        whole = {name: np.concatenate([rank[name] for rank in ranks]) for name in ("scores", "y", "w", "grad", "hess")}
        assert len(whole["y"]) == len(y)
        objective = HyperSimplexObjective(0.5)
        grad, hess = objective(whole["y"], whole["scores"], whole["w"] if weighted else None)
        np.testing.assert_allclose(whole["grad"], grad, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(whole["hess"], hess, rtol=1e-6)
        for rank in ranks:
            np.testing.assert_allclose(rank["mu"], objective.threshold, rtol=1e-9)


def test_a_threshold_between_separated_classes_is_the_middle_over_all_workers(client, tmp_path):
    dxgb.train(client, SETTINGS, matrix(client, *coarse(2)), 1, obj=Separated(str(tmp_path)))
    found = [np.load(path) for path in sorted(tmp_path.glob("*.npy"))]
    assert len(found) == len(client.ncores())
    y, scores = (np.concatenate(part) for part in zip(*map(separated_rows, range(len(found))), strict=True))
    expected = HyperSimplexObjective(0.5).calibrate(y, scores).threshold
    for threshold in found:
        np.testing.assert_allclose(threshold, expected)


def test_metrics_count_every_worker_s_rows(client):
    x, y = coarse(2)
    objective = HyperSimplexObjective()
    training = matrix(client, x, y)
    settings = {**SETTINGS, "disable_default_eval_metric": 1}
    metric = XGBoostMetric(objective, "loss")
    result = dxgb.train(client, settings, training, 5, obj=objective, custom_metric=metric, evals=[(training, "train")])
    scores = result["booster"].predict(xgb.DMatrix(x), output_margin=True)
    # XGBoost averages a metric over the workers; ours are equal already. It prints five digits.
    assert result["history"]["train"]["hypersimplex_loss"][-1] == pytest.approx(objective.loss(y, scores), rel=1e-3)


def test_error_rates_use_the_thresholds_of_the_workers(client):
    x, y = coarse(2)
    objective, training = HyperSimplexObjective().calibrate(y, y - 100.0), matrix(client, x, y)
    settings = {**SETTINGS, "disable_default_eval_metric": 1}
    metric = XGBoostMetric(objective)
    result = dxgb.train(client, settings, training, 5, obj=objective, custom_metric=metric, evals=[(training, "train")])
    alone, history = HyperSimplexObjective(), {}
    one = xgb.DMatrix(x, y)
    options = {"obj": alone, "custom_metric": XGBoostMetric(alone), "verbose_eval": False, "evals_result": history}
    xgb.train(settings, one, 5, evals=[(one, "train")], **options)
    found, expected = (h["train"]["hypersimplex_error"] for h in (result["history"], history))
    assert found == pytest.approx(expected, abs=1e-3)


def test_a_worker_that_dies_is_an_error(client, tmp_path):
    x, y = coarse(2)
    # Whose message comes first, XGBoost's or Dask's, is a race; that one comes is not.
    with pytest.raises(Exception) as caught:  # noqa: PT011
        client.sync(_within, 120, client, matrix(client, x, y), Dying(tmp_path / "died"))
    assert not isinstance(caught.value, (TimeoutError, asyncio.TimeoutError))
    assert (tmp_path / "died").exists()


async def _within(seconds, client, training, objective):
    return await asyncio.wait_for(dxgb.train(client, SETTINGS, training, 50, obj=objective), seconds)
