"""What admission makes of a job's pods, learnt from gated pods.

A LimitRange, a RuntimeClass, an injected sidecar or another webhook changes pods, but not the
templates that a plan is made from. The operator also declares ports on pods of the host network
that no template has. The job's state keeps what the pods showed; plans use it until the template
changes. For node affinity and volume claims the state only records that they differ.

Pods of a dedicated pool may get their tolerations from admission alone. So a job that fits no other
nodes is started once as if admission added tolerations, and its pods show whether it does.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import astuple, replace

import numpy as np

from kfext.core.ledger.cards import as_template, as_written
from kfext.core.ledger.fit import NO_SCHEDULE, of_pool, tolerated, why_not
from kfext.core.ledger.ledger import Ledger
from kfext.core.ledger.ports import block
from kfext.core.words import listed
from kfext.model.constraints import Constraints, Toleration
from kfext.model.job import TrainingJob
from kfext.model.job_state import JobState, ObservedPods
from kfext.model.networking import Port
from kfext.model.node import Taint
from kfext.model.plan import Assignment, Plan
from kfext.model.pod import Pod
from kfext.model.quantity import amount_text, maximum
from kfext.model.replica_group import ReplicaGroup

_MOST_OBSERVED = 1024
"""Most characters of JSON for all types: the rest of the state must fit beside it."""


def as_observed(job: TrainingJob, state: JobState) -> TrainingJob:
    """Return the job with its replicas as admission makes them, if their pods were seen."""
    if not state.observed:
        return job
    groups = (_as_seen(group, state.observed.get(group.type.lower())) for group in job.groups)
    return replace(job, groups=tuple(groups))


def expecting_tolerations(job: TrainingJob, state: JobState, ledger: Ledger) -> TrainingJob | None:
    """Return the job as if admission added tolerations of pools to pods that were never seen.

    Return None after pods of every type were seen, and without more eligible nodes.
    """
    groups = tuple(group if _known(group, state) else _expecting(group) for group in job.groups)
    pairs = zip(job.groups, groups, strict=True)
    more = any(
        np.any(ledger.eligible(then.constraints) != ledger.eligible(now.constraints))
        for now, then in pairs
        if now != then
    )
    return replace(job, groups=groups) if more else None


def unexpected(job: TrainingJob, places: Assignment, ledger: Ledger) -> list[str]:
    """Return the taints of planned nodes that a job's pods are only expected to tolerate."""
    of = {
        group.type.lower(): replace(group.constraints, expects_tolerations=False)
        for group in job.groups
    }
    pairs = {(key.type, name) for key, name in places.items() if key.type in of}
    nodes = ((of[type_], node) for type_, name in pairs if (node := ledger.node(name)) is not None)
    return sorted({f"taint {why}" for of_pod, node in nodes if (why := why_not(of_pod, node))})


def observed(
    job: TrainingJob,
    pods: Collection[Pod],
    state: JobState,
    *,
    plan: Plan | None,
    unchanged: bool = False,
) -> Mapping[str, ObservedPods]:
    """Return what the state of a job must remember, including what its present pods show.

    `unchanged`: whether it must also remember pods that equal their template.
    """
    seen, job = dict(state.observed), as_written(job) if job.shares_gpus else job
    for group in job.groups:
        known = _known(group, state)
        found = _seen(job, group, pods, plan, known=known.tolerations if known else ())
        if found is None:
            continue
        fewer = known is not None and known.tolerations != found.tolerations
        if unchanged or fewer or _as_seen(group, found) != group:
            # Pods do not show again what their type is already planned with.
            if known is not None:
                found = replace(
                    found,
                    untolerated=known.untolerated or found.untolerated,
                    host_ports=tuple(sorted({*known.host_ports, *found.host_ports})),
                )
            seen[group.type.lower()] = found
    if len(json.dumps({type_: shown.encode() for type_, shown in seen.items()})) > _MOST_OBSERVED:
        return state.observed
    return seen


def differences(
    job: TrainingJob, pods: Collection[Pod], *, plan: Plan | None, eligible: bool
) -> str:
    """Return in words how the pods of a job differ from the plan; empty without a difference.

    `eligible`: whether a node is eligible for each pod, so that no toleration is missing.
    """
    job = as_written(job) if job.shares_gpus else job
    words = [_words(job, group, pods, plan=plan, eligible=eligible) for group in job.groups]
    return listed([text for text in words if text], of="types")


