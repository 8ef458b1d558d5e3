"""`kubectl kfext plan -f`: whether a job would start now, where, and if not, why."""

import asyncio
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import IO, Any

import click

from kfext.cli.cluster import ClusterOptions, cluster_options, kinds_in, read_snapshot
from kfext.cli.documents import is_job, load, title_of
from kfext.cli.output import entry, format_output, output_option, plain, table
from kfext.cli.policy_file import read_policies
from kfext.cli.render import review
from kfext.cli.what_if import (
    Change,
    Progress,
    expected_starts,
    read_progress,
    what_if,
    what_if_lines,
)
from kfext.core.admission.review import ReviewContext
from kfext.core.lifecycle.steps import Release, SaveState, Unsuspend, Wait
from kfext.core.queue.expected import sentence
from kfext.core.queue.priority import in_line
from kfext.errors import Forbidden, NotFound, UserError
from kfext.kube import paths
from kfext.kube.client import Client
from kfext.kube.snapshot_file import SnapshotFile, read_snapshot_file
from kfext.model.job import TrainingJob, parse_job, pod_name, templates_in, with_templates
from kfext.model.kinds.job_kind import JobKind, TemplateSource
from kfext.model.kinds.registered import KINDS
from kfext.model.moment import Moment
from kfext.model.snapshot import Snapshot
from kfext.model.timestamps import written_time
from kfext.model.tolerant import mapping, text
from kfext.model.verdict import Verdict
from kfext.names import REASON_BACKING_OFF, REASON_SUSPENDED_BY_USER
from kfext.state.planner.planner import Outlook, outlooks
from kfext.state.planner.recording import planner_of

