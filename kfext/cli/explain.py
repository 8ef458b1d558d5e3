"""`kubectl kfext explain`: why a job waits, where it went, what was changed on it."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kfext import names
from kfext.cli.changes import changes, cpu_changes
from kfext.cli.cluster import ClusterOptions, Raw, find_job, pods_of
from kfext.cli.companion import LINES
from kfext.cli.companion import in_words as companion_words
from kfext.cli.output import printed
from kfext.cli.progress import in_words as progress_words
from kfext.cli.progress import progress_in
from kfext.cli.queue import ahead_of
from kfext.core.settings.values import Colocation
from kfext.core.words import listed
from kfext.errors import Forbidden, NotFound
from kfext.kube import paths
from kfext.kube.client import Client
from kfext.model.job import TrainingJob, annotations_of, planned_uid, template_of
from kfext.model.plan import plan_of
from kfext.model.pod import Pod
from kfext.model.tolerant import mapping, sequence, text

_UNPLACED = "not placed by kfext"


async def explain_job(name: str, *, kind: str | None, output: str, cluster: ClusterOptions) -> str:
    """Return the explanation as text, json or yaml. Raises UserError, ApiError, NoAccess."""
    namespace = cluster.in_namespace()
    async with cluster.connect() as client:
        job, raw = await find_job(client, name=name, namespace=namespace, kind=kind)
        status = await _plan_status(client, job)
        pods = await pods_of(client, job)
        ahead = await ahead_of(client, job) if job.in_queue else []
    explanation = explained(job, raw, status=status, pods=pods, now=time.time(), ahead=ahead)
    return printed(explanation, output=output, words=lambda: in_words(explanation))


async def _plan_status(client: Client, job: TrainingJob) -> Mapping[str, Any]:
    """Return the status of the job's TrainingPlan, empty if there is none or we may not see it."""
    try:
        plan = await client.get(paths.plans(job.namespace, job.training_plan))
    except (NotFound, Forbidden):
        return {}
    # One that an earlier job of this name has left says nothing of this one.
    return mapping(plan.get("status")) if planned_uid(plan) == job.uid else {}


def explained(
    job: TrainingJob,
    raw: Raw,
    *,
    status: Mapping[str, Any],
    pods: Sequence[Pod],
    now: float,
    ahead: Sequence[str] = (),
) -> dict[str, Any]:
    """Return what is known of a job, from the job, its plan's status and its pods.

    `now`: in epoch seconds.
    `ahead`: the names of the jobs ahead of it in the queue that the caller may see.
    """
    plan = plan_of(job)
    by_rank = sorted(pods, key=_order)
    changed = [*changes(job, raw, plan), *cpu_changes(job, by_rank)]
    left = "" if status or job.held else _left_alone(job, raw, touched=bool(changed))
    return {
        "kind": job.kind.name,
        "namespace": job.namespace,
        "name": job.name,
        "phase": text(status.get("phase")) or (_UNPLACED if left else _phase(job, pods)),
        "reason": text(status.get("reason")),
        "message": text(status.get("message")) or _message(job, status) or left,
        "conditions": [
            {key: text(mapping(item).get(key)) for key in ("type", "status", "reason", "message")}
            for item in sequence(status.get("conditions"))
        ],
        "progress": progress_in(status, now=now),
        "ahead": list(ahead),
        "plannedNodes": list(plan.nodes) if plan else [],
        "pods": [
            {
                "name": pod.name,
                "node": pod.node_name or pod.pinned_to or "",
                "state": "gated" if pod.gated else pod.phase if pod.node_name else "waits",
                "why": pod.unschedulable,
            }
            for pod in by_rank
        ],
        "changed": changed,
        "warnings": list(_warnings(job, raw, pods)),
    }


