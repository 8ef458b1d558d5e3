import base64
import stat
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from e2e.testbed.pki import Credential, Pki


def _load(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def _usage(certificate: x509.Certificate) -> list[x509.ObjectIdentifier]:
    return list(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)


def _matches(credential: Credential) -> bool:
    key = serialization.load_pem_private_key(credential.key.read_bytes(), None)
    return key.public_key() == _load(credential.certificate).public_key()


@pytest.mark.parametrize(
    ("user", "groups"),
    [
        ("admin", ("system:masters",)),
        ("system:node:kfx0-node0", ("system:nodes",)),
        ("alice", ()),
        ("bob", ("team-a", "team-b")),
    ],
)
def test_client_certificate_says_user_and_groups(
    tmp_path: Path, user: str, groups: tuple[str, ...]
) -> None:
    pki = Pki(tmp_path / "pki")
    credential = pki.client(user, groups=groups)
    certificate = _load(credential.certificate)
    certificate.verify_directly_issued_by(_load(pki.authority.certificate))
    names = certificate.subject.get_attributes_for_oid
    assert [name.value for name in names(NameOID.COMMON_NAME)] == [user]
    assert tuple(name.value for name in names(NameOID.ORGANIZATION_NAME)) == groups
    assert _usage(certificate) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    assert _matches(credential)


def test_server_certificate_holds_for_every_host(tmp_path: Path) -> None:
    pki = Pki(tmp_path / "pki")
    hosts = ["localhost", "kubernetes.default.svc", "127.0.0.1", "10.208.0.1"]
    certificate = _load(pki.server("kube-apiserver", hosts=hosts).certificate)
    certificate.verify_directly_issued_by(_load(pki.authority.certificate))
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == hosts[:2]
    assert [str(host) for host in names.get_values_for_type(x509.IPAddress)] == hosts[2:]
    assert _usage(certificate) == [ExtendedKeyUsageOID.SERVER_AUTH]


def test_authority_and_account_key_are_made_once(tmp_path: Path) -> None:
    first, second = Pki(tmp_path / "pki"), Pki(tmp_path / "pki")
    key = first.service_account_key().read_bytes()
    assert second.service_account_key().read_bytes() == key
    issued = _load(second.client("late").certificate)
    issued.verify_directly_issued_by(_load(first.authority.certificate))


def test_kubeconfig_stands_alone_and_nobody_else_may_read_it(tmp_path: Path) -> None:
    pki = Pki(tmp_path / "pki")
    path = pki.kubeconfig(tmp_path / "new" / "config", server="https://127.0.0.1:1", user="alice")
    content = yaml.safe_load(path.read_text())
    cluster, user = content["clusters"][0]["cluster"], content["users"][0]["user"]
    assert cluster["server"] == "https://127.0.0.1:1"
    authority = base64.b64decode(cluster["certificate-authority-data"])
    assert authority == pki.authority.certificate.read_bytes()
    x509.load_pem_x509_certificate(base64.b64decode(user["client-certificate-data"]))
    assert content["contexts"][0]["context"] == {"cluster": "testbed", "user": "alice"}
    private = [path, pki.authority.key, pki.service_account_key()]
    assert {stat.S_IMODE(file.stat().st_mode) for file in private} == {0o600}
