"""The claims of pods and plans: each pod is counted once, and deleted objects have no claims."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kfext import names
from kfext.core.ledger.fit import UNBOUND_SECONDS
from kfext.core.lifecycle.next_step import NOTICE_SECONDS
from kfext.core.lifecycle.steps import Release, Unsuspend
from kfext.model.constraints import Toleration
from kfext.model.gpu import GpuShare, resource_of
from kfext.model.job_state import JobState, ObservedPods
from kfext.model.moment import Moment
from kfext.model.namespace import Namespace
from kfext.model.plan import Plan
from kfext.model.pod import Pod, ReplicaKey, parse_pod
from kfext.names import REASON_NO_ROOM
from kfext.state.mirror.cluster import Cluster
from kfext.state.planner.planner import Planner
from kfext.state.planner.recording import planner_of, snapshot_of
from tests.builders import JobBuilder, affinity_to, job, moment, node, pod, raw_pod
from tests.unit.state.cases import JOB, free, marked_jobs, planned, worker

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
    tracked = cluster.jobs["uid-1"]
    tracked.busy = True
    cluster.observe_pod(worker(0, gated=True), worker(0, pinned="a", version=2))
    assert free(cluster, "a") == 2
    tracked.busy = False
    cluster.sync_claims(tracked)
    assert free(cluster, "a") == 2


def test_an_assumed_plan_holds_capacity_until_the_answer_arrives(cluster: Cluster) -> None:
    cluster.observe_job(job().worker(2, cpu="1").held().raw)
    tracked = cluster.jobs["uid-1"]
    assert free(cluster, "a") == 4
    tracked.assumed = Plan("uid-1", 1, {ReplicaKey("worker", n): "a" for n in (0, 1)})
    cluster.sync_claims(tracked)
    assert free(cluster, "a") == 2
    tracked.assumed = None
    cluster.sync_claims(tracked)
    assert free(cluster, "a") == 4


ENDS_OF_CLAIMS: dict[str, JobBuilder] = {
    "suspended": planned("a", "a").suspended(),
    "succeeded": planned("a", "a").condition("Succeeded"),
    "being deleted": planned("a", "a").deleting(),
    "released": planned("a", "a").released(),
    "scaled to nothing": planned("a", "a").worker(0, cpu="1"),
}


@pytest.mark.parametrize("after", ENDS_OF_CLAIMS.values(), ids=ENDS_OF_CLAIMS.keys())
def test_a_plan_ends_and_wakes_the_queue(cluster: Cluster, after: JobBuilder) -> None:
    cluster.observe_job(planned("a", "a").version(1).raw)
    cluster.observe_job(job(uid="uid-2").worker(cpu="1").held().raw)
    marked_jobs(cluster)
    cluster.observe_job(after.version(2).raw)
    assert free(cluster, "a") == 4
    assert "uid-2" in marked_jobs(cluster)


def test_a_gang_that_is_too_large_claims_nothing(cluster: Cluster) -> None:
    cluster.observe_job(planned("a", "a").worker(2**31 - 1, cpu="1").raw)
    assert free(cluster, "a") == 4, "so large a gang is never planned"


def test_an_ended_pod_and_its_plan_hold_no_capacity(cluster: Cluster) -> None:
    cluster.observe_job(planned("a", "a").raw)
    cluster.observe_pod(None, worker(0, bound="a", phase="Running"))
    cluster.observe_pod(worker(0), worker(0, bound="a", phase="Succeeded", version=2))
    assert free(cluster, "a") == 3, "worker 1 is still to come"


def test_a_pod_that_failed_unbound_and_is_not_replaced_holds_no_capacity(cluster: Cluster) -> None:
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
        for member in cluster.members():
            cluster.observe_pod(member, replace(member, deleting=True, resource_version="8"))
        for member in cluster.members():
            cluster.observe_pod(member, None)

    steps = [lambda: cluster.forget_job("uid-1"), pods_go]
    for step in reversed(steps) if pods_first else steps:
        step()
    assert len(cluster.ledger) == 0
    assert not cluster.jobs
    assert not cluster.members()
    assert (free(cluster, "a"), free(cluster, "b")) == (4, 4)


def test_pods_that_a_deleted_job_left_behind_belong_to_no_job(cluster: Cluster) -> None:
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
REMOVALS: dict[str, JobBuilder | None] = {
    "it is released": job().worker(spec={"tolerations": [TOLERATED]}).released().version(9),
    "it is deleted": None,
}


@pytest.mark.parametrize("after", REMOVALS.values(), ids=REMOVALS)
def test_the_share_of_a_remaining_pod_keeps_its_gpu_with_the_tolerations_of_its_job(
    cluster: Cluster, after: JobBuilder | None
) -> None:
    builder = job().worker(spec={"tolerations": [TOLERATED]}).resumed()
    plan = Plan("uid-1", 1, {FIRST: "a"}, shares={"worker": GpuShare(50)}, slots={FIRST: 0})
    cluster.observe_job(builder.annotated(names.PLAN, plan.encode()).raw)
    sharer = replace(worker(0, bound="a"), share=GpuShare(50), requests={resource_of(0): 50})
    cluster.observe_pod(None, sharer)
    if after is None:
        cluster.forget_job("uid-1")
        running = replace(sharer, phase="Running", resource_version="9")
        cluster.observe_pod(sharer, running)
    else:
        cluster.observe_job(after.raw)
    tolerates = (Toleration(key="gpu", operator="Exists"),)
    assert cluster.claim_tracker.cards.demand.all() == {("a", 0): tolerates}


def test_nodes_that_return_have_their_claims(cluster: Cluster) -> None:
    cluster.observe_pod(None, worker(0, bound="a"))
    cluster.observe_node(node("a", cpu="4"), None)
    cluster.observe_node(None, node("a", cpu="4"))
    assert free(cluster, "a") == 3


# --- changes that wake the queue --------------------------------------------------------------


def foreign_pod(cpu: str, version: int, **status: Any) -> Pod:
    """Return a pod of no job that runs on node a."""
    spec = {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]}
    raw = raw_pod(JOB, "worker", 0, bound="a", owned=False, spec=spec, version=version)
    raw["status"] |= status
    return parse_pod(raw)


def test_a_pod_that_is_resized_down_wakes_the_queue(cluster: Cluster) -> None:
    cluster.observe_job(job(uid="queued").worker(cpu="1").held().raw)
    before, after = foreign_pod("3", 1), foreign_pod("1", 2)
    cluster.observe_pod(None, before)
    marked_jobs(cluster)
    cluster.observe_pod(before, after)
    assert marked_jobs(cluster) == {"queued"}
    assert free(cluster, "a") == 3
    cluster.observe_pod(after, foreign_pod("2", 3))
    assert marked_jobs(cluster) == set()


def test_capacity_that_the_kubelet_still_allocates_to_a_pod_is_not_free(cluster: Cluster) -> None:
    three = {"requests": {"cpu": "3"}}
    statuses = [{"name": "main", "allocatedResources": three["requests"], "resources": three}]
    cluster.observe_pod(None, foreign_pod("1", 1, containerStatuses=statuses))
    assert free(cluster, "a") == 1


def test_a_claim_that_passes_to_its_pod_wakes_no_job(cluster: Cluster) -> None:
    cluster.observe_job(job(uid="queued").worker(cpu="1").held().raw)
    cluster.observe_job(planned("a", "a").raw)
    cluster.observe_pod(None, worker(0, gated=True))
    marked_jobs(cluster)
    cluster.observe_pod(worker(0, gated=True), worker(0, pinned="a", version=2))
    assert marked_jobs(cluster) == {"uid-1"}


def test_a_plan_that_moves_wakes_the_queue(cluster: Cluster) -> None:
    cluster.observe_job(job(uid="queued").worker(cpu="1").held().raw)
    cluster.observe_job(planned("a", "a").version(1).raw)
    marked_jobs(cluster)
    cluster.observe_job(planned("b", "b", generation=2).version(2).raw)
    assert "queued" in marked_jobs(cluster)


def test_the_capacity_of_a_member_that_is_being_replaced_stays_with_its_gang(
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


def test_a_plan_claims_the_requests_of_its_pods_after_admission(cluster: Cluster) -> None:
    raw = planned("a", "a").raw
    template = planned("a", "a").build().groups[0].template
    seen = ObservedPods(template=template, requests={"cpu": 2000, "pods": 1})
    raw["metadata"]["annotations"][names.STATE] = JobState(observed={"worker": seen}).encode(
        job_uid=raw["metadata"]["uid"]
    )
    cluster.observe_job(raw)
    assert free(cluster, "a") == 0
    assert cluster.jobs["uid-1"].job.groups[0].requests == seen.requests


# --- plans that do not count: a person who edits a job might write a plan ---------------------

START = Moment(wall=1000.0, monotonic=300.0)
OPTED_IN = {names.MANAGED: "true"}


def after(seconds: float) -> Moment:
    return Moment(wall=START.wall + seconds, monotonic=START.monotonic + seconds)


@pytest.fixture
def planner() -> Planner:
    """Two nodes of four CPUs; the team is opted in."""
    planner = Planner()
    planner.settings.observe_namespace(None, Namespace("team", OPTED_IN))
    for name in "ab":
        planner.cluster.observe_node(None, node(name, cpu="4"))
    return planner


def under_plan(nodes: str = "ab", *, pods: int = 8, cpu: str = "1") -> JobBuilder:
    """Return a job that runs under a plan on these nodes, and has no pod yet."""
    assignment = {ReplicaKey("worker", n): nodes[n % len(nodes)] for n in range(pods)}
    builder = job(name="forged", uid="forged").worker(pods, cpu=cpu).resumed()
    return builder.annotated(names.PLAN, Plan("forged", 1, assignment).encode())


def elsewhere(builder: JobBuilder) -> JobBuilder:
    builder.raw["metadata"]["namespace"] = "theirs"
    return builder


def run_by_kueue(builder: JobBuilder) -> JobBuilder:
    builder.raw["spec"]["runPolicy"]["managedBy"] = "kueue.x-k8s.io/multikueue"
    return builder


def with_masters(builder: JobBuilder) -> JobBuilder:
    specs = builder.raw["spec"]["pytorchReplicaSpecs"]
    specs["Master"] = specs.pop("Worker")
    return builder


def submit(planner: Planner, *builders: JobBuilder) -> None:
    for builder in builders:
        planner.cluster.observe_job(builder.raw)


def starts(planner: Planner, now: Moment = START) -> list[str]:
    """Return the jobs that are started now."""
    planner.cluster.mark_queue()
    steps = planner.tick(now).steps
    return [tracked.job.name for tracked, step in steps if isinstance(step, Unsuspend)]


def queued() -> JobBuilder:
    return job(name="queued", uid="queued").worker(2, cpu="1").held().created(900)


IGNORED_PLANS: dict[str, Callable[[], JobBuilder]] = {
    "a namespace that is not opted in": lambda: elsewhere(under_plan()),
    "a job that another system runs": lambda: run_by_kueue(under_plan()),
    "a job too large to be planned": lambda: under_plan().worker(10_001, cpu="1"),
    "replicas that the job does not have": lambda: under_plan().worker(0, cpu="1"),
    "a type that the job does not have": lambda: with_masters(under_plan()),
    "nodes that do not exist": lambda: under_plan("xyz", pods=600),
}


@pytest.mark.parametrize("forged", IGNORED_PLANS.values(), ids=IGNORED_PLANS)
def test_a_plan_that_does_not_count_keeps_no_job_waiting(
    planner: Planner, forged: Callable[[], JobBuilder]
) -> None:
    submit(planner, forged(), queued())
    assert starts(planner) == ["queued"]
    assert planner.cluster.backlog.missing("forged") == 0


def test_a_plan_of_a_job_that_the_operator_runs_counts(planner: Planner) -> None:
    submit(planner, under_plan(), queued())
    assert starts(planner) == []
    assert planner.cluster.backlog.missing("forged") == 8


def test_a_namespace_that_is_opted_out_frees_the_claims_of_its_plans(planner: Planner) -> None:
    submit(planner, under_plan(), elsewhere(queued()))
    planner.settings.observe_namespace(None, Namespace("theirs", OPTED_IN))
    assert starts(planner) == []
    team = Namespace("team", OPTED_IN)
    planner.settings.observe_namespace(team, Namespace("team"))
    assert starts(planner) == ["queued"]
    planner.settings.observe_namespace(Namespace("team"), team)
    planner.tick(START)
    assert planner.cluster.backlog.missing("forged") == 8


def test_a_queued_job_is_released_a_notice_after_its_namespace_was_opted_out(
    planner: Planner,
) -> None:
    submit(planner, under_plan(), queued())
    assert starts(planner) == []
    planner.settings.observe_namespace(None, Namespace("team"))
    result = {}
    for seconds in (100, 100 + NOTICE_SECONDS - 1, 100 + NOTICE_SECONDS):
        steps = planner.tick(after(seconds)).steps
        result[seconds - 100] = [type(step) for _, step in steps]
    assert result == {0: [], NOTICE_SECONDS - 1: [], NOTICE_SECONDS: [Release]}


def test_pods_planned_on_a_node_are_awaited_while_it_exists(planner: Planner) -> None:
    submit(planner, under_plan("c"))
    expected = []
    for old, new in ((None, node("c")), (node("c"), None), (None, node("c"))):
        planner.cluster.observe_node(old, new)
        planner.tick(START)
        expected.append(planner.cluster.backlog.missing("forged"))
    assert expected == [8, 0, 8]


def test_a_plan_of_a_kueue_job_lapses_when_its_pods_are_not_created(planner: Planner) -> None:
    submit(planner, under_plan().queued_by_kueue(), queued())
    assert starts(planner) == []
    assert planner.cluster.jobs["queued"].verdict.reason == REASON_NO_ROOM  # type: ignore[union-attr]
    assert planner.next_alarm() <= after(60).monotonic
    again = planner_of(snapshot_of(planner, after(59)), after(59))
    for leader in (planner, again):
        assert starts(leader, after(59)) == []
        assert starts(leader, after(61)) == ["queued"]


def test_a_lapsed_plan_is_known_from_a_snapshot(planner: Planner) -> None:
    submit(planner, under_plan().queued_by_kueue())
    planner.tick(START)
    planner.tick(after(61))
    again = planner_of(snapshot_of(planner, after(61)), after(61))
    assert len(again.cluster.ledger) == len(planner.cluster.ledger) == 0


def test_a_lapsed_plan_claims_again_when_its_pods_are_created(planner: Planner) -> None:
    job = under_plan().queued_by_kueue()
    submit(planner, job)
    planner.tick(START)
    planner.tick(after(61))
    assert len(planner.cluster.ledger) == 0
    planner.cluster.observe_pod(None, pod(job.build(), "worker", 0, gated=True))
    planner.tick(after(62))
    assert len(planner.cluster.ledger) == 8


def test_a_plan_does_not_claim_forever_for_pods_that_the_webhook_missed(planner: Planner) -> None:
    builder = under_plan(pods=3, nodes="a", cpu="2")
    submit(planner, builder)
    for index in range(3):
        planner.cluster.observe_pod(None, pod(builder.build(), "worker", index))
    planner.tick(START)
    assert len(planner.cluster.ledger) == 3
    planner.tick(after(61))
    assert len(planner.cluster.ledger) == 0


# --- pods that another client pinned keep jobs waiting only for a time ------------------------

CREATED = 1000.0


def at(seconds: float) -> Moment:
    return Moment(wall=CREATED + seconds, monotonic=seconds)


def pinned_pod(cpu: str = "4", *, uid: str = "x", on: str = "a", **spec: Any) -> Pod:
    """Return a new pod of no job that is pinned to a node and fills the node."""
    containers = [{"resources": {"requests": {"cpu": cpu}}}]
    metadata = {"namespace": "theirs", "uid": uid, "creationTimestamp": moment(CREATED)}
    spec = {"affinity": affinity_to(on), "containers": containers, **spec}
    return parse_pod({"kind": "Pod", "metadata": metadata, "spec": spec})


@pytest.fixture
def pinning() -> Planner:
    """A planner with one node of four CPUs, and a queued job that needs two of them."""
    planner = Planner()
    planner.settings.observe_namespace(None, Namespace("team", {names.MANAGED: "true"}))
    planner.cluster.observe_node(None, node("a", cpu="4"))
    planner.cluster.observe_job(job(uid="waits").worker(2, cpu="1").held().created(CREATED).raw)
    return planner


def started(pinning: Planner, seconds: float) -> bool:
    """Return whether the queued job is started after these seconds."""
    return any(tracked.job.uid == "waits" for tracked, _ in pinning.tick(at(seconds)).steps)


def test_a_pinned_pod_is_awaited_only_for_a_time(pinning: Planner) -> None:
    pinning.cluster.observe_pod(None, pinned_pod())
    assert not started(pinning, 0)
    assert not started(pinning, UNBOUND_SECONDS - 1)
    assert started(pinning, UNBOUND_SECONDS)


def test_a_pinned_pod_from_a_clock_that_was_ahead_is_awaited_no_longer(pinning: Planner) -> None:
    pinning.cluster.observe_pod(None, replace(pinned_pod(), created=CREATED + 86_400))
    assert not started(pinning, 0)
    assert not started(pinning, UNBOUND_SECONDS - 1)
    assert started(pinning, UNBOUND_SECONDS)


def test_a_new_pinned_pod_is_awaited_after_the_clock_was_set_back(pinning: Planner) -> None:
    pinning.tick(at(86_400))
    pinning.cluster.observe_pod(None, pinned_pod())
    pinning.cluster.observe_job(job(uid="waits").worker(2, cpu="1").held().created(CREATED).raw)
    assert not started(pinning, 1)


def test_a_snapshot_knows_how_long_a_pinned_pod_is_awaited(pinning: Planner) -> None:
    pinning.cluster.observe_pod(None, pinned_pod())
    pinning.tick(at(0))
    again = planner_of(snapshot_of(pinning, at(30)), at(30))
    assert not started(again, 30)
    assert started(again, UNBOUND_SECONDS)


def test_a_pinned_pod_that_is_bound_keeps_its_node(pinning: Planner) -> None:
    before = pinned_pod()
    pinning.cluster.observe_pod(None, before)
    pinning.tick(at(0))
    pinning.cluster.observe_pod(before, pinned_pod(nodeName="a"))
    assert not started(pinning, UNBOUND_SECONDS + 1)


def test_a_pinned_pod_counts_again_when_its_node_could_run_it(pinning: Planner) -> None:
    small, large = node("a", cpu="4"), node("a", cpu="8")
    pinning.cluster.observe_pod(None, pinned_pod("8"))
    pinning.cluster.observe_node(small, large)
    assert not started(pinning, 0)
    pinning.cluster.observe_node(large, small)
    assert started(pinning, 1)


def test_any_number_of_pods_that_can_never_run_keeps_no_job_waiting(pinning: Planner) -> None:
    for number in range(100):
        pinning.cluster.observe_pod(None, pinned_pod("1000", uid=f"x-{number}"))
    assert started(pinning, 0)


PLANNED = job(name="gang", uid="gang").worker(2, cpu="2").resumed()


def gang(pinning: Planner, *uids: str) -> None:
    """Add a gang that kfext placed on node a; its first pod is pinned, with each of the uids."""
    plan = Plan("gang", 1, {ReplicaKey("worker", n): "a" for n in (0, 1)})
    pinning.cluster.observe_job(PLANNED.annotated(names.PLAN, plan.encode()).raw)
    pinning.cluster.observe_pod(None, pod(PLANNED.build(), "worker", 1, bound="a"))
    for uid in uids:
        raw = raw_pod(PLANNED.build(), "worker", 0, pinned="a", uid=uid, unschedulable="0/1 nodes")
        pinning.cluster.observe_pod(None, parse_pod(raw))


def test_a_pod_that_kfext_pinned_is_awaited_for_bind_timeout(pinning: Planner) -> None:
    gang(pinning, "p0")
    assert not started(pinning, 0)
    assert not started(pinning, UNBOUND_SECONDS + 1)


def test_no_duplicate_pod_is_awaited(pinning: Planner) -> None:
    gang(pinning, "p0", "p1", "p2")
    assert started(pinning, 0)


def test_a_pod_that_kfext_pinned_is_not_awaited_after_its_job_is_deleted(pinning: Planner) -> None:
    gang(pinning, "p0")
    assert not started(pinning, 0)
    pinning.cluster.forget_job("gang")
    assert started(pinning, 1)
