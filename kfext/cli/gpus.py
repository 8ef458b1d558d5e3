"""`kubectl kfext gpus`: the GPUs that jobs may share, and the pods that share them."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from kfext.cli.cluster import ClusterOptions, cluster_options
from kfext.cli.output import Columns, columns, format_output, output_option
from kfext.errors import Forbidden, NotFound, UserError
from kfext.kube import paths
from kfext.model.shared_gpu import (
    INFEASIBLE_MESSAGE,
    UNHOOKED,
    SharedGpu,
    coarse_message,
    parse_shared_gpu,
    shut_out_message,
)
from kfext.model.tolerant import mapping, sequence, text
from kfext.names import GPU_SHARING

_UNKNOWN = "-"
Raw = Mapping[str, Any]
"""A SharedGPU, or a sharer in its status, as a JSON object."""


@click.command()
@output_option
@cluster_options
def gpus(*, output: str, cluster: ClusterOptions) -> None:
    """List the shareable GPUs and, for each, the pods on it with their slowdown and GPU time.

    This requires the RBAC permission `list` on sharedgpus.
    """
    click.echo(render_gpus(asyncio.run(_list_shared_gpus(cluster)), output=output), nl=False)


async def _list_shared_gpus(cluster: ClusterOptions) -> Sequence[Raw]:
    """Return all SharedGPU objects, one for each slot. Raises UserError, ApiError, NoAccess."""
    async with cluster.connect() as client:
        try:
            return await client.list_all(paths.shared_gpus())
        except Forbidden as error:
            raise UserError(
                f"this requires the RBAC permission `list` on sharedgpus: {error}"
            ) from error
        except NotFound as error:
            raise UserError(
                "the cluster has no SharedGPUs: kfext's CRDs are not installed"
            ) from error


def render_gpus(objects: Sequence[Raw], *, output: str) -> str:
    """Return SharedGPUs as text, json or yaml, sorted by node and slot."""
    shared = [(gpu, raw) for raw in objects if (gpu := parse_shared_gpu(raw)) is not None]
    shared.sort(key=lambda pair: (pair[0].node, pair[0].slot))
    values = [{**mapping(raw.get("spec")), **mapping(raw.get("status"))} for _, raw in shared]
    return format_output(values, output=output, text=lambda: _lines(shared))


def _lines(shared: Sequence[tuple[SharedGpu, Raw]]) -> Iterator[str]:
    """Yield a line for each slot, with a line for each of its sharers below."""
    if not shared:
        label = f"{GPU_SHARING}=true"
        yield f"no node shares GPUs: install the component gpu-sharing, and label nodes {label}"
        return
    head, *rows = columns(_CARDS, [gpu for gpu, _ in shared])
    yield head
    for row, (_, raw) in zip(rows, shared, strict=True):
        yield row
        if sharers := sequence(mapping(raw.get("status")).get("sharers")):
            yield from columns(_SHARERS, map(mapping, sharers), indent=4)


def card_view(raw: Raw) -> dict[str, Any]:
    """Return a SharedGPU for the page: its node, and its sharers with the cells of the table."""
    gpu, status = parse_shared_gpu(raw), mapping(raw.get("status"))
    return {
        "node": gpu.node if gpu else "",
        "slot": gpu.slot if gpu else 0,
        "state": _state(gpu) if gpu else "",
        "sharers": [
            {
                "namespace": text(sharer.get("namespace")),
                "pod": text(sharer.get("pod")),
                "percent": share if type(share := sharer.get("sharePercent")) is int else 0,
                "cells": {head.lower(): cell(sharer) for head, cell in _SHARERS.items()},
            }
            for sharer in map(mapping, sequence(status.get("sharers")))
        ],
    }


def _state(gpu: SharedGpu) -> str:
    if not gpu.healthy:
        return f"unhealthy: {gpu.trouble}" if gpu.trouble else "unhealthy"
    if gpu.moved:
        return "moved: running sharers still use another GPU than the GPU reserved now"
    return "shared" if gpu.card else "free"


def _pod(raw: Raw) -> str:
    pod = f"{text(raw.get('namespace'))}/{text(raw.get('pod'))}"
    flags = {"guaranteeInfeasible": INFEASIBLE_MESSAGE, "evict": "to be evicted"}
    remarks = [message for field, message in flags.items() if raw.get(field) is True]
    if unhooked := UNHOOKED.get(text(raw.get("unhooked"))):
        remarks.append(f"not hooked: {unhooked}")
    millis = raw.get("coarseMillis")
    if type(millis) is int:
        remarks.append(coarse_message(millis))
    strikes = raw.get("strikes")
    if type(strikes) is int and strikes > 0:
        remarks.append(shut_out_message(strikes))
    return f"{pod} ({'; '.join(remarks)})" if remarks else pod


def _percent(permille: object) -> str:
    return f"{permille / 10:.1f} %" if type(permille) is int else _UNKNOWN


_CARDS: Columns = {
    "NODE": lambda gpu: gpu.node,
    "SLOT": lambda gpu: str(gpu.slot),
    "CARD": lambda gpu: gpu.card or _UNKNOWN,
    "MEMORY": lambda gpu: f"{gpu.memory / 1024:.0f} Gi" if gpu.memory else _UNKNOWN,
    "STATE": _state,
}
# SLOWDOWN is measured for high-priority pods. GPU TIME and AT GATE are measured for low-priority
# pods: the used fraction of the last seconds, and the total time at the GPU gate.
_SHARERS: Columns = {
    "PRIORITY": lambda raw: text(raw.get("priority")) or _UNKNOWN,
    "SHARE": lambda raw: f"{raw.get('sharePercent', _UNKNOWN)} %",
    "GPU TIME ALONE": lambda raw: _percent(raw.get("busyPermille")),
    "SLOWDOWN": lambda raw: _percent(raw.get("lossPermille")),
    "GPU TIME": lambda raw: _percent(raw.get("harvestPermille")),
    "AT GATE": lambda raw: (
        f"{seconds} s" if type(seconds := raw.get("waitedSeconds")) is int else _UNKNOWN
    ),
    "POD": _pod,
}
