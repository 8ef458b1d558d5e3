"""Pods that no job owns: they may delay a born-pinned start, and count as no pod of a job."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from kfext import names
from kfext.core.ledger.fit import UNBOUND_SECONDS
from kfext.core.lifecycle.steps import Unsuspend
from kfext.model.cpu_size import TrainerCpu
from kfext.model.cpu_state import CpuState, PodCpu
from kfext.model.job_state import JobState
from kfext.model.moment import Moment
from kfext.model.namespace import Namespace
from kfext.model.pod import Pod, ReplicaKey
from kfext.state.mirror.cluster import Cluster
from kfext.state.planner.planner import Planner
from tests.builders import job, node, pod
from tests.unit.state.cases import free, planned, worker

ABSENT: dict[str, Any] = {"schedulerName": "none-such"}


def foreign(uid: str = "foreign", **more: Any) -> Pod:
    """A pod of another namespace and of no job."""
    training_job = job(name=uid, uid="other").worker(1, cpu="1").build()
    return pod(replace(training_job, namespace="other"), "worker", 0, uid=uid, owned=False, **more)


class Bed:
    """A planner with one node, on which a new job can start at any time."""

    def __init__(self) -> None:
        self.planner, self.jobs = Planner(), 0
        self.planner.settings.observe_namespace(None, Namespace("team", {names.MANAGED: "true"}))
        self.planner.cluster.observe_node(None, node("a", cpu="32"))

    def see(self, new: Pod, old: Pod | None = None) -> None:
        self.planner.cluster.observe_pod(old, new)

    def start(self, at: float) -> str:
        """Start a new job; return why it waits at the gate, empty if it is born pinned."""
        self.jobs += 1
        builder = job(name=f"train{self.jobs}", uid=f"uid-{self.jobs}").worker(1, cpu="1").held()
        self.planner.cluster.observe_job(builder.raw)
        ((_, step),) = self.planner.tick(Moment(wall=at, monotonic=at)).steps
        assert isinstance(step, Unsuspend)
        return step.gated_by


FOREIGN: dict[str, tuple[Pod, str]] = {
    "may be bound to any node": (foreign(), "pods"),
    "has an unknown scheduler": (foreign(spec=ABSENT), "pods"),
    "waits at a gate": (foreign(gates=["other"]), ""),
    "was refused by kube-scheduler": (foreign(unschedulable="0/1 nodes"), ""),
    "is pinned": (foreign(pinned="a"), ""),
    "is bound": (foreign(bound="a"), ""),
    "has ended": (foreign(phase="Failed"), ""),
    "is being deleted": (foreign(deleting=True), ""),
}


@pytest.mark.parametrize(("pod_version", "gated_by"), FOREIGN.values(), ids=FOREIGN)
def test_a_gang_waits_for_some_time_for_a_foreign_pod_that(pod_version: Pod, gated_by: str) -> None:
    bed = Bed()
    bed.see(pod_version)
    assert bed.start(1000.0) == gated_by
    assert bed.start(1000.0 + UNBOUND_SECONDS) == ""


Change = tuple[float, Pod]
"""A time in seconds, and the version of a pod that is observed then."""
AGES: dict[str, tuple[Sequence[Change], float, str]] = {
    "a change of a pod does not count": ([(0, foreign()), (50, foreign(version=2))], 61, ""),
    "a pod counts from the time at which its gate was opened": (
        [(0, foreign(gates=["x"])), (50, foreign())],
        61,
        "pods",
    ),
    "the newest of several pods counts": ([(0, foreign("p")), (50, foreign("q"))], 61, "pods"),
    "a bound pod no longer counts": ([(0, foreign()), (1, foreign(bound="a"))], 2, ""),
    "a newer pod is bound": ([(0, foreign("p")), (50, foreign("q", bound="a"))], 61, ""),
}
"""The versions of pods, the time of a start, and why the started job waits at the gate."""


@pytest.mark.parametrize(("changes", "at", "gated_by"), AGES.values(), ids=AGES)
def test_how_long_a_foreign_pod_delays_born_pinned_starts(
    changes: Sequence[Change], at: float, gated_by: str
) -> None:
    bed, known = Bed(), dict[str, Pod]()
    bed.planner.tick(Moment(wall=999.0, monotonic=999.0))
    for seconds, pod_version in changes:
        bed.see(pod_version, known.get(pod_version.uid))
        known[pod_version.uid] = pod_version
        bed.planner.tick(Moment(wall=1000.0 + seconds, monotonic=1000.0 + seconds))
    assert bed.start(1000.0 + at) == gated_by


def stranger(**more: Any) -> Pod:
    """A pod of another namespace that names a job as its owner."""
    return replace(worker(0, uid="stranger", **more), namespace="other")


def test_a_pod_that_names_a_job_of_another_namespace_does_not_count_as_created_by_its_operator(
    cluster: Cluster,
) -> None:
    cluster.observe_job(planned("a", "b").raw)
    cluster.settle(0.0)
    cluster.observe_pod(None, stranger())
    cluster.settle(5.0)
    (record,) = cluster.backlog.record(5.0)
    assert (record.came, record.quiet) == ((), 5.0)
    cluster.observe_pod(None, worker(0))
    (record,) = cluster.backlog.record(5.0)
    assert record.came == (ReplicaKey("worker", 0),)


def test_a_foreign_pod_claims_its_own_request_and_not_the_request_of_the_job(
    cluster: Cluster,
) -> None:
    job = planned("b", "b").build()
    cpu = CpuState({"worker": PodCpu(3000, None)}, {"worker-0": (PodCpu(1000, None),)})
    cluster.record_job(job, planned("b", "b").raw)
    cluster.jobs["uid-1"].state = JobState(cpu=cpu)
    before = free(cluster, "a")
    cluster.observe_pod(None, replace(stranger(bound="a"), trainer=TrainerCpu(1000, None)))
    assert free(cluster, "a") == before - 1
