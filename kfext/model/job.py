"""Training jobs of every kind as one type, with the training-operator's defaults applied."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kfext.model.bounds import (
    bounded,
    bounded_name,
    bytes_of,
    job_excess,
    kfext_annotations,
    pods_excess,
)
from kfext.model.kinds.job_kind import JobKind, Rendezvous, Scaling
from kfext.model.kinds.registered import KINDS
from kfext.model.pod import ReplicaKey
from kfext.model.quantity import Resources, add, times
from kfext.model.replica_group import ReplicaGroup, parse_groups, template_settings
from kfext.model.timestamps import timestamp
from kfext.model.tolerant import controller_in, mapping, member, strings, text
from kfext.names import COLOCATION, GPU_SHARE, HELD, KUEUE_QUEUE, PLACES, RELEASED

_GENERATED = re.compile(r"-[bcdfghjklmnpqrstvwxz2456789]{5}$|[0-9]+")
"""The suffix of a generateName (apimachinery, util/rand), and numbers."""
_LABELS = frozenset({KUEUE_QUEUE})
_BY_STATUS = ("kubeflow.org", "argoproj.io", "batch")
"""The API groups of owners, such as Katib, that follow a job by its status and not by its pods."""


def pod_labels(job: "TrainingJob", key: ReplicaKey) -> Mapping[str, str]:
    """Return the labels that the operator puts on the pod of a replica."""
    types = [group.type.lower() for group in job.groups]
    return job.kind.pod_labels(job.name, key.type, key.index, types=types)


def pod_name(job: "TrainingJob", key: ReplicaKey) -> str:
    """Return the name of the pod of a replica, or the prefix before a random suffix."""
    return job.kind.pod_name(job.name, key.type, key.index)


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition of a job's status; `since` is its last transition, in epoch seconds."""

    status: bool
    since: float


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """A training job in the cluster. Times are seconds since the epoch.

    `groups`: the replica types in rank order; none before the operator has rendered them.
    `managed_by`: the value of managedBy; empty if unset.
    `deadline`: the seconds (activeDeadlineSeconds) that the job may run after `started`, or None.
    `started`: the time of its last start; 0.0 if it never started.
    `scaling`: its possible sizes.
    `rendezvous`: how its pods find each other.
    `conditions`: the conditions of the status by type.
    `series`: a key of jobs that repeat the same work: namespace, name without numbers, programs.
    `template_settings`: kfext's annotations in the templates, as admission left them.
    `annotation_bytes`: the size of all annotations but plan and state, as the API server counts it.
    `beyond`: the bound of model.bounds that the job itself exceeds, in words.
    `counted_by`: the kind and name of an owner that may count the job's pods; empty if none may.
    """

    kind: JobKind
    namespace: str
    name: str
    uid: str
    groups: tuple[ReplicaGroup, ...]
    annotations: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    resource_version: str = ""
    suspend: bool = False
    managed_by: str = ""
    deleting: bool = False
    created: float = 0.0
    deadline: float | None = None
    started: float = 0.0
    scaling: Scaling = field(default_factory=Scaling)
    rendezvous: Rendezvous = field(default_factory=Rendezvous)
    conditions: Mapping[str, Condition] = field(default_factory=dict)
    series: str = ""
    template_settings: Mapping[str, str] = field(default_factory=dict)
    annotation_bytes: int = 0
    beyond: str = ""
    counted_by: str = ""

    @property
    def title(self) -> str:
        """The name of the job in messages: kind, namespace and name."""
        return f"{self.kind.name} {self.namespace}/{self.name}"

    @property
    def training_plan(self) -> str:
        """The name of the job's TrainingPlan."""
        return plan_name(self.kind, self.name)

    @property
    def in_queue(self) -> bool:
        """Whether the job waits for kfext to start it."""
        waits = self.suspend and self.held and self.run_by_operator and not self.started_by
        return waits and not (self.finished or self.deleting or self.released)

    @property
    def held(self) -> bool:
        """Whether kfext suspended the job, so that kfext may resume it."""
        return HELD in self.annotations

    @property
    def released(self) -> bool:
        """Whether kfext has released the job for good."""
        return RELEASED in self.annotations

    @property
    def started_by(self) -> str:
        """The other system that starts the job, so that kfext does not suspend it; may be empty."""
        # A held job waits for kfext, even if a controller has adopted it.
        return "Kueue" if KUEUE_QUEUE in self.labels else "" if self.held else self.counted_by

    @property
    def unmarked(self) -> bool:
        """Whether the operator renders its templates, and they lack the mark of kfext's pods."""
        return bool(self.kind.rendered and self.groups) and COLOCATION not in self.template_settings

    @property
    def being_created(self) -> bool:
        """Whether the job is born pinned, and not all of its pods have been bound yet."""
        return PLACES in self.template_settings

    @property
    def run_by_operator(self) -> bool:
        """Whether the operator of its kind runs the job, and no other system."""
        return self.managed_by in {"", self.kind.operator}

    @property
    def finished(self) -> bool:
        """Whether the job has succeeded or failed."""
        return self.has("Succeeded") or self.has("Failed")

    @property
    def ends(self) -> float | None:
        """The time in epoch seconds at which the deadline ends a running job, or None."""
        return self.started + self.deadline if self.deadline and self.started else None

    @property
    def run_seconds(self) -> float | None:
        """The seconds from the last start to the end of a job that has succeeded, else None."""
        ended = self.conditions.get("Succeeded")
        known = ended is not None and ended.status and 0.0 < self.started < ended.since
        return ended.since - self.started if ended is not None and known else None

    @property
    def pods(self) -> int:
        """The number of pods of the job."""
        return sum(group.replicas for group in self.groups)

    @property
    def training_pods(self) -> int:
        """The number of pods of the job that train; a parameter server, for example, does not."""
        types = self.kind.training_types
        return sum(group.replicas for group in self.groups if group.type in types)

    @property
    def shares_gpus(self) -> bool:
        """Whether replicas of the job have GPU shares."""
        return any(group.share for group in self.groups)

    @property
    def excess(self) -> str:
        """The bound of model.bounds that the job or a template exceeds, in words; may be empty."""
        if excess := self.beyond or pods_excess(self.pods):
            return f"it has {excess}"
        templates = (
            f"the {group.type} template has {group.excess}" for group in self.groups if group.excess
        )
        return next(templates, "")

    @property
    def priority_classes(self) -> tuple[str, ...]:
        """The names of the PriorityClasses that its pods will have.

        runPolicy.schedulingPolicy.priorityClass is only for the PodGroup of another scheduler.
        """
        named = (group.priority_class for group in self.groups if group.replicas)
        return tuple(name for name in named if name)

    @property
    def requests(self) -> Resources:
        """The requests of all pods of the job together."""
        return add(times(group.requests, group.replicas) for group in self.groups)

    def has(self, condition: str) -> bool:
        """Return whether a condition is true."""
        present = self.conditions.get(condition)
        return present is not None and present.status

    def replicas(self) -> Iterator[tuple[ReplicaKey, ReplicaGroup]]:
        """Yield every replica in rank order: by type, then by index."""
        for group in self.groups:
            for index in range(group.replicas):
                yield ReplicaKey(type=group.type.lower(), index=index), group

    def within(self, keys: Iterable[ReplicaKey]) -> Iterator[ReplicaKey]:
        """Yield the replicas among `keys` that are within the size of the job."""
        sizes = {group.type.lower(): group.replicas for group in self.groups}
        return (key for key in keys if key.index < sizes.get(key.type, 0))


