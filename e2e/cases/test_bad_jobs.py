"""Odd and broken jobs either run, or get a clear answer at once.

Jobs of any size are accepted; the largest must not delay other jobs.
"""

import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from e2e.harness.jobs import held, job, specs, suspended, template, workers
from e2e.harness.kfext_process import Kfext
from e2e.harness.space import Space
from kfext import names
from kfext.kube.client import API_SERVER_DEPTH, accept_deep_json

_LEVELS = API_SERVER_DEPTH - 20
"""The levels of managedFields; the objects around them have the other levels."""
GPU = {"nvidia.com/gpu": "1", "cpu": "1"}
FOREIGN_PLAN = {
    "uid": "11111111-2222-3333-4444-555555555555",
    "generation": 7,
    "nodes": ["fake-019"],
    "replicas": {"master": [0], "worker": [0, 0]},
}
MARKS = {
    "a plan": {"kfext.dev/plan": json.dumps(FOREIGN_PLAN)},
    "a state": {"kfext.dev/state": '{"strikes":3,"retryAt":9e10,"excluded":{"fake-001":9e9}}'},
    "the held mark": {"kfext.dev/held": "true"},
    "garbage for a plan": {"kfext.dev/plan": "{[" * 500, "kfext.dev/state": "\u0000-ish"},
    "all of them": {
        "kfext.dev/held": "true",
        "kfext.dev/plan": json.dumps(FOREIGN_PLAN),
        "kfext.dev/state": '{"strikes":2}',
    },
}
HUGE = 2**31 - 1
CPU = {"cpu": "1"}
REQUIRED = {names.COLOCATION: "required"}


@pytest.mark.parametrize("kind", ["PyTorchJob", "TFJob"])
def test_a_job_without_replicas_is_ignored_with_a_warning(space: Space, kind: str) -> None:
    answer = space.try_submit(job("none", {}, kind=kind))
    assert answer.ok
    assert not suspended(answer.body)
    assert not held(answer.body)
    assert any("it has no replicas" in text for text in answer.warnings)


@pytest.mark.parametrize(("kind", "idle"), [("PyTorchJob", "Worker"), ("TFJob", "PS")])
def test_a_type_with_zero_replicas_does_not_harm_the_controller(
    space: Space, kfext: Kfext, kind: str, idle: str
) -> None:
    """The operator creates a pod for such a type of a TFJob, deletes it, and fails the job."""
    other = {"PyTorchJob": "Master", "TFJob": "Worker"}[kind]
    pid = kfext.controller_pid
    space.submit(job("some", {other: 1, idle: 0}, kind=kind, each=GPU))
    space.until(lambda: space.pods("some"), "the operator has created pods")
    space.submit(workers("after", 2, each=GPU))
    space.phase("after", "Placed")
    assert kfext.controller_pid == pid


def test_a_job_without_any_requests_is_placed_on_one_node(space: Space) -> None:
    space.submit(workers("free", 4))
    assert len(set(space.bound("free", 4).values())) == 1


@pytest.mark.parametrize(
    ("cpu", "pods_per_node"),
    [
        pytest.param("0.5", 4, id="a decimal"),
        pytest.param("500m", 4, id="milli"),
        pytest.param("5e2m", 0, id="an exponent and a suffix"),
        pytest.param("1e3m", 0, id="1e3m"),
        pytest.param("5e-1", 4, id="an exponent"),
        pytest.param("+0.5", 4, id="a sign"),
        pytest.param(".5", 4, id="no leading zero"),
        pytest.param("500000u", 4, id="micro"),
        pytest.param(1, 2, id="a number, not a string"),
        pytest.param("half", 0, id="a word"),
        pytest.param("-1", 0, id="negative"),
        pytest.param("1 ", 0, id="a space"),
        pytest.param(True, 0, id="a boolean"),
        pytest.param([], 0, id="a list"),
    ],
)
def test_a_quantity_is_parsed_as_in_kubernetes_or_refused_by_kubernetes(
    space: Space, cpu: Any, pods_per_node: int
) -> None:
    """`pods_per_node`: how many such pods fit; 0 means that Kubernetes refuses the quantity."""
    space.nodes(1, cpu="2", memory="64Gi")
    count = max(pods_per_node, 1)
    manifest = workers("odd", count, each={"cpu": cpu})
    answer = space.try_submit(manifest)
    if not pods_per_node:
        # Either the CRD refuses, or kube-apiserver refuses each pod and the operator reports it.
        if answer.ok:
            space.until(lambda: _warnings(space, "odd"), "the operator reports a warning")
        else:
            assert answer.status in {400, 422}
            assert "cpu" in answer.message
            assert space.kube.find(space.path("pytorchjobs", "odd")) is None
        assert space.pods() == []
        return
    assert answer.ok, answer.message
    space.bound("odd", count)
    space.submit(workers("more", 1, each={"cpu": "1m"}))
    assert space.phase("more", "Queued")["reason"] == "NoRoom"


