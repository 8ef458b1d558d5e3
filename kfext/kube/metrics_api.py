"""The metrics API (metrics.k8s.io), as metrics-server and others serve it: CPU use of pods.

One list for each namespace that is asked for, of training pods only, since whoever may create pods
there decides how long it is: a list that is too long costs the namespace its figures, and no other.
metrics-server does not page its lists.
"""

from typing import Any

import msgspec

from kfext.errors import QuantityError, Unavailable
from kfext.kube import paths
from kfext.kube.client import Client
from kfext.model.cpu_use import CpuUse
from kfext.model.quantity import parse_quantity
from kfext.model.timestamps import duration, timestamp
from kfext.names import JOB_NAME

MOST_BYTES = 4 * 2**20
"""Of a list: the figures of a pod have some 500 bytes."""


class _Metadata(msgspec.Struct):
    name: str


class _Usage(msgspec.Struct):
    cpu: Any = None


class _Container(msgspec.Struct):
    usage: _Usage


class _PodMetrics(msgspec.Struct):
    metadata: _Metadata
    timestamp: Any = None
    window: Any = None
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


def decoded(body: bytes) -> dict[str, CpuUse]:
    """Return the CPU use of each pod of a list by name. Raises Unavailable for no such list."""
    try:
        found = msgspec.json.decode(body, type=_PodMetricsList).items or ()
    except msgspec.DecodeError as error:
        message = f"the answer is no list of pod metrics: {error}"
        raise Unavailable(status=0, reason="Garbled", message=message) from error
    uses = ((item.metadata.name, _use(item)) for item in found)
    return {name: use for name, use in uses if use is not None}


def _use(item: _PodMetrics) -> CpuUse | None:
    """Return what all containers of a pod used together, None if that is not stated."""
    at, window = timestamp(item.timestamp), duration(item.window)
    try:
        cores = [float(parse_quantity(one.usage.cpu)) for one in item.containers or ()]
    except QuantityError:
        return None
    if not cores or min(cores) < 0 or not at or not window:
        return None
    return CpuUse(sum(cores), at=at, window=window)
