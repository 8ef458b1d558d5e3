"""What pods and plans claim: each pod once at any time, and nothing for what is gone."""

from dataclasses import replace
from typing import Any

import pytest

from kfext import names
from kfext.model.constraints import Toleration
from kfext.model.gpu import GpuShare, resource_of
from kfext.model.job_state import JobState, Observed
from kfext.model.plan import Plan
from kfext.model.pod import Pod, ReplicaKey, parse_pod
from kfext.state.cluster import Cluster
from tests.builders import JobBuilder, job, node, raw_pod

from .cases import OF, changed, free, planned, worker

FIRST = ReplicaKey("worker", 0)


def test_a_plan_that_was_copied_from_another_job_claims_nothing(cluster: Cluster) -> None:
    copied = planned("a", "a").raw
    copied["metadata"]["uid"] = "uid-2"
    cluster.observe_job(copied)
    assert cluster.jobs["uid-2"].plan is None
    assert len(cluster.ledger) == 0


def test_pods_may_be_seen_before_their_job(cluster: Cluster) -> None:
    cluster.observe_pod(None, worker(0, pinned="a"))
    cluster.observe_pod(None, worker(1, gated=True))
    cluster.observe_job(planned("a", "b").raw)
    assert len(cluster.pods("uid-1")) == 2
    assert (free(cluster, "a"), free(cluster, "b")) == (3, 3)


def test_claims_may_be_seen_before_their_node(cluster: Cluster) -> None:
    cluster.observe_job(planned("c", "c").raw)
    cluster.observe_node(None, node("c", cpu="4"))
    assert free(cluster, "c") == 2


# --- the claim passes from the plan to the pod ------------------------------------------------


def test_a_claim_passes_from_the_plan_to_the_pod_without_a_gap(cluster: Cluster) -> None:
    cluster.observe_job(planned("a", "a").raw)
    seen = [free(cluster, "a")]
    for index in (0, 1):
        stages = (
            worker(index, gated=True, version=1),
            worker(index, pinned="a", version=2),
            worker(index, pinned="a", bound="a", version=3),
            worker(index, pinned="a", bound="a", phase="Running", version=4),
        )
        old = None
        for stage in stages:
            cluster.observe_pod(old, stage)
            old = stage
            seen.append(free(cluster, "a"))
    assert set(seen) == {2}, "two pods, each counted exactly once at any time"
    assert len(cluster.ledger) == 2


def test_while_pins_are_written_each_pod_is_counted_once(cluster: Cluster) -> None:
    cluster.observe_job(planned("a", "a").raw)
    for index in (0, 1):
        cluster.observe_pod(None, worker(index, gated=True))
    entry = cluster.jobs["uid-1"]
    entry.busy = True
    cluster.observe_pod(worker(0, gated=True), worker(0, pinned="a", version=2))
    assert free(cluster, "a") == 2
    entry.busy = False
    cluster.sync_claims(entry)
    assert free(cluster, "a") == 2


def test_an_assumed_plan_holds_room_until_the_answer_is_in(cluster: Cluster) -> None:
    cluster.observe_job(job().worker(2, cpu="1").held().raw)
    entry = cluster.jobs["uid-1"]
    assert free(cluster, "a") == 4
    entry.assumed = Plan("uid-1", 1, {ReplicaKey("worker", n): "a" for n in (0, 1)})
    cluster.sync_claims(entry)
    assert free(cluster, "a") == 2
    entry.assumed = None
    cluster.sync_claims(entry)
    assert free(cluster, "a") == 4


ENDS_OF_CLAIMS: dict[str, JobBuilder] = {
    "suspended": planned("a", "a").suspended(),
    "succeeded": planned("a", "a").condition("Succeeded"),
    "being deleted": planned("a", "a").deleting(),
    "released": planned("a", "a").released(),
    "scaled to nothing": planned("a", "a").worker(0, cpu="1"),
}


@pytest.mark.parametrize("after", ENDS_OF_CLAIMS.values(), ids=ENDS_OF_CLAIMS.keys())
def test_a_plan_ends_and_the_queue_hears_of_it(cluster: Cluster, after: JobBuilder) -> None:
    cluster.observe_job(planned("a", "a").version(1).raw)
    cluster.observe_job(job(uid="uid-2").worker(cpu="1").held().raw)
    changed(cluster)
    cluster.observe_job(after.version(2).raw)
    assert free(cluster, "a") == 4
    assert "uid-2" in changed(cluster)