def _warnings(space: Space, name: str) -> list[Any]:
    return [e for e in space.events(name) if e["type"] == "Warning"]


@pytest.fixture
def deep_json() -> Iterator[None]:
    """The test process can parse such deep objects too."""
    before = sys.getrecursionlimit()
    accept_deep_json()
    yield
    sys.setrecursionlimit(before)


@pytest.mark.usefixtures("deep_json")
@pytest.mark.parametrize("kind", ["PyTorchJob", "TFJob"])
def test_objects_as_deep_as_the_api_server_accepts_disturb_neither_kfext_nor_other_jobs(
    space: Space, kfext: Kfext, kind: str
) -> None:
    pid = kfext.controller_pid
    manifest = job("deep", {"Worker": 2}, kind=kind, each=GPU)
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "bystander"},
        "spec": {"containers": [{"name": "main", "image": "none"}], "nodeName": "nowhere"},
    }
    for path, body in ((f"{kind.lower()}s", manifest), ("pods", pod)):
        answer = space.kube.ask("POST", space.path(path), _deepened(body))
        assert answer.ok, answer.message
        assert len(json.dumps(answer.body["metadata"]["managedFields"])) > _LEVELS
    space.bound("deep", 2)
    space.submit(workers("after", 2, each=GPU))
    space.phase("after", "Placed")
    assert kfext.controller_pid == pid


def _deepened(manifest: dict[str, Any]) -> bytes:
    """Return an object as JSON with managedFields of many levels, which any user may write."""
    entry = {"manager": "me", "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": "LEVELS"}
    entry |= {"apiVersion": manifest["apiVersion"], "time": "2026-01-01T00:00:00Z"}
    manifest["metadata"]["managedFields"] = [entry]
    fields = '{"f:a":' * _LEVELS + "{}" + "}" * _LEVELS
    return json.dumps(manifest).replace('"LEVELS"', fields).encode()


def test_a_job_with_a_template_of_half_a_megabyte_is_placed(space: Space) -> None:
    manifest = workers("long", 2, each=GPU)
    for type_ in ("Master", "Worker"):
        container = template(manifest, type_)["spec"]["containers"][0]
        container["env"] = [{"name": "LONG", "value": "x" * 300_000}]
    assert len(json.dumps(manifest)) > 500_000
    space.submit(manifest)
    assert len(set(space.bound("long", 2).values())) == 1


def test_a_job_too_large_for_etcd_is_refused(space: Space) -> None:
    manifest = workers("endless", 1, each=GPU)
    container = template(manifest, "Master")["spec"]["containers"][0]
    container["env"] = [{"name": "LONG", "value": "x" * 2_000_000}]
    answer = space.try_submit(manifest)
    assert answer.status in {413, 422, 500}
    assert "large" in answer.message or "larger" in answer.message
    assert space.kube.find(space.path("pytorchjobs", "endless")) is None


def test_all_five_hundred_pods_of_a_job_are_planned_on_the_fewest_nodes(space: Space) -> None:
    space.nodes(5, cpu="32", memory="64Gi", pods="100")
    space.submit(workers("crowd", 500, each={"cpu": "100m"}))
    plan = space.until(lambda: space.plan("crowd"), "the job has a plan")
    assert len(plan["nodes"]) == 5
    assert {kind: len(places) for kind, places in plan["replicas"].items()} == {
        "master": 1,
        "worker": 499,
    }
    assert not suspended(space.job("crowd"))


