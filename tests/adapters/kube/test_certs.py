"""Certificates: replicas agree, rotation never breaks trust, nothing is written without need."""

import asyncio
import base64
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature

from e2e.testbed.cluster import Testbed
from kfext.errors import NotFound
from kfext.kube import paths
from kfext.kube.certs.authority import bundle, due, new_authority, new_leaf
from kfext.kube.certs.serving import ServingCertificate
from kfext.kube.certs.shared import Trust, ensure_authority
from kfext.kube.client import Client
from kfext.kube.request import Object
from kfext.names import CA_SECRET, WEBHOOK_CONFIGURATION

SERVICE = "kfext-webhook.kfext-system.svc"
START = datetime.now(UTC).replace(microsecond=0)


class Clock:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
async def cluster(client: Client, home: str) -> AsyncIterator[Client]:
    """A cluster with kfext's webhook configuration and no Secret yet."""
    secret, configuration = paths.secrets(home, CA_SECRET), paths.mutating_webhooks()
    webhooks = [
        {
            "name": f"{kind}.kfext.dev",
            "clientConfig": {"service": {"namespace": home, "name": "kfext-webhook"}},
            "rules": [
                {
                    "apiGroups": ["nobody.kfext.dev"],
                    "apiVersions": ["v1"],
                    "resources": ["nothings"],
                    "operations": ["CREATE"],
                }
            ],
            "sideEffects": "None",
            "failurePolicy": "Ignore",
            "admissionReviewVersions": ["v1"],
        }
        for kind in ("jobs", "pods")
    ]
    body = {"metadata": {"name": WEBHOOK_CONFIGURATION}, "webhooks": webhooks}
    await client.create(configuration, body)
    yield client
    for path in (paths.mutating_webhooks(WEBHOOK_CONFIGURATION), secret):
        with suppress(NotFound):
            await client.delete(path)


async def ca_bundles(client: Client) -> list[bytes]:
    found = await client.get(paths.mutating_webhooks(WEBHOOK_CONFIGURATION))
    return [base64.b64decode(w["clientConfig"].get("caBundle", "")) for w in found["webhooks"]]


async def served(serving: ServingCertificate, trusted: bytes | None = None) -> x509.Certificate:
    """Return what a client is shown; with `trusted`, only if it accepts it for the Service."""
    client = ssl.create_default_context(cadata=trusted.decode() if trusted else None)
    if trusted is None:  # certificates made for a later day
        client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    server = await asyncio.start_server(
        lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=serving.context
    )
    async with server:
        port = server.sockets[0].getsockname()[1]
        _, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=client, server_hostname=SERVICE
        )
        shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
    return x509.load_der_x509_certificate(shown)


def issued(leaf: x509.Certificate, authority: bytes) -> bool:
    try:
        leaf.verify_directly_issued_by(x509.load_pem_x509_certificate(authority))
    except (ValueError, InvalidSignature):
        return False
    return True


async def test_the_api_server_can_trust_what_is_served(
    cluster: Client, testbed: Testbed, tmp_path: Path
) -> None:
    serving = ServingCertificate(cluster, folder=tmp_path, extra_names=["127.0.0.1", "localhost"])
    assert not serving.ready.is_set()

    assert await serving.check()

    assert serving.ready.is_set()
    assert os.listdir(tmp_path) == [], "the private key was left on disk"
    first, second = await ca_bundles(cluster)
    assert first == second
    leaf = await served(serving, trusted=first)
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [
        SERVICE,
        f"{SERVICE}.cluster.local",
        "localhost",
    ]
    assert [str(ip) for ip in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]

    writes: list[str] = []
    observed = await Client.connect(
        testbed.kubeconfig, observe=lambda verb, *_: writes.append(verb)
    )
    async with observed:
        again = ServingCertificate(observed, folder=tmp_path)
        assert not await again.check()
        assert set(writes) == {"get"}, "a replica wrote what was right already"
    await served(again, trusted=first)


class Racing(Client):
    """Lets all replicas read before any of them writes."""

    def race(self, replicas: int) -> None:
        self._together = asyncio.Barrier(replicas)
        self._read: set[asyncio.Task[object] | None] = set()

    async def get(self, path: str, **query: str) -> Object:
        try:
            return await super().get(path, **query)
        finally:
            if (task := asyncio.current_task()) not in self._read:
                self._read.add(task)
                await self._together.wait()


async def agreed(testbed: Testbed, now: datetime) -> list[Trust]:
    async with await Racing.connect(testbed.kubeconfig) as racing:
        racing.race(8)
        return await asyncio.gather(*(ensure_authority(racing, now=now) for _ in range(8)))


async def test_replicas_that_start_at_once_agree_on_one_authority(
    cluster: Client, testbed: Testbed
) -> None:
    trusts = await agreed(testbed, START)

    assert len({trust.authority.certificate for trust in trusts}) == 1
    assert await ensure_authority(cluster, now=START) == trusts[0]


