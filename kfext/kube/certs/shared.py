"""What the webhook's replicas share: the authority in a Secret, and the caBundle made from it."""

import base64
import binascii
from dataclasses import dataclass
from datetime import datetime

from kfext.errors import Conflict, NotFound
from kfext.kube import paths
from kfext.kube.certs.authority import Pair, bundle, due, new_authority
from kfext.kube.client import Client
from kfext.kube.request import Object
from kfext.names import CA_SECRET, NAMESPACE, WEBHOOK_CONFIGURATION


@dataclass(frozen=True, slots=True)
class Trust:
    """The authority that signs now, and the PEM bundle of all that are still trusted."""

    authority: Pair
    bundle: bytes


async def ensure_authority(client: Client, *, now: datetime) -> Trust:
    """Return the authority in the Secret; create it if absent, replace it if unusable or due.

    If several replicas create or replace it at once, one wins and all return its authority. The
    authorities that the API servers already trust stay trusted, because other replicas still serve
    certificates that these signed. Raises ApiError.
    """
    while True:
        try:
            try:
                secret = await client.get(paths.secrets(NAMESPACE, CA_SECRET))
            except NotFound:
                trust = _renewed(await _trusted_now(client), now=now)
                await client.create(paths.secrets(NAMESPACE), _secret(trust))
                return trust
            trust = _stored(secret)
            if trust.authority.usable and not due(trust.authority.certificate, now=now):
                return Trust(trust.authority, bundle(*_certificates(trust), now=now))
            trust = _renewed(trust.bundle, now=now)
            version = {"metadata": {"resourceVersion": secret["metadata"]["resourceVersion"]}}
            patch = {**version, "data": _secret(trust)["data"]}
            await client.merge_patch(paths.secrets(NAMESPACE, CA_SECRET), patch)
            return trust
        except Conflict:
            continue  # another replica was faster: use its authority


async def inject_bundle(client: Client, trusted: bytes) -> bool:
    """Write the caBundle into every webhook that has a different one; return whether any had.

    Raises NotFound if there is no webhook configuration, Invalid if its webhooks change meanwhile.
    """
    path = paths.mutating_webhooks(WEBHOOK_CONFIGURATION)
    wanted = base64.b64encode(trusted).decode()
    operations: list[Object] = []
    for index, webhook in enumerate((await client.get(path)).get("webhooks") or ()):
        if webhook["clientConfig"].get("caBundle") == wanted:
            continue
        at = f"/webhooks/{index}"
        operations += [
            {"op": "test", "path": f"{at}/name", "value": webhook["name"]},
            {"op": "add", "path": f"{at}/clientConfig/caBundle", "value": wanted},
        ]
    if operations:
        await client.json_patch(path, operations)
    return bool(operations)


async def _trusted_now(client: Client) -> bytes:
    """Return the caBundles of the webhook configuration; empty if there are none."""
    try:
        configuration = await client.get(paths.mutating_webhooks(WEBHOOK_CONFIGURATION))
    except NotFound:
        return b""
    hooks = configuration.get("webhooks") or ()
    return b"\n".join(_decoded(hook["clientConfig"].get("caBundle")) for hook in hooks)


def _renewed(old_bundle: bytes, *, now: datetime) -> Trust:
    authority = new_authority(now=now)
    return Trust(authority, bundle(authority.certificate, old_bundle, now=now))


def _certificates(trust: Trust) -> tuple[bytes, bytes]:
    return trust.authority.certificate, trust.bundle


def _stored(secret: Object) -> Trust:
    data = secret.get("data") or {}
    pair = Pair(_decoded(data.get("tls.crt")), _decoded(data.get("tls.key")))
    return Trust(pair, _decoded(data.get("ca.crt")))


def _decoded(value: str | None) -> bytes:
    try:
        return base64.b64decode(value or "")
    except binascii.Error:
        return b""


def _secret(trust: Trust) -> Object:
    data = {
        "tls.crt": trust.authority.certificate,
        "tls.key": trust.authority.key,
        "ca.crt": trust.bundle,
    }
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {"namespace": NAMESPACE, "name": CA_SECRET},
        "data": {key: base64.b64encode(value).decode() for key, value in data.items()},
    }
