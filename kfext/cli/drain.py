"""`kubectl kfext drain` and `uncordon`: drain a node of gangs, which save their work first.

The command marks the node and watches; the controller drains it, even after the command ends.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import click

from kfext.cli.cluster import ClusterOptions, Raw, all_plans, cluster_options, jobs_on
from kfext.cli.output import plain
from kfext.core.eligibility import why_not_drained
from kfext.core.settings.resolve import settings_of
from kfext.errors import Conflict, NotFound, UserError
from kfext.kube import paths
from kfext.kube.client import Client
from kfext.model.job import TrainingJob, planned_uid
from kfext.model.namespace import Namespace, parse_namespace
from kfext.model.policy import parse_policy
from kfext.model.tolerant import mapping, sequence, text
from kfext.names import DRAIN, DRAIN_BY_FORCE, STOPPED

REMAIN = 3
"""The exit code while jobs of kfext remain on the node."""
POLL_SECONDS = 5.0
_ATTEMPTS = 5


@click.command()
@click.argument("node")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0.0),
    default=900.0,
    show_default=True,
    help="Seconds to wait for the jobs.",
)
@click.option("--dry-run", is_flag=True, help="Only list the jobs, with what each would do.")
@click.option("--force", is_flag=True, help="Also stop jobs that did not opt in.")
@cluster_options
def drain(
    *, node: str, timeout: float, dry_run: bool, force: bool, cluster: ClusterOptions
) -> None:
    """Drain NODE: each gang saves its work and leaves as a whole.

    Exit codes: 0 no job of kfext remains, 3 jobs remain, 1 refused or failed, 2 wrong usage.
    """

    async def show() -> int:
        remaining = 0
        progress = Drain(cluster, node, force=force).watch(timeout=timeout, dry_run=dry_run)
        async for number, line in progress:
            remaining = number
            click.echo(plain(line))
        return remaining

    if asyncio.run(show()):
        raise click.exceptions.Exit(REMAIN)


@click.command()
@click.argument("node")
@cluster_options
def uncordon(*, node: str, cluster: ClusterOptions) -> None:
    """Make NODE schedulable again: undo `drain`, even while jobs save their work."""

    async def undo() -> None:
        async with cluster.connect() as client:
            await mark(client, node, by_force=None)

    asyncio.run(undo())
    click.echo(plain(f"{node} is schedulable again"))


class Drain:
    """A drain of a node; `force`: whether to stop jobs that did not opt in."""

    def __init__(self, cluster: ClusterOptions, node: str, *, force: bool) -> None:
        self._cluster = cluster
        self._node = node
        self._force = force

    async def watch(self, *, timeout: float, dry_run: bool) -> AsyncIterator[tuple[int, str]]:  # noqa: ASYNC109
        """Mark the node; yield the number of remaining jobs, each time with a line to print.

        It ends when no job remains, when each remaining job is ineligible, or after `timeout` s.
        Raises UserError, ApiError, NoAccess.
        """
        async with self._cluster.connect() as client:
            await jobs_on(client, self._node)  # fail before any write if the user may not list jobs
            if not dry_run:
                await mark(client, self._node, by_force=self._force)
            deadline, printed = time.monotonic() + timeout, dict[str, str]()
            while True:
                jobs = await jobs_on(client, self._node)
                ineligible = await self._why_ineligible(client, jobs)
                shown = {} if dry_run else await _drain_messages(client, jobs)
                for job in jobs:
                    line = (
                        ineligible.get(job.uid) or shown.get(job.uid) or _text(job, dry_run=dry_run)
                    )
                    if printed.get(job.uid) != line:
                        printed[job.uid] = line
                        yield len(jobs), f"{job.title}: {line}"
                done = dry_run or len(ineligible) == len(jobs) or time.monotonic() >= deadline
                if done:
                    break
                await asyncio.sleep(POLL_SECONDS)
        yield len(jobs), f"{self._node}: {_remaining_text(len(jobs))}"

    async def _why_ineligible(self, client: Client, jobs: Sequence[TrainingJob]) -> dict[str, str]:
        if not jobs:
            return {}
        policies = [parse_policy(raw) for raw in await client.list_all(paths.policies())]
        listed = map(parse_namespace, await client.list_all(paths.namespaces()))
        namespaces = {namespace.name: namespace for namespace in listed}
        reasons: dict[str, str] = {}
        for job in jobs:
            namespace = namespaces.get(job.namespace, Namespace(job.namespace))
            settings = settings_of(job, namespace, policies)
            if why := why_not_drained(job, settings, by_force=self._force):
                reasons[job.uid] = f"ineligible: {why.message}"
        return reasons


def _text(job: TrainingJob, *, dry_run: bool) -> str:
    if job.suspend:
        return "its pods are terminating"
    return "it would save its work and leave" if dry_run else "it saves its work and leaves"


def _remaining_text(number: int) -> str:
    return "1 job of kfext remains" if number == 1 else f"{number or 'no'} jobs of kfext remain"


async def _drain_messages(client: Client, jobs: Sequence[TrainingJob]) -> dict[str, str]:
    """Return the messages about the drain in the TrainingPlans of jobs, by uid."""
    messages: dict[str, str] = {}
    uids = {job.uid for job in jobs}
    for namespace in {job.namespace for job in jobs}:
        for raw in await all_plans(client, namespace=namespace):
            if (uid := planned_uid(raw)) in uids and (message := _stopped_message(raw)):
                messages[uid] = message
    return messages


def _stopped_message(raw: Raw) -> str:
    conditions = map(mapping, sequence(mapping(raw.get("status")).get("conditions")))
    stopped = (condition for condition in conditions if condition.get("type") == STOPPED)
    return next((text(condition.get("message")) for condition in stopped), "")


async def mark(client: Client, node: str, *, by_force: bool | None) -> None:
    """Cordon a node and add the taint of a drain; with `by_force` None, undo both.

    Raises UserError if the node does not exist or keeps changing, ApiError.
    """
    for _ in range(_ATTEMPTS):
        try:
            raw = await client.get(paths.nodes(node))
            await client.merge_patch(paths.nodes(node), mark_patch(raw, by_force=by_force))
        except NotFound as error:
            raise UserError(f"there is no node {node!r}: see kubectl get nodes") from error
        except Conflict:
            continue  # another client, such as its kubelet, has changed the node
        return
    raise UserError(f"node {node!r} changed {_ATTEMPTS} times while it was marked: try again")


def mark_patch(raw: Mapping[str, Any], *, by_force: bool | None) -> Raw:
    """Return the merge patch of `mark` for a node; it fails if the node has changed since `raw`."""
    others = [
        taint
        for taint in sequence(mapping(raw.get("spec")).get("taints"))
        if mapping(taint).get("key") != DRAIN
    ]
    drained = by_force is not None
    value = {"value": DRAIN_BY_FORCE} if by_force else {}
    added = [{"key": DRAIN, "effect": "PreferNoSchedule", **value}] if drained else []
    return {
        "metadata": {"resourceVersion": text(mapping(raw.get("metadata")).get("resourceVersion"))},
        "spec": {"unschedulable": drained or None, "taints": [*others, *added] or None},
    }
