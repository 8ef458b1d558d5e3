"""The metrics API (metrics.k8s.io), as metrics-server and others serve it: use of pods and nodes.

Of pods, one list for each namespace that is asked for, of training pods only, since whoever may
create pods there decides how long it is: a list that is too long costs the namespace its figures,
and no other. metrics-server does not page its lists.
"""

from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec

from kfext.errors import QuantityError, Unavailable
from kfext.kube import paths
from kfext.kube.client import Client
from kfext.model.cpu_use import CpuUse
from kfext.model.quantity import parse_quantity
from kfext.model.timestamps import duration, timestamp
from kfext.names import JOB_NAME

T = TypeVar("T")

MOST_BYTES = 4 * 2**20
"""Of a list: the figures of a pod have some 500 bytes."""


class _Metadata(msgspec.Struct):
    name: str


class _Usage(msgspec.Struct):
    cpu: Any = None


class _Container(msgspec.Struct):
    usage: _Usage


class _Window(msgspec.Struct):
    timestamp: Any = None
    window: Any = None


class _NodeMetrics(_Window):
    usage: _Usage | None = None


class _PodMetrics(_Window, kw_only=True):
    metadata: _Metadata
    containers: list[_Container] | None = None


class _PodMetricsList(msgspec.Struct):
    items: list[_PodMetrics] | None = None


async def uses_in(client: Client, namespace: str) -> dict[str, CpuUse]:
    """Return the CPU use of the training pods of a namespace by name.

    Pods without figures are left out. Raises ApiError: NotFound if there is no metrics API,
    Forbidden, AnswerTooLarge, Unavailable.
    """
    body = await client.page(
        paths.pod_metrics(namespace), {"labelSelector": JOB_NAME}, most=MOST_BYTES
    )
    return decoded(body)


async def use_of_node(client: Client, node: str) -> CpuUse | None:
    """Return the CPU use of all that runs on a node, None if that is not stated.

    Raises ApiError: NotFound if there are no figures of the node, Forbidden, Unavailable.
    """
    return decoded_node(await client.read(paths.node_metrics(node)))


def decoded(body: bytes) -> dict[str, CpuUse]:
    """Return the CPU use of each pod of a list by name. Raises Unavailable for no such list."""
    found = _decoded(body, _PodMetricsList).items or ()
    uses = (
        (item.metadata.name, _use(item, [one.usage for one in item.containers or ()]))
        for item in found
    )
    return {name: use for name, use in uses if use is not None}


def decoded_node(body: bytes) -> CpuUse | None:
    """Return the CPU use of a node. Raises Unavailable for no metrics of a node."""
    found = _decoded(body, _NodeMetrics)
    return _use(found, [found.usage] if found.usage else [])


def _decoded(body: bytes, form: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=form)
    except msgspec.DecodeError as error:
        message = f"the answer is not one of the metrics API: {error}"
        raise Unavailable(status=0, reason="Garbled", message=message) from error


def _use(measured: _Window, usages: Iterable[_Usage]) -> CpuUse | None:
    """Return what was used together in a window, None if that is not stated."""
    at, window = timestamp(measured.timestamp), duration(measured.window)
    try:
        cores = [float(parse_quantity(usage.cpu)) for usage in usages]
    except QuantityError:
        return None
    if not cores or min(cores) < 0 or not at or not window:
        return None
    return CpuUse(sum(cores), at=at, window=window)
