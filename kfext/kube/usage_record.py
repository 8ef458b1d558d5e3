"""The ConfigMap with what namespaces used of the cluster."""

from kfext.errors import NotFound
from kfext.kube import paths
from kfext.kube.client import Client
from kfext.model.tolerant import member, text
from kfext.names import NAMESPACE, USAGE_RECORD

_PATH = paths.config_maps(NAMESPACE, USAGE_RECORD)
_KEY = "usage"


async def read_usage(client: Client) -> str:
    """Return the stored record, empty without one. Raises ApiError."""
    try:
        return text(member(await client.get(_PATH), ("data", _KEY)))
    except NotFound:
        return ""


async def write_usage(client: Client, record: str) -> None:
    """Store a record. Raises ApiError."""
    metadata = {"namespace": NAMESPACE, "name": USAGE_RECORD}
    made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    await client.apply(_PATH, {**made, "data": {_KEY: record}})
