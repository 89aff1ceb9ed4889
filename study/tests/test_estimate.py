"""How long a study will take, where a processor's clock moves in ticks that are longer than a step."""

import time

import pytest

from hypersimplex_study import estimate
from hypersimplex_study.config import RunConfig
from hypersimplex_study.train import Runtime


@pytest.mark.parametrize("tick", [0.0156, 10.0])
def test_a_clock_of_coarse_ticks_still_gives_an_estimate(tick, monkeypatch):
    """As on Windows, where one of 64 ticks a second is usual, and most steps begin and end in the same one."""
    exact = time.process_time
    monkeypatch.setattr(time, "process_time", lambda: exact() // tick * tick)
    monkeypatch.setattr(estimate, "PATIENCE", 0.01)
    config = RunConfig(epochs=2, width=8)
    cost, speed = estimate.seconds([config], Runtime(threads=1))[config.key()]
    assert 0 < cost < 60
    assert min(speed.train, speed.evaluate, speed.loading) > 0


def test_the_least_of_several_times_counts():
    times, now = iter([7.0, 3.0, 0.5, 2.0, 9.0, 9.0, 9.0]), [0.0]

    def work():
        now[0] += next(times)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "perf_counter", lambda: now[0])
        assert estimate._seconds(work, lambda: now[0]) == 0.5  # and the first one only warms up