SourceKey = tuple[str, str, str]
Sources = dict[SourceKey, Any]
"""Kind, namespace (empty if cluster-scoped) and name -> the source of an operator's templates."""
NO_SOURCES: Sources = {}
STARTS, WAITS, NOT_HELD = "starts", "waits", "not-held"
_WORDS = {
    STARTS: "would start now",
    WAITS: "would wait",
    NOT_HELD: "kfext does not decide when it starts",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """The outcome for one job.

    `outcome` is `starts`, `waits`, or `not-held` if kfext does not decide when the job starts.
    `nodes`: pod -> its node, if the job would start. `starts`: else the expected start, in words.
    """

    job: str
    outcome: str
    reason: str
    message: str
    nodes: dict[str, str]
    warnings: Sequence[str] = ()
    starts: str = ""


@click.command()
@click.option("-f", "--filename", "files", multiple=True, type=click.File("rb"))
@click.option(
    "--snapshot",
    type=click.File("rb"),
    help="Use this snapshot of a controller (SIGUSR1) instead of the cluster.",
)
@click.option("--with", "new", multiple=True, help="Assume more nodes, e.g. 4x8gpu.")
@click.option("--without", multiple=True, help="Assume that no job starts on this node.")
@click.option(
    "--policy",
    "policies",
    multiple=True,
    type=click.File("rb"),
    help="Assume that the TrainingPolicies in this file are applied.",
)
@output_option
@cluster_options
def plan(
    *,
    files: tuple[IO[bytes], ...],
    snapshot: IO[bytes] | None,
    new: tuple[str, ...],
    without: tuple[str, ...],
    policies: tuple[IO[bytes], ...],
    output: str,
    cluster: ClusterOptions,
) -> None:
    """Show whether the jobs in files (- is stdin) would start now, and where or why not.

    It submits nothing. You need the permission to list nodes, pods, jobs and everything else that
    placement depends on. --snapshot needs no cluster; without files, the answers are about the
    waiting jobs in the snapshot. Exits with code 3 if a job would wait.

    With --with, --without or --policy it shows when each waiting job should start, now and after
    the change. A new node is a copy of the first node with that number of GPUs, or of a named node,
    e.g. 2xnode-1. Jobs that run on a node of --without end there as expected.
    """
    changes = bool(new or without or policies)
    if changes and files:
        raise click.UsageError("specify -f, or a change with --with, --without or --policy")
    if not (files or snapshot or changes):
        raise click.UsageError("specify -f, --snapshot, or one of --with, --without and --policy")
    documents = [item for file in files for item in load(file)]
    recorded = read_snapshot_file(snapshot.read(), name=snapshot.name) if snapshot else None
    if changes:
        change = Change(new, without, read_policies(policies))
        rows = asyncio.run(_what_if(change, cluster=cluster, snapshot=recorded))
        click.echo(format_output(rows, output=output, text=lambda: what_if_lines(rows)), nl=False)
        return
    answers, notes = asyncio.run(plan_jobs(documents, cluster=cluster, snapshot=recorded))
    for note in notes:
        click.echo(plain(note), err=True)
    click.echo(render_answers(answers, output=output), nl=False)
    if any(answer.outcome == WAITS for answer in answers):
        sys.exit(3)


async def plan_jobs(
    documents: list[Any], *, cluster: ClusterOptions, snapshot: SnapshotFile | None = None
) -> tuple[list[Answer], list[str]]:
    """Return the outcomes for the jobs, submitted one after the other, and notes for stderr.

    With a snapshot no request is sent; without documents the outcomes are for the jobs in its
    queue. Raises UserError if there is no job or a job would be refused, ApiError, NoAccess.
    """
    if snapshot is not None and not documents:
        return Forecast(snapshot.snapshot, now=snapshot.taken).queue(), []
    home = cluster.in_namespace() if snapshot is None else cluster.namespace or "default"
    jobs = _jobs_among(documents)
    sources = sources_in(documents, jobs, home=home)
    used = {id(item) for item in (*jobs, *sources.values())}
    notes = [_skipped(item) for item in documents if id(item) not in used]
    if snapshot is not None:
        forecast = Forecast(snapshot.snapshot, now=snapshot.taken)
    else:
        async with cluster.connect() as client:
            kinds = await kinds_in(client)
            _check_kinds(jobs, kinds)
            forecast = Forecast(await read_snapshot(client, kinds), await read_progress(client))
            for document in jobs:
                sources = await _source(client, document, home=home) | sources
    answers = []
    for document in jobs:
        _check_namespace(document, cluster.namespace)
        answer = forecast.submit(document, home=home, sources=sources)
        answers.append(answer)
        notes += answer.warnings
    return forecast.with_starts(answers), notes


async def _what_if(
    change: Change, *, cluster: ClusterOptions, snapshot: SnapshotFile | None
) -> list[dict[str, Any]]:
    """Return the expected starts of waiting jobs. Raises UserError, ApiError, NoAccess."""
    if snapshot is not None:
        return what_if(snapshot.snapshot, change, progress={}, now=snapshot.taken)
    async with cluster.connect() as client:
        present = await read_snapshot(client, await kinds_in(client))
        return what_if(present, change, progress=await read_progress(client), now=time.time())


def _jobs_among(documents: list[Any]) -> list[Any]:
    """Return the jobs among documents. Raises UserError if there is none."""
    jobs = [document for document in documents if is_job(document)]
    if not jobs:
        raise UserError("; ".join(map(_skipped, documents)))
    return jobs


def _skipped(document: Any) -> str:
    return f"{title_of(document)}: not a training job, skipped"


def _source_of(document: Any) -> TemplateSource | None:
    return KINDS[document["kind"]].template_source(mapping(document.get("spec")))


def _namespace_of(document: Any, *, home: str) -> str:
    return text(mapping(mapping(document).get("metadata")).get("namespace")) or home


def _key(source: TemplateSource, namespace: str) -> SourceKey:
    return source.kind, namespace if source.namespaced else "", source.name


def sources_in(documents: list[Any], jobs: list[Any], *, home: str) -> Sources:
    """Return the documents that operators render into the templates of jobs."""
    sources: Sources = {}
    for job in jobs:
        source, namespace = _source_of(job), _namespace_of(job, home=home)
        if source is None:
            continue
        for item in documents:
            name = text(mapping(mapping(item).get("metadata")).get("name"))
            scope = "" if not source.namespaced else _namespace_of(item, home=home)
            if (mapping(item).get("kind"), scope, name) == _key(source, namespace):
                sources[_key(source, namespace)] = item
    return sources


async def _source(client: Client, document: Any, *, home: str) -> Sources:
    """Return the source of a job's templates in the cluster; empty if it cannot be read."""
    source, namespace = _source_of(document), _namespace_of(document, home=home)
    if source is None:
        return {}
    key = _, scope, name = _key(source, namespace)
    with suppress(NotFound, Forbidden):
        return {key: await client.get(paths.rendered(source.resource, scope, name))}
    return {}


def _check_kinds(jobs: Sequence[Any], kinds: Sequence[JobKind]) -> None:
    served = {kind.name for kind in kinds}
    for document in jobs:
        if document["kind"] not in served:
            allowed = ", ".join(sorted(served))
            raise UserError(
                f"{title_of(document)}: the cluster does not serve this kind; it serves {allowed}"
            )


def _check_namespace(document: Any, option: str | None) -> None:
    """Raise UserError if -n and the document disagree, as kubectl does."""
    namespace = mapping(mapping(document).get("metadata")).get("namespace")
    if option and namespace and namespace != option:
        raise UserError(
            f"{title_of(document)} is in namespace {namespace!r}, not in {option!r} as -n says"
        )


def render_answers(answers: Sequence[Answer], *, output: str) -> str:
    """Return the answers as text, json or yaml."""
    fields = ("job", "outcome", "reason", "message", "nodes", "starts")
    values = [{field: getattr(answer, field) for field in fields} for answer in answers]
    return format_output(values, output=output, text=lambda: answer_lines(answers))


def answer_lines(answers: Sequence[Answer]) -> Iterator[str]:
    """Yield the lines of answers."""
    if not answers:
        yield "no job waits"
    for answer in answers:
        yield f"{answer.job}: {_WORDS[answer.outcome]}"
        yield from entry("why", ": ".join(filter(None, (answer.reason, answer.message))))
        if answer.starts:
            yield from entry("starts", answer.starts)
        if answer.nodes:
            yield from table(("POD", "NODE"), answer.nodes.items(), indent=2)


class Forecast:
    """The controller's decisions on jobs that are submitted now, one after the other.

    `progress`: the progress of running jobs. `now`: in epoch seconds; by default, the clock's.
    """

    def __init__(
        self, snapshot: Snapshot, progress: Progress | None = None, *, now: float | None = None
    ) -> None:
        wall = time.time() if now is None else now
        self._snapshot = snapshot
        self._now = Moment(wall=wall, monotonic=wall)
        self._planner = planner_of(snapshot, self._now)
        self._planner.progress.adopt(progress or {})
        self._submitted = 0

    def submit(self, document: Any, *, home: str, sources: Sources = NO_SOURCES) -> Answer:
        """Return the outcome for a job; a job without a namespace goes to `home`.

        `sources`: the sources of operators' templates. Raises UserError if the job could not be
        created or its source is missing.
        """
        raw = self._with_name(document, home=home)
        namespace = self._snapshot.namespaces[raw["metadata"]["namespace"]]
        policies = self._snapshot.policies
        reviewed = review(
            raw, ReviewContext(namespace=namespace, policies=policies, controller_alive=True)
        )
        if reviewed.result.refusal:
            raise UserError(next(reviewed.notes))
        raw, warnings = reviewed.after, reviewed.warnings
        job = self._stored(raw)
        if not job.held:
            verdict = reviewed.result.verdicts[0]
            outcome = WAITS if verdict.reason == REASON_SUSPENDED_BY_USER else NOT_HELD
            return Answer(job.title, outcome, verdict.reason, verdict.message, {}, warnings)
        job = _rendered(job, raw, sources)
        self._planner.cluster.record_job(job, raw)
        return _answer(job, outlooks(self._planner, self._now)[job.uid], warnings)

    def with_starts(self, answers: Sequence[Answer]) -> list[Answer]:
        """Return answers with expected starts for waiting jobs, after all jobs are submitted."""
        if not any(answer.outcome == WAITS for answer in answers):
            return [*answers]
        now, jobs = self._now, self._planner.cluster.jobs
        expected = expected_starts(self._planner, now).items()
        starts = {jobs[uid].job.title: sentence(start, now=now.wall) for uid, start in expected}
        return [
            replace(answer, starts=starts.get(answer.job, "") if answer.outcome == WAITS else "")
            for answer in answers
        ]

    def queue(self) -> list[Answer]:
        """Return the outcomes for the jobs in the queue, in order."""
        forecasts = outlooks(self._planner, self._now)
        tracked = [job for job in self._planner.cluster.jobs.values() if job.job.in_queue]
        return [
            _answer(waiting.job, forecasts[waiting.job.uid], ())
            for waiting in sorted(tracked, key=self._planner.queue.key)
        ]

    def _stored(self, raw: dict[str, Any]) -> TrainingJob:
        """Return the job as the API server would store it."""
        self._submitted += 1
        created = written_time(self._now.wall)
        raw["metadata"] |= {"uid": f"planned-{self._submitted}", "creationTimestamp": created}
        job = parse_job(raw)
        assert job is not None, "its kind was checked before"
        return job

    def _with_name(self, document: Any, *, home: str) -> dict[str, Any]:
        """Return the document with the name and the namespace that the API server would set."""
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
                f"{namespace} {name}`, or rename the job"
            )
        named = {**metadata, "name": name or f"{prefix}xxxxx", "namespace": namespace}
        return {**document, "metadata": named}


