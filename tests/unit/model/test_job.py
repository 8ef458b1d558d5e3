from typing import Any

import pytest

from kfext import names
from kfext.model.job import parse_job
from tests.unit.objects import job, replica

TYPES = {
    "PyTorch keys in lower case": ("PyTorchJob", ["master", "worker"], ["Master", "Worker"]),
    "TensorFlow keys in upper case": ("TFJob", ["WORKER", "PS"], ["PS", "Worker"]),
    "rank order, not the order of the manifest": (
        "TFJob",
        ["Evaluator", "Worker", "PS", "Chief"],
        ["Chief", "PS", "Worker", "Evaluator"],
    ),
    "a type of the other kind is not run": ("PyTorchJob", ["PS", "Worker"], ["Worker"]),
    "a type that nobody knows is not run": ("TFJob", ["Launcher"], []),
}


@pytest.mark.parametrize(("kind", "keys", "want"), TYPES.values(), ids=TYPES)
def test_replica_types(kind: str, keys: list[str], want: list[str]) -> None:
    found = parse_job(job(kind, specs={key: replica(1) for key in keys}))
    assert found is not None
    assert [group.type for group in found.groups] == want
    assert sorted(group.key for group in found.groups) == sorted(
        key for key in keys if key.lower() in map(str.lower, want)
    )


REPLICAS = {
    "unset is one, as the operator has it": (None, 1),
    "zero": (0, 0),
    "five hundred": (500, 500),
    "a text": ("3", 1),
    "negative": (-2, 1),
    "a truth value": (True, 1),
    "a fraction": (1.5, 1),
}


@pytest.mark.parametrize(("written", "want"), REPLICAS.values(), ids=REPLICAS)
def test_number_of_replicas(written: Any, want: int) -> None:
    found = parse_job(job(specs={"Worker": replica(written)}))
    assert found is not None
    assert found.pods == want == len(list(found.replicas()))


def test_replicas_come_in_rank_order() -> None:
    found = parse_job(job())
    assert found is not None
    keys = [(key.type, key.index) for key, _ in found.replicas()]
    assert keys == [("master", 0), ("worker", 0), ("worker", 1)]


def test_requests_are_those_of_all_pods() -> None:
    requests = {"requests": {"cpu": "500m", "nvidia.com/gpu": 1}}
    containers = [{"name": "pytorch", "resources": requests}]
    found = parse_job(job(specs={"Worker": replica(3, containers=containers)}))
    assert found is not None
    assert found.requests == {"cpu": 1500, "nvidia.com/gpu": 3, "pods": 3}


OWNERS = {
    "nobody else": ({}, {}, True, False),
    "the operator by name": ({}, {"managedBy": names.TRAINING_OPERATOR}, True, False),
    "MultiKueue": ({}, {"managedBy": "kueue.x-k8s.io/multikueue"}, False, False),
    "Kueue": ({"labels": {names.KUEUE_QUEUE: "q"}}, {}, True, True),
}


@pytest.mark.parametrize(("metadata", "policy", "operator", "kueue"), OWNERS.values(), ids=OWNERS)
def test_who_runs_the_job(
    metadata: dict[str, Any], policy: dict[str, Any], *, operator: bool, kueue: bool
) -> None:
    found = parse_job(job(run_policy=policy, **metadata))
    assert found is not None
    assert (found.run_by_operator, found.kueue_managed) == (operator, kueue)


def test_another_kind_is_no_training_job() -> None:
    assert parse_job({"kind": "MPIJob"}) is None