def test_any_number_of_replicas_is_taken_in_at_once(cluster: Cluster) -> None:
    cluster.observe_job(planned("a", "a").worker(2**31 - 1, cpu="1").raw)
    assert free(cluster, "a") == 4, "so large a gang is never planned"


def test_a_pod_that_ended_holds_nothing_and_nor_does_its_plan(cluster: Cluster) -> None:
    cluster.observe_job(planned("a", "a").raw)
    cluster.observe_pod(None, worker(0, bound="a", phase="Running"))
    cluster.observe_pod(worker(0), worker(0, bound="a", phase="Succeeded", version=2))
    assert free(cluster, "a") == 3, "worker 1 is still to come"


def test_a_pod_that_failed_before_it_was_bound_and_is_not_replaced_holds_nothing(
    cluster: Cluster,
) -> None:
    raw = planned("a", "a").raw
    raw["spec"]["pytorchReplicaSpecs"]["Worker"]["restartPolicy"] = "Never"
    cluster.observe_job(raw)
    cluster.observe_pod(None, worker(0, phase="Failed"))
    assert free(cluster, "a") == 3


# --- nothing leaks ----------------------------------------------------------------------------


def _queued(cluster: Cluster) -> None:
    cluster.observe_job(job().worker(2, cpu="1").held().raw)


def _gated(cluster: Cluster) -> None:
    cluster.observe_job(planned("a", "b").raw)
    for index in (0, 1):
        cluster.observe_pod(None, worker(index, gated=True))


def _half_pinned(cluster: Cluster) -> None:
    _gated(cluster)
    cluster.observe_pod(worker(0, gated=True), worker(0, pinned="a", version=2))


def _half_bound(cluster: Cluster) -> None:
    _half_pinned(cluster)
    cluster.observe_pod(worker(0), worker(0, pinned="a", bound="a", version=3))


STAGES = {
    "queued": _queued,
    "gated": _gated,
    "half pinned": _half_pinned,
    "half bound": _half_bound,
}


@pytest.mark.parametrize("pods_first", [False, True], ids=["job first", "pods first"])
@pytest.mark.parametrize("stage", STAGES.values(), ids=STAGES.keys())
def test_nothing_stays_on_the_ledger_after_a_deleted_job(
    cluster: Cluster, stage: Any, pods_first: bool
) -> None:
    stage(cluster)

    def pods_go() -> None:
        for one in cluster.members():
            cluster.observe_pod(one, replace(one, deleting=True, resource_version="8"))
        for one in cluster.members():
            cluster.observe_pod(one, None)

    steps = [lambda: cluster.forget_job("uid-1"), pods_go]
    for step in reversed(steps) if pods_first else steps:
        step()
    assert len(cluster.ledger) == 0
    assert not cluster.jobs
    assert not cluster.members()
    assert (free(cluster, "a"), free(cluster, "b")) == (4, 4)


def test_pods_that_a_deleted_job_left_behind_are_nobodys(cluster: Cluster) -> None:
    cluster.observe_job(planned("a", "a").raw)
    before = worker(0, bound="a")
    cluster.observe_pod(None, before)
    cluster.forget_job("uid-1")
    orphan = worker(0, bound="a", owned=False, version=2)
    cluster.observe_pod(before, orphan)
    assert not cluster.members()
    assert free(cluster, "a") == 3
    cluster.observe_pod(orphan, None)
    assert len(cluster.ledger) == 0


TOLERATED = {"key": "gpu", "operator": "Exists"}
GOES: dict[str, JobBuilder | None] = {
    "it is released": job().worker(spec={"tolerations": [TOLERATED]}).released().version(9),
    "it is gone": None,
}


