"""`kubectl kfext ui`: a local, read-only page with jobs, queue, nodes and history."""

import asyncio
import getpass
import math
import os
import sys
import time
import webbrowser
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import IO, Any

import click
import msgspec

from kfext import names
from kfext.cli.cluster import ClusterOptions, all_namespaces_option, cluster_options
from kfext.cli.explain import explanation_lines, explanation_of, phase_of
from kfext.cli.gpus import card_view
from kfext.cli.nodes import node_rows
from kfext.cli.output import entry
from kfext.cli.ui_state import (
    Capacity,
    JobView,
    Source,
    State,
    job_view,
    note,
    parse_capacity,
    state_of,
)
from kfext.cli.what_if import expected_starts
from kfext.core.queue.expected import encode_expected
from kfext.core.words import clock, listed
from kfext.errors import Forbidden, KfextError
from kfext.kube import paths
from kfext.kube.client import Client
from kfext.kube.informer import Informer
from kfext.kube.snapshot_file import SnapshotFile, read_snapshot_file
from kfext.kube.wire import decode_node
from kfext.model.moment import Moment
from kfext.model.quantity import written_amount
from kfext.model.timestamps import written_time
from kfext.model.tolerant import mapping
from kfext.state.mirror.tracked_job import TrackedJob
from kfext.state.planner.planner import Planner
from kfext.state.planner.recording import planner_of

_POLL_SECONDS = 0.1
_LIST_PLANS = "list trainingplans"
_CAPACITY_VIEWS = ("cluster", "queue")
"""The views that show capacity."""