def parse_job(raw: Mapping[str, Any]) -> TrainingJob | None:
    """Return the job in a JSON object, or None for an object of an unknown kind.

    Never raises: invalid or missing fields have the operator's defaults (1 replica) or are omitted.
    Replica types may be written in any case; they are returned in the operator's spelling.
    """
    kind = KINDS.get(text(raw.get("kind")))
    if kind is None:
        return None
    metadata, spec = mapping(raw.get("metadata")), mapping(raw.get("spec"))
    status, policy = mapping(raw.get("status")), mapping(member(spec, kind.suspend_path[:-1]))
    annotations = kfext_annotations(metadata.get("annotations"))
    job = TrainingJob(
        kind=kind,
        namespace=text(metadata.get("namespace")),
        name=text(metadata.get("name")),
        uid=text(metadata.get("uid")),
        groups=(),
        annotations=bounded(annotations),
        labels={
            key: value for key, value in strings(metadata.get("labels")).items() if key in _LABELS
        },
        resource_version=text(metadata.get("resourceVersion")),
        suspend=member(spec, kind.suspend_path) is True,
        managed_by=bounded_name(policy.get("managedBy")),
        deleting=bool(metadata.get("deletionTimestamp")),
        created=timestamp(metadata.get("creationTimestamp")),
        deadline=_positive(policy.get("activeDeadlineSeconds")),
        started=timestamp(kind.started(status)),
        conditions={
            text(item.get("type")): Condition(
                status=item.get("status") == "True", since=timestamp(item.get("lastTransitionTime"))
            )
            for item in kind.conditions(status)
        },
        annotation_bytes=bytes_of(metadata.get("annotations")),
        beyond=job_excess({}, annotations),
        counted_by=_counted_by(controller_in(metadata)),
    )
    return with_templates(job, templates_in(kind, spec, job=job))


