"""What DRAGON's decisions become in the cluster: sizes, deletions and bindings."""

from collections.abc import Sequence
from typing import Any

import pytest

from e2e.bench.stream.seats import Bind, Command, Delete, Resize, Seats, renumbered
from e2e.bench.stream.workload import MEMORY, StreamJob
from kfext import names

Object = dict[str, Any]
TORCH = StreamJob("torch", "PyTorchJob", 1, 3, 5, steps=1)
SERVED = StreamJob("served", "TFJob", 1, 2, 4, steps=1)
RIGID = StreamJob("rigid", "PyTorchJob", 2, 2, 2, steps=1)


class Jobs:
    """DRAGON over nodes of two pods each, beside the jobs as the API server has them."""

    def __init__(self, nodes: int = 2) -> None:
        self._seats = Seats({f"node-{n}": (350, 3 * MEMORY) for n in range(nodes)}, began=0.0)
        self._bodies: dict[str, Object] = {}

    def submit(self, job: StreamJob, *, now: float) -> None:
        self._seats.submit(job, now=now)
        spec = {"runPolicy": {"suspend": True}, **workers(job, job.asked)}
        self._bodies[job.name] = {"spec": spec}

    def end(self, job: StreamJob) -> None:
        conditions = [{"type": "Succeeded", "status": "True"}]
        self._bodies[job.name]["status"] = {"conditions": conditions}

    def look(self, pods: Sequence[Object], now: float, *, lost: bool = False) -> list[Command]:
        """Return what is to be done; jobs are changed as it says unless that is lost."""
        found = self._seats.look(self._bodies, pods, now=now)
        for command in found:
            if isinstance(command, Resize) and not lost:
                self._bodies[command.job.name]["spec"] |= command.body["spec"]
        return found


def pod(job: str, type_: str, index: int, node: str = "", **more: Any) -> Object:
    name = f"{job}-{type_}-{index}"
    labels = {
        names.JOB_NAME: job,
        names.REPLICA_TYPE: type_,
        names.REPLICA_INDEX: str(index),
    }
    metadata = {"name": name, "uid": more.pop("uid", name), "labels": labels}
    if more.pop("ends", False):
        metadata["deletionTimestamp"] = "now"
    phase = more.pop("phase", "Running" if node else "Pending")
    spec = {"nodeName": node} if node else {}
    return {"metadata": metadata, "spec": spec, "status": {"phase": phase}}


def workers(job: StreamJob, count: int) -> Object:
    type_ = "pytorchReplicaSpecs" if job.kind == "PyTorchJob" else "tfReplicaSpecs"
    return {type_: {"Worker": {"replicas": count}}}


def resize(job: StreamJob, count: int | None = None) -> Resize:
    sized = {} if count is None else workers(job, count)
    return Resize(job, {"spec": {"runPolicy": {"suspend": False}, **sized}})


def started(cluster: Jobs, *jobs: StreamJob) -> list[Command]:
    """Submit jobs, one pass for each; return what was done for them."""
    found: list[Command] = []
    for number, job in enumerate(jobs):
        cluster.submit(job, now=number)
        found += cluster.look([], number)
    return found


@pytest.mark.parametrize(
    ("job", "command"),
    [
        pytest.param(TORCH, resize(TORCH, 3), id="an elastic PyTorchJob"),
        pytest.param(SERVED, resize(SERVED, 2), id="a TFJob with a server"),
        pytest.param(RIGID, resize(RIGID), id="a rigid job keeps its size"),
    ],
)
def test_a_job_is_started_with_its_size(job: StreamJob, command: Command) -> None:
    assert started(Jobs(), job) == [command]


def test_a_job_starts_with_what_there_is_room_for() -> None:
    # The rigid job has one node; of the other the elastic one gets both places.
    assert started(Jobs(), RIGID, TORCH) == [resize(RIGID), resize(TORCH, 2)]


def test_a_start_that_was_lost_is_repeated_until_the_job_is_no_longer_suspended() -> None:
    cluster = Jobs()
    cluster.submit(RIGID, now=0)
    for now in (0, 1, 2):
        assert cluster.look([], now, lost=True) == [resize(RIGID)]
    assert cluster.look([], 3) == [resize(RIGID)]
    assert cluster.look([], 4) == []


def test_pods_are_bound_where_the_plan_says() -> None:
    cluster = Jobs()
    started(cluster, SERVED)
    pods = [pod("served", "ps", 0), pod("served", "worker", 0), pod("served", "worker", 1)]
    assert cluster.look(pods, 1) == [
        Bind("served-ps-0", "node-0"),
        Bind("served-worker-0", "node-0"),
        Bind("served-worker-1", "node-1"),
    ]


def test_masters_are_workers_of_a_rigid_job() -> None:
    cluster = Jobs()
    started(cluster, RIGID)
    pods = [pod("rigid", "master", 0), pod("rigid", "worker", 0)]
    assert cluster.look(pods, 1) == [
        Bind("rigid-master-0", "node-0"),
        Bind("rigid-worker-0", "node-0"),
    ]


def test_a_pod_waits_for_its_place_until_the_one_before_it_is_gone() -> None:
    cluster = Jobs(1)
    started(cluster, RIGID)
    new = [pod("rigid", "master", 0), pod("rigid", "worker", 0)]
    old = [pod("gone", "worker", n, "node-0", ends=True) for n in range(2)]
    assert cluster.look([*old, *new], 1) == []
    assert cluster.look([*old[:1], *new], 2) == [Bind("rigid-master-0", "node-0")]
    over = [pod("gone", "worker", n, "node-0", phase="Succeeded") for n in range(2)]
    assert len(cluster.look([*over, *new], 3)) == 2


