"""`kubectl kfext gpus`: the GPUs that jobs may share, and the pods that share them."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from kfext.cli.cluster import ClusterOptions, cluster_options
from kfext.cli.output import Columns, columns, output_option, printed
from kfext.errors import Forbidden, NotFound, UserError
from kfext.kube import paths
from kfext.model.shared_gpu import (
    INFEASIBLE,
    UNHOOKED,
    SharedGpu,
    coarse,
    parse_shared_gpu,
    shut_out,
)
from kfext.model.tolerant import mapping, sequence, text

_UNKNOWN = "-"
Raw = Mapping[str, Any]


@click.command()
@output_option
@cluster_options
def gpus(*, output: str, cluster: ClusterOptions) -> None:
    """List the GPUs that jobs may share, with the jobs on each, their losses and their gains.

    You need the right to list SharedGPUs.
    """
    click.echo(written(asyncio.run(_shared_gpus(cluster)), output=output), nl=False)


async def _shared_gpus(cluster: ClusterOptions) -> Sequence[Raw]:
    """Return the slots of all nodes. Raises UserError, ApiError, NoAccess."""
    async with cluster.connect() as client:
        try:
            return await client.list_all(paths.shared_gpus())
        except Forbidden as error:
            raise UserError(
                f"you need the right to list SharedGPUs of the cluster: {error}"
            ) from error
        except NotFound as error:
            raise UserError(
                "the cluster has no SharedGPUs: kfext's CRDs are not installed"
            ) from error


def written(objects: Sequence[Raw], *, output: str) -> str:
    """Return SharedGPUs as text, json or yaml, in the order of nodes and slots."""
    shared = [(gpu, raw) for raw in objects if (gpu := parse_shared_gpu(raw)) is not None]
    shared.sort(key=lambda pair: (pair[0].node, pair[0].slot))
    lines = [{**mapping(raw.get("spec")), **mapping(raw.get("status"))} for _, raw in shared]
    return printed(lines, output=output, words=lambda: in_words(shared))


def in_words(shared: Sequence[tuple[SharedGpu, Raw]]) -> Iterator[str]:
    """Yield SharedGPUs for a person: a line for each card, with a line for each sharer below."""
    if not shared:
        yield "no node shares GPUs: install the component gpu-sharing, and label nodes for it"
        return
    head, *rows = columns(_CARDS, [gpu for gpu, _ in shared])
    yield head
    for row, (_, raw) in zip(rows, shared, strict=True):
        yield row
        if sharers := sequence(mapping(raw.get("status")).get("sharers")):
            yield from columns(_SHARERS, map(mapping, sharers), indent=4)


def _state(gpu: SharedGpu) -> str:
    if not gpu.healthy:
        return f"unhealthy: {gpu.trouble}" if gpu.trouble else "unhealthy"
    if gpu.moved:
        return "moved: its sharers have another card"
    return "shared" if gpu.card else "free"


def _pod(raw: Raw) -> str:
    """Return the pod of a sharer, with remarks."""
    pod = f"{text(raw.get('namespace'))}/{text(raw.get('pod'))}"
    flags = {"guaranteeInfeasible": INFEASIBLE, "evict": "it must leave"}
    remarks = [words for field, words in flags.items() if raw.get(field) is True]
    if unhooked := UNHOOKED.get(text(raw.get("unhooked"))):
        remarks.append(f"not hooked: {unhooked}")
    millis = raw.get("coarseMillis")
    if type(millis) is int:
        remarks.append(coarse(millis))
    strikes = raw.get("strikes")
    if type(strikes) is int and strikes > 0:
        remarks.append(shut_out(strikes))
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
_SHARERS: Columns = {
    "PRIORITY": lambda raw: text(raw.get("priority")) or _UNKNOWN,
    "SHARE": lambda raw: f"{raw.get('sharePercent', _UNKNOWN)} %",
    "BUSY ALONE": lambda raw: _percent(raw.get("busyPermille")),
    "LOSS": lambda raw: _percent(raw.get("lossPermille")),
    "GETS": lambda raw: _percent(raw.get("harvestPermille")),
    "WAITED": lambda raw: (
        f"{waited} s" if type(waited := raw.get("waitedSeconds")) is int else _UNKNOWN
    ),
    "POD": _pod,
}
"""A job of high priority loses, and a job of low priority gets what is left."""