@dataclass(frozen=True, slots=True)
class Templates:
    """The fields of a TrainingJob that its templates decide."""

    groups: tuple[ReplicaGroup, ...]
    scaling: Scaling
    rendezvous: Rendezvous
    template_settings: Mapping[str, str]
    beyond: str


def templates_in(kind: JobKind, spec: Mapping[str, Any], *, job: TrainingJob) -> Templates:
    """Return the templates in the spec of a job, or of its rendered object. Never raises."""
    specs = kind.templates(spec)
    shares = GPU_SHARE in job.annotations
    groups = parse_groups(kind, specs, namespace=job.namespace, shares_gpus=shares)
    return Templates(
        groups=groups,
        scaling=kind.scaling(spec, groups),
        rendezvous=kind.rendezvous(spec, groups, job=job.name),
        template_settings=template_settings(kind.template_annotations(spec)),
        beyond=job_excess(specs, {}),
    )


def with_templates(job: TrainingJob, templates: Templates) -> TrainingJob:
    """Return a job with these templates."""
    return replace(
        job,
        groups=templates.groups,
        scaling=templates.scaling,
        rendezvous=templates.rendezvous,
        template_settings={**job.template_settings, **templates.template_settings},
        series=_series(job.kind, job.namespace, job.name, templates.groups),
        beyond=templates.beyond or job.beyond,
    )


def template_of(job: TrainingJob, raw: Mapping[str, Any], group: ReplicaGroup) -> Mapping[str, Any]:
    """Return the pod template of a replica type in the JSON object of a job."""
    specs = job.kind.templates(mapping(raw.get("spec")))
    return mapping(mapping(specs.get(group.key)).get("template"))


def plan_name(kind: JobKind, name: str) -> str:
    """Return the name of the TrainingPlan of a job."""
    return f"{kind.name.lower()}-{name}"


def planned_uid(training_plan: Mapping[str, Any]) -> str:
    """Return the uid of the job that a TrainingPlan names; empty if it names none."""
    return text(mapping(mapping(training_plan.get("spec")).get("job")).get("uid"))


def annotations_of(
    job: TrainingJob, raw: Mapping[str, Any], group: ReplicaGroup
) -> Mapping[str, str]:
    """Return the annotations of the pod template of a replica type."""
    return strings(mapping(template_of(job, raw, group).get("metadata")).get("annotations"))


def _series(kind: JobKind, namespace: str, job: str, groups: Iterable[ReplicaGroup]) -> str:
    programs = " ".join(f"{group.type}:{group.program:x}" for group in groups)
    return f"{kind.name} {namespace}/{_GENERATED.sub('', job)} {programs}"


def _counted_by(owner: Mapping[str, Any]) -> str:
    """Return the kind and name of an owner that may count the job's pods: none while suspended."""
    group, of_group, _ = text(owner.get("apiVersion")).partition("/")
    known = not of_group or group.endswith(_BY_STATUS)
    return "" if known else f"{bounded_name(owner.get('kind'))} {bounded_name(owner.get('name'))}"


def _positive(value: object) -> float | None:
    return float(value) if type(value) is int and value > 0 else None
