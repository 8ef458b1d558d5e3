"""Pods that admission changes: after one failed start kfext plans with the changed pods."""

from collections.abc import Mapping
from copy import deepcopy

import pytest

from kfext.core.lifecycle.steps import Release, Step, Suspend, Unsuspend, Wait
from kfext.model.node import Node
from kfext.names import REASON_NO_ROOM, REASON_TOO_BIG
from tests.builders import Raw, job, node
from tests.unit.controller.model import FakeApi, FakeKubelets, FakeOperator, ForgetfulController


class DefaultingApi(FakeApi):
    """An API server where a LimitRange gives each new pod a request of 2 CPUs."""

    def stamp(self, raw: Raw) -> Raw:
        if raw.get("kind") == "Pod":
            for container in raw["spec"]["containers"]:
                container["resources"] = {"requests": {"cpu": "2"}}
        return super().stamp(raw)


class ChangingApi(FakeApi):
    """An API server where a webhook adds `changed` to the spec of each new pod."""

    def __init__(self, job: Raw, nodes: list[Node], *, changed: Raw) -> None:
        super().__init__(job, nodes)
        self._changed = changed

    def stamp(self, raw: Raw) -> Raw:
        if raw.get("kind") == "Pod" and raw["metadata"]["uid"] not in self.pods:
            raw["spec"] |= deepcopy(self._changed)
        return super().stamp(raw)


def run(
    api: FakeApi, *, seconds: float, until: type[Step] | None = None
) -> list[tuple[float, Step]]:
    """Return the steps of a controller that dies after every write, with their times.

    Operator and kubelets act too. `until`: the type of step that ends the run.
    """
    operator, kubelets, controller = FakeOperator(api), FakeKubelets(api), ForgetfulController(api)
    steps: list[tuple[float, Step]] = []
    began = api.now
    while api.now < began + seconds:
        for write in controller.writes():
            write()
        step = controller.last_step
        assert step is not None
        steps.append((api.now - began, step))
        if until is not None and isinstance(step, until):
            break
        operator.step()
        kubelets.bind()
        kubelets.end()
        api.now += 0.5
    return steps


def api_of(requests: Mapping[str, str], *, cpu: str, foreign: str = "") -> DefaultingApi:
    """Return an API server with a job of three workers, and a node with perhaps a foreign pod.

    `cpu`: the CPUs of the node. `foreign`: the CPUs of the foreign pod; empty means no pod.
    """
    api = DefaultingApi(job().worker(3, **requests).held().raw, [node("a", cpu=cpu)])
    if foreign:
        assert FakeKubelets(api).bind_foreign(api.nodes[0], foreign)
    return api


@pytest.mark.parametrize("requests", [{}, {"cpu": "1"}], ids=["no request", "a lower request"])
def test_a_job_that_admission_makes_too_big_is_released(requests: Mapping[str, str]) -> None:
    steps = [step for _, step in run(api_of(requests, cpu="4"), seconds=1800.0, until=Release)]
    assert [type(step) for step in steps if not isinstance(step, Wait)] == [
        *(Unsuspend, Suspend, Release)
    ]
    assert steps[-1].verdict.reason == REASON_TOO_BIG  # type: ignore[union-attr]


def test_a_job_waits_after_one_start_and_is_placed_once_there_is_capacity() -> None:
    api = api_of({"cpu": "1"}, cpu="8", foreign="4")
    steps = [step for _, step in run(api, seconds=600.0)]
    assert sum(isinstance(step, Unsuspend) for step in steps) == 1
    assert steps[-1].verdict.reason == REASON_NO_ROOM  # type: ignore[union-attr]
    for uid in [pod.uid for pod in api.parsed_pods() if not pod.owner_uid]:
        del api.pods[uid]
    assert any(isinstance(step, Unsuspend) for _, step in run(api, seconds=20.0))
    assert [pod.node_name for pod in api.parsed_pods()] == ["a"] * 3


PORTS = [{"containerPort": 9100, "hostPort": 9100}]
SIDECAR = {"initContainers": [{"name": "proxy", "restartPolicy": "Always", "ports": PORTS}]}


def test_a_gang_with_too_few_nodes_for_its_host_ports_is_released_after_one_start() -> None:
    nodes = [node(name, cpu="8") for name in "ab"]
    api = ChangingApi(job().worker(3, cpu="1").held().raw, nodes, changed=SIDECAR)
    steps = [step for _, step in run(api, seconds=1800.0, until=Release)]
    assert [type(step) for step in steps if not isinstance(step, Wait)] == [
        *(Unsuspend, Suspend, Release)
    ]
    assert steps[-1].verdict.reason == REASON_TOO_BIG  # type: ignore[union-attr]


ELSEWHERE = {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["nowhere"]}]}
AFFINITY = {"nodeAffinity": {
    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [ELSEWHERE]},
}}  # fmt: skip


def test_a_job_is_released_after_three_starts_if_admission_keeps_it_off_its_nodes() -> None:
    raw = job().worker(3, cpu="1").held().raw
    api = ChangingApi(raw, [node("a", cpu="8")], changed={"affinity": AFFINITY})
    steps = [step for _, step in run(api, seconds=1800.0, until=Release)]
    assert [type(step) for step in steps if not isinstance(step, Wait)] == [
        *(Unsuspend, Suspend, Unsuspend, Suspend, Unsuspend, Release)
    ]
    assert "another node affinity" in steps[-1].verdict.message  # type: ignore[union-attr]
