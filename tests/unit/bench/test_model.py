"""The rules of whole jobs that kfext is compared with: each decision by hand, and whole runs."""

from dataclasses import replace

import pytest

from e2e.bench.model.measure import ARMS, measure
from e2e.bench.model.worlds import WORLDS
from kfext.sim.cluster import Cluster, World
from kfext.sim.jobs import JobSpec, Saving
from tests.unit.sim.bed import GANG, MASTER, SERVERS, TORCHRUN

LARGE = replace(MASTER, workers=3, steps=400)
"""Four pods that train as a whole."""


@pytest.mark.parametrize("arm", ["dragon", "equal-share", "srpt"])
@pytest.mark.parametrize("name", ["small", "stream"])
def test_a_rule_of_whole_jobs_ends_all_jobs(arm: str, name: str) -> None:
    cluster = ARMS[arm](WORLDS[name](1), 1).run()
    assert cluster.over
    assert not cluster.operator.failed


@pytest.mark.parametrize("arm", ["dragon", "equal-share", "srpt"])
def test_no_pod_of_a_job_exists_before_the_rule_has_started_the_job(arm: str) -> None:
    cluster = ARMS[arm](World({"a": 4000}, (LARGE, replace(LARGE, name="other"))), 0)
    cluster.at(60)
    assert sorted(len(live.pods) for live in cluster.jobs) == [0, 4]


def sizes(arm: str, *jobs: JobSpec, at: float) -> dict[str, int]:
    """Return how many workers the jobs that run have on eight slots."""
    cluster = ARMS[arm](World({"a": 4000, "b": 4000}, jobs), 0)
    cluster.at(at)
    return {live.spec.name: live.workers for live in cluster.jobs if live.pods and not live.ended}


LONG = replace(SERVERS, name="long", workers=4, bounds=(1, 7), steps=4000)
SHORT = replace(LONG, name="short", arrives=200.0, steps=500)
"""Both have a server beside their workers."""
SHARES = {
    "alone it gets all that it may have": ("equal-share", [LONG], {"long": 7}),
    "two jobs get the same": ("equal-share", [LONG, SHORT], {"long": 3, "short": 3}),
    "the shorter gets all that it asked for": ("srpt", [LONG, SHORT], {"long": 2, "short": 4}),
    "the longer waits for the shorter if neither runs": (
        "srpt",
        [
            replace(GANG, name="full", arrives=0.0, workers=8, steps=1500),
            replace(LONG, workers=7, bounds=(7, 7)),
            replace(SHORT, arrives=9.0, workers=7, bounds=(7, 7)),
        ],
        {"short": 7},
    ),
}


@pytest.mark.parametrize(("arm", "jobs", "expected"), SHARES.values(), ids=SHARES)
def test_how_room_is_shared(arm: str, jobs: list[JobSpec], expected: dict[str, int]) -> None:
    assert sizes(arm, *jobs, at=235.0) == expected


@pytest.mark.parametrize(("arm", "loses"), [("dragon", True), ("srpt", False)])
def test_only_dragon_changes_a_job_that_has_not_saved_its_work(arm: str, *, loses: bool) -> None:
    elastic = replace(TORCHRUN, steps=3000, saving=Saving.ON_REQUEST)
    cluster: Cluster = ARMS[arm](World({"a": 4000}, (elastic,)), 0)
    cluster.run()
    (live,) = cluster.jobs
    assert live.workers == 4
    assert (live.training.lost > 100) is loses
    assert live.training.lost > 1  # it trains on until its new workers have started


def test_the_bench_shows_each_arm_in_each_world(monkeypatch: pytest.MonkeyPatch) -> None:
    arms = {name: ARMS[name] for name in ("gang", "dragon")}
    monkeypatch.setattr("e2e.bench.model.measure.ARMS", arms)
    monkeypatch.setattr("e2e.bench.model.measure._QUICK", ("stream", "small"))
    lines = measure(quick=True).splitlines()
    assert [line for line in lines if line.startswith("#")] == [
        "### World stream, seeds 5000 to 5000, against gang",
        "### World small, seeds 5000 to 5000, against gang",
    ]
    assert [line.split()[1] for line in lines if line.startswith("| ")] == ["ARM", *arms] * 2