def _words(
    job: TrainingJob,
    group: ReplicaGroup,
    pods: Collection[Pod],
    *,
    plan: Plan | None,
    eligible: bool,
) -> str:
    made = _as_seen(group, _seen(job, group, pods, plan))
    more = [
        f"{amount_text(name, number)} instead of {amount_text(name, group.requests.get(name, 0))}"
        for name, number in made.requests.items()
        if number > group.requests.get(name, 0)
    ]
    if made.constraints.node_selector != group.constraints.node_selector:
        more.append("another nodeSelector")
    if made.constraints.devices != group.constraints.devices and not eligible:
        more.append(f"no toleration for {listed(group.constraints.devices, of='resources')}")
    more += _not_learnt(job, group, pods, plan)
    return f"a {group.type.lower()} has {listed(more, of='differences')}" if more else ""


def _not_learnt(
    job: TrainingJob, group: ReplicaGroup, pods: Collection[Pod], plan: Plan | None
) -> list[str]:
    """Return in words what the gated pods of a type have that the state cannot record."""
    want, ours = group.constraints, _ports_of_plan(job, group, plan)
    found = [have for _, have in _readable(group, pods)]
    ports = {port for have in found for port in have.host_ports} - ours - {*want.host_ports}
    numbers = listed([str(number) for _, number in sorted(ports)], of="ports")
    words = {
        f"host port {numbers}": bool(ports),
        "another node affinity": any(have.terms != want.terms for have in found),
        "fewer tolerations": not all({*want.tolerations} <= {*have.tolerations} for have in found),
        "other volume claims": any(have.claims != want.claims for have in found),
    }
    return [word for word, differs in words.items() if differs]


def _known(group: ReplicaGroup, state: JobState) -> ObservedPods | None:
    """Return what the pods of a type have shown under its present template."""
    known = state.observed.get(group.type.lower())
    return known if known is not None and known.template == group.template else None


def _expecting(group: ReplicaGroup) -> ReplicaGroup:
    return replace(group, constraints=replace(group.constraints, expects_tolerations=True))


def _seen(
    job: TrainingJob,
    group: ReplicaGroup,
    pods: Iterable[Pod],
    plan: Plan | None,
    *,
    known: Collection[Toleration] = (),
) -> ObservedPods | None:
    """Return what the gated pods of a type show, or None without pods; the largest amounts count.

    `known`: the tolerations that the plan has for the type, but not its template.
    """
    found: ObservedPods | None = None
    ours = _ports_of_plan(job, group, plan)
    own = {*group.constraints.tolerations}.difference(known)
    for pod, have in _readable(group, pods):
        ports = {*have.host_ports} - ours - {*group.constraints.host_ports}
        added = {
            toleration
            for toleration in have.tolerations
            if toleration not in own
            and of_pool(toleration.key)
            and toleration.key not in group.constraints.devices
        }
        requests = as_template(pod.requests) if pod.has_slot else pod.requests
        found = ObservedPods(
            template=group.template,
            requests=maximum(found.requests if found else {}, requests),
            node_selector=have.node_selector,
            host_ports=tuple(sorted(ports.intersection(found.host_ports) if found else ports)),
            untolerated=not all(
                tolerated(Taint(key=device, effect=NO_SCHEDULE), have.tolerations)
                for device in group.constraints.devices
            ),
            tolerations=tuple(
                sorted(added.intersection(found.tolerations) if found else added, key=astuple)
            ),
        )
    return found


def _readable(group: ReplicaGroup, pods: Iterable[Pod]) -> Iterator[tuple[Pod, Constraints]]:
    """Yield the pods of a type with constraints that were kept and read."""
    for pod in pods:
        if pod.replica is None or pod.replica.type != group.type.lower():
            continue
        if pod.constraints is not None and not pod.constraints.excess:
            yield pod, pod.constraints


def _ports_of_plan(job: TrainingJob, group: ReplicaGroup, plan: Plan | None) -> set[Port]:
    """Return the ports that pods have from kfext, which put them on the host network."""
    return {*block(job, plan.port), *group.networking.ports} if plan and plan.port else set()


def _as_seen(group: ReplicaGroup, seen: ObservedPods | None) -> ReplicaGroup:
    """Return a type as its pods were seen; pods of an earlier template do not count."""
    if seen is None or seen.template != group.template:
        return group
    constraints = replace(
        group.constraints,
        node_selector=seen.node_selector,
        host_ports=tuple(sorted({*group.constraints.host_ports, *seen.host_ports})),
        devices=() if seen.untolerated else group.constraints.devices,
        tolerations=tuple(dict.fromkeys((*group.constraints.tolerations, *seen.tolerations))),
    )
    charge = group.charge
    if seen.requests != group.requests:
        charge = charge.requesting(seen.requests)
    return replace(group, requests=seen.requests, constraints=constraints, charge=charge)
