"""The mirror: outdated versions, the jobs that a change wakes, and clocks."""

from dataclasses import replace
from typing import Any

import pytest

from kfext import names
from kfext.model.cpu_size import TrainerCpu
from kfext.model.job import TrainingJob
from kfext.model.moment import Moment
from kfext.model.namespace import Namespace
from kfext.model.plan import Plan
from kfext.model.pod import Pod, ReplicaKey
from kfext.state.mirror.cluster import Cluster, is_newer, is_older, place_of
from kfext.state.planner.planner import Planner
from tests.builders import JobBuilder, Raw, job, node, pod
from tests.unit.state.cases import free, marked_jobs, planned, worker

# --- outdated versions ------------------------------------------------------------------------


def test_an_older_version_of_a_job_is_ignored(cluster: Cluster) -> None:
    cluster.observe_job(planned("a", "a").version(10).raw)
    cluster.observe_job(job().worker(2, cpu="1").held().version(9).raw)
    assert not cluster.jobs["uid-1"].job.suspend
    assert free(cluster, "a") == 2


def test_versions_are_compared_as_numbers(cluster: Cluster) -> None:
    cluster.observe_job(planned("a", "a").version(9).raw)
    cluster.observe_job(planned("b", "b").version(10).raw)
    assert (free(cluster, "a"), free(cluster, "b")) == (4, 2)


def test_an_older_version_of_a_pod_is_ignored(cluster: Cluster) -> None:
    cluster.observe_job(planned("a", "a").suspended().raw)
    cluster.observe_pod(None, worker(0, pinned="a", version=10))
    cluster.observe_pod(worker(0, gated=True), worker(0, gated=True, version=9))
    assert [pod.home for pod in cluster.pods("uid-1")] == ["a"]
    assert free(cluster, "a") == 3


def test_the_answer_to_a_patch_of_a_deleted_job_does_not_restore_it(cluster: Cluster) -> None:
    cluster.observe_job(job().worker(2, cpu="1").held().version(1).raw)
    cluster.forget_job("uid-1")
    cluster.observe_job(planned("a", "a").version(2).raw)
    assert not cluster.jobs
    assert len(cluster.ledger) == 0


def test_the_answer_to_a_pin_of_a_deleted_pod_does_not_restore_it(cluster: Cluster) -> None:
    before = worker(0, gated=True)
    cluster.observe_pod(None, before)
    cluster.observe_pod(before, None)
    cluster.observe_pod(before, worker(0, pinned="a", version=2))
    assert not cluster.members()
    assert len(cluster.ledger) == 0


def test_a_job_deleted_while_its_step_was_written_claims_nothing(cluster: Cluster) -> None:
    cluster.observe_job(planned("a", "b").raw)
    tracked = cluster.jobs["uid-1"]
    tracked.busy = True
    cluster.forget_job("uid-1")
    tracked.busy = False
    cluster.sync_claims(tracked)  # the end of a write in the loop
    assert len(cluster.ledger) == 0


def test_only_a_bounded_number_of_deleted_jobs_is_remembered(cluster: Cluster) -> None:
    for number in range(20_000):
        cluster.forget_job(f"uid-{number}")
    assert len(cluster._deleted_jobs) <= 10_000


# --- order ------------------------------------------------------------------------------------


def test_a_job_created_again_under_its_name_is_another_job(cluster: Cluster) -> None:
    cluster.observe_job(planned("a", "a").version(5).raw)
    cluster.observe_pod(None, worker(0, bound="a"))
    cluster.observe_job(job(uid="uid-2").worker(2, cpu="1").held().version(6).raw)
    cluster.forget_job("uid-1")
    assert set(cluster.jobs) == {"uid-2"}
    assert not cluster.pods("uid-2")
    assert free(cluster, "a") == 3, "the pod of the first job still runs"


def test_a_pod_in_another_namespace_belongs_to_no_job_of_this_one(cluster: Cluster) -> None:
    cluster.observe_job(job().worker(2, cpu="1").held().raw)
    marked_jobs(cluster)
    theirs = replace(worker(0, bound="a", deleting=True), namespace="theirs")
    cluster.observe_pod(None, theirs)
    assert cluster.pods("uid-1") == ()
    assert cluster.homes("uid-1") == {}
    assert marked_jobs(cluster) == set()
    cluster.observe_pod(theirs, None)
    assert not cluster.members()


# --- which jobs are woken, and when -----------------------------------------------------------


