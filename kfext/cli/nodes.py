"""`kubectl kfext nodes` and `usage`: the claims on nodes, suspect nodes, usage by namespace."""

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial

import click

from kfext.cli.cluster import ClusterOptions, cluster_options, kinds_in, read_snapshot
from kfext.cli.output import Columns, columns, format_output, output_option
from kfext.core.queue.usage import UsageRecord, decode_usage
from kfext.core.words import age, listed
from kfext.errors import Forbidden, NotFound, UserError
from kfext.kube import paths
from kfext.kube.client import Client
from kfext.kube.records import USAGE, read_record
from kfext.model.moment import Moment
from kfext.model.node import Node
from kfext.model.quantity import CPU, MEMORY, ON_EVERY_NODE, Resources
from kfext.model.snapshot import Snapshot
from kfext.model.tolerant import json_object, mapping, strings
from kfext.names import LEASE, NAMESPACE, SUSPECTS
from kfext.state.planner.recording import planner_of


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A row of the list of nodes.

    `taken`: what the pods and the plan of each job claim of the node's resources, by the title of
        the job; the empty title stands for all other pods.
    `suspicion`: why the node is suspect; empty means that it is not, None that this is unknown.
    """

    node: Node
    taken: Mapping[str, Resources]
    suspicion: str | None


def node_rows(
    snapshot: Snapshot, suspects: Mapping[str, str] | None, *, now: float
) -> tuple[NodeRow, ...]:
    """Return the row of each node, sorted by name.

    `suspects`: node -> why it is suspect; None stands for unknown. `now`: in epoch seconds.
    """
    cluster = planner_of(snapshot, Moment(wall=now, monotonic=now)).cluster
    rows = []
    for node in sorted(snapshot.nodes, key=lambda node: node.name):
        taken: dict[str, Counter[str]] = {}
        for claim in cluster.ledger.claims_on([node.name]):
            tracked = cluster.jobs.get(claim.job)
            amounts = taken.setdefault(tracked.job.title if tracked else "", Counter())
            resources = node.allocatable.keys() & claim.requests.keys()
            amounts.update({name: claim.requests[name] for name in resources})
        suspicion = None if suspects is None else suspects.get(node.name, "")
        rows.append(NodeRow(node, {job: dict(taken[job]) for job in sorted(taken)}, suspicion))
    return tuple(rows)


@click.command()
@output_option
@cluster_options
def nodes(*, output: str, cluster: ClusterOptions) -> None:
    """List the nodes, their use by gangs and other pods, and the suspect nodes.

    You need the same permissions as for `plan -f`.
    """
    click.echo(render_nodes(asyncio.run(_list_nodes(cluster)), output=output), nl=False)


async def _list_nodes(cluster: ClusterOptions) -> tuple[NodeRow, ...]:
    """Return the nodes of the cluster. Raises UserError, ApiError, NoAccess."""
    async with cluster.connect() as client:
        snapshot = await read_snapshot(client, await kinds_in(client))
        return node_rows(snapshot, await _suspects(client), now=time.time())


async def _suspects(client: Client) -> Mapping[str, str] | None:
    """Return the suspect nodes in the Lease, with reasons; None means that they are unknown."""
    try:
        lease = await client.get(paths.leases(NAMESPACE, LEASE))
    except (Forbidden, NotFound):
        return None
    annotations = strings(mapping(lease.get("metadata")).get("annotations"))
    return strings(json_object(annotations[SUSPECTS])) if SUSPECTS in annotations else None


def render_nodes(rows: Sequence[NodeRow], *, output: str) -> str:
    """Return the nodes as text, json or yaml."""
    scarce = {name for row in rows for name in row.node.allocatable} - ON_EVERY_NODE
    shown: Columns = {
        "NODE": lambda row: row.node.name,
        **{name.upper(): partial(_use, name) for name in (CPU, MEMORY, *sorted(scarce))},
        "GANGS": lambda row: listed([title for title in row.taken if title], noun="jobs"),
        "STATE": _state,
    }
    values = [asdict(row) for row in rows]
    return format_output(values, output=output, text=lambda: columns(shown, rows))


def _use(name: str, row: NodeRow) -> str:
    """Return the used and the allocatable amount of a resource."""
    unit = {CPU: 1000, MEMORY: 2**30}.get(name, 1)
    taken = sum(amounts.get(name, 0) for amounts in row.taken.values())
    suffix = "Gi" if name == MEMORY else ""
    return f"{taken / unit:.4g}/{row.node.allocatable.get(name, 0) / unit:.4g}{suffix}"


def state_words(node: Node) -> list[str]:
    """Return the words `cordoned` and `drained` if they apply to a node."""
    words = ["cordoned"] if node.unschedulable else []
    return words + (["drained"] if node.drain is not None else [])


def _state(row: NodeRow) -> str:
    words = state_words(row.node)
    if row.suspicion is None:
        words.append("not known whether it is suspect")
    elif row.suspicion:
        words.append(f"suspect: {row.suspicion}")
    return ", ".join(words)


# --- namespaces ---------------------------------------------------------------------------------

_USAGE: Columns = {
    "NAMESPACE": lambda line: line["namespace"],
    "WEIGHT": lambda line: f"{line['weight']:g}",
    "USED": lambda line: f"{100 * line['used']:.1f} %",
    "HELD": lambda line: f"{100 * line['held']:.1f} %",
    "WAITING": lambda line: f"{line['waiting']:g}",
}


@click.command()
@output_option
@cluster_options
def usage(*, output: str, cluster: ClusterOptions) -> None:
    """List the namespaces with their weight, usage, held capacity and number of waiting jobs.

    You need the permission to get the ConfigMap kfext-usage in kfext-system.
    """
    record = decode_usage(asyncio.run(_read_usage(cluster)))
    if not record.at:
        raise UserError(
            "no usage is recorded: a TrainingPolicy without namespaceSelector must set "
            "queue.fairness to usage; the first record takes up to ten minutes"
        )
    click.echo(render_usage(record, output=output, now=time.time()), nl=False)


async def _read_usage(cluster: ClusterOptions) -> str:
    """Return the usage record as text; empty if there is none. Raises ApiError, NoAccess."""
    async with cluster.connect() as client:
        return await read_record(client, USAGE)


def render_usage(record: UsageRecord, *, output: str, now: float) -> str:
    """Return a record as text, json or yaml, largest usage first. `now`: in epoch seconds."""
    lines = [
        {"namespace": name, **asdict(shares), "used": record.mean(name)}
        for name, shares in sorted(record.namespaces.items(), key=lambda item: -item[1].used)
    ]
    ago = max(now - record.at, 0.0)
    values = {"ageSeconds": int(ago), "halfLifeSeconds": record.half_life, "namespaces": lines}
    footer = f"{age(ago)} ago; usage halves in {age(record.half_life)}"
    return format_output(values, output=output, text=lambda: [*columns(_USAGE, lines), footer])
