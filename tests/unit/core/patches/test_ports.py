from copy import deepcopy
from typing import Any

import jsonpatch
import pytest

from kfext.core.patches.job import unsuspend_patch
from kfext.model.job import parse_job
from kfext.model.plan import Plan
from kfext.model.pod import ReplicaKey
from tests.builders import JobBuilder, Raw, job

OTHER = {"name": "metrics", "containerPort": 9090}
PORT = {"name": "pytorchjob-port", "containerPort": 23456}


def training(*ports: Raw, container: str = "pytorch") -> Raw:
    main: Raw = {"name": container}
    if ports:
        main["ports"] = [dict(port) for port in ports]
    return {"containers": [{"name": "logger"}, main]}


def started(made: JobBuilder, *, port: int = 20000) -> Raw:
    raw = made.held().raw
    parsed = parse_job(raw)
    assert parsed is not None
    plan = Plan(parsed.uid, 1, {ReplicaKey("worker", 0): "a"}, port=port)
    patch = unsuspend_patch(raw, parsed, plan)
    after: Raw = jsonpatch.apply_patch(deepcopy(raw), patch)
    return after


def template(raw: Raw, type_: str = "Worker") -> Any:
    specs = raw["spec"].get("pytorchReplicaSpecs") or raw["spec"]["tfReplicaSpecs"]
    return specs[type_]["template"]


def port_of(raw: Raw, type_: str = "Worker") -> Any:
    return template(raw, type_)["spec"]["containers"][1].get("ports")


DECLARED = {
    "no port at all": ((), [("pytorchjob-port", 20000)]),
    "another port": ((OTHER,), [("metrics", 9090), ("pytorchjob-port", 20000)]),
    "the operator's port": ((PORT,), [("pytorchjob-port", 20000)]),
    "both": ((OTHER, PORT), [("metrics", 9090), ("pytorchjob-port", 20000)]),
}


@pytest.mark.parametrize(("ports", "want"), DECLARED.values(), ids=DECLARED)
def test_the_operator_is_told_the_port_by_its_own_name(
    ports: tuple[Raw, ...], want: list[tuple[str, int]]
) -> None:
    after = started(job().master(spec=training(*ports)).worker(1, spec=training(*ports)))
    for type_ in ("Master", "Worker"):
        found = port_of(after, type_)
        assert [(one["name"], one["containerPort"]) for one in found] == want
    assert "ports" not in template(after)["spec"]["containers"][0]


def test_on_the_pod_network_no_port_is_written() -> None:
    assert port_of(started(job().worker(2, spec=training()), port=0)) is None


def test_elastic_workers_meet_on_the_port_of_the_job() -> None:
    made = job().worker(2, spec=training()).elastic(rdzvBackend="c10d", rdzvPort=29400)
    after = started(made)
    assert port_of(after, "Worker")[0]["containerPort"] == 20000
    assert after["spec"]["elasticPolicy"]["rdzvPort"] == 20000


def test_a_rendezvous_outside_the_job_is_left_alone() -> None:
    policy = {"rdzvBackend": "etcd", "rdzvHost": "etcd.example", "rdzvPort": 2379}
    made = job().worker(2, spec=training()).elastic(**policy)
    assert started(made)["spec"]["elasticPolicy"] == policy


def test_the_ports_of_a_tfjob_are_left_to_its_pods() -> None:
    made = job("TFJob").ps(1, spec=training(container="tensorflow")).worker(1)
    assert port_of(started(made), "PS") is None


def test_the_patch_fails_if_the_containers_have_changed_places() -> None:
    raw = job().worker(1, spec=training(PORT)).held().raw
    parsed = parse_job(raw)
    assert parsed is not None
    patch = unsuspend_patch(raw, parsed, Plan(parsed.uid, 1, port=20000))
    template(raw)["spec"]["containers"].reverse()
    with pytest.raises(jsonpatch.JsonPatchTestFailed):
        jsonpatch.apply_patch(raw, patch)
