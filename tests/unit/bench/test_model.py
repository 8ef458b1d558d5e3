"""DRAGON in the simulated cluster: whole runs, and the tables of all arms."""

from dataclasses import replace
from pathlib import Path

import pytest

from e2e.bench.model.measure import ARMS, measure
from e2e.bench.model.worlds import WORLDS
from kfext.sim.cluster import World
from kfext.sim.jobs import Saving
from kfext.sim.nodes import NodeSize
from tests.unit.sim.bed import MASTER, TORCHRUN

LARGE = replace(MASTER, workers=3, steps=400)
"""A job of four pods that trains only with all of them."""


@pytest.mark.parametrize("name", ["small", "stream"])
def test_dragon_ends_all_jobs(name: str) -> None:
    cluster = ARMS["dragon"](WORLDS[name](1), 1).run()
    assert cluster.over
    assert not cluster.operator.failed


def test_no_pod_of_a_job_exists_before_dragon_has_started_the_job() -> None:
    cluster = ARMS["dragon"](World({"a": NodeSize(4000)}, (LARGE, replace(LARGE, name="other"))), 0)
    cluster.at(60)
    assert sorted(len(live.pods) for live in cluster.jobs) == [0, 4]


def test_dragon_changes_a_job_that_has_not_saved_its_work() -> None:
    elastic = replace(TORCHRUN, steps=3000, saving=Saving.ON_REQUEST)
    cluster = ARMS["dragon"](World({"a": NodeSize(4000)}, (elastic,)), 0)
    cluster.run()
    (live,) = cluster.jobs
    assert live.workers == 4
    assert live.training.lost > 100


def test_the_bench_shows_each_arm_in_each_world_and_measures_no_run_twice(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("e2e.bench.store.RUNS", tmp_path)
    monkeypatch.setattr("e2e.bench.model.measure._GENERAL_ARMS", ("gang", "dragon"))
    monkeypatch.setattr("e2e.bench.model.measure._MORE_ARMS", {})
    monkeypatch.setattr("e2e.bench.model.measure._QUICK", ("stream", "small"))
    lines = measure(quick=True).splitlines()
    assert [line for line in lines if line.startswith("#")] == [
        "### World stream, seeds 20000 to 20000, against gang",
        "### World small, seeds 20000 to 20000, against gang",
    ]
    shown = [line.split()[1] for line in lines if line.startswith("| ")]
    assert shown == ["ARM", "gang", "dragon"] * 2
    monkeypatch.setattr("e2e.bench.model.runs.run", None)
    assert measure(quick=True).splitlines() == lines
