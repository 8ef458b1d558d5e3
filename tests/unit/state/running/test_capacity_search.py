"""The places of a running job that is scaled up, within its limits and the ports of its block."""

from dataclasses import dataclass
from typing import Any

import pytest

from kfext.core.ledger.ports import with_host_ports
from kfext.core.settings.table import Settings
from kfext.core.settings.values import Colocation
from kfext.model.plan import Plan
from kfext.model.pod import ReplicaKey
from kfext.names import PLAN
from kfext.sim.api import TEAM
from kfext.state.planner.planner import Planner
from kfext.state.running.capacity_search import CapacitySearch
from kfext.state.running.running_job import RunningJob
from tests.builders import JobBuilder, job, node, pod

DECLARED = {"containers": [{"name": "tensorflow", "ports": [{"containerPort": 9090}]}]}


@dataclass(frozen=True, slots=True)
class Runs:
    """A job that runs; each letter of `nodes` is the node of a worker.

    `port`: the first port of its block of host ports; 0 means the pod network.
    """

    builder: JobBuilder
    nodes: str
    port: int = 0

    def show(self, planner: Planner) -> None:
        job = self.builder.resumed().build()
        places = {ReplicaKey("worker", index): node for index, node in enumerate(self.nodes)}
        plan = Plan(job.uid, 1, places, port=self.port).encode()
        planner.cluster.observe_job(self.builder.annotated(PLAN, plan).raw)
        job = with_host_ports(job) if self.port else job
        for key, home in places.items():
            running = pod(job, key.type, key.index, bound=home, phase="Running")
            planner.cluster.observe_pod(None, running)


def tensorflow(**more: Any) -> JobBuilder:
    """Its workers have the fourth and the fifth port of its block; the next gets the sixth."""
    return job("TFJob").worker(2, **more)


def torchrun(cpu: str) -> JobBuilder:
    """Each of its workers has the first port of its block."""
    return job().worker(2, cpu=cpu).elastic(rdzvBackend="c10d", maxReplicas=8)


def other() -> JobBuilder:
    return job("TFJob", name="other", uid="uid-2").worker(2)


SCALED_UP: dict[str, tuple[Runs, Runs | None, str, str | None]] = {
    "with the next port of its block": (Runs(tensorflow(), "aa", 20000), None, "a", "a"),
    "not on a node where another job has that port": (
        Runs(tensorflow(), "aa", 20000),
        Runs(other(), "aa", 20002),
        "a",
        None,
    ),
    "where another job has the ports after it": (
        Runs(tensorflow(), "aa", 20000),
        Runs(other(), "aa", 20003),
        "a",
        "a",
    ),
    "on the pod network, whatever ports other jobs have": (
        Runs(tensorflow(), "aa"),
        Runs(other(), "aa", 20002),
        "a",
        "a",
    ),
    "not on nodes where a pod has the host port that its pods declare": (
        Runs(tensorflow(spec=DECLARED), "ab", 20000),
        None,
        "ab",
        None,
    ),
    "where no pod has the declared port": (
        Runs(tensorflow(spec=DECLARED), "ab", 20000),
        None,
        "abc",
        "c",
    ),
    "on the pod network, where the declared port is free in each pod": (
        Runs(tensorflow(spec=DECLARED), "ab"),
        None,
        "ab",
        "a",
    ),
    "not beside another agent of torchrun": (Runs(torchrun("8"), "ab", 20000), None, "ab", None),
    "where no agent of torchrun runs": (Runs(torchrun("20"), "ab", 20000), None, "abc", "c"),
}


@pytest.mark.parametrize(("nodes", "fits"), [("aa", True), ("ab", False)])
def test_a_job_required_on_one_node_scales_up_only_there(nodes: str, *, fits: bool) -> None:
    planner = Planner()
    planner.settings.observe_namespace(None, TEAM)
    for name in "ab":
        planner.cluster.observe_node(None, node(name, cpu="32"))
    Runs(torchrun("4"), nodes).show(planner)
    planner.cluster.settle(0.0)
    tracked = planner.cluster.jobs["uid-1"]
    running = RunningJob(tracked)
    required = Settings(colocation=Colocation.REQUIRED)
    search = CapacitySearch(planner.cluster, planner.queue, lambda _: required, lambda _: 5.0)
    places = search.more_places(running, 3, now=0.0)
    assert (places is not None) is fits


@pytest.mark.parametrize(("scaled", "beside", "nodes", "target"), SCALED_UP.values(), ids=SCALED_UP)
def test_the_node_of_the_new_worker_of_a_job(
    scaled: Runs, beside: Runs | None, nodes: str, target: str | None
) -> None:
    planner = Planner()
    planner.settings.observe_namespace(None, TEAM)
    for name in nodes:
        planner.cluster.observe_node(None, node(name, cpu="32"))
    for runs in filter(None, (scaled, beside)):
        runs.show(planner)
    planner.cluster.settle(0.0)
    tracked = planner.cluster.jobs["uid-1"]
    running = RunningJob(tracked)
    search = CapacitySearch(planner.cluster, planner.queue, lambda _: Settings(), lambda _: 5.0)
    places = search.more_places(running, 3, now=0.0)
    kept = {ReplicaKey("worker", index): node for index, node in enumerate(scaled.nodes)}
    assert places == (None if target is None else {**kept, ReplicaKey("worker", 2): target})
