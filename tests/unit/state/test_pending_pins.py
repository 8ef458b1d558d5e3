"""Pods that somebody pinned by name: they keep nobody waiting for longer than they must."""

from dataclasses import replace
from typing import Any

import pytest

from kfext import names
from kfext.core.ledger.fit import UNBOUND_SECONDS
from kfext.model.moment import Moment
from kfext.model.namespace import Namespace
from kfext.model.plan import Plan
from kfext.model.pod import Pod, ReplicaKey, parse_pod
from kfext.state.planner import Planner
from kfext.state.recording import planner_of, snapshot_of
from tests.builders import affinity_to, job, moment, node, pod, raw_pod

CREATED = 1000.0


def at(seconds: float) -> Moment:
    return Moment(wall=CREATED + seconds, monotonic=seconds)


def stranger(cpu: str = "4", *, uid: str = "x", on: str = "a", **spec: Any) -> Pod:
    """A new pod of nobody that is pinned to a node, which it fills."""
    containers = [{"resources": {"requests": {"cpu": cpu}}}]
    metadata = {"namespace": "theirs", "uid": uid, "creationTimestamp": moment(CREATED)}
    made = {"affinity": affinity_to(on), "containers": containers, **spec}
    return parse_pod({"kind": "Pod", "metadata": metadata, "spec": made})


@pytest.fixture
def planner() -> Planner:
    made = Planner()
    made.settings.observe_namespace(None, Namespace("team", {names.MANAGED: "true"}))
    made.cluster.observe_node(None, node("a", cpu="4"))
    made.cluster.observe_job(job(uid="waits").worker(2, cpu="1").held().created(CREATED).raw)
    return made


def started(planner: Planner, seconds: float) -> bool:
    """Whether the waiting job is started by then."""
    return any(tracked.job.uid == "waits" for tracked, _ in planner.tick(at(seconds)).steps)


def test_a_pinned_pod_is_waited_for_and_then_no_more(planner: Planner) -> None:
    planner.cluster.observe_pod(None, stranger())
    assert not started(planner, 0)
    assert not started(planner, UNBOUND_SECONDS - 1)
    assert started(planner, UNBOUND_SECONDS)


def test_a_pinned_pod_of_a_clock_that_was_ahead_is_waited_for_as_long_as_any(
    planner: Planner,
) -> None:
    planner.cluster.observe_pod(None, replace(stranger(), created=CREATED + 86_400))
    assert not started(planner, 0)
    assert not started(planner, UNBOUND_SECONDS - 1)
    assert started(planner, UNBOUND_SECONDS)


def test_a_new_pinned_pod_is_waited_for_after_the_clock_was_set_back(planner: Planner) -> None:
    planner.tick(at(86_400))
    planner.cluster.observe_pod(None, stranger())
    planner.cluster.observe_job(job(uid="waits").worker(2, cpu="1").held().created(CREATED).raw)
    assert not started(planner, 1)


def test_a_snapshot_knows_how_long_a_pinned_pod_is_waited_for(planner: Planner) -> None:
    planner.cluster.observe_pod(None, stranger())
    planner.tick(at(0))
    again = planner_of(snapshot_of(planner, at(30)), at(30))
    assert not started(again, 30)
    assert started(again, UNBOUND_SECONDS)


def test_a_pinned_pod_that_is_bound_keeps_its_node(planner: Planner) -> None:
    before = stranger()
    planner.cluster.observe_pod(None, before)
    planner.tick(at(0))
    planner.cluster.observe_pod(before, stranger(nodeName="a"))
    assert not started(planner, UNBOUND_SECONDS + 1)


def test_a_pinned_pod_counts_again_when_its_node_could_run_it(planner: Planner) -> None:
    small, large = node("a", cpu="4"), node("a", cpu="8")
    planner.cluster.observe_pod(None, stranger("8"))
    planner.cluster.observe_node(small, large)
    assert not started(planner, 0)
    planner.cluster.observe_node(large, small)
    assert started(planner, 1)


def test_any_number_of_pods_that_can_never_run_keeps_nobody_waiting(planner: Planner) -> None:
    for number in range(100):
        planner.cluster.observe_pod(None, stranger("1000", uid=f"x-{number}"))
    assert started(planner, 0)


PLANNED = job(name="gang", uid="gang").worker(2, cpu="2").resumed()


def gang(planner: Planner, *uids: str) -> None:
    """A gang that kfext placed on node a; its first pod is pinned, under each of the uids."""
    plan = Plan("gang", 1, {ReplicaKey("worker", n): "a" for n in (0, 1)})
    planner.cluster.observe_job(PLANNED.annotated(names.PLAN, plan.encode()).raw)
    planner.cluster.observe_pod(None, pod(PLANNED.build(), "worker", 1, bound="a"))
    for uid in uids:
        raw = raw_pod(PLANNED.build(), "worker", 0, pinned="a", uid=uid, unschedulable="0/1 nodes")
        planner.cluster.observe_pod(None, parse_pod(raw))


def test_a_pod_that_kfext_pinned_is_waited_for_as_long_as_its_lifecycle_does(
    planner: Planner,
) -> None:
    gang(planner, "p0")
    assert not started(planner, 0)
    assert not started(planner, UNBOUND_SECONDS + 1)


def test_of_pods_that_are_called_the_same_none_is_waited_for(planner: Planner) -> None:
    gang(planner, "p0", "p1", "p2")
    assert started(planner, 0)


def test_a_pod_that_kfext_pinned_is_nobody_s_once_its_job_is_gone(planner: Planner) -> None:
    gang(planner, "p0")
    assert not started(planner, 0)
    planner.cluster.forget_job("gang")
    assert started(planner, 1)