def test_freed_capacity_wakes_the_queue_and_the_job_at_the_gate(cluster: Cluster) -> None:
    cluster.observe_job(job(uid="queued").worker(cpu="1").held().raw)
    behind = job(uid="behind").worker(cpu="1").resumed()
    cluster.observe_job(behind.raw)
    cluster.observe_pod(None, pod(behind.build(), "worker", 0, gated=True))
    cluster.observe_job(job(uid="person").worker(cpu="1").suspended().raw)
    runs = job(uid="runs").worker(cpu="1").resumed()
    cluster.observe_job(runs.raw)
    other = pod(runs.build(), "worker", 0, bound="a")
    cluster.observe_pod(None, other)
    marked_jobs(cluster)
    cluster.observe_pod(other, None)
    assert marked_jobs(cluster) == {"queued", "behind", "runs"}


PROGRESS: dict[str, tuple[Pod, bool]] = {
    "a pod is bound": (worker(0, pinned="a", bound="a", version=2), True),
    "a pod is being deleted": (worker(0, pinned="a", deleting=True, version=2), True),
    "kube-scheduler reports a reason again": (
        worker(0, pinned="a", unschedulable="no room", version=2),
        False,
    ),
}


@pytest.mark.parametrize(("after", "want"), PROGRESS.values(), ids=PROGRESS.keys())
def test_progress_restarts_the_clock_of_a_step(cluster: Cluster, after: Pod, want: bool) -> None:
    cluster.observe_job(planned("a", "a").raw)
    cluster.observe_pod(None, worker(0, pinned="a"))
    cluster.settle(0.0)
    cluster.observe_pod(worker(0, pinned="a"), after)
    cluster.settle(50.0)
    assert cluster.jobs["uid-1"].progressed_at == (50.0 if want else 0.0)


def quiet(cluster: Cluster, now: float, *, uid: str = "uid-1") -> float:
    """Return the seconds since an awaited pod of a job was last created."""
    cluster.settle(now)
    return cluster.backlog.quiet(uid, now)


def test_the_wait_for_the_operator_begins_again_with_each_new_pod(cluster: Cluster) -> None:
    cluster.observe_job(planned("a", "a").raw)
    assert quiet(cluster, 0.0) == 0.0
    cluster.observe_pod(None, worker(0, gated=True))
    assert quiet(cluster, 10.0) == 0.0
    cluster.observe_pod(worker(0, gated=True), worker(0, gated=True, gates=["x"], version=2))
    assert quiet(cluster, 20.0) == 10.0
    assert cluster.jobs["uid-1"].settled_at == 10.0
    cluster.observe_pod(worker(0, gated=True, version=2), None)
    assert quiet(cluster, 30.0) == 20.0
    assert cluster.jobs["uid-1"].settled_at == 30.0


def test_the_pods_of_a_job_that_no_plan_started_keep_no_job_waiting(cluster: Cluster) -> None:
    cluster.observe_job(planned("a", "a", uid="gang").raw)
    plain = job(name="plain").worker(2, cpu="1").resumed()
    cluster.observe_job(plain.raw)
    assert quiet(cluster, 0.0) == 0.0
    cluster.observe_pod(None, worker(0, bound="a", phase="Running"))
    assert quiet(cluster, 20.0, uid="gang") == 20.0


@pytest.mark.parametrize("raw", [{}, {"kind": "Job"}, {"kind": "PyTorchJob"}], ids=str)
def test_an_object_of_no_known_kind_is_ignored(cluster: Cluster, raw: dict[str, Any]) -> None:
    cluster.observe_job(raw)
    assert not cluster.jobs


HUGE = {
    "held": job().worker(2**31 - 1, cpu="1").held(),
    "resumed by hand": job().worker(2**31 - 1, cpu="1").resumed(),
    "under a plan": planned("a", "b").worker(2**31 - 1, cpu="1"),
    "a TFJob under a plan with ports": job("TFJob")
    .worker(2**31 - 1, cpu="1")
    .resumed()
    .annotated(names.PLAN, Plan("uid-1", 1, {ReplicaKey("worker", 0): "a"}, port=20000).encode()),
}