async def test_replicas_that_renew_at_once_agree_on_one_authority(
    cluster: Client, testbed: Testbed
) -> None:
    old = await ensure_authority(cluster, now=START)

    trusts = await agreed(testbed, START + timedelta(days=250))

    assert len({trust.authority.certificate for trust in trusts}) == 1
    assert trusts[0].authority != old.authority
    assert all(trust.bundle == trusts[0].bundle for trust in trusts)
    assert trusts[0].bundle == trusts[0].authority.certificate + old.authority.certificate


async def test_a_new_authority_is_trusted_before_it_is_used(
    cluster: Client, tmp_path: Path
) -> None:
    clock = Clock()
    serving = ServingCertificate(cluster, folder=tmp_path, now=clock)
    await serving.check()
    assert not await serving.check()
    (old, _) = await ca_bundles(cluster)

    clock.now += timedelta(days=250)
    assert await serving.check()
    (trusted, _) = await ca_bundles(cluster)
    assert trusted.endswith(old)
    assert trusted != old
    assert issued(await served(serving), old), "used before the API servers could know it"

    assert not await serving.check()
    new = trusted.removesuffix(old)
    assert issued(await served(serving), new)
    assert not issued(await served(serving), old)


async def test_an_authority_that_ended_leaves_the_bundle(cluster: Client) -> None:
    await ensure_authority(cluster, now=START)
    second = await ensure_authority(cluster, now=START + timedelta(days=250))

    third = await ensure_authority(cluster, now=START + timedelta(days=370))

    assert third.authority == second.authority
    assert third.bundle == second.authority.certificate


async def test_a_replaced_secret_is_followed_at_once(cluster: Client, tmp_path: Path) -> None:
    serving = ServingCertificate(cluster, folder=tmp_path)
    await serving.check()
    await cluster.delete(paths.secrets("kfext-system", CA_SECRET))

    await serving.check()

    (trusted, _) = await ca_bundles(cluster)
    await served(serving, trusted=trusted)


async def test_a_deleted_secret_takes_no_trust_from_replicas_that_have_not_noticed(
    cluster: Client, tmp_path: Path
) -> None:
    one = ServingCertificate(cluster, folder=tmp_path)
    await one.check()
    (old, _) = await ca_bundles(cluster)
    await cluster.delete(paths.secrets("kfext-system", CA_SECRET))

    other = ServingCertificate(cluster, folder=tmp_path)
    await other.check()

    (trusted, _) = await ca_bundles(cluster)
    assert issued(await served(one, trusted=trusted), old)
    assert not issued(await served(other, trusted=trusted), old)
    assert not await one.check()
    assert not issued(await served(one, trusted=trusted), old)


async def test_an_unusable_secret_is_replaced(cluster: Client) -> None:
    first = await ensure_authority(cluster, now=START)
    garbage = base64.b64encode(b"garbage").decode()
    path = paths.secrets("kfext-system", CA_SECRET)
    await cluster.merge_patch(path, {"data": {"tls.key": garbage}})

    second = await ensure_authority(cluster, now=START)

    assert second.authority.usable
    assert second.authority != first.authority
    assert await ensure_authority(cluster, now=START) == second


async def test_a_leaf_is_renewed_after_two_thirds_of_its_week(
    cluster: Client, tmp_path: Path
) -> None:
    clock = Clock()
    serving = ServingCertificate(cluster, folder=tmp_path, now=clock)
    await serving.check()
    first = (await served(serving)).serial_number

    clock.now = START + timedelta(days=4)
    await serving.check()
    assert (await served(serving)).serial_number == first

    clock.now = START + timedelta(days=5)
    await serving.check()
    assert (await served(serving)).serial_number != first


async def test_without_a_webhook_configuration_the_server_is_ready_all_the_same(
    cluster: Client, tmp_path: Path
) -> None:
    await cluster.delete(paths.mutating_webhooks(WEBHOOK_CONFIGURATION))
    serving = ServingCertificate(cluster, folder=tmp_path)

    assert await serving.check()

    assert serving.ready.is_set()


def test_due_is_two_thirds_of_life() -> None:
    authority = new_authority(now=START)

    assert not due(authority.certificate, now=START + timedelta(days=243))
    assert due(authority.certificate, now=START + timedelta(days=244))


def test_garbage_in_a_bundle_is_left_out_and_nothing_stands_twice() -> None:
    one, two = new_authority(now=START), new_authority(now=START + timedelta(days=1))
    others = b"garbage\n" + two.certificate + one.certificate + two.certificate + b"more"

    assert bundle(one.certificate, others, now=START) == one.certificate + two.certificate


def test_a_foreign_key_makes_a_pair_unusable() -> None:
    one, two = new_authority(now=START), new_authority(now=START)

    assert one.usable
    assert not type(one)(one.certificate, two.key).usable
    assert new_leaf(one, names=["localhost"], now=START).usable