@pytest.mark.parametrize("marks", MARKS.values(), ids=MARKS.keys())
@pytest.mark.parametrize("suspend", [True, False], ids=["suspended", "running"])
def test_a_manifest_with_copied_marks_starts_as_a_new_job(
    space: Space, marks: dict[str, str], suspend: bool
) -> None:
    by_user = suspend and "kfext.dev/held" not in marks
    manifest = workers("copy", 3, each=GPU, annotations=marks, policy={"suspend": suspend})
    stored = space.submit(manifest)
    assert "kfext.dev/plan" not in stored["metadata"].get("annotations", {})
    assert "kfext.dev/state" not in stored["metadata"].get("annotations", {})
    assert held(stored) is not by_user
    if by_user:  # without the held mark, kfext must respect the suspension
        space.phase("copy", "Suspended")
        space.patch_job("copy", {"spec": {"runPolicy": {"suspend": False}}})
    assert len(set(space.bound("copy", 3).values())) == 1
    space.phase("copy", "Placed")
    plan = space.plan("copy")
    assert plan is not None
    assert plan["uid"] == stored["metadata"]["uid"]
    assert plan["generation"] == 1


def test_a_plan_that_a_user_overwrites_moves_no_pod(space: Space) -> None:
    space.submit(workers("edited", 3, each=GPU))
    before = space.bound("edited", 3)
    space.phase("edited", "Placed")
    space.patch_job("edited", {"metadata": {"annotations": {"kfext.dev/plan": "{"}}})
    space.submit(workers("after", 3, each=GPU))
    space.phase("after", "Placed")
    assert space.bound("edited", 3) == before


def test_a_deleted_trainingplan_is_recreated(space: Space) -> None:
    space.submit(workers("seen", 2, each=GPU))
    before = space.phase("seen", "Placed")
    space.kube.delete(space.path("trainingplans", "pytorchjob-seen"))
    after = space.phase("seen", "Placed")
    assert after["nodes"] == before["nodes"]
    assert specs(space.job("seen"))["Worker"]["replicas"] == 1


def test_a_job_with_as_many_replicas_as_the_api_accepts_is_not_held(space: Space) -> None:
    # A dry run: the operator would try to create them.
    answer = space.try_submit(workers("huge", HUGE, each=CPU), query="?dryRun=All")
    assert answer.ok, answer.message
    (warning,) = answer.warnings
    assert f"{HUGE} pods, more than the 10000 that kfext handles" in warning
    assert answer.body["spec"]["runPolicy"]["suspend"] is False
    assert names.HELD not in answer.body["metadata"].get("annotations", {})


def test_a_required_job_with_too_many_pods_waits_and_others_are_placed(space: Space) -> None:
    space.nodes(1, cpu="8", memory="64Gi")
    space.submit(workers("huge", HUGE, each=CPU, annotations=REQUIRED))
    space.phase("huge", "Queued")
    view = space.view("huge")
    assert view["reason"] == names.REASON_HANDS_OFF
    assert f"{HUGE} pods, more than the 10000" in view["message"]
    space.submit(workers("small", 2, each=CPU))
    space.phase("small", "Placed")
    assert space.view("huge")["phase"] == "Queued"


def test_a_job_of_a_thousand_pods_that_do_not_fit_is_queued_and_others_are_placed(
    space: Space,
) -> None:
    space.nodes(2, cpu="8", memory="64Gi")
    space.submit(workers("thousand", 1000, each=CPU))
    space.phase("thousand", "Queued")
    assert space.view("thousand")["reason"] == names.REASON_TOO_BIG
    space.submit(workers("small", 2, each=CPU))
    space.phase("small", "Placed")


@pytest.mark.long
def test_a_job_of_a_thousand_pods_is_placed_whole_on_the_fewest_nodes(space: Space) -> None:
    created = space.nodes(5, cpu="256", memory="640Gi", pods="210")
    space.submit(workers("thousand", 1000, each=CPU))
    space.patiently(lambda: space.view("thousand").get("phase") == "Placed", seconds=300)
    nodes_by_pod = space.nodes_by_pod("thousand")
    assert len(nodes_by_pod) == 1000
    assert set(nodes_by_pod.values()) == set(created)
    assert set(space.pins().values()) == {1}
    assert space.starts() == 1
    space.kube.delete(space.path("pytorchjobs", "thousand"))
    first_pod = f"{space.path('pods')}?limit=1"  # deleting all of them in one request takes long
    space.patiently(lambda: not space.kube.items(first_pod), seconds=300)
