"""What the controller would decide for jobs that are submitted now, on a snapshot."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kfext.cli.documents import title_of
from kfext.cli.render import admitted
from kfext.core.admission.review import Facts
from kfext.core.lifecycle.steps import Release, Unsuspend, Wait
from kfext.core.queue.position import in_line
from kfext.errors import UserError
from kfext.model.job import TrainingJob, parse_job
from kfext.model.moment import Moment
from kfext.model.namespace import Namespace
from kfext.model.snapshot import Snapshot
from kfext.model.timestamps import written_time
from kfext.model.tolerant import mapping, text
from kfext.model.verdict import Verdict
from kfext.names import REASON_BACKING_OFF, REASON_SUSPENDED_BY_USER
from kfext.state.outlook import Outlook, outlook, outlooks
from kfext.state.recording import planner_of

STARTS, WAITS, NOT_HELD = "starts", "waits", "not-held"


@dataclass(frozen=True, slots=True)
class Answer:
    """What would become of one job; `nodes` has the node of each replica, if it would start.

    `outcome` is `starts`, `waits`, or `not-held` for a job whose start kfext does not decide.
    """

    job: str
    outcome: str
    reason: str
    message: str
    nodes: dict[str, str]
    warnings: Sequence[str] = ()


class Forecast:
    """What the controller would decide for jobs submitted now, each after those before it.

    `now` is in epoch seconds, None for the present.
    """

    def __init__(self, snapshot: Snapshot, *, now: float | None = None) -> None:
        wall = time.time() if now is None else now
        self._snapshot = snapshot
        self._now = Moment(wall=wall, monotonic=wall)
        self._planner = planner_of(snapshot, self._now)
        self._submitted = 0

    def submit(self, document: Any, *, home: str) -> Answer:
        """Return what would become of a job; without a namespace it goes to `home`.

        Raises UserError for a job that could not be created.
        """
        raw = self._named(document, home=home)
        namespace = self._snapshot.namespaces[raw["metadata"]["namespace"]]
        rendered = admitted(raw, _facts(self._snapshot, namespace))
        raw, warnings = rendered.documents[0], tuple(rendered.warnings)
        job = self._stored(raw)
        if not job.held:
            said = rendered.verdicts[0]
            outcome = WAITS if said.reason == REASON_SUSPENDED_BY_USER else NOT_HELD
            return Answer(job.title, outcome, said.reason, said.message, {}, warnings)
        self._planner.cluster.take_job(job, raw)
        return _answer(job, outlook(self._planner, job.uid, self._now), warnings)

    def queue(self) -> list[Answer]:
        """Return what becomes of the jobs in the queue, in its order."""
        found = outlooks(self._planner, self._now)
        jobs = [one for one in self._planner.cluster.jobs.values() if one.job.in_queue]
        return [
            _answer(one.job, found[one.job.uid], ())
            for one in sorted(jobs, key=self._planner.queue.turn)
        ]

    def _stored(self, raw: dict[str, Any]) -> TrainingJob:
        """Return the job as it would be once the API server has stored it."""
        self._submitted += 1
        created = written_time(self._now.wall)
        raw["metadata"] |= {"uid": f"planned-{self._submitted}", "creationTimestamp": created}
        job = parse_job(raw)
        assert job is not None, "its kind was looked at before"
        return job

    def _named(self, document: Any, *, home: str) -> dict[str, Any]:
        """Return the document with a name and a namespace, as the API server would complete it."""
        metadata = mapping(document.get("metadata"))
        name, prefix = text(metadata.get("name")), text(metadata.get("generateName"))
        namespace = text(metadata.get("namespace")) or home
        if not (name or prefix):
            raise UserError(f"{title_of(document)} has no metadata.name, e.g. name: train")
        if namespace not in self._snapshot.namespaces:
            raise UserError(f"{title_of(document)}: there is no namespace {namespace!r}")
        kind = document["kind"]
        jobs = (tracked.job for tracked in self._planner.cluster.jobs.values())
        if any((kind, namespace, name) == (j.kind.name, j.namespace, j.name) for j in jobs):
            raise UserError(
                f"{kind} {namespace}/{name} exists already: see `kubectl kfext explain -n "
                f"{namespace} {name}`, or give the job another name"
            )
        named = {**metadata, "name": name or f"{prefix}xxxxx", "namespace": namespace}
        return {**document, "metadata": named}


def _answer(job: TrainingJob, found: Outlook, warnings: Sequence[str]) -> Answer:
    """Return an outlook as an answer."""
    if isinstance(found.step, Unsuspend):
        nodes = {
            f"{job.name}-{key.type}-{key.index}": node
            for key, node in found.step.plan.assignment.items()
        }
        why, network = found.step.verdict, found.step.network
        message = f"{why.message}; {network.message}" if network else why.message
        return Answer(job.title, STARTS, why.reason, message, nodes, warnings)
    verdict = found.step.verdict if isinstance(found.step, Wait | Release) else None
    if verdict is None:
        verdict = Verdict(REASON_BACKING_OFF, "a step of the job is being written")
    verdict = in_line(verdict, ahead=found.ahead, exact=found.ahead, kept_nodes="", awaited="")
    return Answer(job.title, WAITS, verdict.reason, verdict.message, {}, warnings)


def _facts(snapshot: Snapshot, namespace: Namespace) -> Facts:
    return Facts(
        namespace_labels=namespace.labels,
        namespace_annotations=namespace.annotations,
        policies=snapshot.policies,
        controller_alive=True,
    )
