"""`kfext webhook` as a process, called by a true API server."""

import ssl

import pytest

from e2e.testbed.api import ApiError
from e2e.testbed.cluster import Testbed
from kfext import names
from tests.adapters.webhook.running import Webhook, create, renew_lease, review, until


def test_the_webhook_is_not_ready_before_the_ca_is_issued(webhook: Webhook) -> None:
    assert "no certificate yet: the controller issues its authority" in webhook.unready


def test_a_job_in_a_managed_namespace_is_held(
    testbed: Testbed, webhook: Webhook, namespaces: dict[str, str]
) -> None:
    renew_lease(testbed)
    created = create(testbed, namespaces["managed"], "held")
    assert created["spec"]["runPolicy"]["suspend"] is True
    assert created["metadata"]["annotations"][names.HELD] == "true"


def test_a_namespace_that_was_just_labelled_is_managed(testbed: Testbed, webhook: Webhook) -> None:
    renew_lease(testbed)
    for number in range(10):
        namespace = f"fresh-{number}"
        metadata = {"name": namespace, "labels": {names.MANAGED: "true"}}
        testbed.api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        created = create(testbed, namespace, "held")
        assert names.HELD in created["metadata"]["annotations"]


def test_a_job_in_another_namespace_is_not_changed(
    testbed: Testbed, webhook: Webhook, namespaces: dict[str, str]
) -> None:
    created = create(testbed, namespaces["plain"], "plain")
    assert "annotations" not in created["metadata"]
    assert created["spec"].get("runPolicy", {}).get("suspend") is not True


def test_a_copied_manifest_keeps_no_history(
    testbed: Testbed, webhook: Webhook, namespaces: dict[str, str]
) -> None:
    renew_lease(testbed)
    marks = {names.HELD: "true", names.PLAN: "{}", names.STATE: "{}"}
    created = create(testbed, namespaces["managed"], "copied", annotations=marks)
    assert created["metadata"]["annotations"] == {names.HELD: "true"}
    assert created["spec"]["runPolicy"]["suspend"] is True


def test_a_malformed_setting_is_refused_with_a_message(
    testbed: Testbed, webhook: Webhook, namespaces: dict[str, str]
) -> None:
    with pytest.raises(ApiError, match="'always' is not allowed; allowed: preferred, required"):
        create(testbed, namespaces["managed"], "refused", annotations={names.COLOCATION: "always"})


def test_the_webhook_serves_a_certificate(webhook: Webhook) -> None:
    pem = ssl.get_server_certificate(("127.0.0.1", webhook.port))
    assert pem.startswith("-----BEGIN CERTIFICATE-----")


def test_a_connection_is_kept_for_the_next_review(webhook: Webhook) -> None:
    assert review(webhook).get("connection", "keep-alive") == "keep-alive"


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
    not_alive = "kfext_webhook_controller_alive 0.0"
    until(lambda: not_alive in webhook.probe("/metrics")[1], what="it misses the Lease")
    created = create(testbed, namespaces["managed"], "alone")
    assert created["spec"].get("runPolicy", {}).get("suspend") is not True
    assert names.HELD not in created["metadata"].get("annotations", {})
    renew_lease(testbed)
    until(lambda: not_alive not in webhook.probe("/metrics")[1], what="it reads the Lease again")
    assert names.HELD in create(testbed, namespaces["managed"], "kept")["metadata"]["annotations"]
