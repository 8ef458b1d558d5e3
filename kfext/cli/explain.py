"""`kubectl kfext explain`: the phase of a job, its reason, pods, progress and changes."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import click

from kfext import names
from kfext.cli.cluster import ClusterOptions, Raw, cluster_options, find_job, kind_option, pods_of
from kfext.cli.jobs import ahead_of
from kfext.cli.output import Columns, columns, entry, format_output, job_of, output_option, table
from kfext.cli.progress import log_lines, progress_in, progress_lines, read_log
from kfext.core.elastic import requested_workers, workers_of
from kfext.core.job_history import decode_history
from kfext.core.patches.host_network import edits_of
from kfext.core.queue.expected import decode_expected, sentence
from kfext.core.settings.table import TO_PODS
from kfext.core.settings.values import HOST, POD, Colocation
from kfext.core.words import age, listed
from kfext.core.words import nodes as many_nodes
from kfext.core.words import pods as many_pods
from kfext.errors import Forbidden, NotFound
from kfext.kube import paths
from kfext.kube.client import Client
from kfext.model.cpu_state import PodCpu
from kfext.model.job import TrainingJob, annotations_of, planned_uid, template_of
from kfext.model.job_state import state_of
from kfext.model.plan import Plan, plan_of
from kfext.model.pod import Pod
from kfext.model.podspec import node_affinity
from kfext.model.replica_group import ReplicaGroup
from kfext.model.timestamps import timestamp
from kfext.model.tolerant import mapping, sequence, text
from kfext.state.running.cpu.restoring import Owner, cpu_of, owner_of, requested_of

_UNPLACED = "not placed by kfext"
_MAX_ROWS = 12
"""The most pods with a row each; pods of larger jobs are grouped by node and status."""
_ANNOTATIONS = (
    *(*TO_PODS, names.PORT_BASE, names.INTERFACES),
    *(names.PLAN_GENERATION, names.ISTIO_INJECT, names.RELEASED),
)
"""The annotations that kfext writes to templates."""
_HISTORY: Columns = {
    "TIME": lambda line: line["time"],
    "WHAT": lambda line: line["what"] + (f" x{line['times']}" if "times" in line else ""),
    "WORKERS": lambda line: str(line["workers"]),
    "NODES": lambda line: (
        many_nodes(len(line["nodes"]) + line["moreNodes"])
        if line["moreNodes"]
        else listed(line["nodes"], noun="nodes")
    ),
    "WHY": lambda line: line["why"],
}


@click.command()
@click.argument("job")
@kind_option
@click.option("--changes", "all_changes", is_flag=True, help="List kfext's changes, with times.")
@click.option("--log", is_flag=True, help="Show the progress that kfext recognises in the log.")
@click.option("--regex", default="", help="With --log: try this RE2 expression.")
@output_option
@cluster_options
def explain(
    *,
    job: str,
    kind: str | None,
    all_changes: bool,
    log: bool,
    regex: str,
    output: str,
    cluster: ClusterOptions,
) -> None:
    """Show why JOB waits, where its pods are, its progress, and kfext's changes."""
    if regex and not log:
        raise click.UsageError("--regex requires --log")
    read = _explanation(job, kind=kind, log=log, regex=regex, cluster=cluster)
    explanation = asyncio.run(read)
    lines = partial(explanation_lines, explanation, all_changes=all_changes)
    click.echo(format_output(explanation, output=output, text=lines), nl=False)


async def _explanation(name: str, *, cluster: ClusterOptions, **options: Any) -> dict[str, Any]:
    """Return the explanation of a job. Raises UserError, ApiError, NoAccess."""
    async with cluster.connect() as client:
        namespace = cluster.in_namespace()
        return await explanation_of(client, name, namespace=namespace, **options)


async def explanation_of(
    client: Client, name: str, *, namespace: str, kind: str | None, log: bool, regex: str = ""
) -> dict[str, Any]:
    """Return the explanation of a job. Raises UserError, ApiError."""
    job, raw = await find_job(client, name=name, namespace=namespace, kind=kind)
    status = await _plan_status(client, job)
    pods = await pods_of(client, job)
    ahead = await ahead_of(client, job) if job.in_queue else []
    explanation = explanation_from(job, raw, status=status, pods=pods, now=time.time(), ahead=ahead)
    if log:
        explanation["log"] = await read_log(client, job, pods, regex=regex)
    return explanation


