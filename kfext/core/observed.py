"""What admission makes of a job's pods, learnt from pods that were seen behind the gate.

A LimitRange, a RuntimeClass, an injected sidecar or another webhook changes pods, but not the
templates that a plan is made from. What was seen is kept in the job's state, and holds for plans
until the template changes.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from kfext.core.ledger.fit import NO_SCHEDULE, tolerated
from kfext.core.words import listed
from kfext.model.job import TrainingJob
from kfext.model.job_state import JobState, Observed
from kfext.model.node import Taint
from kfext.model.pod import Pod
from kfext.model.quantity import human, maximum
from kfext.model.replica_group import ReplicaGroup

_MOST_OBSERVED = 1024
"""Characters of JSON for what was seen of all types: the rest of the state must fit beside it."""


def as_observed(job: TrainingJob, state: JobState) -> TrainingJob:
    """Return the job with replicas as admission makes them, as far as it has been seen."""
    if not state.observed:
        return job
    groups = (_as_seen(group, state.observed.get(group.type.lower())) for group in job.groups)
    return replace(job, groups=tuple(groups))


def observed(job: TrainingJob, pods: Collection[Pod], state: JobState) -> Mapping[str, Observed]:
    """Return what the state of a job must remember, with what its present pods show."""
    seen = dict(state.observed)
    for group in job.groups:
        found, known = _seen(group, pods), seen.get(group.type.lower())
        if found is not None and _as_seen(group, found) != group:
            # A type that is planned without a toleration does not show again that it has none.
            if known is not None and known.template == group.template and known.untolerated:
                found = replace(found, untolerated=True)
            seen[group.type.lower()] = found
    if len(json.dumps({type_: one.encode() for type_, one in seen.items()})) > _MOST_OBSERVED:
        return state.observed
    return seen


def differences(job: TrainingJob, pods: Collection[Pod], *, eligible: bool) -> str:
    """Return in words in what the pods of a job are not what was planned, empty if in nothing.

    `eligible`: whether a node is eligible for each of them, so that no toleration is missing.
    """
    words = [_words(group, pods, eligible=eligible) for group in job.groups]
    return listed([one for one in words if one], of="types")


def _words(group: ReplicaGroup, pods: Iterable[Pod], *, eligible: bool) -> str:
    made = _as_seen(group, _seen(group, pods))
    more = [
        f"{human(name, number)} instead of {human(name, group.requests.get(name, 0))}"
        for name, number in made.requests.items()
        if number > group.requests.get(name, 0)
    ]
    if made.constraints.node_selector != group.constraints.node_selector:
        more.append("another nodeSelector")
    if made.constraints.devices != group.constraints.devices and not eligible:
        more.append(f"no toleration for {listed(group.constraints.devices, of='resources')}")
    return f"a {group.type.lower()} has {listed(more, of='differences')}" if more else ""


def _seen(group: ReplicaGroup, pods: Iterable[Pod]) -> Observed | None:
    """Return what the gated pods of a type show, None if there is none; the largest counts."""
    found: Observed | None = None
    for pod in pods:
        if pod.replica is None or pod.replica.type != group.type.lower():
            continue
        if pod.constraints is None or pod.constraints.excess:
            continue
        requests = maximum(found.requests if found else {}, pod.requests)
        found = Observed(
            template=group.template,
            requests=requests,
            node_selector=pod.constraints.node_selector,
            untolerated=not all(
                tolerated(Taint(key=device, effect=NO_SCHEDULE), pod.constraints.tolerations)
                for device in group.constraints.devices
            ),
        )
    return found


def _as_seen(group: ReplicaGroup, seen: Observed | None) -> ReplicaGroup:
    """Return a type as its pods were seen; what was seen under another template does not count."""
    if seen is None or seen.template != group.template:
        return group
    constraints = replace(
        group.constraints,
        node_selector=seen.node_selector,
        devices=() if seen.untolerated else group.constraints.devices,
    )
    return replace(group, requests=seen.requests, constraints=constraints)