@pytest.mark.parametrize("after", GOES.values(), ids=GOES)
def test_a_part_that_a_job_leaves_behind_needs_its_gpu_with_what_the_job_tolerated(
    cluster: Cluster, after: JobBuilder | None
) -> None:
    made = job().worker(spec={"tolerations": [TOLERATED]}).resumed()
    plan = Plan("uid-1", 1, {FIRST: "a"}, shares={"worker": GpuShare(50)}, slots={FIRST: 0})
    cluster.observe_job(made.annotated(names.PLAN, plan.encode()).raw)
    sharer = replace(worker(0, bound="a"), share=GpuShare(50), requests={resource_of(0): 50})
    cluster.observe_pod(None, sharer)
    if after is None:
        cluster.forget_job("uid-1")
        running = replace(sharer, phase="Running", resource_version="9")
        cluster.observe_pod(sharer, running)
    else:
        cluster.observe_job(after.raw)
    tolerates = (Toleration(key="gpu", operator="Exists"),)
    assert cluster.books.cards.demand.all() == {("a", 0): tolerates}


def test_nodes_go_and_come_back_with_their_claims(cluster: Cluster) -> None:
    cluster.observe_pod(None, worker(0, bound="a"))
    cluster.observe_node(node("a", cpu="4"), None)
    cluster.observe_node(None, node("a", cpu="4"))
    assert free(cluster, "a") == 3


# --- what wakes the queue ---------------------------------------------------------------------


def resized(cpu: str, version: int, **status: Any) -> Pod:
    """A pod of nobody that runs on node a."""
    spec = {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]}
    raw = raw_pod(OF, "worker", 0, bound="a", owned=False, spec=spec, version=version)
    raw["status"] |= status
    return parse_pod(raw)


def test_a_pod_that_is_resized_down_wakes_the_queue(cluster: Cluster) -> None:
    cluster.observe_job(job(uid="queued").worker(cpu="1").held().raw)
    before, after = resized("3", 1), resized("1", 2)
    cluster.observe_pod(None, before)
    changed(cluster)
    cluster.observe_pod(before, after)
    assert changed(cluster) == {"queued"}
    assert free(cluster, "a") == 3
    cluster.observe_pod(after, resized("2", 3))
    assert changed(cluster) == set()


def test_what_the_kubelet_still_allocates_to_a_pod_is_not_free(cluster: Cluster) -> None:
    three = {"requests": {"cpu": "3"}}
    statuses = [{"name": "main", "allocatedResources": three["requests"], "resources": three}]
    cluster.observe_pod(None, resized("1", 1, containerStatuses=statuses))
    assert free(cluster, "a") == 1


def test_a_claim_that_passes_to_its_pod_wakes_nobody(cluster: Cluster) -> None:
    cluster.observe_job(job(uid="queued").worker(cpu="1").held().raw)
    cluster.observe_job(planned("a", "a").raw)
    cluster.observe_pod(None, worker(0, gated=True))
    changed(cluster)
    cluster.observe_pod(worker(0, gated=True), worker(0, pinned="a", version=2))
    assert changed(cluster) == {"uid-1"}


def test_a_plan_that_moves_wakes_the_queue(cluster: Cluster) -> None:
    cluster.observe_job(job(uid="queued").worker(cpu="1").held().raw)
    cluster.observe_job(planned("a", "a").version(1).raw)
    changed(cluster)
    cluster.observe_job(planned("b", "b", generation=2).version(2).raw)
    assert "queued" in changed(cluster)


def test_the_capacity_of_a_member_that_is_being_replaced_stays_its_gangs(
    cluster: Cluster,
) -> None:
    cluster.observe_job(planned("a", "a").raw)
    for index in (0, 1):
        cluster.observe_pod(None, worker(index, pinned="a", bound="a", phase="Running"))
    cluster.settle(0.0)
    failed = worker(1, pinned="a", bound="a", phase="Failed", version=2)
    cluster.observe_pod(worker(1, pinned="a", bound="a", phase="Running"), failed)
    assert free(cluster, "a") == 2
    cluster.observe_pod(failed, None)
    assert free(cluster, "a") == 2


def test_a_plan_claims_what_admission_makes_of_its_pods(cluster: Cluster) -> None:
    raw = planned("a", "a").raw
    template = planned("a", "a").build().groups[0].template
    seen = Observed(template=template, requests={"cpu": 2000, "pods": 1})
    raw["metadata"]["annotations"][names.STATE] = JobState(observed={"worker": seen}).encode(
        job_uid=raw["metadata"]["uid"]
    )
    cluster.observe_job(raw)
    assert free(cluster, "a") == 0
    assert cluster.jobs["uid-1"].job.groups[0].requests == seen.requests
