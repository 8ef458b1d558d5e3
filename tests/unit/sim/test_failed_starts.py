"""A node that fails pods at their start: where their jobs go next, also after faults."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kfext.core.lifecycle.steps import Replan, Suspend
from kfext.sim.jobs import JobSpec
from kfext.sim.objects import LivePod
from tests.unit.sim.bed import GANG, WITHOUT, Bed
from tests.unit.sim.test_drain import nodes_of, trains
from tests.unit.sim.test_preempt import until

JOB = replace(GANG, arrives=5.0, steps=2000, deadline=None)
BAD = "a"
"""The node that kfext prefers while all are empty."""


def bed(
    *jobs: JobSpec,
    bad: str = BAD,
    nodes: str = "ab",
    fails: Callable[[LivePod], bool] = lambda live: True,
) -> tuple[Bed, list[str]]:
    """A cluster with bad nodes; the list has the names of the failed pods, in order."""
    bed = Bed(*(jobs or (JOB,)), policy=WITHOUT, late_writes=True, **dict.fromkeys(nodes, 8000))
    failed: list[str] = []

    def fail(live: LivePod) -> None:
        if bed.api.stores(live) and live.runs:
            failed.append(live.pod.name)
            bed.api.set_phase(live, "Failed")
            bed.clock.after(1.0, lambda: bed.api.remove_pod(live))  # the operator

    def fail_soon(live: LivePod) -> None:
        if live.runs and live.pod.node_name in bad and fails(live):
            bed.clock.after(3.0, lambda: fail(live))

    bed.api.on_pod.append(fail_soon)
    return bed.at(6), failed


def trains_away(bed: Bed, name: str = "gang") -> bool:
    pods = bed.job(name).pods.values()
    return bool(pods) and all(live.runs and live.pod.node_name != BAD for live in pods)


def written(bed: Bed, kind: type[Any]) -> list[Any]:
    return [write.step for write in bed.driver.written if isinstance(write.step, kind)]


KINDS: dict[str, dict[str, Any]] = {
    "a PyTorchJob": {},
    "a TFJob": {"kind": "TFJob"},
    "a TrainJob": {"kind": "TrainJob"},
}


@pytest.mark.parametrize("changes", KINDS.values(), ids=KINDS)
def test_a_gang_leaves_a_node_that_fails_it_at_its_start(changes: dict[str, Any]) -> None:
    cluster, failed = bed(replace(JOB, **changes))
    until(cluster, trains_away, most=120)
    assert len(failed) == JOB.workers
    assert (nodes_of(cluster, "gang"), cluster.operator.failed) == (["b"], {})
    (replan,) = written(cluster, Replan)
    assert replan.verdict.message == "the pods go to b; pods failed at their start on a"
    assert not written(cluster, Suspend)


def test_a_gang_that_fits_nowhere_else_returns_each_time_and_is_never_stopped() -> None:
    cluster, failed = bed(nodes="a")
    cluster.after(120)
    assert (set(nodes_of(cluster, "gang")) <= {"a", ""}, len(failed) > 4) == (True, True)
    assert not written(cluster, Suspend)


@pytest.mark.parametrize("changes", KINDS.values(), ids=KINDS)
def test_a_pod_leaves_a_node_that_fails_it_twice_while_others_run_there(
    changes: dict[str, Any],
) -> None:
    spec = replace(JOB, workers=12, **changes)
    cluster, failed = bed(spec, nodes="abc", fails=lambda live: live.key.index == 0)
    until(cluster, lambda cluster: trains(cluster, "gang"), most=120)
    assert (len(failed), cluster.operator.failed) == (2, {})
    assert BAD in nodes_of(cluster, "gang")


def test_a_gang_leaves_the_node_again_after_the_controller_was_killed_between() -> None:
    cluster, failed = bed()
    until(cluster, lambda cluster: bool(failed))
    cluster.restart()
    until(cluster, trains_away, most=120)
    assert len(failed) <= 2 * JOB.workers


def test_jobs_of_a_namespace_get_a_node_last_after_three_were_cured_elsewhere() -> None:
    jobs = [
        replace(JOB, name=name, arrives=400.0 * number, steps=60)
        for number, name in enumerate(["gang", "alpha", "beta", "gamma"])
    ]
    cluster, failed = bed(*jobs)
    cluster.run()
    assert {name.rsplit("-", 2)[0] for name in failed} == {"gang", "alpha", "beta"}
    assert set(cluster.planner.starts.suspects()) == {BAD}
    assert set(cluster.ended()) == {job.name for job in jobs}


def test_a_poison_job_that_fails_everywhere_accuses_no_node() -> None:
    jobs = (replace(JOB, name=name) for name in ("gang", "alpha", "beta"))
    cluster, failed = bed(*jobs, bad="ab")
    cluster.after(900)
    assert cluster.planner.starts.suspects() == {}
    assert len(failed) > 30
    assert not written(cluster, Suspend)