async def _plan_status(client: Client, job: TrainingJob) -> Mapping[str, Any] | None:
    """Return the status of a job's TrainingPlan, empty if there is none, or None for Forbidden."""
    try:
        plan = await client.get(paths.plans(job.namespace, job.training_plan))
    except NotFound:
        return {}
    except Forbidden:
        return None
    # The TrainingPlan may belong to an earlier job of this name.
    return mapping(plan.get("status")) if planned_uid(plan) == job.uid else {}


def explanation_from(
    job: TrainingJob,
    raw: Raw,
    *,
    status: Mapping[str, Any] | None,
    pods: Sequence[Pod],
    now: float,
    ahead: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the explanation of a job from its objects.

    `status`: the status of its TrainingPlan, empty if there is none, or None for Forbidden.
    `now`: in epoch seconds.
    `ahead`: the names of the jobs ahead of it in the queue that the caller may see.
    """
    hidden, status = status is None, status or {}
    plan = plan_of(job)
    by_rank = sorted(pods, key=_rank)
    changed = changes(job, raw, plan, by_rank)
    why_unplaced = (
        "" if status or job.held else _why_unplaced(job, raw, changed=any(changed.values()))
    )
    phase = text(status.get("phase")) or (_UNPLACED if why_unplaced else phase_of(job, pods))
    since = _since(job, status, phase)
    expected = decode_expected(status.get("expectedStart"))
    on_host = any(pod.on_host for pod in pods)
    return {
        "kind": job.kind.name,
        "namespace": job.namespace,
        "name": job.name,
        "phase": phase,
        "phaseSeconds": max(0, int(now - since)) if since else None,
        "network": text(status.get("network")) or (HOST if on_host else POD if pods else ""),
        "reason": text(status.get("reason")),
        "message": text(status.get("message"))
        or _message(job, status, hidden=hidden)
        or why_unplaced,
        "conditions": conditions_of(status),
        "starts": sentence(expected, now=now) if expected else "",
        "progress": progress_in(status, now=now),
        "ahead": list(ahead),
        "plannedNodes": list(plan.nodes) if plan else [],
        "pods": [
            {
                "name": pod.name,
                "node": pod.node_name or pod.pinned_to or "",
                "state": _state(pod),
                "why": pod.unschedulable,
            }
            for pod in by_rank
        ],
        "changed": changed,
        "history": decode_history(status.get("history"), "").encode()["history"],
        "warnings": [] if why_unplaced else list(_warnings(job, pods)),
    }


def conditions_of(status: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the conditions in the status of a TrainingPlan."""
    return [
        {key: text(mapping(item).get(key)) for key in ("type", "status", "reason", "message")}
        for item in sequence(status.get("conditions"))
    ]


def condition_words(shown: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the type of each condition that adds to the message, and its reason in words.

    `shown`: an explanation, or the status of a TrainingPlan.
    """
    for item in conditions_of(shown):
        if item["message"] != text(shown.get("message")):
            value = "" if item["status"] == "True" else f" {item['status']}"
            yield f"{item['type']}{value}", _because(item)


def _state(pod: Pod) -> str:
    if pod.deleting:
        return "ends"
    if pod.gated:
        return "gated"
    return pod.phase if pod.node_name else "waits"


def explanation_lines(
    explanation: Mapping[str, Any], *, all_changes: bool = False
) -> Iterator[str]:
    """Yield the lines of an explanation; `all_changes`: whether to list each change of kfext."""
    yield _headline(explanation)
    if why := _because(explanation):
        yield from entry("why", why)
    if explanation["starts"]:
        yield from entry("starts", explanation["starts"])
    for line in progress_lines(explanation["progress"]):
        yield from entry("progress", line)
    for label, words in condition_words(explanation):
        yield from entry(f"{label}:", words)
    if explanation["ahead"]:
        yield from entry("ahead", listed(explanation["ahead"], noun="jobs"))
    yield from _pod_lines(explanation["pods"])
    changed = explanation["changed"]
    counts = [f"{len(phrases)} on {where}" for where, phrases in changed.items() if phrases]
    more = "; --changes lists them" * (bool(counts) and not all_changes)
    yield f"  changed  {', '.join(counts) or 'nothing'}{more}"
    if all_changes and counts:
        rows = [(where, change) for where, phrases in changed.items() for change in phrases]
        yield from table(("ON", "CHANGE"), rows, indent=2)
    if all_changes and explanation["history"]:
        yield from columns(_HISTORY, explanation["history"], indent=2)
    yield from log_lines(explanation["log"]) if "log" in explanation else ()
    for warning in explanation["warnings"]:
        yield from entry("warning", warning)


def _because(item: Mapping[str, Any]) -> str:
    reason = item["reason"] if item["reason"] != item.get("type") else ""
    return ": ".join(filter(None, (reason, item["message"])))


def _headline(explanation: Mapping[str, Any]) -> str:
    title = f"{job_of(explanation)}: {explanation['phase']}"
    if duration := age(explanation["phaseSeconds"]):
        title += f" for {duration}"
    nodes = sorted({pod["node"] for pod in explanation["pods"] if pod["node"]})
    if nodes or explanation["plannedNodes"]:
        where = "on" if nodes else "to be placed on"
        title += f", {where} {listed(nodes or explanation['plannedNodes'], noun='nodes')}"
    return f"{title}, {explanation['network']} network" if explanation["network"] else title


def _pod_lines(pods: Sequence[Mapping[str, str]]) -> Iterator[str]:
    """Yield a table of pods, and below it the reasons why kube-scheduler does not bind pods."""
    alike: dict[tuple[str, str], list[str]] = {}
    unbound: dict[str, list[str]] = {}
    for pod in pods:
        alike.setdefault((pod["node"], pod["state"]), []).append(pod["name"])
        if pod["why"]:
            unbound.setdefault(pod["why"], []).append(pod["name"])
    if len(pods) > _MAX_ROWS:
        rows = [(listed(members, noun="pods"), *where) for where, members in alike.items()]
    else:
        rows = [(pod["name"], pod["node"], pod["state"]) for pod in pods]
    yield from table(("POD", "NODE", "STATUS"), rows, indent=2) if rows else ()
    for why, members in unbound.items():
        yield from entry("unbound", f"{many_pods(len(members))}: {why}")


def phase_of(job: TrainingJob, pods: Sequence[Pod]) -> str:
    """Return the phase of a job without a TrainingPlan, judged by its spec and its pods."""
    if job.finished:
        return names.FINISHED
    if job.released:
        return names.PHASE_RELEASED
    if job.suspend:
        return names.QUEUED if job.held else names.SUSPENDED
    if any(pod.gated for pod in pods):
        return names.GATED
    if len(pods) < job.pods:
        return names.PLANNED
    return names.PLACED if all(pod.node_name for pod in pods) else names.BINDING


def _since(job: TrainingJob, status: Mapping[str, Any], phase: str) -> float:
    """Return the start of a job's phase, in epoch seconds; 0.0 if unknown."""
    if phase == names.FINISHED:
        ends = [job.conditions[end].since for end in ("Succeeded", "Failed") if job.has(end)]
        return max(ends, default=0.0)  # a deleted job has finished for kfext, but has not ended
    if phase in {names.QUEUED, names.PLACED}:
        conditions = (mapping(item) for item in sequence(status.get("conditions")))
        placed = next((item for item in conditions if item.get("type") == "Placed"), {})
        since = timestamp(placed.get("lastTransitionTime"))
        return since or (job.created if phase == names.QUEUED else 0.0)
    return 0.0


def _message(job: TrainingJob, status: Mapping[str, Any], *, hidden: bool) -> str:
    if job.released:
        return f"kfext has released this job ({job.annotations[names.RELEASED]})"
    if job.suspend and not job.held:
        return "a person or another system suspended the job; kfext waits until it is resumed"
    if not status and job.suspend:
        if hidden:
            return f"you may not get trainingplans in namespace {job.namespace}, which show why"
        return (
            "kfext suspended the job, but no TrainingPlan shows why: is the controller running? "
            f"`kubectl kfext release -n {job.namespace} {job.name}` starts it anyway"
        )
    return ""


def _why_unplaced(job: TrainingJob, raw: Raw, *, changed: bool) -> str:
    """Return why kfext does not place a job; empty if it does, or if the phase shows why."""
    if job.released or job.suspend or job.finished:
        return ""
    if not job.run_by_operator:
        field = job.kind.policy_field("managedBy")
        return f"{field} is {job.managed_by}, so kfext does not handle the job"
    written = (annotations_of(job, raw, group).get(names.COLOCATION) for group in job.groups)
    if Colocation.OFF in written:
        return "colocation is off: the job runs as on plain Kubernetes"
    if not changed:
        return (
            "kfext does not place this job, for one of these reasons; its namespace was not "
            f"labelled {names.MANAGED}=true when it was created; its pods name another scheduler; "
            "kfext was down"
        )
    return ""


def _warnings(job: TrainingJob, pods: Sequence[Pod]) -> Iterator[str]:
    """Yield a warning if pods without CPU limits share the CPU of a node."""
    unlimited = {
        group.type.lower()
        for group in job.groups
        if group.cpu_limit is None and not group.constraints.devices
    }
    together = Counter(
        pod.node_name
        for pod in pods
        if pod.replica and pod.replica.type in unlimited and pod.node_name
        # A LimitRange may have set its limits.
        if not (pod.finished or pod.deleting or pod.guaranteed)
    )
    if crowded := sorted(node for node, count in together.items() if count > 1):
        shared = f"pods without a CPU limit share the CPU of {listed(crowded, noun='nodes')}"
        if names.COLOCATION in job.annotations:
            yield (
                f"{shared}, because {names.COLOCATION} is set on the job; without it, kfext puts "
                "pods where each has the most CPU"
            )
        else:
            yield (
                f"{shared}; kfext assumes that each can use placement.assumedBurst of the "
                "TrainingPolicy, by default 4 CPUs; if CPU is the bottleneck, submit the job with "
                "a CPU limit, which then counts instead"
            )


def _rank(pod: Pod) -> tuple[str, int]:
    return (pod.replica.type, pod.replica.index) if pod.replica else ("", 0)


def changes(
    job: TrainingJob, raw: Raw, plan: Plan | None, pods: Sequence[Pod]
) -> dict[str, list[str]]:
    """Return kfext's changes as phrases, by the object that shows them."""
    on_pods = (
        [f"{edit}, because {why}" for edit, why in edits_of(job)] if plan and plan.port else []
    )
    return {
        "the job": list(_job_changes(job)),
        "the templates": [
            f"{group.type}: {edit}"
            for group in job.groups
            for edit in _template_changes(job, raw, group)
        ],
        "each pod": on_pods,
        "some pods": list(_cpu_changes(job, pods)),
    }


def _job_changes(job: TrainingJob) -> Iterator[str]:
    if job.held:
        state = "and waits to be placed" if job.suspend else "until it could be placed"
        yield f"suspended when it was submitted, {state} ({names.HELD})"
    workers, requested = workers_of(job), requested_workers(job, state_of(job))
    if workers != requested:
        yield f"has {workers} workers of the {requested} requested ({names.STATE})"
    if job.released:
        yield f"marked as released: {job.annotations[names.RELEASED]}"


def _template_changes(job: TrainingJob, raw: Raw, group: ReplicaGroup) -> Iterator[str]:
    template = template_of(job, raw, group)
    written = annotations_of(job, raw, group)
    for key in _ANNOTATIONS:
        # Users may write this annotation; kfext writes it for the host network alone.
        by_user = key == names.ISTIO_INJECT and names.PORT_BASE not in written
        if key in written and not by_user:
            yield f"{key}={written[key]}"
    if preferred := _preferred(template):
        yield f"prefers {listed(preferred, noun='nodes')} (affinity)"


def _cpu_changes(job: TrainingJob, pods: Sequence[Pod]) -> Iterator[str]:
    """Yield a phrase for each amount of CPU that kfext wrote, with the pods that have it."""
    state = state_of(job).cpu
    changed: dict[tuple[PodCpu, PodCpu], list[str]] = {}
    for pod in pods:
        requested, now = requested_of(pod, state), cpu_of(pod)
        if requested is not None and now is not None and owner_of(pod, state) is Owner.KFEXT:
            changed.setdefault((now, requested), []).append(pod.name)
    for (now, requested), pod_names in changed.items():
        owners = listed(pod_names, noun="pods")
        yield f"CPU of {owners}: {_amounts(now)}; by the job: {_amounts(requested)} ({names.STATE})"


def _amounts(cpu: PodCpu) -> str:
    limit = "no limit" if cpu.limit is None else f"limit {cpu.limit}m"
    return f"request {cpu.request}m, {limit}"


def _preferred(template: Mapping[str, Any]) -> list[str]:
    """Return the nodes that a template prefers by name, which only kfext writes."""
    preferred = node_affinity(mapping(template.get("spec"))).get(names.PREFERRED)
    return [
        text(value)
        for term in sequence(preferred)
        for field in sequence(mapping(mapping(term).get("preference")).get("matchFields"))
        for value in sequence(mapping(field).get("values"))
    ]
