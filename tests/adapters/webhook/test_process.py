"""`kfext webhook` as a process, called by a true API server."""

import asyncio
import http.client
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.testbed.api import ApiError
from e2e.testbed.cluster import Testbed
from kfext import names
from kfext.kube.certs.issuing import Issuer
from kfext.kube.client import Client
from tests.unit.objects import job, replica

ROOT = Path(__file__).resolve().parents[3]
JOBS = "/apis/kubeflow.org/v1/namespaces/{}/pytorchjobs"
CONFIGURATION = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/kfext"


def until(condition: Callable[[], object], *, what: str) -> None:
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
    """What it said while nothing lacked but the authority."""

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
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


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
    """The manifest's webhooks, reached by URL instead of through the Service."""
    folder = ROOT / "manifests/base/webhook/configuration.yaml"
    raw: dict[str, Any] = yaml.safe_load(folder.read_text())
    for webhook in raw["webhooks"]:
        path = webhook["clientConfig"].pop("service")["path"]
        webhook["clientConfig"]["url"] = f"https://127.0.0.1:{port}{path}"
    return raw


async def issue(testbed: Testbed) -> None:
    """Have the authority issued and trusted, as the controller does."""
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
    found = Webhook(process, port, probe_port, output)
    try:
        lacks = "no certificate yet"
        until(lambda: lacks in found.probe("/readyz")[1] or process.poll(), what="it waits")
        found.unready = found.probe("/readyz")[1]
        testbed.api.apply(configuration(port))
        asyncio.run(issue(testbed))
        until(lambda: found.probe("/readyz")[0] == 200 or process.poll(), what="ready")
        assert process.poll() is None, output.read_text()
        yield found
    finally:
        process.kill()
        process.wait()
        testbed.api.delete(CONFIGURATION)


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


def test_it_is_not_ready_before_the_controller_has_issued_its_authority(webhook: Webhook) -> None:
    assert "no certificate yet: the controller issues its authority" in webhook.unready


def test_a_job_in_a_managed_namespace_is_held(
    testbed: Testbed, webhook: Webhook, namespaces: dict[str, str]
) -> None:
    renew_lease(testbed)
    made = create(testbed, namespaces["managed"], "held")
    assert made["spec"]["runPolicy"]["suspend"] is True
    assert made["metadata"]["annotations"][names.HELD] == "true"


def test_a_namespace_labelled_an_instant_ago_is_managed(testbed: Testbed, webhook: Webhook) -> None:
    renew_lease(testbed)
    for number in range(10):
        namespace = f"fresh-{number}"
        metadata = {"name": namespace, "labels": {names.MANAGED: "true"}}
        testbed.api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        made = create(testbed, namespace, "held")
        assert names.HELD in made["metadata"]["annotations"]


def test_a_job_in_another_namespace_is_not_touched(
    testbed: Testbed, webhook: Webhook, namespaces: dict[str, str]
) -> None:
    made = create(testbed, namespaces["plain"], "plain")
    assert "annotations" not in made["metadata"]
    assert made["spec"].get("runPolicy", {}).get("suspend") is not True


def test_a_copied_manifest_brings_no_history(
    testbed: Testbed, webhook: Webhook, namespaces: dict[str, str]
) -> None:
    renew_lease(testbed)
    marks = {names.HELD: "true", names.PLAN: "{}", names.STATE: "{}"}
    made = create(testbed, namespaces["managed"], "copied", annotations=marks)
    assert made["metadata"]["annotations"] == {names.HELD: "true"}
    assert made["spec"]["runPolicy"]["suspend"] is True


def test_a_malformed_setting_is_refused_in_words(
    testbed: Testbed, webhook: Webhook, namespaces: dict[str, str]
) -> None:
    with pytest.raises(ApiError, match="'always' is not allowed; allowed: preferred, required"):
        create(testbed, namespaces["managed"], "refused", annotations={names.COLOCATION: "always"})


def test_the_certificate_names_the_service_too(webhook: Webhook) -> None:
    pem = ssl.get_server_certificate(("127.0.0.1", webhook.port))
    assert pem.startswith("-----BEGIN CERTIFICATE-----")


def test_a_connection_is_kept_for_the_next_review(webhook: Webhook) -> None:
    assert _review(webhook).get("connection", "keep-alive") == "keep-alive"


def test_metrics_count_the_reviews(webhook: Webhook, namespaces: dict[str, str]) -> None:
    status, text = webhook.probe("/metrics")
    assert status == 200
    assert 'review_duration_seconds_count{kind="job",outcome="patched"}' in text
    assert "kfext_webhook_synced 1.0" in text


def test_X1_without_a_controller_jobs_start_as_on_plain_kubernetes(
    testbed: Testbed, webhook: Webhook, namespaces: dict[str, str]
) -> None:
    leases = "/apis/coordination.k8s.io/v1/namespaces"
    testbed.api.delete(f"{leases}/{names.NAMESPACE}/leases/{names.LEASE}")
    gone = "kfext_webhook_controller_alive 0.0"
    until(lambda: gone in webhook.probe("/metrics")[1], what="the Lease is missed")
    made = create(testbed, namespaces["managed"], "alone")
    assert made["spec"].get("runPolicy", {}).get("suspend") is not True
    assert names.HELD not in made["metadata"].get("annotations", {})
    renew_lease(testbed)
    until(lambda: gone not in webhook.probe("/metrics")[1], what="the Lease is seen again")
    assert names.HELD in create(testbed, namespaces["managed"], "kept")["metadata"]["annotations"]


def _review(webhook: Webhook) -> dict[str, str]:
    """Send a review that is none, past the certificate; return the headers of the answer."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connection = http.client.HTTPSConnection("127.0.0.1", webhook.port, context=context, timeout=5)
    try:
        connection.request("POST", "/mutate-job", body=b"{}")
        return {key.lower(): value for key, value in connection.getresponse().getheaders()}
    finally:
        connection.close()


@pytest.fixture
def stopped(webhook: Webhook) -> Webhook:
    webhook.process.send_signal(signal.SIGTERM)
    return webhook


def test_sigterm_makes_it_unready_then_ends_it_in_order(stopped: Webhook) -> None:
    until(lambda: stopped.probe("/readyz")[0] in {503, 0}, what="not ready")
    with suppress(OSError):  # it may have ended on a busy machine
        assert _review(stopped)["connection"] == "close"
    assert stopped.process.wait(timeout=30) == 0, stopped.output.read_text()
    assert "Traceback" not in stopped.output.read_text()


def test_X1_without_a_webhook_jobs_start_as_on_plain_kubernetes(
    testbed: Testbed, stopped: Webhook, namespaces: dict[str, str]
) -> None:
    stopped.process.wait(timeout=30)
    made = create(testbed, namespaces["managed"], "unseen")
    assert "annotations" not in made["metadata"]
