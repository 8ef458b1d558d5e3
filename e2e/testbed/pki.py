"""The cluster's certificates: a CA, and the certificates of components and users."""

import base64
import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFETIME = datetime.timedelta(days=365)
# Certificates are valid from an hour ago, because clocks may differ a little.
_BACKDATED = datetime.timedelta(hours=1)


@dataclass(frozen=True)
class Credential:
    """A certificate and its key, both PEM files."""

    certificate: Path
    key: Path


class Pki:
    """The CA of a cluster, in a folder; it is made on first use."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.authority = Credential(folder / "ca.crt", folder / "ca.key")
        if not self.authority.certificate.exists():
            self._make_authority()

    def service_account_key(self) -> Path:
        """Return the private key for service account tokens, which signs and verifies them."""
        path = self._folder / "service-accounts.key"
        if not path.exists():
            _write_key(path, ec.generate_private_key(ec.SECP256R1()))
        return path

    def server(self, name: str, *, hosts: Sequence[str]) -> Credential:
        """Issue a server certificate for these DNS names and IP addresses."""
        return self._issue(name, name, (), ExtendedKeyUsageOID.SERVER_AUTH, hosts)

    def client(self, user: str, *, groups: Sequence[str] = ()) -> Credential:
        """Issue a client certificate for `user`, the CN, in `groups`, the O fields."""
        usage = ExtendedKeyUsageOID.CLIENT_AUTH
        return self._issue(user.replace(":", "_"), user, groups, usage, ())

    def kubeconfig(self, path: Path, *, server: str, user: str, groups: Sequence[str] = ()) -> Path:
        """Write a self-contained kubeconfig for `user` at the URL `server`."""
        credential = self.client(user, groups=groups)
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "testbed",
                    "cluster": {
                        "server": server,
                        "certificate-authority-data": _encoded(self.authority.certificate),
                    },
                }
            ],
            "users": [
                {
                    "name": user,
                    "user": {
                        "client-certificate-data": _encoded(credential.certificate),
                        "client-key-data": _encoded(credential.key),
                    },
                }
            ],
            "contexts": [{"name": "testbed", "context": {"cluster": "testbed", "user": user}}],
            "current-context": "testbed",
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(content, sort_keys=False))
        return path

    def _make_authority(self) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name("kfext-testbed", ())
        builder = _builder(name, name, key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        _write_key(self.authority.key, key)
        self._write_certificate(self.authority.certificate, builder.sign(key, hashes.SHA256()))

    def _issue(
        self,
        file: str,
        common_name: str,
        organizations: Sequence[str],
        usage: x509.ObjectIdentifier,
        hosts: Sequence[str],
    ) -> Credential:
        issued = Credential(self._folder / f"{file}.crt", self._folder / f"{file}.key")
        authority = x509.load_pem_x509_certificate(self.authority.certificate.read_bytes())
        signer = serialization.load_pem_private_key(self.authority.key.read_bytes(), None)
        assert isinstance(signer, ec.EllipticCurvePrivateKey)
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _name(common_name, organizations)
        builder = _builder(subject, authority.subject, key.public_key())
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), False)
        if hosts:
            names = x509.SubjectAlternativeName([_host(host) for host in hosts])
            builder = builder.add_extension(names, False)
        _write_key(issued.key, key)
        self._write_certificate(issued.certificate, builder.sign(signer, hashes.SHA256()))
        return issued

    @staticmethod
    def _write_certificate(path: Path, certificate: x509.Certificate) -> None:
        path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + _LIFETIME)
    )


def _name(common_name: str, organizations: Sequence[str]) -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, name) for name in organizations]
    return x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            # The API server reads a service account key in this format only.
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )


def _encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
