"""All replicas of one type of a job, with the training-operator's defaults applied."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from zlib import crc32

from kfext.model.bounds import MAX_REPLICA_TYPES, bounded, bounded_name, kfext_annotations
from kfext.model.charge import PodCharge, pod_charge
from kfext.model.constraints import Constraints, parse_constraints
from kfext.model.gpu import GpuShare, why_not_shareable
from kfext.model.kinds.job_kind import JobKind
from kfext.model.networking import Networking, parse_networking
from kfext.model.pod_bounds import template_excess
from kfext.model.podspec import containers_of, cpu_limit, is_guaranteed, local_volume, pod_requests
from kfext.model.quantity import Resources
from kfext.model.tolerant import mapping, sequence, text
from kfext.names import DEFAULT_SCHEDULER, NATIVE_GPU

_FAILING = frozenset({"Never", "ExitCode"})
"""With these restart policies an exit code may fail the job. ExitCode retries codes from 128 on,
and torchrun ends with 1 when its pod is deleted."""
_GRACE, _LONGEST_GRACE = 30, 86_400
"""The default of terminationGracePeriodSeconds, and its cap: a day."""


@dataclass(frozen=True, slots=True)
class ReplicaGroup:
    """All replicas of one type, which share one template.

    `type`: the type in the operator's spelling.
    `key`: the type in the user's spelling.
    `requests`: the requests of one pod.
    `guaranteed`: whether the template has QoS class Guaranteed, so its requests equal its limits.
    `charge`: the charge of one pod to quotas.
    `excess`: the bound of model.bounds that the template exceeds, in words; if it does, kfext reads
        no other part of the template.
    `template`: a number that changes with the template's requirements on a node.
    `program`: a number that changes with the images and commands of the template.
    `exact`: whether its pods will equal the template: no RuntimeClass changes them, and they have
        no gate of another system.
    `restarts`: whether the operator may replace a failed pod: unless restartPolicy is Never.
    `fails`: whether a failed pod may fail the job: with restartPolicy Never or ExitCode.
    `cpu_limit`: the millicores that one pod can use; None means that it has no limit.
    `share`: the terms of its GPU share, or None.
    `grace`: the seconds from the deletion of a pod until its containers are killed.
    `local_volume`: the directory of the node or the pod that may hold its checkpoints, in words;
        empty if it may write to other volumes, or to none.
    `after`: the replica types that must be ready or complete before the operator creates its pods.
    `no_part`: why a pod of a job that shares GPUs cannot share a GPU (`why_not_shareable`).
    """

    type: str
    key: str
    replicas: int
    requests: Resources
    guaranteed: bool
    constraints: Constraints
    priority_class: str = ""
    networking: Networking = field(default_factory=Networking)
    charge: PodCharge = field(default_factory=PodCharge)
    excess: str = ""
    template: int = 0
    program: int = 0
    exact: bool = True
    restarts: bool = True
    fails: bool = False
    cpu_limit: int | None = None
    share: GpuShare | None = None
    grace: int = _GRACE
    local_volume: str = ""
    after: tuple[str, ...] = ()
    no_part: str = ""
    scheduler: str = DEFAULT_SCHEDULER


def parse_groups(
    kind: JobKind, specs: Mapping[str, Any], *, namespace: str, shares_gpus: bool
) -> tuple[ReplicaGroup, ...]:
    """Return the replica types of a job in rank order; none if there are too many. Never raises.

    A kind that names no types has the types of `specs`, in that order.
    """
    if len(specs) > MAX_REPLICA_TYPES:
        return ()
    types = kind.types or tuple(specs)
    spelling = {known.lower(): known for known in types}
    rank = {known: number for number, known in enumerate(types)}
    groups = []
    for key, value in specs.items():
        known = spelling.get(str(key).lower())
        if known is None:
            continue  # the operator does not run such a type either
        template = mapping(mapping(value).get("template"))
        excess = kind.unsupported(mapping(value)) or template_excess(template)
        template = {} if excess else template
        pod_spec = mapping(template.get("spec"))
        created = kind.as_created(known, pod_spec, specs=specs)
        count, default = mapping(value).get("replicas"), int(known not in kind.none_by_default)
        restart = text(mapping(value).get("restartPolicy")) or kind.restart
        requests, constraints = pod_requests(created), parse_constraints(created).scoped(namespace)
        shared = shares_gpus and NATIVE_GPU in requests
        groups.append(
            ReplicaGroup(
                type=known,
                key=str(key),
                replicas=count if type(count) is int and count >= 0 else default,
                requests=requests,
                guaranteed=is_guaranteed(pod_spec),
                constraints=replace(constraints, devices=_devices(requests)),
                priority_class=text(pod_spec.get("priorityClassName")),
                networking=parse_networking(template, kind=kind),
                charge=replace(pod_charge(created), served=not kind.rendered),
                excess=excess,
                template=_template_number(requests, replace(constraints, host_ports=())),
                program=_program_number(pod_spec),
                exact=not (pod_spec.get("runtimeClassName") or pod_spec.get("schedulingGates")),
                restarts=restart != "Never",
                fails=restart in _FAILING,
                cpu_limit=cpu_limit(pod_spec),
                grace=_grace(pod_spec),
                local_volume=local_volume(pod_spec, container=kind.container),
                after=_after(mapping(value)),
                no_part=why_not_shareable(pod_spec) if shared else "",
                scheduler=bounded_name(pod_spec.get("schedulerName")) or DEFAULT_SCHEDULER,
            )
        )
    return tuple(sorted(groups, key=lambda group: rank[group.type]))


def _after(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the types that a replica type depends on, in lower case."""
    depends = sequence(spec.get("dependsOn"))[:MAX_REPLICA_TYPES]
    return tuple(text(mapping(item).get("name")).lower() for item in depends)


def _devices(requests: Resources) -> tuple[str, ...]:
    """Return the extended resources among the requests."""
    return tuple(sorted(name for name in requests if "/" in name and "kubernetes.io/" not in name))


def _grace(pod_spec: Mapping[str, Any]) -> int:
    seconds = pod_spec.get("terminationGracePeriodSeconds")
    return min(seconds, _LONGEST_GRACE) if type(seconds) is int and seconds >= 0 else _GRACE


def _program_number(pod_spec: Mapping[str, Any]) -> int:
    programs = [
        [container.get(part) for part in ("image", "command", "args")]
        for container in containers_of(pod_spec)
    ]
    return crc32(repr(programs).encode())


def _template_number(requests: Resources, constraints: Constraints) -> int:
    return crc32(repr((sorted(requests.items()), constraints)).encode())


def template_settings(annotations: Sequence[Mapping[str, Any]]) -> Mapping[str, str]:
    """Return kfext's annotations in the templates of a job; of too many, only the marks."""
    settings: dict[str, str] = {}
    for written in annotations if len(annotations) <= MAX_REPLICA_TYPES else ():
        settings |= bounded(kfext_annotations(written))
    return settings
