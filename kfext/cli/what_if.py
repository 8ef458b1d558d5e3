"""`kubectl kfext plan --with/--without/--policy`: when waiting jobs would start after a change."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kfext.cli.cluster import all_plans
from kfext.cli.output import columns
from kfext.core.progress.reported import Reported, decode_progress
from kfext.core.queue.expected import ExpectedStart, encode_expected, rounded
from kfext.errors import UserError
from kfext.kube.client import Client
from kfext.model.job import planned_uid
from kfext.model.moment import Moment
from kfext.model.node import Node
from kfext.model.policy import TrainingPolicy
from kfext.model.snapshot import Snapshot
from kfext.model.tolerant import mapping
from kfext.names import DRAIN, HOSTNAME, NATIVE_GPU
from kfext.state.forecast.forecaster import OTHER, Forecaster
from kfext.state.planner.planner import Planner, outlooks
from kfext.state.planner.recording import planner_of

_NEW = re.compile(r"([1-9][0-9]{0,2})x(?:([1-9][0-9]{0,4})gpu|(.+))")
_STATE_TAINTS = "node.kubernetes.io/", DRAIN
"""The prefixes of taints that describe the state of a node; a new node has no such taint."""
Progress = Mapping[str, Reported]
"""The progress of jobs in their TrainingPlans, by the uid of the job."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a cluster: `new` nodes as in --with, nodes to cordon, and new policies."""

    new: Sequence[str] = ()
    without: Sequence[str] = ()
    policies: Sequence[TrainingPolicy] = ()

    def applied_to(self, snapshot: Snapshot) -> Snapshot:
        """Return a cluster after the change. Raises UserError."""
        nodes = {node.name: node for node in snapshot.nodes}
        for name in self.without:
            if name not in nodes:
                raise UserError(f"--without {name!r} is no node, e.g. {min(nodes, default='none')}")
            nodes[name] = replace(nodes[name], unschedulable=True)
        for text in self.new:
            number, like = _parse_new(text, snapshot.nodes)
            for _ in range(number):
                name = f"{like.name}-new-{len(nodes)}"
                nodes[name] = replace(like, name=name, labels={**like.labels, HOSTNAME: name})
        policies = {policy.name: policy for policy in (*snapshot.policies, *self.policies)}
        return replace(snapshot, nodes=tuple(nodes.values()), policies=tuple(policies.values()))


def _parse_new(text: str, nodes: Sequence[Node]) -> tuple[int, Node]:
    """Return the number of new nodes in a --with, and the node to copy. Raises UserError."""
    match = _NEW.fullmatch(text)
    if match is None:
        raise UserError(f"--with {text!r} is not NUMBERxNODE, e.g. 4x8gpu or 2xnode-1")
    number, gpus, name = match.groups()
    for node in nodes:
        if node.name == name or (gpus and node.allocatable.get(NATIVE_GPU) == int(gpus)):
            lasting = (taint for taint in node.taints if not taint.key.startswith(_STATE_TAINTS))
            return int(number), replace(node, taints=tuple(lasting), unschedulable=False)
    raise UserError(f"--with {text!r}: no node is of that kind; name a node, e.g. 2xnode-1")


async def read_progress(client: Client) -> Progress:
    """Return the progress of a cluster's jobs in its TrainingPlans. Raises UserError, ApiError."""
    decoded = (
        (planned_uid(raw), decode_progress(mapping(raw.get("status")).get("progress"), {}))
        for raw in await all_plans(client, namespace="")
    )
    return {uid: shown for uid, shown in decoded if shown is not None}


def expected_starts(planner: Planner, now: Moment) -> dict[str, ExpectedStart]:
    """Return the expected starts of a planner's waiting jobs, by uid."""
    outlooks(planner, now)
    forecaster = Forecaster(planner)
    list(forecaster.forecast(now))
    at_once = rounded(ExpectedStart(now.wall, now.wall, now.wall), now=now.wall)
    other = ExpectedStart(unknown=OTHER)
    return {
        uid: at_once if tracked.assumed else forecaster.expected(uid) or other
        for uid, tracked in planner.cluster.jobs.items()
        if tracked.job.in_queue
    }


def what_if(
    snapshot: Snapshot, change: Change, *, progress: Progress, now: float
) -> list[dict[str, Any]]:
    """Return the expected starts of waiting jobs, without and with a change. Raises UserError.

    `now`: in epoch seconds.
    """
    forecasts = []
    for cluster in (snapshot, change.applied_to(snapshot)):
        planner = planner_of(cluster, moment := Moment(wall=now, monotonic=now))
        planner.progress.adopt(progress)
        starts = expected_starts(planner, moment)
        forecasts.append({uid: encode_expected(start, now=now) for uid, start in starts.items()})
    before, after = forecasts
    return [
        {"job": job.title, "now": before[job.uid], "then": after[job.uid]}
        for job in sorted(snapshot.jobs, key=lambda job: (job.created, job.title))
        if job.uid in before
    ]


def what_if_lines(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the table of the expected starts that `what_if` returned."""
    if not rows:
        yield "no job waits"
        return
    columns_of: dict[str, Callable[[Mapping[str, Any]], str]] = {
        "JOB": lambda row: row["job"],
        "NOW": lambda row: row["now"]["summary"],
        "THEN": lambda row: row["then"]["summary"],
        "WHY": lambda row: row["then"].get("unknown") or "",
    }
    yield from columns(columns_of, rows)
