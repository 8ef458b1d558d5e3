"""What controller and webhook share: the authority in a Secret, written by the controller alone."""

import base64
import binascii
from dataclasses import dataclass

from kfext.kube import paths
from kfext.kube.certs.authority import Pair
from kfext.kube.client import Client, Object
from kfext.names import CA_SECRET, NAMESPACE


@dataclass(frozen=True, slots=True)
class Trust:
    """The authority that signs now, and the PEM bundle of all that are still trusted.

    `version`: the resource version of the Secret, empty before it is written.
    """

    authority: Pair
    bundle: bytes
    version: str = ""


async def read_trust(client: Client) -> Trust:
    """Return what is in the Secret; the authority need not be usable. Raises NotFound, ApiError."""
    secret = await client.get(paths.secrets(NAMESPACE, CA_SECRET))
    data = secret.get("data") or {}
    pair = Pair(decoded(data.get("tls.crt")), decoded(data.get("tls.key")))
    return Trust(pair, decoded(data.get("ca.crt")), secret["metadata"]["resourceVersion"])


async def write_trust(client: Client, trust: Trust) -> None:
    """Write the Secret. Raises Conflict if it is not as it was in `trust.version`, ApiError."""
    values = {
        "tls.crt": trust.authority.certificate,
        "tls.key": trust.authority.key,
        "ca.crt": trust.bundle,
    }
    data = {key: encoded(value) for key, value in values.items()}
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


def encoded(value: bytes) -> str:
    """Return bytes as the API writes them."""
    return base64.b64encode(value).decode()


def decoded(value: str | None) -> bytes:
    """Return what the API wrote as base64; empty if it is absent or damaged."""
    try:
        return base64.b64decode(value or "")
    except binascii.Error:
        return b""