@pytest.mark.parametrize("builder", HUGE.values(), ids=HUGE)
@pytest.mark.parametrize("gated", [False, True], ids=["without pods", "with a gated pod"])
def test_the_replicas_of_a_huge_job_are_never_counted_one_by_one(
    builder: JobBuilder, monkeypatch: pytest.MonkeyPatch, *, gated: bool
) -> None:
    def count(self: TrainingJob) -> None:
        raise AssertionError("the replicas are counted")

    monkeypatch.setattr(TrainingJob, "replicas", count)
    planner = Planner()
    planner.settings.observe_namespace(None, Namespace("team", {names.MANAGED: "true"}))
    for name in "ab":
        planner.cluster.observe_node(None, node(name, cpu="4"))
    planner.cluster.observe_job(builder.annotated(names.NETWORK, "host").raw)
    if gated:
        planner.cluster.observe_pod(None, pod(builder.build(), "worker", 0, gated=True))
    for at in range(3):
        tick = planner.tick(Moment(wall=1e6 * at, monotonic=1e6 * at))
        assert not tick.failures
        for tracked, _ in tick.steps:
            planner.finish(tracked, Moment(wall=1e6 * at, monotonic=1e6 * at))
    assert planner.cluster.backlog.pods == 0
    planner.cluster.forget_job("uid-1")


def test_the_reservation_skips_a_job_that_became_huge(monkeypatch: pytest.MonkeyPatch) -> None:
    def waits(uid: str, workers: int, *, version: int = 1) -> Raw:
        builder = job(name=uid, uid=uid).worker(workers, cpu="1").held()
        return builder.created(0).version(version).raw

    planner = Planner()
    planner.settings.observe_namespace(None, Namespace("team", {names.MANAGED: "true"}))
    planner.cluster.observe_node(None, node("a", cpu="4"))
    planner.cluster.observe_job(planned("a", "a").raw)
    for uid in ("first", "second"):
        planner.cluster.observe_job(waits(uid, 4))
    later = Moment(wall=1000.0, monotonic=1000.0)
    planner.tick(later)
    assert planner.queue.reservations.current is not None
    assert planner.queue.reservations.current.job == "first"
    planner.cluster.observe_job(waits("first", 1, version=2))
    planner.cluster.observe_job(waits("second", 2**31 - 1, version=2))
    real = TrainingJob.replicas

    def count(self: TrainingJob) -> Any:
        assert self.pods <= 4, "the replicas of the huge job are counted"
        return real(self)

    monkeypatch.setattr(TrainingJob, "replicas", count)
    tick = planner.tick(later)
    assert not tick.failures
    assert planner.queue.reservations.current is None


def test_a_pod_that_is_created_while_the_step_is_written_is_no_longer_awaited() -> None:
    planner = Planner()
    planner.settings.observe_namespace(None, Namespace("team", {names.MANAGED: "true"}))
    planner.cluster.observe_node(None, node("a", cpu="4"))
    builder = job().worker(1, cpu="1").held()
    planner.cluster.observe_job(builder.raw)
    tick = planner.tick(Moment(wall=1.0, monotonic=1.0))
    assert len(tick.steps) == 1
    uid = builder.build().uid
    assert planner.cluster.backlog.missing(uid) == 1
    planner.cluster.observe_pod(None, pod(builder.build(), "worker", 0, gated=True))
    planner.cluster.settle(2.0)
    assert planner.cluster.backlog.missing(uid) == 0


# --- pods that had succeeded ------------------------------------------------------------------

DONE, ENDING = {"phase": "Succeeded", "version": 2}, {"deleting": True, "version": 2}
ENDS: dict[str, tuple[list[dict[str, Any]], bool]] = {
    "it had succeeded": ([DONE], True),
    "it had succeeded and was ending": ([DONE, {**DONE, "deleting": True, "version": 3}], True),
    "it trained": ([], False),
    "it ended well as it was deleted": ([ENDING, {**ENDING, **DONE, "version": 3}], False),
    "it had failed": ([{**DONE, "phase": "Failed"}], False),
}


@pytest.mark.parametrize(("stages", "want"), ENDS.values(), ids=ENDS)
def test_a_pod_that_had_succeeded_and_is_deleted_is_recorded(
    cluster: Cluster, stages: list[dict[str, Any]], *, want: bool
) -> None:
    cluster.observe_job(planned("a", "a").raw)
    now = worker(1, bound="a")
    cluster.observe_pod(None, now)
    for stage in stages:
        before, now = now, worker(1, bound="a", **stage)
        cluster.observe_pod(before, now)
    cluster.observe_pod(now, None)
    assert (cluster.jobs["uid-1"].succeeded == {ReplicaKey("worker", 1)}) is want


def test_a_job_that_is_stopped_forgets_which_pods_had_succeeded(cluster: Cluster) -> None:
    cluster.observe_job(planned("a", "a").version(1).raw)
    cluster.observe_pod(None, worker(1, bound="a", **DONE))
    cluster.observe_pod(worker(1, bound="a", **DONE), None)
    assert cluster.jobs["uid-1"].succeeded
    cluster.observe_job(planned("a", "a").suspended().version(2).raw)
    assert not cluster.jobs["uid-1"].succeeded


