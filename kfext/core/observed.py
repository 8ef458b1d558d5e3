"""The changes that admission makes to a job's pods, learnt from gated pods.

A LimitRange, a RuntimeClass, an injected sidecar or another webhook changes pods, but not the
templates of a plan. On pods with the host network, the operator also declares ports that no
template has. The job's state records these changes, and plans include them until the template
changes. For node affinity and volume claims the state records only that they differ.

Only admission may give pods the tolerations of a dedicated pool. So a job that fits no other nodes
is started once as if admission added tolerations, and its pods show whether it does.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import astuple, replace

import numpy as np

from kfext.core.ledger.cards import as_template, as_written
from kfext.core.ledger.fit import NO_SCHEDULE, dedicates_nodes, tolerated, why_not
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

_MAX_OBSERVED = 1024
"""The most characters of JSON for the changes of all types, so that the other state fits too."""


def as_observed(job: TrainingJob, state: JobState) -> TrainingJob:
    """Return the job with its replicas as changed by admission, if their pods were seen."""
    if not state.observed:
        return job
    groups = (_as_seen(group, state.observed.get(group.type.lower())) for group in job.groups)
    return replace(job, groups=tuple(groups))


def expecting_tolerations(job: TrainingJob, state: JobState, ledger: Ledger) -> TrainingJob | None:
    """Return the job as if admission added tolerations of pools to pods that were never seen.

    The result is None once pods of every type were seen, and if no more nodes would be eligible.
    """
    groups = tuple(group if _known(group, state) else _expecting(group) for group in job.groups)
    pairs = zip(job.groups, groups, strict=True)
    adds_nodes = any(
        np.any(ledger.eligible(expected.constraints) != ledger.eligible(current.constraints))
        for current, expected in pairs
        if current != expected
    )
    return replace(job, groups=groups) if adds_nodes else None


def untolerated_taints(job: TrainingJob, places: Assignment, ledger: Ledger) -> list[str]:
    """Return the taints of planned nodes that are tolerated only if admission adds tolerations."""
    by_type = {
        group.type.lower(): replace(group.constraints, expects_tolerations=False)
        for group in job.groups
    }
    pairs = {(by_type[key.type], name) for key, name in places.items() if key.type in by_type}
    nodes = ((terms, node) for terms, name in pairs if (node := ledger.node(name)) is not None)
    return sorted({f"taint {taint}" for terms, node in nodes if (taint := why_not(terms, node))})


def observed(
    job: TrainingJob,
    pods: Collection[Pod],
    state: JobState,
    *,
    plan: Plan | None,
    unchanged: bool = False,
) -> Mapping[str, ObservedPods]:
    """Return the changes to record in the state of a job, including changes of its present pods.

    `unchanged`: whether pods that equal their template are recorded too.
    """
    seen, job = dict(state.observed), as_written(job) if job.shares_gpus else job
    for group in job.groups:
        known = _known(group, state)
        changes = _seen(job, group, pods, plan, known=known.tolerations if known else ())
        if changes is None:
            continue
        differs = known is not None and known.tolerations != changes.tolerations
        if unchanged or differs or _as_seen(group, changes) != group:
            # Pods do not show the changes again that the plan of their type includes.
            if known is not None:
                changes = replace(
                    changes,
                    untolerated=known.untolerated or changes.untolerated,
                    host_ports=tuple(sorted({*known.host_ports, *changes.host_ports})),
                )
            seen[group.type.lower()] = changes
    if len(json.dumps({type_: shown.encode() for type_, shown in seen.items()})) > _MAX_OBSERVED:
        return state.observed
    return seen


def differences(
    job: TrainingJob, pods: Collection[Pod], *, plan: Plan | None, eligible: bool
) -> str:
    """Return the differences between the pods of a job and its plan in words, or an empty string.

    `eligible`: whether a node is eligible for each pod, so that no toleration is missing.
    """
    job = as_written(job) if job.shares_gpus else job
    words = [_differences(job, group, pods, plan=plan, eligible=eligible) for group in job.groups]
    return listed([text for text in words if text], noun="types")


def _differences(
    job: TrainingJob,
    group: ReplicaGroup,
    pods: Collection[Pod],
    *,
    plan: Plan | None,
    eligible: bool,
) -> str:
    actual = _as_seen(group, _seen(job, group, pods, plan))
    texts = [
        f"{amount_text(name, number)} instead of {amount_text(name, group.requests.get(name, 0))}"
        for name, number in actual.requests.items()
        if number > group.requests.get(name, 0)
    ]
    if actual.constraints.node_selector != group.constraints.node_selector:
        texts.append("another nodeSelector")
    if actual.constraints.devices != group.constraints.devices and not eligible:
        texts.append(f"no toleration for {listed(group.constraints.devices, noun='resources')}")
    texts += _unrecordable(job, group, pods, plan)
    return f"a {group.type.lower()} has {listed(texts, noun='differences')}" if texts else ""


def _unrecordable(
    job: TrainingJob, group: ReplicaGroup, pods: Collection[Pod], plan: Plan | None
) -> list[str]:
    """Return, in words, the differences of a type's gated pods that the state cannot record."""
    want, planned = group.constraints, _ports_of_plan(job, group, plan)
    all_have = [have for _, have in _readable(group, pods)]
    ports = {port for have in all_have for port in have.host_ports} - planned - {*want.host_ports}
    numbers = listed([str(number) for _, number in sorted(ports)], noun="ports")
    tolerations = {*want.tolerations}
    words = {
        f"host port {numbers}": bool(ports),
        "another node affinity": any(have.terms != want.terms for have in all_have),
        "fewer tolerations": not all(tolerations <= {*have.tolerations} for have in all_have),
        "other volume claims": any(have.claims != want.claims for have in all_have),
    }
    return [word for word, differs in words.items() if differs]


