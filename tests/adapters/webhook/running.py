"""`kfext webhook` as a process that reviews objects for a true API server."""

import asyncio
import http.client
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.testbed.cluster import Testbed
from kfext import names
from kfext.kube.certs import Issuer
from kfext.kube.client import Client
from tests.unit.objects import job, replica

ROOT = Path(__file__).resolve().parents[3]
JOBS = "/apis/kubeflow.org/v1/namespaces/{}/pytorchjobs"
AUTHORITY = f"/api/v1/namespaces/{names.NAMESPACE}/secrets/{names.CA_SECRET}"
CONFIGURATION = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/kfext"


def until(condition: Callable[[], object], *, what: str) -> None:
    """Wait until a condition holds; the limit only ends a test that would hang."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(0.05)


@dataclass
class Webhook:
    """A running `kfext webhook`."""

    process: subprocess.Popen[bytes]
    port: int
    probe_port: int
    output: Path
    unready: str = ""
    """What /readyz returned while only the CA was missing."""

    def probe(self, path: str) -> tuple[int, str]:
        try:
            url = f"http://127.0.0.1:{self.probe_port}{path}"
            with urllib.request.urlopen(url, timeout=5) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def renew_lease(testbed: Testbed) -> None:
    now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    spec = {"holderIdentity": "test", "leaseDurationSeconds": 15, "renewTime": now}
    testbed.api.apply(
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"namespace": names.NAMESPACE, "name": names.LEASE},
            "spec": spec,
        }
    )


def configuration(port: int) -> dict[str, Any]:
    """Return the manifest of the webhooks, with URLs in place of the Service."""
    path = ROOT / "manifests/base/webhook/configuration.yaml"
    raw: dict[str, Any] = yaml.safe_load(path.read_text())
    for webhook in raw["webhooks"]:
        route = webhook["clientConfig"].pop("service")["path"]
        webhook["clientConfig"]["url"] = f"https://127.0.0.1:{port}{route}"
    return raw


async def issue_ca(testbed: Testbed) -> None:
    """Issue the CA and make the API server trust it, as the controller does."""
    async with await Client.connect(testbed.kubeconfig) as client:
        issuer = Issuer(client)
        while await issuer.check():
            pass


@pytest.fixture(scope="module")
def webhook(testbed: Testbed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Webhook]:
    for file in sorted((ROOT / "crds").glob("kfext.dev_*.yaml")):
        testbed.api.apply(yaml.safe_load(file.read_text()))
    home = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": names.NAMESPACE}}
    testbed.api.apply(home)
    renew_lease(testbed)
    output = tmp_path_factory.mktemp("webhook") / "log"
    port, probe_port = free_port(), free_port()
    with output.open("wb") as log:
        process = subprocess.Popen(
            [
                *(sys.executable, "-c", "from kfext.cli.main import main; main()", "webhook"),
                *("--kubeconfig", str(testbed.kubeconfig), "--port", str(port)),
                *("--probe-port", str(probe_port), "--tls-ip", "127.0.0.1"),
                *("--drain-seconds", "1"),
            ],
            stderr=log,
        )
    result = Webhook(process, port, probe_port, output)
    try:
        unready = "no certificate yet"
        until(lambda: unready in result.probe("/readyz")[1] or process.poll(), what=unready)
        result.unready = result.probe("/readyz")[1]
        testbed.api.apply(configuration(port))
        asyncio.run(issue_ca(testbed))
        until(lambda: result.probe("/readyz")[0] == 200 or process.poll(), what="ready")
        assert process.poll() is None, output.read_text()
        yield result
    finally:
        process.kill()
        process.wait()
        testbed.api.delete(CONFIGURATION)
        testbed.api.delete(AUTHORITY)


@pytest.fixture(scope="module")
def namespaces(testbed: Testbed, webhook: Webhook) -> dict[str, str]:
    labels = {"managed": {names.MANAGED: "true"}, "plain": {}}
    for name, values in labels.items():
        metadata = {"name": f"webhook-{name}", "labels": values}
        testbed.api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    return {name: f"webhook-{name}" for name in labels}


def create(testbed: Testbed, namespace: str, name: str, **fields: Any) -> dict[str, Any]:
    specs = {"Master": replica(1), "Worker": replica(2)}
    raw = job(specs=specs, **{**fields, "name": name, "namespace": namespace})
    answer: dict[str, Any] = testbed.api.create(JOBS.format(namespace), raw)
    return answer


def create_pod(testbed: Testbed, namespace: str, name: str, *, annotations: dict[str, str]) -> None:
    """Create a pod as the operator does."""
    labels = {names.OPERATOR_NAME: "pytorchjob-controller", names.JOB_NAME: name}
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": name, "uid": name}
    metadata = {
        "name": name,
        "labels": labels,
        "annotations": annotations,
        "ownerReferences": [{**owner, "controller": True}],
    }
    spec = {"containers": [{"name": "pytorch", "image": "train"}]}
    raw = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    testbed.api.create(f"/api/v1/namespaces/{namespace}/pods", raw)


def review(webhook: Webhook) -> dict[str, str]:
    """Send a malformed review without a check of the certificate; return the response headers."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connection = http.client.HTTPSConnection("127.0.0.1", webhook.port, context=context, timeout=5)
    try:
        connection.request("POST", "/mutate-job", body=b"{}")
        return {key.lower(): value for key, value in connection.getresponse().getheaders()}
    finally:
        connection.close()
