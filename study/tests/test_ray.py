"""A real Ray cluster of two workers on this machine, which are killed in the middle of runs."""

import os
import signal
from contextlib import suppress
from dataclasses import replace

import pytest

from hypersimplex_study.engines import InProcess
from hypersimplex_study.store import Store
from hypersimplex_study.train import Runtime
from trainings import NO_TIMES

ray = pytest.importorskip(
    "ray", reason="Ray is not installed here; `make test-ray` runs this in an environment of its own"
)
pytestmark = pytest.mark.slow
ONE = Runtime(threads=1)


@pytest.fixture
def cluster():
    from ray.cluster_utils import Cluster

    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    nodes.add_node(num_cpus=1)
    nodes.wait_for_nodes()
    yield nodes.address
    ray.shutdown()
    nodes.shutdown()


def numbers(store, config):
    return [replace(e, **NO_TIMES) for e in store.epochs(config.key())]


def test_a_killed_worker_is_replaced_and_the_numbers_are_those_of_one_process(cluster, tmp_path, short):
    from hypersimplex_study.ray_engine import RayEngine

    # Long enough for a kill to meet the training it is meant for. Where news of an epoch comes late, the next one does.
    configs = [replace(short, seed=s, epochs=60) for s in range(4)]
    with Store(tmp_path / "alone.sqlite") as alone, Store(tmp_path / "ray.sqlite") as store:
        alone.add_runs(configs)
        InProcess().run(alone, configs, ONE, lambda *_: None)
        store.add_runs(configs)
        killed = set()

        def kill(config, epoch):
            if config not in killed and epoch.epoch >= 2:
                worker = next(r.provenance["worker"] for r in store.runs() if r.key == config.key())
                with suppress(ProcessLookupError):  # by an earlier kill
                    os.kill(worker, signal.SIGKILL)
                killed.add(config)

        RayEngine(cluster, retries=len(configs)).run(store, configs, ONE, kill)
        assert [r.state for r in store.runs()] == ["done"] * 4
        workers = {r.provenance["worker"] for r in store.runs()}
        assert os.getpid() not in workers
        for config in configs:
            assert numbers(store, config) == numbers(alone, config)
        events = [(key, what) for key, _, what in store.events()]
        # Either the training lost its worker, or, had it just ended there, the next one did.
        assert any("worker lost" in what for _, what in events)
        assert any("resumed from its checkpoint after epoch" in what for _, what in events)


def test_a_diverged_and_a_failed_run_are_told_from_a_lost_worker(cluster, tmp_path, short):
    from hypersimplex_study.ray_engine import RayEngine

    diverged = replace(short, loss="cross-entropy", optimizer="sgd", lr=1e30)
    failed = replace(short, dataset="nowhere.csv", label="y")
    with Store(tmp_path / "ray.sqlite") as store:
        store.add_runs([diverged, failed, short])
        RayEngine(cluster).run(store, [diverged, failed, short], ONE, lambda *_: None)
        assert [r.state for r in store.runs()] == ["diverged", "failed", "done"]
        assert "nowhere.csv does not exist" in store.runs()[1].error
