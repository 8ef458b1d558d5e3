"""The changes of a pod that lets it post its progress."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonpatch
import pytest
from hypothesis import given

from kfext import names
from kfext.core.admission.new_pod import mutate_pod
from kfext.core.admission.posting import CA_CERT, TOKEN, URL, posting
from kfext.model.bounds import MAX_VALUES
from kfext.model.kinds.job_kind import JobKind
from kfext.model.kinds.registered import KINDS
from tests.unit.objects import Raw, json_values, pod

PUSH = {names.METRICS: "push"}
LABELS = {names.REPLICA_TYPE: "worker", names.JOB_NAME: "train"}
MOUNTS = [
    {"name": "kfext-progress", "mountPath": "/var/run/secrets/kfext", "readOnly": True},
    {"name": "kfext-progress-link", "mountPath": "/var/run/kfext"},
]
MINE, AT_MINE = {"name": "mine"}, {"name": "mine", "mountPath": "/data"}


def spec(*, volumes: Any = None, **container: Any) -> Raw:
    pod_spec: Raw = {"containers": [{"name": "side"}, {"name": "pytorch", **container}]}
    return pod_spec if volumes is None else {**pod_spec, "volumes": volumes}


def with_posting(pod_spec: Raw, *, annotations: Any = PUSH, labels: Any = LABELS) -> Raw:
    metadata = {"annotations": annotations, "labels": labels}
    changed, operations = posting(
        KINDS["PyTorchJob"], metadata, pod_spec, namespace="team", authority="PEM"
    )
    raw = {"metadata": metadata, "spec": pod_spec}
    patched: Raw = jsonpatch.apply_patch(raw, operations)
    assert patched["spec"] == changed
    return patched


def test_the_training_container_has_the_variables_of_kubeflow_trainer() -> None:
    trainer = with_posting(spec(env=[{"name": "A", "value": "1"}]))["spec"]["containers"][1]
    job = "/apis/kubeflow.org/v1/namespaces/team/pytorchjobs/train/status"
    assert trainer["env"] == [
        {"name": "A", "value": "1"},
        {"name": URL, "value": f"https://kfext-progress.kfext-system.svc:443{job}"},
        {"name": CA_CERT, "value": "/var/run/secrets/kfext/ca.crt"},
        {"name": TOKEN, "value": "/var/run/kfext/token"},
    ]
    assert URL == "KUBEFLOW_TRAINER_SERVER_URL"


def test_the_pod_has_its_own_token_and_the_ca_certificate_from_the_annotation() -> None:
    patched = with_posting(spec(volumes=[MINE], volumeMounts=[AT_MINE]))
    mine, projected, link = patched["spec"]["volumes"]
    token, authority = projected["projected"]["sources"]
    assert patched["metadata"]["annotations"][names.POST_AUTHORITY] == "PEM"
    assert token["serviceAccountToken"]["audience"] == names.DOMAIN
    assert authority["downwardAPI"]["items"][0]["fieldRef"] == {
        "fieldPath": "metadata.annotations['kfext.dev/post-authority']"
    }
    assert (mine, link["emptyDir"]["medium"]) == (MINE, "Memory")
    assert patched["spec"]["containers"][1]["volumeMounts"] == [AT_MINE, *MOUNTS]
    assert patched["spec"]["containers"][0] == {"name": "side"}


NOT_OPTED_IN: dict[str, tuple[Any, Any]] = {
    "auto": ({names.METRICS: "auto"}, LABELS),
    "off": ({names.METRICS: "off"}, LABELS),
    "an expression": ({names.METRICS: r"stdout:l (?P<value>\d+)"}, LABELS),
    "a malformed setting": ({names.METRICS: "pull"}, LABELS),
    "no annotations": (None, LABELS),
    "a replica type without rank 0": (PUSH, {**LABELS, names.REPLICA_TYPE: "ps"}),
    "no labels": (PUSH, None),
}


@pytest.mark.parametrize(("annotations", "labels"), NOT_OPTED_IN.values(), ids=NOT_OPTED_IN)
def test_a_pod_that_may_not_post_is_not_changed(annotations: Any, labels: Any) -> None:
    assert with_posting(spec(), annotations=annotations, labels=labels)["spec"] == spec()


LEFT_ALONE: dict[str, Raw] = {
    "no training container": {"containers": [{"name": "main"}]},
    "containers are a string": {"containers": "x"},
    "a liveness probe, which a container has once": spec(livenessProbe={"exec": {}}),
    "it posts elsewhere": spec(env=[{"name": URL, "value": "https://mine"}]),
    "a volume with kfext's name": spec(volumes=[{"name": "kfext-progress", "emptyDir": {}}]),
    "a mount at this path": spec(volumeMounts=[{"name": "mine", "mountPath": "/var/run/kfext"}]),
    "a mount above it": spec(volumeMounts=[{"name": "mine", "mountPath": "/var/run"}]),
    "mounts are a string": spec(volumeMounts="x"),
    "variables are a string": spec(env="x"),
    "volumes are a string": spec(volumes="x"),
    "as many values as a pod may have": spec(volumes=[MINE] * (MAX_VALUES - 1)),
}


@pytest.mark.parametrize("pod_spec", LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_a_pod_that_conflicts_with_the_changes_is_not_changed(pod_spec: Raw) -> None:
    assert with_posting(pod_spec)["spec"] == pod_spec


@given(volumes=json_values, mounts=json_values, env=json_values)
def test_any_pod_gets_a_valid_patch_and_a_second_review_none(
    volumes: Any, mounts: Any, env: Any
) -> None:
    trainer = {"name": "pytorch", "volumeMounts": mounts, "env": env}
    patched = with_posting({"volumes": volumes, "containers": [trainer]})
    assert with_posting(patched["spec"], annotations=patched["metadata"]["annotations"]) == patched


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_the_pod_webhook_adds_the_token_for_each_kind(kind: JobKind) -> None:
    type_ = kind.rank_zero[-1].lower()
    owner = {"apiVersion": kind.api_version, "kind": kind.name, "uid": "u", "controller": True}
    labels = dict(kind.pod_labels("train", type_, 0, types=[type_]))
    if kind.rendered:
        owner |= {"apiVersion": "batch/v1", "kind": "Job"}
        labels["jobset.sigs.k8s.io/jobset-uid"] = "of-jobset"
    raw = pod(
        annotations={**PUSH, names.COLOCATION: "preferred"},
        labels=labels,
        ownerReferences=[owner],
        spec={"containers": [{"name": kind.container}]},
    )
    review = mutate_pod(raw, controller_alive=True, namespace="team", authority="PEM")
    patched = jsonpatch.apply_patch(raw, list(review.ops))
    env = {
        variable["name"]: variable.get("value", "")
        for variable in patched["spec"]["containers"][0]["env"]
    }
    path = f"/apis/{kind.api_version}/namespaces/team/{kind.plural}/train/status"
    assert env[URL].endswith(path)
    again = mutate_pod(patched, controller_alive=True, namespace="team", authority="PEM")
    assert again.ops == ()


def test_without_a_ca_certificate_no_pod_posts() -> None:
    review = mutate_pod(pod(annotations=PUSH, labels=LABELS), controller_alive=True)
    assert not any("volumes" in operation["path"] for operation in review.ops)


def run_probe(folder: Path, port: int, *, host: str = "127.0.0.1") -> bool:
    """Run the probe's command as kubelet does; return whether there is a link to the token."""
    probe = with_posting(spec())["spec"]["containers"][1]["livenessProbe"]
    _, isolated, flag, script, *_ = probe["exec"]["command"]
    link = folder / "link"
    command = [sys.executable, isolated, flag, script, link, folder / "token", host, str(port)]
    subprocess.run(command, check=True, timeout=30)
    return link.is_symlink()


async def test_the_probe_links_the_token_while_the_endpoint_is_reached(tmp_path: Path) -> None:
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    assert await asyncio.to_thread(run_probe, tmp_path, port)
    assert await asyncio.to_thread(run_probe, tmp_path, port)
    server.close()
    await server.wait_closed()
    assert not await asyncio.to_thread(run_probe, tmp_path, port)


def test_the_probe_never_restarts_the_container() -> None:
    probe = with_posting(spec())["spec"]["containers"][1]["livenessProbe"]
    assert probe["failureThreshold"] == 2**31 - 1
