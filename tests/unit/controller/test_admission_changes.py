"""Pods larger than their template: after one failed start the job waits like any other."""

from collections.abc import Mapping
from copy import deepcopy

import pytest

from kfext.core.lifecycle.steps import Release, Step, Suspend, Unsuspend, Wait
from kfext.model.node import Node
from kfext.names import REASON_NO_ROOM, REASON_TOO_BIG
from tests.builders import Raw, job, node
from tests.unit.controller.model import FakeApi, FakeKubelets, FakeOperator, ForgetfulController


class DefaultingApi(FakeApi):
    """Gives each new pod the requests of a LimitRange."""

    def stamp(self, raw: Raw) -> Raw:
        if raw.get("kind") == "Pod":
            for container in raw["spec"]["containers"]:
                container["resources"] = {"requests": {"cpu": "2"}}
        return super().stamp(raw)


class ChangingApi(FakeApi):
    """Changes what each new pod requires of its node."""

    def __init__(self, job: Raw, nodes: list[Node], *, changed: Raw) -> None:
        super().__init__(job, nodes)
        self._changed = changed

    def stamp(self, raw: Raw) -> Raw:
        if raw.get("kind") == "Pod" and raw["metadata"]["uid"] not in self.pods:
            raw["spec"] |= deepcopy(self._changed)
        return super().stamp(raw)


def lived(
    api: FakeApi, *, seconds: float, until: type[Step] | None = None
) -> list[tuple[float, Step]]:
    """Return the steps of a controller that dies after every write, while the others act."""
    operator, kubelets, controller = FakeOperator(api), FakeKubelets(api), ForgetfulController(api)
    steps: list[tuple[float, Step]] = []
    born = api.now
    while api.now < born + seconds:
        for write in controller.writes():
            write()
        step = controller.last_step
        assert step is not None
        steps.append((api.now - born, step))
        if until is not None and isinstance(step, until):
            break
        operator.step()
        kubelets.bind()
        kubelets.end()
        api.now += 0.5
    return steps


def api_of(amounts: Mapping[str, str], *, cpu: str, thief: str = "") -> DefaultingApi:
    api = DefaultingApi(job().worker(3, **amounts).held().raw, [node("a", cpu=cpu)])
    if thief:
        assert FakeKubelets(api).bind_foreign(api.nodes[0], thief)
    return api


@pytest.mark.parametrize("amounts", [{}, {"cpu": "1"}], ids=["states nothing", "states less"])
def test_a_job_that_admission_makes_too_big_starts_once_and_is_then_released(
    amounts: Mapping[str, str],
) -> None:
    steps = [step for _, step in lived(api_of(amounts, cpu="4"), seconds=1800.0, until=Release)]
    assert [type(step) for step in steps if not isinstance(step, Wait)] == [
        *(Unsuspend, Suspend, Release)
    ]
    assert steps[-1].verdict.reason == REASON_TOO_BIG  # type: ignore[union-attr]


def test_a_job_without_capacity_waits_and_is_placed_when_there_is_some() -> None:
    api = api_of({"cpu": "1"}, cpu="8", thief="4")
    steps = [step for _, step in lived(api, seconds=600.0)]
    assert sum(isinstance(step, Unsuspend) for step in steps) == 1
    assert steps[-1].verdict.reason == REASON_NO_ROOM  # type: ignore[union-attr]
    for uid in [pod.uid for pod in api.parsed_pods() if not pod.owner_uid]:
        del api.pods[uid]
    assert any(isinstance(step, Unsuspend) for _, step in lived(api, seconds=20.0))
    assert [pod.node_name for pod in api.parsed_pods()] == ["a"] * 3


PORTS = [{"containerPort": 9100, "hostPort": 9100}]
SIDECAR = {"initContainers": [{"name": "proxy", "restartPolicy": "Always", "ports": PORTS}]}


def test_a_gang_with_host_ports_from_admission_and_too_few_nodes_starts_once() -> None:
    nodes = [node(name, cpu="8") for name in "ab"]
    api = ChangingApi(job().worker(3, cpu="1").held().raw, nodes, changed=SIDECAR)
    steps = [step for _, step in lived(api, seconds=1800.0, until=Release)]
    assert [type(step) for step in steps if not isinstance(step, Wait)] == [
        *(Unsuspend, Suspend, Release)
    ]
    assert steps[-1].verdict.reason == REASON_TOO_BIG  # type: ignore[union-attr]


ELSEWHERE = {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["nowhere"]}]}
AFFINITY = {"nodeAffinity": {
    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [ELSEWHERE]},
}}  # fmt: skip


def test_a_job_is_released_after_three_starts_if_admission_keeps_it_off_its_nodes() -> None:
    made = job().worker(3, cpu="1").held().raw
    api = ChangingApi(made, [node("a", cpu="8")], changed={"affinity": AFFINITY})
    steps = [step for _, step in lived(api, seconds=1800.0, until=Release)]
    assert [type(step) for step in steps if not isinstance(step, Wait)] == [
        *(Unsuspend, Suspend, Unsuspend, Suspend, Unsuspend, Release)
    ]
    assert "another node affinity" in steps[-1].verdict.message  # type: ignore[union-attr]
