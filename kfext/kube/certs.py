"""The certificate authority (CA) of the controller, and the leaf certificates that webhooks sign.

The leading controller stores the CA in a Secret, from where the webhooks read it, and makes the API
servers trust it. Only this module uses `cryptography`.
"""

import asyncio
import base64
import binascii
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

import structlog
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kfext.errors import ApiError, NotFound
from kfext.kube import paths
from kfext.kube.client import Client, Object
from kfext.names import CA_SECRET, FIRST_WEBHOOKS, NAMESPACE, WEBHOOK_CONFIGURATION

_log = structlog.get_logger(__name__)

_CONFIGURATIONS = (FIRST_WEBHOOKS, WEBHOOK_CONFIGURATION)
"""The webhook configurations of kfext."""

_CA_LIFE = timedelta(days=365)
_LEAF_LIFE = timedelta(days=7)
_SKEW = timedelta(hours=1)  # clocks of other machines may be behind this one
_CHECK_SECONDS = 15.0
_RETRY_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its private key, both PEM."""

    certificate: bytes
    key: bytes = b""

    @property
    def usable(self) -> bool:
        """Whether both are readable, belong together, and have kfext's type of key."""
        try:
            certificate = x509.load_pem_x509_certificate(self.certificate)
            key = serialization.load_pem_private_key(self.key, password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            return False
        elliptic = isinstance(key, ec.EllipticCurvePrivateKey)
        return elliptic and certificate.public_key() == key.public_key()


def new_authority(*, now: datetime) -> Pair:
    """Return a self-signed CA, valid for 365 days."""
    key = ec.generate_private_key(ec.SECP256R1())
    # The time makes the name unique, so that verifiers can distinguish old and new CAs.
    name = _name(f"kfext-webhook-ca {now:%Y-%m-%dT%H:%M:%SZ}")
    builder = (
        _builder(name, issuer=name, key=key, now=now, life=_CA_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(sign_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return _pair(builder.sign(key, hashes.SHA256()), key)


def new_leaf(authority: Pair, *, names: Sequence[str], now: datetime) -> Pair:
    """Return a server certificate for DNS names and IP addresses, valid for 7 days.

    Raises ValueError for a CA that is not `usable`.
    """
    issuer = x509.load_pem_x509_certificate(authority.certificate)
    issuer_key = serialization.load_pem_private_key(authority.key, password=None)
    if not isinstance(issuer_key, ec.EllipticCurvePrivateKey):
        raise ValueError("the authority's key is not an elliptic-curve key")
    key = ec.generate_private_key(ec.SECP256R1())
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
    builder = (
        _builder(_name("kfext-webhook"), issuer=issuer.subject, key=key, now=now, life=_LEAF_LIFE)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(sign_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(list(map(_general_name, names))), critical=False)
        .add_extension(identifier, critical=False)
    )
    return _pair(builder.sign(issuer_key, hashes.SHA256()), key)


def due(certificate: bytes, *, now: datetime) -> bool:
    """Return whether two thirds of a certificate's life have passed, or it has not started.

    A certificate that was made while a clock was ahead is refused until its life starts.
    """
    parsed = x509.load_pem_x509_certificate(certificate)
    start, end = parsed.not_valid_before_utc, parsed.not_valid_after_utc
    return not start <= now < start + (end - start) * 2 / 3


def trust_bundle(current: bytes, others: bytes, *, now: datetime) -> bytes:
    """Return the CA certificates to trust, each once: the current CA, then others still valid."""
    trusted = [x509.load_pem_x509_certificate(current)]
    for block in others.split(b"-----END CERTIFICATE-----")[:-1]:
        try:
            other = x509.load_pem_x509_certificate(block + b"-----END CERTIFICATE-----\n")
        except ValueError:
            continue
        if other.not_valid_after_utc > now and other not in trusted:
            trusted.append(other)
    return b"".join(item.public_bytes(serialization.Encoding.PEM) for item in trusted)


def _builder(
    subject: x509.Name,
    *,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: datetime,
    life: timedelta,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + life)
    )


def _key_usage(*, sign_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not sign_certificates,
        key_cert_sign=sign_certificates,
        crl_sign=sign_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    return Pair(
        certificate=certificate.public_bytes(serialization.Encoding.PEM),
        key=key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )


@dataclass(frozen=True, slots=True)
class Trust:
    """The CA that signs now, and the PEM bundle of all CA certificates that are still trusted.

    `version`: the resource version of the Secret; empty before it is written.
    """

    authority: Pair
    bundle: bytes
    version: str = ""


async def read_trust(client: Client) -> Trust:
    """Return the content of the Secret, which may be unusable. Raises NotFound, ApiError."""
    secret = await client.get(paths.secrets(NAMESPACE, CA_SECRET))
    data = secret.get("data") or {}
    pair = Pair(from_base64(data.get("tls.crt")), from_base64(data.get("tls.key")))
    return Trust(pair, from_base64(data.get("ca.crt")), secret["metadata"]["resourceVersion"])


async def write_trust(client: Client, trust: Trust) -> None:
    """Write the Secret. Raises ApiError; Conflict if it has changed since `trust.version`."""
    values = {
        "tls.crt": trust.authority.certificate,
        "tls.key": trust.authority.key,
        "ca.crt": trust.bundle,
    }
    data = {key: to_base64(value) for key, value in values.items()}
    if trust.version:
        patch = {"metadata": {"resourceVersion": trust.version}, "data": data}
        await client.merge_patch(paths.secrets(NAMESPACE, CA_SECRET), patch)
        return
    secret: Object = {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {"namespace": NAMESPACE, "name": CA_SECRET},
        "data": data,
    }
    await client.create(paths.secrets(NAMESPACE), secret)


def to_base64(value: bytes) -> str:
    """Return bytes as base64, as in the API."""
    return base64.b64encode(value).decode()


def from_base64(value: str | None) -> bytes:
    """Return the bytes of a base64 text from the API; empty if it is absent or damaged."""
    try:
        return base64.b64decode(value or "")
    except binascii.Error:
        return b""


def utc_now() -> datetime:
    """Return the current time."""
    return datetime.now(UTC)


class Issuer:
    """Issues and renews the CA; it runs in the leading controller only."""

    def __init__(self, client: Client, *, now: Callable[[], datetime] = utc_now) -> None:
        self._client = client
        self._now = now
        self._successor: Trust | None = None

    async def run(self) -> None:
        """Check the Secret and the caBundle until cancelled."""
        while True:
            try:
                changed = await self.check()
                await asyncio.sleep(_RETRY_SECONDS if changed else _CHECK_SECONDS)
            except ApiError as error:
                _log.warning("certificate check failed", error=str(error))
                await asyncio.sleep(_RETRY_SECONDS)

    async def check(self) -> bool:
        """Renew the CA if due; return whether the caBundle was written. Raises ApiError.

        A new CA is stored in the Secret, where the webhooks read it, one check after the caBundle
        contains it. Until the API servers read that caBundle, they trust only the old CA, which
        stays valid. Old CAs stay trusted, because webhooks still serve certificates signed by them.
        """
        now = self._now()
        stored = await self._stored()
        usable = stored.authority.usable
        if usable and not due(stored.authority.certificate, now=now):
            self._successor = None
            current = stored.authority.certificate
            return await self._inject(trust_bundle(current, stored.bundle, now=now))
        if self._successor is None:
            created, others = new_authority(now=now), await self._read_bundles()
            old = stored.bundle + b"\n" + others
            self._successor = Trust(created, trust_bundle(created.certificate, old, now=now))
        if await self._inject(self._successor.bundle):
            return True
        renewed = self._successor
        await write_trust(
            self._client, Trust(renewed.authority, renewed.bundle, version=stored.version)
        )
        self._successor = None
        _log.info("certificate authority renewed", secret=CA_SECRET)
        return False

    async def _stored(self) -> Trust:
        try:
            return await read_trust(self._client)
        except NotFound:
            return Trust(Pair(b""), b"")

    async def _webhooks(self, configuration_name: str) -> list[Object] | None:
        """Return the webhooks of a configuration; None means that it does not exist."""
        try:
            configuration = await self._client.get(paths.mutating_webhooks(configuration_name))
        except NotFound:
            return None
        return list(configuration.get("webhooks") or ())

    async def _read_bundles(self) -> bytes:
        webhooks = [each for name in _CONFIGURATIONS for each in await self._webhooks(name) or ()]
        return b"\n".join(from_base64(each["clientConfig"].get("caBundle")) for each in webhooks)

    async def _inject(self, trusted: bytes) -> bool:
        """Write the caBundle into every webhook that lacks it; return whether any was written.

        Raises Invalid if the webhooks change meanwhile.
        """
        written = [await self._inject_into(name, trusted) for name in _CONFIGURATIONS]
        return any(written)

    async def _inject_into(self, name: str, trusted: bytes) -> bool:
        wanted = to_base64(trusted)
        webhooks = await self._webhooks(name)
        if webhooks is None:
            reason = f"there is no webhook configuration {name} yet"
            _log.warning("caBundle not written", why=reason)
            return False
        operations: list[Object] = []
        for index, webhook in enumerate(webhooks):
            if webhook["clientConfig"].get("caBundle") == wanted:
                continue
            prefix = f"/webhooks/{index}"
            operations += [
                {"op": "test", "path": f"{prefix}/name", "value": webhook["name"]},
                {"op": "add", "path": f"{prefix}/clientConfig/caBundle", "value": wanted},
            ]
        if operations:
            path = paths.mutating_webhooks(name)
            await self._client.json_patch(path, operations)
        return bool(operations)
