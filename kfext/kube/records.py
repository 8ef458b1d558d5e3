"""The ConfigMaps in which the leader keeps a text for its successor or for people."""

from typing import NamedTuple

from kfext.errors import NotFound
from kfext.kube import paths
from kfext.kube.client import Client
from kfext.model.tolerant import member, text
from kfext.names import CAPACITY_RECORD, NAMESPACE, USAGE_RECORD


class Record(NamedTuple):
    """A ConfigMap in NAMESPACE, and the key of its text."""

    name: str
    key: str


USAGE = Record(USAGE_RECORD, "usage")
"""What namespaces used of the cluster."""
CAPACITY = Record(CAPACITY_RECORD, "capacity")
"""What each node has and what is free."""


async def read_record(client: Client, record: Record) -> str:
    """Return the stored text, empty without one. Raises ApiError."""
    try:
        found = await client.get(paths.config_maps(NAMESPACE, record.name))
    except NotFound:
        return ""
    return text(member(found, ("data", record.key)))


async def write_record(client: Client, record: Record, written: str) -> None:
    """Store a text. Raises ApiError."""
    metadata = {"namespace": NAMESPACE, "name": record.name}
    made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    path = paths.config_maps(NAMESPACE, record.name)
    await client.apply(path, {**made, "data": {record.key: written}})
