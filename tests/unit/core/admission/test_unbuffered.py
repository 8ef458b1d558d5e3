"""The Python of a TFJob prints its lines at once."""

from typing import Any

import jsonpatch
import pytest

from kfext import names
from kfext.core.admission.pod import mutate_pod
from kfext.core.admission.unbuffered import unbuffered
from kfext.model.kinds.registered import KINDS
from tests.unit.objects import Raw, pod

SET = {"name": "PYTHONUNBUFFERED", "value": "1"}
OTHER = {"name": "X", "value": "y"}
OWN = {"name": "PYTHONUNBUFFERED", "value": ""}
FROM = {"name": "PYTHONUNBUFFERED", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}


def spec(**container: Any) -> Raw:
    return {"containers": [{"name": "side"}, {"name": "tensorflow", **container}]}


@pytest.mark.parametrize(
    ("given", "want"),
    [
        pytest.param(spec(), [SET], id="no variables"),
        pytest.param(spec(env=None), [SET], id="null"),
        pytest.param(spec(env=[]), [SET], id="an empty list"),
        pytest.param(spec(env=[OTHER]), [OTHER, SET], id="others are kept"),
        pytest.param(spec(env=[OWN, OTHER]), [OWN, OTHER], id="the user's value is kept"),
        pytest.param(spec(env=[FROM]), [FROM], id="wherever that comes from"),
        pytest.param(spec(env="x"), "x", id="what the API server will refuse"),
    ],
)
def test_it_is_set_where_it_is_unset(given: Raw, want: Any) -> None:
    changed, operations = unbuffered(KINDS["TFJob"], given)
    patched = jsonpatch.apply_patch({"spec": given}, operations)["spec"]
    assert patched == changed
    assert patched["containers"][1].get("env") == want
    assert patched["containers"][0] == {"name": "side"}


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({}, id="no containers"),
        pytest.param({"containers": "x"}, id="containers are a text"),
        pytest.param({"containers": [None, {"name": "main"}]}, id="no training container"),
    ],
)
def test_nothing_else_is_changed(given: Raw) -> None:
    assert unbuffered(KINDS["TFJob"], given) == (given, [])


def test_the_operator_sets_it_for_a_pytorchjob() -> None:
    given = {"containers": [{"name": "pytorch"}]}
    assert unbuffered(KINDS["PyTorchJob"], given) == (given, [])


@pytest.mark.parametrize("alive", [True, False])
@pytest.mark.parametrize("base", ["", "20000"])
def test_it_stands_beside_what_the_network_of_the_node_needs(alive: bool, base: str) -> None:
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "uid": "u", "controller": True}
    config = '{"cluster": {"worker": ["train-worker-0.team.svc:2222"]}, "task": {"type": "worker"}}'
    raw = pod(
        ownerReferences=[owner],
        annotations={names.PORT_BASE: base} if base else {},
        labels={names.REPLICA_TYPE: "worker", names.REPLICA_INDEX: "0", names.JOB_NAME: "train"},
        spec=spec(env=[{"name": "TF_CONFIG", "value": config}]),
    )
    operations = list(mutate_pod(raw, controller_alive=alive).ops)
    patched = jsonpatch.apply_patch(raw, operations)["spec"]
    env = {one["name"]: one.get("value") for one in patched["containers"][1]["env"]}
    assert env["PYTHONUNBUFFERED"] == "1"
    assert (":2000" in env["TF_CONFIG"]) == bool(base)
    assert patched.get("hostNetwork", False) is bool(base)