# --- comparisons of versions ---

OLDER: dict[str, tuple[str, str, bool]] = {
    "a lower number": ("9", "10", True),
    "a higher number": ("10", "9", False),
    "the same": ("9", "9", False),
    "no version before any version": ("", "1", True),
    "a version that is no number": ("abc", "10", False),
}


@pytest.mark.parametrize(("version", "other", "want"), OLDER.values(), ids=OLDER)
def test_versions_of_one_object_are_compared_as_numbers(
    version: str, other: str, want: bool
) -> None:
    assert is_older(version, other) is want


NEWER: dict[str, tuple[str, bool]] = {
    "a later version": ("11", True),
    "the known version": ("10", False),
    "an earlier version": ("9", False),
    "a version that cannot be compared": ("abc", True),
}


@pytest.mark.parametrize(("version", "want"), NEWER.values(), ids=NEWER)
def test_a_job_is_newer_unless_its_version_is_known_or_older(version: str, want: bool) -> None:
    assert is_newer(version, job().version(10).build()) is want


BEFORE = pod(job().worker(1, cpu="1").build(), "worker", 0)
AFTER: dict[str, tuple[Pod, bool]] = {
    "it is bound": (replace(BEFORE, node_name="a"), True),
    "it ends": (replace(BEFORE, phase="Succeeded"), True),
    "it is being deleted": (replace(BEFORE, deleting=True), True),
    "kube-scheduler reports a reason": (replace(BEFORE, unschedulable="no room"), True),
    "a resize changes its requests": (replace(BEFORE, requests={"cpu": 2000}), True),
    "a resize changes its limit": (replace(BEFORE, trainer=TrainerCpu(1000, 2000)), False),
    "it starts to run": (replace(BEFORE, phase="Running"), False),
    "only its version changes": (replace(BEFORE, resource_version="2"), False),
}


@pytest.mark.parametrize(("after", "want"), AFTER.values(), ids=AFTER)
def test_the_changes_of_a_pod_that_need_a_decision(after: Pod, want: bool) -> None:
    assert (place_of(after) != place_of(BEFORE)) is want


# --- jobs that kfext does not place ---------------------------------------------------------------


def plain_pods(cluster: Cluster, builder: JobBuilder, *pods: Pod, at: float = 0.0) -> int:
    """Return the number of pods that plain Kubernetes is about to bind, `at` seconds later."""
    cluster.observe_job(builder.raw)
    for existing in pods:
        cluster.observe_pod(None, existing)
    cluster.settle(0.0)
    cluster.settle(at)
    return cluster.plain_pods


PLAIN_JOBS: dict[str, tuple[JobBuilder, list[Pod], float, int]] = {
    "its pods are yet to be created": (job().worker(2).resumed(), [], 1.0, 2),
    "kfext has released it": (job().worker(2).resumed().released(), [], 1.0, 2),
    "kfext holds it": (job().worker(2).held(), [], 1.0, 0),
    "kfext has placed it": (planned("a", "a"), [], 1.0, 0),
    "its pods wait at the gate of kfext": (
        job().worker(2).resumed(),
        [worker(0, gated=True), worker(1, gated=True)],
        1.0,
        0,
    ),
    "its pods are not created: other jobs wait no longer": (job().worker(2).resumed(), [], 31.0, 0),
}


@pytest.mark.parametrize(("builder", "pods", "at", "want"), PLAIN_JOBS.values(), ids=PLAIN_JOBS)
def test_the_pods_that_plain_kubernetes_is_about_to_bind(
    cluster: Cluster, builder: JobBuilder, pods: list[Pod], at: float, want: int
) -> None:
    assert plain_pods(cluster, builder, *pods, at=at) == want


def test_a_gang_is_not_born_pinned_while_pods_of_another_job_are_yet_to_be_created() -> None:
    planner = Planner()
    planner.settings.observe_namespace(None, Namespace("team", {names.MANAGED: "true"}))
    planner.cluster.observe_job(job(name="other", uid="uid-2").worker(2).resumed().raw)
    planner.cluster.observe_job(job().worker(2).held().raw)
    planner.tick(Moment(1.0, 1.0))
    context = planner.queue.context(planner.cluster.jobs["uid-1"], now=1.0)
    assert (context.disturbed, context.plain_pods) == ("pods", 2)