def _rendered(job: TrainingJob, raw: Any, sources: Sources) -> TrainingJob:
    """Return a job with the templates that its operator will render."""
    spec = mapping(raw.get("spec"))
    source = job.kind.template_source(spec)
    if source is None:
        return job
    item = sources.get(_key(source, job.namespace))
    if item is None:
        raise UserError(
            f"{job.title}: its templates come from {source.kind} {source.name!r}, which does not "
            f"exist or which you may not read; add it to the file"
        )
    return with_templates(job, templates_in(job.kind, job.kind.rendered_from(spec, item), job=job))


def _answer(job: TrainingJob, expected: Outlook, warnings: Sequence[str]) -> Answer:
    if isinstance(expected.step, Unsuspend):
        nodes = {pod_name(job, key): node for key, node in expected.step.plan.assignment.items()}
        why, network = expected.step.verdict, expected.step.network
        message = f"{why.message}; {network.message}" if network else why.message
        return Answer(job.title, STARTS, why.reason, message, nodes, warnings)
    if isinstance(expected.step, Release):
        why = expected.step.verdict
        return Answer(job.title, NOT_HELD, why.reason, why.message, {}, warnings)
    verdict = expected.step.verdict if isinstance(expected.step, Wait | SaveState) else None
    if verdict is None:
        verdict = Verdict(REASON_BACKING_OFF, "a step of the job is being written")
    ahead, behind = expected.ahead, expected.why_behind
    verdict = in_line(verdict, ahead=ahead, exact=ahead, kept_nodes="", awaited="", behind=behind)
    return Answer(job.title, WAITS, verdict.reason, verdict.message, {}, warnings)
