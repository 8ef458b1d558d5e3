"""Certificates: rotation never breaks trust, and writes happen only when needed."""

import asyncio
import base64
import os
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature

from e2e.testbed.cluster import Testbed
from kfext.core.admission.posting import HOST
from kfext.errors import Conflict, NotFound
from kfext.kube import paths
from kfext.kube.certs import (
    Issuer,
    Pair,
    Trust,
    due,
    new_authority,
    new_leaf,
    read_trust,
    trust_bundle,
    write_trust,
)
from kfext.kube.client import Client
from kfext.names import CA_SECRET, WEBHOOK_CONFIGURATION
from kfext.webhook.certificate import MountedCertificate, ServingCertificate

SERVICE = "kfext-webhook.kfext-system.svc"
START = datetime.now(UTC).replace(microsecond=0)


class Clock:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
async def cluster(client: Client, home: str) -> AsyncIterator[Client]:
    """Create kfext's webhook configuration, without the Secret; yield a client."""
    secret, configuration = paths.secrets(home, CA_SECRET), paths.mutating_webhooks()
    webhooks = [
        {
            "name": f"{kind}.kfext.dev",
            "clientConfig": {"service": {"namespace": home, "name": "kfext-webhook"}},
            "rules": [
                {
                    "apiGroups": ["absent.kfext.dev"],
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
    content = await client.get(paths.mutating_webhooks(WEBHOOK_CONFIGURATION))
    return [base64.b64decode(w["clientConfig"].get("caBundle", "")) for w in content["webhooks"]]


async def served_certificate(
    serving: ServingCertificate | MountedCertificate, trusted: bytes | None = None
) -> x509.Certificate:
    """Return the served certificate; with `trusted` it must be valid for the Service."""
    context = ssl.create_default_context(cadata=trusted.decode() if trusted else None)
    if trusted is None:  # the certificate may be valid only on a later day
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    server = await asyncio.start_server(
        lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=serving.context
    )
    async with server:
        port = server.sockets[0].getsockname()[1]
        _, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=context, server_hostname=SERVICE
        )
        certificate = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
    return x509.load_der_x509_certificate(certificate)


def is_issued_by(leaf: x509.Certificate, authority: bytes) -> bool:
    try:
        leaf.verify_directly_issued_by(x509.load_pem_x509_certificate(authority))
    except (ValueError, InvalidSignature):
        return False
    return True


async def finish(issuer: Issuer) -> None:
    """Let an issuer check until it has nothing more to write."""
    while await issuer.check():
        pass


def _open_files() -> Iterator[str]:
    """Yield the targets of the open file descriptors of this process."""
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the descriptor that reads the folder
            yield os.readlink(link)


async def test_the_api_server_trusts_the_served_certificate(
    cluster: Client, testbed: Testbed
) -> None:
    serving = ServingCertificate(cluster, extra_names=["127.0.0.1", "localhost"])
    await serving.check()
    assert not serving.ready.is_set(), "no CA was issued yet"

    await finish(Issuer(cluster))
    await serving.check()

    assert serving.ready.is_set()
    assert not [link for link in _open_files() if "serving-key" in link], "the key was left open"
    first, second = await ca_bundles(cluster)
    assert first == second == serving.authority.encode()
    leaf = await served_certificate(serving, trusted=first)
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [
        *(SERVICE, HOST),
        *(f"{SERVICE}.cluster.local", f"{HOST}.cluster.local"),
        "localhost",
    ]
    assert [str(ip) for ip in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]

    verbs: list[str] = []
    observed = await Client.connect(testbed.kubeconfig, observe=lambda verb, *_: verbs.append(verb))
    async with observed:
        assert not await Issuer(observed).check()
        again = ServingCertificate(observed)
        await again.check()
        assert set(verbs) == {"get"}, "an unchanged object was written"
    await served_certificate(again, trusted=first)


async def test_the_secret_is_written_only_after_the_api_servers_can_know_the_ca(
    cluster: Client,
) -> None:
    issuer = Issuer(cluster, now=Clock())

    assert await issuer.check()
    with pytest.raises(NotFound):
        await read_trust(cluster)
    (announced, _) = await ca_bundles(cluster)

    assert not await issuer.check()
    assert (await read_trust(cluster)).authority.certificate == announced


async def test_an_overtaken_issuer_adopts_the_ca_of_the_other_issuer(cluster: Client) -> None:
    issuer, other = Issuer(cluster), Issuer(cluster)
    await issuer.check()
    await other.check()
    await finish(issuer)

    await finish(other)

    trust = await read_trust(cluster)
    assert await ca_bundles(cluster) == [trust.bundle, trust.bundle]
    assert not await issuer.check()
    assert not await other.check()


async def test_of_two_issuers_that_write_at_once_one_is_refused(cluster: Client) -> None:
    trust = Trust(new_authority(now=START), b"")
    await write_trust(cluster, trust)
    with pytest.raises(Conflict):
        await write_trust(cluster, trust)
    stored = await read_trust(cluster)
    await write_trust(cluster, stored)
    await cluster.merge_patch(paths.secrets("kfext-system", CA_SECRET), {"data": {"x": "eA=="}})
    with pytest.raises(Conflict):
        await write_trust(cluster, stored)


async def test_a_new_ca_is_trusted_before_it_is_used(cluster: Client) -> None:
    clock = Clock()
    issuer = Issuer(cluster, now=clock)
    serving = ServingCertificate(cluster, now=clock)
    await finish(issuer)
    await serving.check()
    (old, _) = await ca_bundles(cluster)

    clock.now += timedelta(days=250)
    assert await issuer.check()
    (trusted, _) = await ca_bundles(cluster)
    assert trusted.endswith(old)
    assert trusted != old
    await serving.check()
    assert is_issued_by(await served_certificate(serving), old), (
        "the new CA was used before the API servers could know it"
    )

    assert not await issuer.check()
    await serving.check()
    new = trusted.removesuffix(old)
    assert is_issued_by(await served_certificate(serving), new)
    assert not is_issued_by(await served_certificate(serving), old)


async def test_the_successor_of_a_dead_issuer_completes_its_renewal(cluster: Client) -> None:
    clock = Clock()
    await finish(Issuer(cluster, now=clock))
    old = await read_trust(cluster)
    clock.now += timedelta(days=250)
    assert await Issuer(cluster, now=clock).check()

    await finish(Issuer(cluster, now=clock))

    new = await read_trust(cluster)
    assert new.authority != old.authority
    (trusted, _) = await ca_bundles(cluster)
    assert trusted == new.bundle
    assert trusted.startswith(new.authority.certificate)
    assert old.authority.certificate in trusted


async def test_an_expired_ca_is_removed_from_the_bundle(cluster: Client) -> None:
    clock = Clock()
    issuer = Issuer(cluster, now=clock)
    await finish(issuer)
    clock.now = START + timedelta(days=250)
    await finish(issuer)
    second = await read_trust(cluster)

    clock.now = START + timedelta(days=370)
    await finish(issuer)

    assert await read_trust(cluster) == second
    assert set(await ca_bundles(cluster)) == {second.authority.certificate}


async def test_a_deleted_secret_does_not_break_trust_in_replicas_that_have_not_noticed(
    cluster: Client,
) -> None:
    issuer = Issuer(cluster)
    await finish(issuer)
    serving = ServingCertificate(cluster)
    await serving.check()
    (old, _) = await ca_bundles(cluster)
    await cluster.delete(paths.secrets("kfext-system", CA_SECRET))
    await serving.check()

    await finish(issuer)
    other = ServingCertificate(cluster)
    await other.check()

    (trusted, _) = await ca_bundles(cluster)
    assert is_issued_by(await served_certificate(serving, trusted=trusted), old)
    assert not is_issued_by(await served_certificate(other, trusted=trusted), old)
    await serving.check()
    assert not is_issued_by(await served_certificate(serving, trusted=trusted), old)


async def test_an_unusable_secret_is_replaced_and_not_served(cluster: Client) -> None:
    issuer, serving = Issuer(cluster), ServingCertificate(cluster)
    await finish(issuer)
    first = await read_trust(cluster)
    garbage = base64.b64encode(b"garbage").decode()
    path = paths.secrets("kfext-system", CA_SECRET)
    await cluster.merge_patch(path, {"data": {"tls.key": garbage}})
    await serving.check()
    assert not serving.ready.is_set()

    await finish(issuer)

    second = await read_trust(cluster)
    assert second.authority.usable
    assert second.authority != first.authority
    await serving.check()
    await served_certificate(serving, trusted=(await ca_bundles(cluster))[0])


async def test_a_leaf_is_renewed_after_two_thirds_of_its_week(cluster: Client) -> None:
    clock = Clock()
    await finish(Issuer(cluster, now=clock))
    serving = ServingCertificate(cluster, now=clock)
    await serving.check()
    first = (await served_certificate(serving)).serial_number

    clock.now = START + timedelta(days=4)
    await serving.check()
    assert (await served_certificate(serving)).serial_number == first

    clock.now = START + timedelta(days=5)
    await serving.check()
    assert (await served_certificate(serving)).serial_number != first


async def test_the_webhook_is_ready_even_without_a_webhook_configuration(cluster: Client) -> None:
    await cluster.delete(paths.mutating_webhooks(WEBHOOK_CONFIGURATION))
    serving = ServingCertificate(cluster)

    assert not await Issuer(cluster).check()
    await serving.check()

    assert serving.ready.is_set()


async def test_a_bundle_that_another_client_wrote_is_corrected(cluster: Client) -> None:
    issuer = Issuer(cluster)
    await finish(issuer)
    before = await ca_bundles(cluster)
    wrong = base64.b64encode(new_authority(now=START).certificate).decode()
    operation = {"op": "add", "path": "/webhooks/1/clientConfig/caBundle", "value": wrong}
    await cluster.json_patch(paths.mutating_webhooks(WEBHOOK_CONFIGURATION), [operation])

    assert await issuer.check()

    assert await ca_bundles(cluster) == before


def test_a_certificate_is_due_after_two_thirds_of_its_life() -> None:
    authority = new_authority(now=START)

    assert not due(authority.certificate, now=START + timedelta(days=243))
    assert due(authority.certificate, now=START + timedelta(days=244))
    assert due(authority.certificate, now=START - timedelta(days=1)), "made while a clock was ahead"


def test_garbage_and_duplicates_in_a_bundle_are_left_out() -> None:
    first, two = new_authority(now=START), new_authority(now=START + timedelta(days=1))
    others = b"garbage\n" + two.certificate + first.certificate + two.certificate + b"more"

    assert trust_bundle(first.certificate, others, now=START) == first.certificate + two.certificate


def test_a_pair_with_a_foreign_key_is_unusable() -> None:
    first, two = new_authority(now=START), new_authority(now=START)

    assert first.usable
    assert not type(first)(first.certificate, two.key).usable
    assert new_leaf(first, names=["localhost"], now=START).usable


def mount(folder: Path, authority: Pair, *, crt: bytes = b"", key: bytes = b"") -> None:
    """Write a new certificate, or other content, into the files of a mounted Secret."""
    leaf = new_leaf(authority, names=[SERVICE], now=START)
    (folder / "tls.crt").write_bytes(crt or leaf.certificate)
    (folder / "tls.key").write_bytes(key or leaf.key)


async def test_a_mounted_certificate_and_its_successor_are_served(tmp_path: Path) -> None:
    authority = new_authority(now=START)
    serving = MountedCertificate(tmp_path)
    serving.check()
    assert not serving.ready.is_set(), "nothing is mounted yet"

    mount(tmp_path, authority)
    serving.check()
    assert serving.ready.is_set()
    assert serving.authority == "", "the Secret has no ca.crt"
    first = await served_certificate(serving, trusted=authority.certificate)
    serving.check()
    assert await served_certificate(serving, trusted=authority.certificate) == first

    mount(tmp_path, authority)
    serving.check()
    assert await served_certificate(serving, trusted=authority.certificate) != first


@pytest.mark.parametrize("key", [b"garbage", new_authority(now=START).key])
async def test_an_unusable_mounted_certificate_leaves_the_served_certificate(
    key: bytes, tmp_path: Path
) -> None:
    authority = new_authority(now=START)
    serving = MountedCertificate(tmp_path)
    mount(tmp_path, authority)
    serving.check()
    first = await served_certificate(serving, trusted=authority.certificate)

    mount(tmp_path, authority, key=key)
    serving.check()
    assert await served_certificate(serving, trusted=authority.certificate) == first

    mount(tmp_path, authority)
    serving.check()
    assert await served_certificate(serving, trusted=authority.certificate) != first


def test_pods_trust_the_ca_that_is_mounted_beside_the_certificate(tmp_path: Path) -> None:
    authority = new_authority(now=START)
    serving = MountedCertificate(tmp_path)
    mount(tmp_path, authority)
    trusted = (tmp_path / "tls.crt").resolve().parent / "ca.crt"
    trusted.write_bytes(authority.certificate)
    serving.check()
    assert serving.authority.encode() == authority.certificate