def _known(group: ReplicaGroup, state: JobState) -> ObservedPods | None:
    """Return the recorded changes of a type under its present template, or None."""
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
    """Return the changes of a type's gated pods, with the largest amounts; None means no pods.

    `known`: the tolerations in the plan of the type that its template lacks.
    """
    changes: ObservedPods | None = None
    planned = _ports_of_plan(job, group, plan)
    of_template = {*group.constraints.tolerations}.difference(known)
    for pod, have in _readable(group, pods):
        ports = {*have.host_ports} - planned - {*group.constraints.host_ports}
        added = {
            toleration
            for toleration in have.tolerations
            if toleration not in of_template
            and dedicates_nodes(toleration.key)
            and toleration.key not in group.constraints.devices
        }
        requests = as_template(pod.requests) if pod.has_slot else pod.requests
        changes = ObservedPods(
            template=group.template,
            requests=maximum(changes.requests if changes else {}, requests),
            node_selector=have.node_selector,
            host_ports=tuple(sorted(ports.intersection(changes.host_ports) if changes else ports)),
            untolerated=not all(
                tolerated(Taint(key=device, effect=NO_SCHEDULE), have.tolerations)
                for device in group.constraints.devices
            ),
            tolerations=tuple(
                sorted(added.intersection(changes.tolerations) if changes else added, key=astuple)
            ),
        )
    return changes


def _readable(group: ReplicaGroup, pods: Iterable[Pod]) -> Iterator[tuple[Pod, Constraints]]:
    """Yield the pods of a type with their constraints, if these are within the bounds."""
    for pod in pods:
        if pod.replica is None or pod.replica.type != group.type.lower():
            continue
        if pod.constraints is not None and not pod.constraints.excess:
            yield pod, pod.constraints


def _ports_of_plan(job: TrainingJob, group: ReplicaGroup, plan: Plan | None) -> set[Port]:
    """Return the ports that kfext assigned to pods on the host network."""
    return {*block(job, plan.port), *group.networking.ports} if plan and plan.port else set()


def _as_seen(group: ReplicaGroup, seen: ObservedPods | None) -> ReplicaGroup:
    """Return a type with the changes seen on its pods under its present template."""
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
