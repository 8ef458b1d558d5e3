"""`kubectl kfext plan --with/--without/--policy`: when waiting jobs would start after a change."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from kfext.cli.output import age, columns
from kfext.core.progress.reported import Reported
from kfext.core.queue.expected import ExpectedStart, column
from kfext.errors import UserError
from kfext.model.moment import Moment
from kfext.model.node import Node
from kfext.model.policy import TrainingPolicy
from kfext.model.quantity import CPU
from kfext.model.snapshot import Snapshot
from kfext.names import HOSTNAME, NATIVE_GPU
from kfext.state.forecast.forecaster import Forecaster
from kfext.state.planner.planner import Planner, outlooks
from kfext.state.planner.recording import planner_of

_NEW = re.compile(r"([1-9][0-9]{0,2})x(?:([1-9][0-9]{0,4})(gpu|cpu)|(.+))")
_UNITS = {"gpu": (NATIVE_GPU, 1), "cpu": (CPU, 1000)}
Progress = Mapping[str, Reported]
"""What TrainingPlans show of the progress of jobs, by the uid of the job."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a cluster: new nodes as in --with, nodes to cordon, and policies."""

    new: Sequence[str] = ()
    without: Sequence[str] = ()
    policies: Sequence[TrainingPolicy] = ()

    def of(self, snapshot: Snapshot) -> Snapshot:
        """Return a cluster after the change. Raises UserError."""
        nodes = {node.name: node for node in snapshot.nodes}
        for name in self.without:
            if name not in nodes:
                raise UserError(f"--without {name!r} is no node, e.g. {min(nodes, default='none')}")
            nodes[name] = replace(nodes[name], unschedulable=True)
        for text in self.new:
            nodes |= {node.name: node for node in _nodes(text, snapshot.nodes)}
        policies = {policy.name: policy for policy in (*snapshot.policies, *self.policies)}
        return replace(snapshot, nodes=tuple(nodes.values()), policies=tuple(policies.values()))


def _nodes(text: str, nodes: Sequence[Node]) -> Iterator[Node]:
    """Yield the new nodes of a --with, each like a node of the cluster. Raises UserError."""
    match = _NEW.fullmatch(text)
    if match is None:
        raise UserError(f"--with {text!r} is not NUMBERxNODE, e.g. 4x8gpu, 2x16cpu or 2xnode-1")
    number, amount, unit, name = match.groups()
    resource, size = _UNITS.get(unit, ("", 1))
    for node in nodes:
        if node.name == name or (unit and node.allocatable.get(resource, 0) // size == int(amount)):
            for new in (f"{node.name}-new-{index}" for index in range(int(number))):
                labels = {**node.labels, HOSTNAME: new}
                yield replace(node, name=new, labels=labels, unschedulable=False)
            return
    raise UserError(f"--with {text!r}: no node is like that; name a node, e.g. 2xnode-1")


def expected_starts(planner: Planner, now: Moment) -> dict[str, ExpectedStart]:
    """Return by uid when the waiting jobs of a planner should start."""
    outlooks(planner, now)
    forecaster = Forecaster(planner)
    list(forecaster.forecast(now))
    at_once = ExpectedStart(now.wall, now.wall, now.wall)
    other = ExpectedStart(unknown="it does not wait for capacity")
    return {
        uid: at_once if tracked.assumed else forecaster.expected(uid) or other
        for uid, tracked in planner.cluster.jobs.items()
        if tracked.job.in_queue
    }


def what_if(
    snapshot: Snapshot, change: Change, *, progress: Progress, now: Moment
) -> list[dict[str, Any]]:
    """Return when the waiting jobs would start now, and after a change. Raises UserError."""
    found = []
    for cluster in (snapshot, change.of(snapshot)):
        planner = planner_of(cluster, now)
        planner.progress.adopt(progress)
        found.append(expected_starts(planner, now))
    return [
        {
            "job": job.title,
            "starts": [column(starts[job.uid], now=now.wall) for starts in found],
            "waits": [
                None if (at := starts[job.uid].time) is None else at - now.wall for starts in found
            ],
        }
        for job in sorted(snapshot.jobs, key=lambda job: (job.created, job.title))
        if job.uid in found[0]
    ]


def what_if_lines(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the starts for a person."""
    if not rows:
        yield "no job waits"
        return
    now, then = (lambda row: row["starts"][0]), (lambda row: row["starts"][1])
    yield from columns({"JOB": lambda row: row["job"], "NOW": now, "THEN": then}, rows)
    known = [row["waits"] for row in rows if None not in row["waits"]]
    if known:
        before, after = (age(fmean(waits)) for waits in zip(*known, strict=True))
        yield f"mean wait where both are known: {before} now, {after} then"