@click.command()
@click.option("--port", default=8787, show_default=True, help="Port of the page; 0: any free port.")
@click.option("--no-open", is_flag=True, help="Print the address, but open no browser.")
@click.option(
    "--snapshot",
    type=click.File("rb"),
    help="Show this snapshot of a controller (SIGUSR1) instead of the cluster.",
)
@all_namespaces_option
@cluster_options
def ui(
    *,
    port: int,
    no_open: bool,
    snapshot: IO[bytes] | None,
    all_namespaces: bool,
    cluster: ClusterOptions,
) -> None:
    """Show jobs, queue, nodes and history on a page in your browser, until Ctrl-C.

    Only this machine can open the page. It has your permissions, and changes nothing. Without -n it
    shows the whole cluster if you may list TrainingPlans there, else the context's namespace.
    """
    from kfext.cli.ui_server import serve  # noqa: PLC0415 - other commands need no server
    from kfext.runtime import configure_logs  # noqa: PLC0415

    configure_logs("error")  # the page shows failures

    def greet(address: str) -> None:
        for line in _greeting(address):
            click.echo(line)
        # Without a display, a text browser would take the terminal.
        display = sys.platform != "linux" or {"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys()
        if display and not no_open and "SSH_CONNECTION" not in os.environ:
            webbrowser.open(address)

    async def run() -> None:
        if snapshot is not None:
            source = snapshot_source(read_snapshot_file(snapshot.read(), name=snapshot.name))
            await serve(source, port=port, greet=greet)
            return
        async with (
            cluster.connect() as client,
            cluster_source(client, cluster, all_namespaces=all_namespaces) as source,
        ):
            await serve(source, port=port, greet=greet)

    with suppress(KeyboardInterrupt):
        asyncio.run(run())


def _greeting(address: str) -> list[str]:
    lines = [f"kfext is at {address}", "Ctrl-C ends it."]
    if ssh := os.environ.get("SSH_CONNECTION", "").split():
        port = address.partition("/?")[0].rpartition(":")[2]
        other = f" -p {ssh[3]}" if ssh[3] != "22" else ""
        forward = f"ssh -L {port}:127.0.0.1:{port}{other} {getpass.getuser()}@{ssh[2]}"
        lines.insert(1, f"On your own machine, type first: {forward}")
    return lines


@asynccontextmanager
async def cluster_source(
    client: Client, cluster: ClusterOptions, *, all_namespaces: bool = False
) -> AsyncIterator[Source]:
    """Yield a cluster as a source, read with the user's rights. Raises ApiError."""
    namespace, notes = "" if all_namespaces else cluster.namespace or "", list[State]()
    try:
        await client.first(paths.plans(namespace), count=1)
    except Forbidden:
        if not (namespace or all_namespaces):
            namespace = cluster.in_namespace()
            words = f"you see namespace {namespace} alone, because you may not {_LIST_PLANS} in all"
            role = f"ClusterRole {names.CLUSTER_VIEW} has this right"
            notes.append(note(f"{words} namespaces; {role}", *_CAPACITY_VIEWS))
    live = _Live(client, namespace, notes)
    tasks = [asyncio.create_task(informer.run()) for informer in live.informers.values()]
    try:
        yield Source(live.ready, lambda: live.plans.store, live.state, live.explain)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Live:
    """A watched cluster. `informers`: permission -> the informer that requires it."""

    def __init__(self, client: Client, namespace: str, notes: Sequence[State]) -> None:
        self._client, self._namespace, self._notes = client, namespace, notes
        self.plans = Informer(client, paths.plans(namespace), decode=_decode_job)
        self._nodes = Informer(client, paths.nodes(), decode=decode_node)
        self._cards = Informer(
            client, paths.shared_gpus(), decode=lambda raw: card_view(_decode_object(raw))
        )
        self._records = Informer(
            client,
            paths.config_maps(names.NAMESPACE),
            decode=lambda raw: parse_capacity(mapping(_decode_object(raw).get("data"))),
            selectors={"fieldSelector": f"metadata.name={names.CAPACITY_RECORD}"},
        )
        self.informers: dict[str, Informer[Any]] = {
            _LIST_PLANS: self.plans,
            "list nodes": self._nodes,
            "list sharedgpus": self._cards,
            f"list configmap {names.NAMESPACE}/{names.CAPACITY_RECORD}": self._records,
        }

    async def ready(self) -> None:
        for informer in self.informers.values():
            while not (informer.synced.is_set() or informer.failure):  # noqa: ASYNC110 - no event has both
                await asyncio.sleep(_POLL_SECONDS)

    def state(self) -> State:
        now, age = time.time(), self.plans.last_event_age() if self.plans.failure else 0.0
        return state_of(
            self.plans.store,
            nodes=self._nodes.store,
            capacity=next(iter(self._records.store), Capacity()),
            cards=self._cards.store,
            notes=[*self._notes, *self._gaps()],
            scope=self._namespace,
            at=now,
            heard=None if math.isinf(age) else now - age,
        )

    def _gaps(self) -> Iterator[State]:
        """Yield notes on data that the page cannot show, with the reasons."""
        failures = {right: informer.failure for right, informer in self.informers.items()}
        refused = [right for right, failure in failures.items() if isinstance(failure, Forbidden)]
        if _LIST_PLANS in refused:
            refused.remove(_LIST_PLANS)
            where = f"in namespace {self._namespace}" if self._namespace else "in all namespaces"
            role = "Role view there" if self._namespace else f"ClusterRole {names.CLUSTER_VIEW}"
            yield note(f"you may not {_LIST_PLANS} {where}; {role} has this right")
        elif self.plans.failure:
            yield note(f"the cluster does not answer, so this is old; {self.plans.failure}")
        if refused:
            rights = listed(refused, noun="rights")
            words = f"capacity is not shown in full, as you may not {rights}"
            roles = f"ClusterRole and Role {names.CLUSTER_VIEW} have these rights"
            yield note(f"{words}; {roles}", *_CAPACITY_VIEWS)
        elif self._records.synced.is_set() and not len(self._records.store):
            words = f"no controller has written configmap {names.CAPACITY_RECORD}"
            yield note(f"{words}, so it is not known what is free", *_CAPACITY_VIEWS)

    async def explain(self, job: JobView) -> list[str]:
        """Return the lines of `explain`, with the log if it can be read."""
        kind, namespace, name = (job.row[part] for part in ("kind", "namespace", "name"))
        read = partial(explanation_of, self._client, name, namespace=namespace, kind=kind)
        try:
            return list(explanation_lines(await read(log=True), all_changes=True))
        except KfextError as error:
            lines = explanation_lines(await read(log=False), all_changes=True)
            return [*lines, *entry("log", str(error))]


def _decode_object(raw: bytes) -> dict[str, Any]:
    return dict(mapping(msgspec.json.decode(raw)))


def _decode_job(raw: bytes) -> JobView:
    return job_view(_decode_object(raw), now=time.time())


def snapshot_source(file: SnapshotFile) -> Source:
    """Return a snapshot as a source; it has neither progress nor history."""
    now, held = Moment(wall=file.taken, monotonic=file.taken), file.snapshot.reservation
    planner, jobs = planner_of(file.snapshot, now), []
    starts = expected_starts(planner, now)
    for tracked in planner.cluster.jobs.values():
        raw = _as_plan(planner, tracked)
        raw["status"]["expectedStart"] = encode_expected(starts.get(tracked.job.uid), now=now.wall)
        jobs.append(job_view(raw, now=now.wall))
    free = {
        row.node.name: {
            name: has - sum(amounts.get(name, 0) for amounts in row.taken.values())
            for name, has in row.node.allocatable.items()
        }
        for row in node_rows(file.snapshot, None, now=file.taken)
    }
    reserved = {"nodes": list(held.nodes), "until": held.until} if held else None
    words = f"this is what a controller of kfext {file.kfext} knew at {clock(file.taken)}"
    state = state_of(
        jobs,
        nodes=file.snapshot.nodes,
        capacity=Capacity(free=free, reservation=reserved),
        notes=[note(f"{words}; a snapshot has neither progress nor history")],
        scope="",
        at=file.taken,
        heard=file.taken,
    )

    async def ready() -> None:
        pass

    async def explain(_job: JobView) -> list[str]:
        return ["a snapshot has neither pods nor logs"]

    return Source(ready, lambda: jobs, lambda: state, explain)


def _as_plan(planner: Planner, tracked: TrackedJob) -> dict[str, Any]:
    """Return a job of a snapshot as its TrainingPlan would show it."""
    job, pods = tracked.job, planner.cluster.pods(tracked.job.uid)
    plan, verdict = tracked.assumed or tracked.plan, planner.queue.shown_verdict(tracked)
    places = Counter(pod.node_name for pod in pods if pod.node_name and not pod.finished)
    if plan is not None and not places:
        places.update(plan.assignment.values())
    requests = next((g.requests for g in job.groups if g.type in job.kind.training_types), {})
    return {
        "metadata": {"namespace": job.namespace, "creationTimestamp": written_time(job.created)},
        "spec": {"job": {"kind": job.kind.name, "name": job.name, "uid": job.uid}},
        "status": {
            "phase": tracked.phase or phase_of(job, pods),
            "reason": verdict.reason if verdict else "",
            "message": verdict.message if verdict else "",
            "ahead": planner.queue.ahead(tracked),
            "workers": job.training_pods,
            "places": [{"node": node, "pods": number} for node, number in places.items()],
            "requests": {name: written_amount(name, number) for name, number in requests.items()},
        },
    }
