"""The ConfigMaps in which the leading controller stores a text for its successor or for people."""

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
"""The usage of the cluster by namespace."""
CAPACITY = Record(CAPACITY_RECORD, "capacity")
"""The allocatable and free capacity of each node."""


async def read_record(client: Client, record: Record) -> str:
    """Return the stored text; empty if there is none. Raises ApiError."""
    try:
        config_map = await client.get(paths.config_maps(NAMESPACE, record.name))
    except NotFound:
        return ""
    return text(member(config_map, ("data", record.key)))


async def write_record(client: Client, record: Record, written: str) -> None:
    """Store a text. Raises ApiError."""
    metadata = {"namespace": NAMESPACE, "name": record.name}
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    path = paths.config_maps(NAMESPACE, record.name)
    await client.apply(path, {**config_map, "data": {record.key: written}})