def in_words(explanation: Mapping[str, Any]) -> str:
    """Return the explanation for a person."""
    title = "{kind} {namespace}/{name}: {phase}".format_map(explanation)
    lines = [title]
    why = ": ".join(filter(None, (explanation["reason"], explanation["message"])))
    lines += [f"  why      {why}"] if why else []
    lines += [
        f"  {item['type']} {item['status']}: {item['message']}"
        for item in explanation["conditions"]
        if item["message"] != explanation["message"] and item["type"] not in LINES
    ]
    lines += [
        f"  {LINES[item['type']]:<8} {companion_words(item)}"
        for item in explanation["conditions"]
        if item["type"] in LINES
    ]
    if explanation["progress"] is not None:
        lines += [f"  progress {words}" for words in progress_words(explanation["progress"])]
    if explanation["ahead"]:
        lines.append(f"  ahead    {listed(explanation['ahead'], of='jobs')}")
    if explanation["plannedNodes"]:
        lines.append(f"  planned  {', '.join(explanation['plannedNodes'])}")
    told = ""
    for pod in explanation["pods"]:
        where = f"on {pod['node']}" if pod["node"] else "has no node yet"
        why = "as above" if pod["why"] == told else pod["why"]
        told = pod["why"]
        lines.append(
            f"  pod      {pod['name']} {where}, {pod['state']}{f' ({why})' if told else ''}"
        )
    lines += [f"  changed  {line}" for line in explanation["changed"]] or ["  changed  nothing"]
    lines += [f"  warning  {line}" for line in explanation["warnings"]]
    return "\n".join(lines) + "\n"


def _phase(job: TrainingJob, pods: Sequence[Pod]) -> str:
    """Return the phase as far as the job and its pods show it, if there is no TrainingPlan."""
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


def _message(job: TrainingJob, status: Mapping[str, Any]) -> str:
    if job.released:
        return f"kfext has released this job ({job.annotations[names.RELEASED]})"
    if job.suspend and not job.held:
        return "a person or another system suspended the job; kfext waits until it is resumed"
    if not status and job.suspend:
        return (
            "kfext suspended the job, but no TrainingPlan shows why it waits: is the controller "
            f"running? `kubectl kfext release -n {job.namespace} {job.name}` starts it anyway"
        )
    return ""


def _left_alone(job: TrainingJob, raw: Raw, *, touched: bool) -> str:
    """Return why kfext does not place a job; empty if it does, or if the job itself shows why."""
    if job.released or job.suspend or job.finished:
        return ""
    if not job.run_by_operator:
        return f"runPolicy.managedBy is {job.managed_by}, so kfext leaves the job alone"
    written = (annotations_of(job, raw, group).get(names.COLOCATION) for group in job.groups)
    if Colocation.OFF in written:
        return "colocation is off: the job runs as on plain Kubernetes"
    if not touched:
        return (
            f"kfext does not place this job: its namespace is not labelled {names.MANAGED}=true or "
            "was not when the job was created, its pods name another scheduler, or kfext was down"
        )
    return ""


def _warnings(job: TrainingJob, raw: Raw, pods: Sequence[Pod]) -> Iterator[str]:
    """Yield what co-location may cost a job: without limits, its pods share the CPU of a node."""
    unlimited = {
        group.type.lower()
        for group in job.groups
        if _computes_on_all_cpu(template_of(job, raw, group), job.kind.container)
    }
    together = Counter(
        pod.node_name
        for pod in pods
        if pod.replica and pod.replica.type in unlimited and pod.node_name
        # A LimitRange may have given it limits.
        if not (pod.finished or pod.deleting or pod.guaranteed)
    )
    if crowded := sorted(node for node, count in together.items() if count > 1):
        shared = f"pods without a CPU limit share the CPU of {listed(crowded, of='nodes')}"
        if names.COLOCATION in job.annotations:
            yield (
                f"{shared}, because {names.COLOCATION} is set on the job: without it, kfext puts "
                "pods where each gets the most CPU"
            )
        else:
            yield (
                f"{shared}. kfext assumes that each can use placement.assumedBurst of the "
                "TrainingPolicy (4 CPUs by default). If they can use more, and CPU is the "
                "bottleneck, submit the job with a CPU limit, which then counts instead"
            )


def _computes_on_all_cpu(template: Mapping[str, Any], name: str) -> bool:
    """Return whether the training container of a pod has no CPU limit and no device."""
    spec = mapping(template.get("spec"))
    containers = map(mapping, sequence(spec.get("containers")))
    training = next((one for one in containers if one.get("name") == name), {})
    limits = [mapping(mapping(of.get("resources")).get("limits")) for of in (spec, training)]
    devices = any("/" in resource for limit in limits for resource in limit)
    claims = mapping(training.get("resources")).get("claims")
    return not (devices or claims) and not any("cpu" in limit for limit in limits)


def _order(pod: Pod) -> tuple[str, int]:
    return (pod.replica.type, pod.replica.index) if pod.replica else ("", 0)
