"""Two webhook replicas behind a balancer: reviews continue if one ends or certificates change."""

import base64
import ssl
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature

from e2e.harness.kfext_process import Kfext
from e2e.harness.processes import WebhookProcess
from e2e.harness.reviews import running_reviews
from e2e.harness.wait import until
from kfext.kube.certs import Pair, due, new_authority
from kfext.names import CA_SECRET, NAMESPACE, WEBHOOK_CONFIGURATION

_SECRETS = f"/api/v1/namespaces/{NAMESPACE}/secrets"
_HOOKS = (
    f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{WEBHOOK_CONFIGURATION}"
)
_ROTATION_SECONDS = 240.0  # each replica checks its certificate once a minute


def test_no_review_fails_when_a_replica_shuts_down_cleanly(kfext: Kfext) -> None:
    first, other = kfext.start_webhooks(drain_seconds=3)
    with running_reviews(kfext) as reviews:
        assert {port for port, count in kfext.balancer.connections.items() if count} >= {
            first.port,
            other.port,
        }
        for replica in (first, other):  # each in turn, as in a rolling update
            assert replica.stop() == 0
            reviews.wait_more()
            replica.start(drain_seconds=3, environment=kfext.environment)
            reviews.wait_more()
    assert reviews.outcomes.keys() == {"held"}
    assert reviews.failed_open == 0


def test_when_a_replica_is_killed_the_other_answers(kfext: Kfext) -> None:
    first, _ = kfext.start_webhooks(drain_seconds=0)
    with running_reviews(kfext) as reviews:
        first.kill()
        reviews.wait_more()
        at_first = reviews.outcomes
        reviews.wait_more(40)
        # Only jobs on their way to the killed replica were admitted unchanged.
        later = reviews.outcomes - at_first
        assert later.keys() == {"held"}
    assert at_first.keys() <= {"held", "untouched"}
    assert reviews.failed_open == reviews.outcomes["untouched"]


@pytest.mark.long
def test_no_review_fails_when_the_secret_is_deleted_to_renew_the_ca(kfext: Kfext) -> None:
    first, other = kfext.start_webhooks(drain_seconds=3)
    old = authority(kfext)
    with running_reviews(kfext) as reviews:
        kfext.kube.delete(f"{_SECRETS}/{CA_SECRET}")
        for replica in (first, other):  # kubectl rollout restart
            assert replica.stop() == 0
            replica.start(drain_seconds=3, environment=kfext.environment)
            reviews.wait_more()
    assert authority(kfext) != old
    assert served_by(first, authority(kfext))
    assert served_by(other, authority(kfext))
    assert reviews.outcomes.keys() == {"held"}
    assert reviews.failed_open == 0


@pytest.mark.long
def test_an_expiring_ca_is_replaced_without_a_failed_review(kfext: Kfext) -> None:
    kfext.webhook.kill()
    old = _due_in(timedelta(seconds=30))
    values = {"tls.crt": old.certificate, "tls.key": old.key, "ca.crt": old.certificate}
    data = {key: base64.b64encode(value).decode() for key, value in values.items()}
    kfext.kube.patch(f"{_SECRETS}/{CA_SECRET}", {"data": data})
    first, other = kfext.start_webhooks(drain_seconds=0)
    assert authority(kfext) == old.certificate
    assert served_by(first, old.certificate)
    with running_reviews(kfext) as reviews:
        until(
            lambda: not any(served_by(each, old.certificate) for each in (first, other)),
            what="both serve a certificate of the new CA",
            account=kfext.tail,
            seconds=_ROTATION_SECONDS,
        )
        reviews.wait_more()
    assert served_by(first, authority(kfext))
    assert served_by(other, authority(kfext))
    # The old CA is trusted until it expires, so that no certificate in use is refused.
    for hook in kfext.kube.get(_HOOKS)["webhooks"]:
        trusted = base64.b64decode(hook["clientConfig"]["caBundle"])
        assert trusted == authority(kfext) + old.certificate
    assert reviews.outcomes.keys() == {"held"}
    assert reviews.failed_open == 0


def _due_in(delay: timedelta) -> Pair:
    """Return a CA of such an age that it is due for replacement after `delay`."""
    now = datetime.now(UTC)
    young, old = timedelta(days=365), timedelta()
    while (young - old) > timedelta(seconds=1):  # a search, because its lifetime is not known here
        middle = old + (young - old) / 2
        pair = new_authority(now=now - middle)
        young, old = (middle, old) if due(pair.certificate, now=now + delay) else (young, middle)
    return new_authority(now=now - old)


def authority(kfext: Kfext) -> bytes:
    """Return the certificate of the present CA."""
    return base64.b64decode(kfext.kube.get(f"{_SECRETS}/{CA_SECRET}")["data"]["tls.crt"])


def served_by(replica: WebhookProcess, issuer: bytes) -> bool:
    leaf = x509.load_pem_x509_certificate(
        ssl.get_server_certificate(("127.0.0.1", replica.port)).encode()
    )
    try:
        leaf.verify_directly_issued_by(x509.load_pem_x509_certificate(issuer))
    except (ValueError, InvalidSignature):
        return False
    return True
