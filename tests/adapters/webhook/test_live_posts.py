"""A program posts with the token of its pod to `kfext webhook`, which uses a true API server."""

import base64
import json
import signal
import ssl
import urllib.error
import urllib.request
from functools import partial
from typing import Any

import pytest

from e2e.testbed.cluster import Testbed
from kfext import names
from kfext.controller.training_plan import decode_training_plan
from kfext.core.admission.posting import AUDIENCE, post_path
from kfext.core.progress.posted import Post
from kfext.model.kinds.registered import KINDS
from tests.adapters.webhook.running import AUTHORITY, Webhook, create, until

PYTORCH = KINDS["PyTorchJob"]
BODY = {
    "trainerStatus": {
        "progressPercentage": 10,
        "lastUpdatedTime": "2026-01-01T00:00:00+00:00",
        "metrics": [
            {"name": "loss", "value": "2.5"},
            {"name": "current_step", "value": "10"},
            {"name": "total_steps", "value": "100"},
        ],
    }
}


@pytest.fixture(scope="module")
def namespace(testbed: Testbed, namespaces: dict[str, str]) -> str:
    """Create the TrainingPlan of the job `train` and its master's pod; return the namespace."""
    name = namespaces["managed"]
    job_reference = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "name": "train",
        "uid": "uid-1",
    }
    plan = {
        "apiVersion": "kfext.dev/v1alpha1",
        "kind": "TrainingPlan",
        "metadata": {"name": "pytorchjob-train"},
        "spec": {"job": job_reference},
    }
    testbed.api.create(f"/apis/kfext.dev/v1alpha1/namespaces/{name}/trainingplans", plan)
    settings = {names.METRICS: "push", names.COLOCATION: "off"}
    for job in ("train", "other"):
        create(testbed, name, job, annotations=settings)
        until(partial(pod_of, testbed, name, job), what="the operator creates the pods")
    return name


def pod_of(testbed: Testbed, namespace: str, job: str) -> Any:
    """Return the pod of the master of a job, or None before the operator has created it."""
    pods = testbed.api.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
    named = (pod for pod in pods if pod["metadata"]["name"] == f"{job}-master-0")
    return next(named, None)


def token_of(testbed: Testbed, namespace: str, job: str, *, audience: str = AUDIENCE) -> str:
    """Return a token as the kubelet requests it for a volume of a job's master."""
    metadata = pod_of(testbed, namespace, job)["metadata"]
    bound = {"apiVersion": "v1", "kind": "Pod"} | {key: metadata[key] for key in ("name", "uid")}
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"audiences": [audience], "expirationSeconds": 3600, "boundObjectRef": bound},
    }
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/default/token"
    result: str = testbed.api.create(path, request)["status"]["token"]
    return result


def post(testbed: Testbed, webhook: Webhook, namespace: str, token: str) -> int:
    authority = testbed.api.get(AUTHORITY)["data"]["ca.crt"]
    trust = ssl.create_default_context(cadata=base64.b64decode(authority).decode())
    request = urllib.request.Request(
        f"https://127.0.0.1:{webhook.port}{post_path(PYTORCH, namespace, 'train')}",
        data=json.dumps(BODY).encode(),
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
        method="POST",
    )
    try:
        with urllib.request.urlopen(request, timeout=5, context=trust) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def plan_of(testbed: Testbed, namespace: str) -> Any:
    path = f"/apis/kfext.dev/v1alpha1/namespaces/{namespace}/trainingplans/pytorchjob-train"
    return decode_training_plan(json.dumps(testbed.api.get(path)).encode())


def test_the_posts_of_a_pod_appear_in_the_plan_of_its_job(
    testbed: Testbed, webhook: Webhook, namespace: str
) -> None:
    token = token_of(testbed, namespace, "train")
    assert post(testbed, webhook, namespace, token) == 200
    until(lambda: plan_of(testbed, namespace).posted, what="the posts are written")
    posted = plan_of(testbed, namespace).posted
    (result,) = posted.posts
    assert posted.pod == pod_of(testbed, namespace, "train")["metadata"]["uid"]
    assert result == Post(result.at, 10, 100, (("loss", 2.5),))


def test_foreign_tokens_are_refused(testbed: Testbed, webhook: Webhook, namespace: str) -> None:
    others = {
        "a token of another job": token_of(testbed, namespace, "other"),
        "a token for another service": token_of(testbed, namespace, "train", audience="api"),
        "no token": "x",
    }
    codes = {name: post(testbed, webhook, namespace, token) for name, token in others.items()}
    assert codes == dict.fromkeys(others, 403)


def test_a_pod_that_may_post_trusts_the_ca_of_the_webhook(
    testbed: Testbed, webhook: Webhook, namespace: str
) -> None:
    pod = pod_of(testbed, namespace, "train")
    trusted = pod["metadata"]["annotations"][names.POST_AUTHORITY]
    assert trusted.startswith("-----BEGIN CERTIFICATE-----")
    env = {
        variable["name"]: variable.get("value") for variable in pod["spec"]["containers"][0]["env"]
    }
    path = post_path(PYTORCH, namespace, "train")
    assert env["KUBEFLOW_TRAINER_SERVER_URL"].endswith(path)


def test_the_accepted_posts_are_written_when_the_process_stops(
    testbed: Testbed, webhook: Webhook, namespace: str
) -> None:
    """This must be the last test of the module: it ends the process."""
    before = plan_of(testbed, namespace).posted
    assert post(testbed, webhook, namespace, token_of(testbed, namespace, "train")) == 200
    webhook.process.send_signal(signal.SIGTERM)
    assert webhook.process.wait(timeout=30) == 0, webhook.output.read_text()
    assert plan_of(testbed, namespace).posted != before
