"""What DRAGON's decisions become in the cluster: sizes, deletions and bindings."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from e2e.bench.stream.commands import Bind, Command, Delete, Resize, carry_out
from e2e.bench.stream.seats import Seats, renumbered
from e2e.bench.stream.workload import MEMORY, StreamJob
from e2e.testbed.api import ApiError
from kfext import names

Object = dict[str, Any]
TORCH = StreamJob("torch", "PyTorchJob", 1, 3, 5, steps=1)
SERVED = StreamJob("served", "TFJob", 1, 2, 4, steps=1)
RIGID = StreamJob("rigid", "PyTorchJob", 2, 2, 2, steps=1)


def seats(nodes: int = 2) -> Seats:
    """Return the controller over nodes of two pods each."""
    return Seats({f"node-{n}": (350, 3 * MEMORY) for n in range(nodes)}, began=0.0)


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


def resize(job: StreamJob, workers: int | None, *, starts: bool = False) -> Resize:
    spec: Object = {"runPolicy": {"suspend": False}} if starts else {}
    if workers is not None:
        type_ = "pytorchReplicaSpecs" if job.kind == "PyTorchJob" else "tfReplicaSpecs"
        spec[type_] = {"Worker": {"replicas": workers}}
    return Resize(job, {"spec": spec})


def ended() -> Object:
    return {"status": {"conditions": [{"type": "Succeeded", "status": "True"}]}}


def look(one: Seats, pods: Sequence[Object], now: float, **jobs: Object) -> list[Command]:
    return one.look(jobs, pods, now=now)


def started(one: Seats, *jobs: StreamJob) -> list[Command]:
    """Submit jobs, one pass for each; return what was done for them."""
    found: list[Command] = []
    for number, job in enumerate(jobs):
        one.submit(job, now=number)
        found += look(one, [], number)
    return found


@pytest.mark.parametrize(
    ("job", "command"),
    [
        # The first of torchrun's workers is the one that DRAGON never takes.
        pytest.param(TORCH, resize(TORCH, 3, starts=True), id="an elastic PyTorchJob"),
        pytest.param(SERVED, resize(SERVED, 2, starts=True), id="a TFJob with a server"),
        pytest.param(RIGID, resize(RIGID, None, starts=True), id="a rigid job keeps its size"),
    ],
)
def test_a_job_is_started_with_its_size(job: StreamJob, command: Command) -> None:
    assert started(seats(), job) == [command]


def test_a_job_starts_with_what_there_is_room_for() -> None:
    # The rigid job has one node; of the other the elastic one gets both places.
    assert started(seats(), RIGID, TORCH) == [
        resize(RIGID, None, starts=True),
        resize(TORCH, 2, starts=True),
    ]


def test_pods_are_bound_where_the_plan_says() -> None:
    one = seats()
    started(one, SERVED)
    pods = [pod("served", "ps", 0), pod("served", "worker", 0), pod("served", "worker", 1)]
    assert look(one, pods, 1) == [
        Bind("served-ps-0", "node-0"),
        Bind("served-worker-0", "node-0"),
        Bind("served-worker-1", "node-1"),
    ]


def test_masters_are_workers_of_a_rigid_job() -> None:
    one = seats()
    started(one, RIGID)
    pods = [pod("rigid", "master", 0), pod("rigid", "worker", 0)]
    assert look(one, pods, 1) == [
        Bind("rigid-master-0", "node-0"),
        Bind("rigid-worker-0", "node-0"),
    ]


def test_a_pod_waits_for_its_place_until_the_one_before_it_is_gone() -> None:
    one = seats(1)
    started(one, RIGID)
    new = [pod("rigid", "master", 0), pod("rigid", "worker", 0)]
    old = [pod("gone", "worker", n, "node-0", ends=True) for n in range(2)]
    assert look(one, [*old, *new], 1) == []
    assert look(one, [*old[:1], *new], 2) == [Bind("rigid-master-0", "node-0")]
    over = [pod("gone", "worker", n, "node-0", phase="Succeeded") for n in range(2)]
    assert len(look(one, [*over, *new], 3)) == 2


def running(one: Seats) -> list[Object]:
    """Start the elastic PyTorchJob; return its pods: worker 0 stays, 1 and 2 may be taken."""
    started(one, TORCH)
    nodes = ("node-0", "node-0", "node-1")
    return [pod("torch", "worker", n, node) for n, node in enumerate(nodes)]


def test_workers_are_taken_for_a_job_that_waits_which_starts_when_they_are_gone() -> None:
    one = seats()
    pods = running(one)
    one.submit(RIGID, now=1)
    assert look(one, pods, 1) == []
    assert look(one, pods, 30) == []
    assert look(one, pods, 44) == []  # it is due, but no pass is
    # One place is free on the second node, and the worker beside it has no server there.
    assert look(one, pods, 45) == [resize(TORCH, 2)]
    ending = [*pods[:2], pod("torch", "worker", 2, "node-1", ends=True)]
    # The next pass counts the room as free; the pods that come wait until it is.
    assert look(one, ending, 46) == [resize(RIGID, None, starts=True)]
    new = [pod("rigid", "master", 0), pod("rigid", "worker", 0)]
    assert look(one, [*ending, *new], 47) == [Bind("rigid-master-0", "node-1")]
    assert look(one, [*pods[:2], *new], 48) == [
        Bind("rigid-master-0", "node-1"),
        Bind("rigid-worker-0", "node-1"),
    ]


@pytest.mark.parametrize(
    ("nodes", "victims", "kept", "anew"),
    [
        pytest.param("abc", {2}, "ab", [], id="the last one is taken"),
        pytest.param("abc", {0}, "cb", [0], id="the last one moves to the index of the first"),
        pytest.param("abcd", {0, 3}, "cb", [0], id="one of two is the last"),
        pytest.param("abcd", {0, 1}, "cd", [0, 1], id="both are not"),
        pytest.param("ab", {0, 1}, "", [], id="all are taken"),
        pytest.param("ab", set(), "ab", [], id="none is"),
    ],
)
def test_workers_that_are_left_have_the_lowest_indices_and_their_nodes(
    nodes: str, victims: set[int], kept: str, anew: list[int]
) -> None:
    found = renumbered(dict(enumerate(nodes)), frozenset(victims))
    assert found == (dict(enumerate(kept)), anew)


def test_a_job_that_has_ended_makes_room_and_is_forgotten() -> None:
    one = seats(1)
    started(one, RIGID)
    second = StreamJob("second", "PyTorchJob", 2, 2, 2, steps=1)
    pods = [pod("rigid", "master", 0, "node-0"), pod("rigid", "worker", 0, "node-0")]
    one.submit(second, now=2)
    assert look(one, pods, 2) == []
    over: Mapping[str, Object] = {"rigid": ended()}
    done = [pod("rigid", type_, 0, "node-0", phase="Succeeded") for type_ in ("master", "worker")]
    assert look(one, done, 3, **over) == [resize(second, None, starts=True)]


def test_running_jobs_grow_after_a_minute() -> None:
    one = seats()
    pods = running(one)
    assert look(one, pods, 30) == []
    assert look(one, pods, 59) == []
    assert look(one, pods, 75) == [resize(TORCH, 4)]
    new = pod("torch", "worker", 3)
    assert look(one, [*pods, new], 76) == [Bind("torch-worker-3", "node-1")]


def test_a_victim_with_a_low_index_is_deleted_and_comes_back_where_another_was() -> None:
    one = seats()
    pods = running(one)
    look(one, pods, 75)
    grown = [*pods, pod("torch", "worker", 3, "node-1")]
    look(one, grown, 76)
    one.submit(StreamJob("single", "PyTorchJob", 1, 1, 1, steps=1), now=77)
    # Those on node-1, where no server is, come first: index 2 is taken, and the operator takes 3.
    assert look(one, grown, 108) == [resize(TORCH, 3), Delete("torch-worker-2")]
    again = [*pods[:2], pod("torch", "worker", 2, uid="new")]
    starts, binds = look(one, again, 110)
    assert isinstance(starts, Resize)
    assert starts.job.name == "single"
    assert binds == Bind("torch-worker-2", "node-1")


class Server:
    """An API server that notes what it is asked for, and stands in for the `Pods` that use it."""

    namespace, path = "any", "/api/v1/namespaces/any/pods"

    def __init__(self, refuses: int = 0) -> None:
        self.bed = self.api = self
        self.refuses, self.asked = refuses, list[tuple[str, Object]]()

    def create(self, path: str, body: Object) -> None:
        self.asked.append((path, body))
        if self.refuses:
            raise ApiError(self.refuses, "refused")

    patch = create

    def delete(self, path: str) -> None:
        self.asked.append((path, {}))


def test_commands_become_requests() -> None:
    server = Server()
    for command in (Resize(SERVED, {"spec": {}}), Delete("a"), Bind("b", "node-1")):
        carry_out(command, server)  # type: ignore[arg-type]
    paths = [path for path, _ in server.asked]
    assert paths == [
        "/apis/kubeflow.org/v1/namespaces/any/tfjobs/served",
        f"{Server.path}/a",
        f"{Server.path}/b/binding",
    ]
    assert server.asked[-1][1]["target"] == {"apiVersion": "v1", "kind": "Node", "name": "node-1"}


@pytest.mark.parametrize("status", [404, 409])
def test_a_pod_that_has_gone_or_changed_meanwhile_is_left(status: int) -> None:
    carry_out(Bind("b", "node-1"), Server(status))  # type: ignore[arg-type]


def test_any_other_refusal_ends_the_run() -> None:
    with pytest.raises(ApiError):
        carry_out(Bind("b", "node-1"), Server(403))  # type: ignore[arg-type]