def running(cluster: Jobs) -> list[Object]:
    """Start the elastic PyTorchJob; return its pods: worker 0 stays, 1 and 2 may be taken."""
    started(cluster, TORCH)
    nodes = ("node-0", "node-0", "node-1")
    return [pod("torch", "worker", n, node) for n, node in enumerate(nodes)]


def test_workers_are_taken_for_a_job_that_waits_which_starts_when_they_are_gone() -> None:
    cluster = Jobs()
    pods = running(cluster)
    cluster.submit(RIGID, now=1)
    assert cluster.look(pods, 1) == []
    assert cluster.look(pods, 30) == []
    assert cluster.look(pods, 44) == []  # it is due, but no pass is
    # One place is free on the second node; worker 1 is taken, and worker 2 gets its index.
    assert cluster.look(pods, 45) == [resize(TORCH, 2), Delete("torch-worker-1")]
    ending = [
        pods[0],
        *(pod("torch", "worker", n, f"node-{n - 1}", ends=True) for n in (1, 2)),
    ]
    # The next pass counts the room as free; the pods that come wait until it is.
    assert cluster.look(ending, 46) == [resize(RIGID)]
    new = [pod("rigid", "master", 0), pod("rigid", "worker", 0)]
    assert cluster.look([*ending, *new], 47) == [Bind("rigid-worker-0", "node-1")]
    again = pod("torch", "worker", 1, uid="new")
    assert cluster.look([pods[0], again, *new], 48) == [
        Bind("torch-worker-1", "node-1"),
        Bind("rigid-master-0", "node-0"),
        Bind("rigid-worker-0", "node-1"),
    ]


def test_what_was_lost_of_a_change_is_repeated() -> None:
    cluster = Jobs()
    pods = running(cluster)
    cluster.submit(RIGID, now=1)
    changes = [resize(TORCH, 2), Delete("torch-worker-1")]
    assert cluster.look(pods, 45, lost=True) == changes
    # The next pass admits the job that waited; its own start is not lost.
    assert cluster.look(pods, 60) == [*changes[:1], resize(RIGID), *changes[1:]]
    # By now the size is right, and the worker is still where it was.
    assert cluster.look(pods, 61) == changes[1:]


@pytest.mark.parametrize(
    ("nodes", "victims", "kept"),
    [
        pytest.param("abc", {2}, "ab", id="the last one is taken"),
        pytest.param("abc", {0}, "cb", id="the last one moves to the index of the first"),
        pytest.param("abcd", {0, 3}, "cb", id="one of two is the last"),
        pytest.param("abcd", {0, 1}, "cd", id="both are not"),
        pytest.param("ab", {0, 1}, "", id="all are taken"),
        pytest.param("ab", set(), "ab", id="none is"),
    ],
)
def test_workers_that_are_left_have_the_lowest_indices_and_their_nodes(
    nodes: str, victims: set[int], kept: str
) -> None:
    assert renumbered(dict(enumerate(nodes)), frozenset(victims)) == list(kept)


def test_a_job_that_has_ended_makes_room_and_is_forgotten() -> None:
    cluster = Jobs(1)
    started(cluster, RIGID)
    second = StreamJob("second", "PyTorchJob", 2, 2, 2, steps=1)
    pods = [pod("rigid", "master", 0, "node-0"), pod("rigid", "worker", 0, "node-0")]
    cluster.submit(second, now=2)
    assert cluster.look(pods, 2) == []
    cluster.end(RIGID)
    done = [pod("rigid", type_, 0, "node-0", phase="Succeeded") for type_ in ("master", "worker")]
    assert cluster.look(done, 3) == [resize(second)]


def test_workers_are_taken_first_from_the_job_that_was_started_first() -> None:
    first, early, late, single = (
        StreamJob(name, "PyTorchJob", *sizes, steps=1)
        for name, sizes in {
            "first": (4, 4, 4),
            "early": (3, 4, 6),
            "late": (1, 2, 4),
            "single": (1, 1, 1),
        }.items()
    )
    cluster = Jobs(3)
    # The early one has no room until the first one has ended; the late one has.
    assert started(cluster, first, early, late) == [resize(first), resize(late, 2)]
    cluster.end(first)
    assert cluster.look([], 5) == [resize(early, 4)]
    cluster.submit(single, now=6)
    assert cluster.look([], 36)[0] == resize(late, 1)


def test_running_jobs_grow_after_a_minute() -> None:
    cluster = Jobs()
    pods = running(cluster)
    assert cluster.look(pods, 30) == []
    assert cluster.look(pods, 59) == []
    assert cluster.look(pods, 75) == [resize(TORCH, 4)]
    new = pod("torch", "worker", 3)
    assert cluster.look([*pods, new], 76) == [Bind("torch-worker-3", "node-1")]


def test_a_victim_with_a_low_index_is_deleted_and_comes_back_where_another_was() -> None:
    cluster = Jobs()
    pods = running(cluster)
    cluster.look(pods, 75)
    grown = [*pods, pod("torch", "worker", 3, "node-1")]
    cluster.look(grown, 76)
    single = StreamJob("single", "PyTorchJob", 1, 1, 1, steps=1)
    cluster.submit(single, now=77)
    # Node-0 comes first, where index 1 is the last; the operator takes index 3.
    assert cluster.look(grown, 108) == [resize(TORCH, 3), Delete("torch-worker-1")]
    again = [pods[0], pod("torch", "worker", 1, uid="new"), pods[2]]
    assert cluster.look(again, 110) == [resize(single), Bind("torch-worker-1", "node-1")]
