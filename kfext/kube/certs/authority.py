"""Make certificates and decide when to renew them; the only module that uses `cryptography`."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_AUTHORITY_LIFE = timedelta(days=365)
_LEAF_LIFE = timedelta(days=7)
_SKEW = timedelta(hours=1)  # clocks of other machines may be behind ours


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its private key, both PEM."""

    certificate: bytes
    key: bytes = b""

    @property
    def usable(self) -> bool:
        """Whether both can be read, belong together, and have the type of key that kfext makes."""
        try:
            certificate = x509.load_pem_x509_certificate(self.certificate)
            key = serialization.load_pem_private_key(self.key, password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            return False
        ours = isinstance(key, ec.EllipticCurvePrivateKey)
        return ours and certificate.public_key() == key.public_key()


def new_authority(*, now: datetime) -> Pair:
    """Return a self-signed authority, valid for 365 days."""
    key = ec.generate_private_key(ec.SECP256R1())
    # The time makes the name unique, so that verifiers can distinguish old and new authorities.
    name = _name(f"kfext-webhook-ca {now:%Y-%m-%dT%H:%M:%SZ}")
    builder = (
        _builder(name, issuer=name, key=key, now=now, life=_AUTHORITY_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(sign_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return _pair(builder.sign(key, hashes.SHA256()), key)


def new_leaf(authority: Pair, *, names: Sequence[str], now: datetime) -> Pair:
    """Return a server certificate for DNS names and IP addresses, valid for 7 days.

    Raises ValueError for an authority that is not `usable`.
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
        .add_extension(_usage(sign_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(list(map(_general, names))), critical=False)
        .add_extension(identifier, critical=False)
    )
    return _pair(builder.sign(issuer_key, hashes.SHA256()), key)


def due(certificate: bytes, *, now: datetime) -> bool:
    """Return whether two thirds of a certificate's lifetime have passed, or it has not begun.

    One that was made while a clock was ahead would be refused until then.
    """
    found = x509.load_pem_x509_certificate(certificate)
    begin, end = found.not_valid_before_utc, found.not_valid_after_utc
    return not begin <= now < begin + (end - begin) * 2 / 3


def bundle(current: bytes, others: bytes, *, now: datetime) -> bytes:
    """Return the authorities to trust: the current one, then others still valid, each once."""
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


def _usage(*, sign_certificates: bool) -> x509.KeyUsage:
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


def _general(name: str) -> x509.GeneralName:
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
