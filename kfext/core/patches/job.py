"""The patch of a job for each step, as JSON-patch operations.

Each patch tests the fields that the decision depends on: uid, suspend, held and replicas. It does
not test the resource version, because then each status write of the operator would be a conflict.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from kfext.core.elastic import requested_workers, workers_of, workers_on_release
from kfext.core.patches.host_network import port_operations
from kfext.core.patches.json_patch import Changes, Operation, operations, pointer
from kfext.core.settings.table import OF_A_JOB, parsed
from kfext.model.constraints import NAME_FIELD
from kfext.model.gpu import encode_slots
from kfext.model.job import TrainingJob, template_of
from kfext.model.job_state import JobState, state_of
from kfext.model.kinds.job_kind import WORKER
from kfext.model.plan import Plan, places_of_type, plan_of
from kfext.model.replica_group import ReplicaGroup
from kfext.model.tolerant import mapping, member, sequence
from kfext.model.verdict import Verdict
from kfext.names import (
    GPU_SLOTS,
    HELD,
    HOSTNAME,
    INTERFACES,
    JOB_NAME,
    PLACES,
    PLAN,
    PLAN_GENERATION,
    PORT_BASE,
    PREFERRED,
    REASON_RELEASED_BY_USER,
    RELEASED,
    STATE,
)

Raw = Mapping[str, Any]
_NO_PORTS: dict[str, str | None] = {PORT_BASE: None, INTERFACES: None}
MAX_PREFERRED = 16
"""The most nodes that a template prefers by name: each pod has a term for each of them, and
kube-scheduler checks each term on every node. A job on more nodes prefers no node."""
_WEIGHT = 100  # the largest that the API allows


def unsuspend_patch(
    raw: Raw,
    job: TrainingJob,
    plan: Plan,
    *,
    born_pinned: bool = False,
    interfaces: Sequence[str] = (),
    state: JobState | None = None,
) -> list[Operation]:
    """Unsuspend the job under a plan; its templates prefer the planned nodes.

    The preference is for pods that the webhook does not see, and for pods that are replaced while
    kfext is down. Such a pod can still use another node if the planned node has died.

    `born_pinned`: whether the templates name the nodes, so that pods are pinned when created.
    `interfaces`: the network interfaces for training on the host network.
    `state`: the state to write; a job below its requested size has its number of workers there.
    """
    templates = _templates(
        raw,
        job,
        annotations={
            PLAN_GENERATION: str(plan.generation),
            PORT_BASE: str(plan.port) if plan.port else None,
            INTERFACES: ",".join(interfaces) if plan.port and interfaces else None,
            **_from_start(job),
        },
        affinity=lambda current: _preferring_planned_nodes(current, plan),
    )
    for group in job.groups:
        template_annotations = templates[group.key]["template"]["metadata"]["annotations"]
        template_annotations |= {GPU_SLOTS: _slots_annotation(group, plan) if plan.slots else None}
        places = places_of_type(plan, group.type.lower()) if born_pinned else None
        template_annotations |= {PLACES: places}
    annotations: Changes = {PLAN: plan.encode(), HELD: None}
    if state is not None:
        if state.assigned:
            templates = _resized(templates, job, workers=state.assigned)
        annotations[STATE] = state.encode(job_uid=job.uid)
    return [
        *_tests(raw, job),
        {"op": "test", "path": pointer("metadata", "annotations", HELD),
         "value": job.annotations[HELD]},
        *operations(
            raw,
            {
                # Without the mark `held`, the next suspend counts as another client's.
                "metadata": {"annotations": annotations},
                "spec": {**job.kind.suspend(False), **_on_templates(raw, job, templates)},
            },
        ),
        *(port_operations(raw, job, base=plan.port) if plan.port else ()),
    ]  # fmt: skip


def replan_patch(raw: Raw, job: TrainingJob, plan: Plan) -> list[Operation]:
    """Replace the plan of a job with gated pods."""
    templates = _without_places(job) if job.being_created else {}
    return _patch(raw, job, {PLAN: plan.encode()}, templates)


def rescale_patch(
    raw: Raw, job: TrainingJob, plan: Plan, *, workers: int, state: JobState
) -> list[Operation]:
    """Scale a running job, with its new plan and state."""
    written = {PLAN: plan.encode(), STATE: state.encode(job_uid=job.uid)}
    return _patch(raw, job, written, _resized({}, job, workers=workers))


def suspend_patch(
    raw: Raw, job: TrainingJob, state: JobState, *, workers: int | None = None
) -> list[Operation]:
    """Suspend the job, mark it as held, and delete its plan.

    `workers`: the new number of workers; by default the requested size.
    """
    templates = _without_plan(job)
    requested = requested_workers(job, state)
    if workers is None:
        state = replace(state, requested=0, assigned=0)
    if (size := requested if workers is None else workers) != workers_of(job):
        templates = _resized(templates, job, workers=size)
    held = {HELD: job.annotations.get(HELD, "true")}
    annotations = {**held, PLAN: None, STATE: state.encode(job_uid=job.uid)}
    return _patch(raw, job, annotations, templates, spec=job.kind.suspend(True))


def forget_plan_patch(raw: Raw, job: TrainingJob, state: JobState) -> list[Operation]:
    """Delete the plan of a job that another client has suspended and will resume."""
    annotations = {PLAN: None, STATE: state.encode(job_uid=job.uid)}
    return _patch(raw, job, annotations, _without_plan(job))


def save_state_patch(
    raw: Raw, job: TrainingJob, state: JobState, *, workers: int | None = None
) -> list[Operation]:
    """Write the state, and the number of workers unless it is None.

    The mark `held` is removed from a job that is not suspended. Templates without kfext's marks get
    them, and the templates of a gang that was born pinned lose the names of its nodes.
    """
    written = state.encode(job_uid=job.uid)
    annotations: Changes = {STATE: written, **({} if job.suspend else {HELD: None})}
    templates = _without_places(job) if job.being_created else {}
    templates = templates if workers is None else _resized(templates, job, workers=workers)
    if job.unmarked:
        templates = {group.key: {"template": {}} for group in job.groups}
    return _patch(raw, job, annotations, templates)


def release_patch(raw: Raw, job: TrainingJob, verdict: Verdict) -> list[Operation]:
    """Release the job for good and record the reason; its pods prefer the node of other pods."""
    state = replace(state_of(job), reason=verdict.reason, message=verdict.message)
    if not job.started_by and workers_on_release(job, state) != workers_of(job):
        state = replace(state, requested=0, assigned=0)
    recorded: Changes = {STATE: state.encode(job_uid=job.uid)}
    return _released(raw, job, reason=verdict.reason, recorded=recorded)


def user_release_patch(raw: Raw, job: TrainingJob) -> list[Operation]:
    """Release the job for good as its user, who may not write the state."""
    return _released(raw, job, reason=REASON_RELEASED_BY_USER, recorded={})


def _released(raw: Raw, job: TrainingJob, *, reason: str, recorded: Changes) -> list[Operation]:
    annotations: Changes = {RELEASED: reason, PLAN: None, **recorded}
    if job.started_by:
        return _patch(raw, job, annotations, {})
    templates = _templates(
        raw,
        job,
        annotations={RELEASED: reason, PLACES: None, **_network_on_release(job)},
        affinity=lambda current: _preferring_one_node(current, job.name),
    )
    if (workers := workers_on_release(job, state_of(job))) != workers_of(job):
        templates = _resized(templates, job, workers=workers)
    # Pods of rendered templates wait at the gate only once a start has marked the templates.
    started = not job.kind.rendered or PLAN_GENERATION in job.template_settings
    spec = job.kind.suspend(False) if job.held else None
    return _patch(raw, job, {**annotations, HELD: None}, templates if started else {}, spec=spec)


def _patch(
    raw: Raw,
    job: TrainingJob,
    annotations: Changes,
    templates: Changes,
    *,
    spec: Changes | None = None,
) -> list[Operation]:
    """Return the patch of a job's annotations, its templates, and other fields of its spec."""
    changes: Changes = {"metadata": {"annotations": annotations}}
    if wanted := {**(spec or {}), **_on_templates(raw, job, templates)}:
        changes["spec"] = wanted
    return [*_tests(raw, job), *operations(raw, changes)]


def _network_on_release(job: TrainingJob) -> dict[str, str | None]:
    """Return the template annotations that end the host network of a released, suspended job.

    The pods of a running job keep their network, and new pods must find them.
    """
    plan = plan_of(job)
    if plan is not None and plan.port and not job.suspend:
        return {}
    return _NO_PORTS


def _tests(raw: Raw, job: TrainingJob) -> list[Operation]:
    """Return the tests of the fields that the decision depends on, if the job has these fields."""
    spec = mapping(raw.get("spec"))
    tests: list[Operation] = [{"op": "test", "path": "/metadata/uid", "value": job.uid}]
    *parents, last = job.kind.suspend_path
    holder = mapping(member(spec, parents))
    if last in holder:
        path = pointer("spec", *parents, last)
        tests.append({"op": "test", "path": path, "value": holder[last]})
    specs = mapping(spec.get(job.kind.replica_specs))
    for group in job.groups:
        replica_spec = mapping(specs.get(group.key))
        if "replicas" in replica_spec:
            path = pointer("spec", job.kind.replica_specs, group.key, "replicas")
            tests.append({"op": "test", "path": path, "value": replica_spec["replicas"]})
    return tests


def _without_plan(job: TrainingJob) -> Changes:
    """Return the changes that remove all of a plan from every template of a job.

    If another system resumes the job, its pods must not use ports or GPUs of other jobs.
    """
    return _without(job, {**_NO_PORTS, GPU_SLOTS: None, PLACES: None})


def _without_places(job: TrainingJob) -> Changes:
    """Return the changes of every template that make the next pods wait at the gate again."""
    return _without(job, {PLACES: None})


def _without(job: TrainingJob, annotations: Changes) -> Changes:
    change = {"template": {"metadata": {"annotations": annotations}}}
    return {group.key: change for group in job.groups}


def _from_start(job: TrainingJob) -> dict[str, str | None]:
    """Return the template annotations for settings that take effect at the start of the job.

    The user may have edited the settings since the job was created. A setting that is malformed now
    keeps its last well-formed value.
    """
    present = OF_A_JOB.intersection((*job.annotations, *job.template_settings))
    stated = {key: job.annotations.get(key) for key in present}
    return {key: text for key, text in stated.items() if text is None or parsed(key, text)}


def _slots_annotation(group: ReplicaGroup, plan: Plan) -> str | None:
    """Return the annotation with the GPU share and slot of each pod, which the webhook reads."""
    type_ = group.type.lower()
    slots = {key.index: slot for key, slot in plan.slots.items() if key.type == type_}
    share = plan.shares.get(type_)
    return encode_slots(share, slots) if share is not None and slots else None


def _templates(
    raw: Raw, job: TrainingJob, *, annotations: dict[str, str | None], affinity: Any
) -> Changes:
    changes: Changes = {}
    for group in job.groups:
        pod = mapping(template_of(job, raw, group).get("spec"))
        current = mapping(pod.get("affinity"))
        changes[group.key] = {
            "template": {
                "metadata": {"annotations": dict(annotations)},
                # kfext stores no affinity of a template that exceeds the bounds.
                "spec": {"affinity": {} if group.excess else affinity(current)},
            }
        }
    return changes


def _on_templates(raw: Raw, job: TrainingJob, changes: Changes) -> Changes:
    """Return the change of a job's spec that makes `changes`, by replica type, to its templates.

    Rendered templates can only change while the job is suspended.
    """
    if not changes or (job.kind.rendered and not job.suspend):
        return {}
    return job.kind.template_changes(changes, written=mapping(raw.get("spec")))


def _resized(changes: Changes, job: TrainingJob, *, workers: int) -> Changes:
    keys = {group.key for group in job.groups if group.type == WORKER}
    return {**changes, **{key: {**changes.get(key, {}), "replicas": workers} for key in keys}}


def _preferring_planned_nodes(affinity: Raw, plan: Plan | None) -> Changes:
    """Return the change of an affinity that prefers the nodes of `plan` and of no earlier plan."""
    current = sequence(mapping(affinity.get("nodeAffinity")).get(PREFERRED))
    terms = [term for term in current if not _is_preference(mapping(term))]
    nodes = plan.nodes if plan else ()
    for node in nodes if len(nodes) <= MAX_PREFERRED else ():
        name = {"key": NAME_FIELD, "operator": "In", "values": [node]}
        terms.append({"weight": _WEIGHT, "preference": {"matchFields": [name]}})
    if terms == list(current):
        return {}
    return {"nodeAffinity": {PREFERRED: terms}}


def _is_preference(term: Raw) -> bool:
    """Return whether a term is kfext's: it names one node and nothing else."""
    preference = mapping(term.get("preference"))
    fields = sequence(preference.get("matchFields"))
    return (
        set(preference) == {"matchFields"}
        and term.get("weight") == _WEIGHT
        and [mapping(field).get("key") for field in fields] == [NAME_FIELD]
        and mapping(fields[0]).get("operator") == "In"
        and len(sequence(mapping(fields[0]).get("values"))) == 1
    )


def _preferring_one_node(affinity: Raw, job_name: str) -> Changes:
    """Return the change of an affinity that prefers the node of the job's other pods."""
    term = {
        "weight": _WEIGHT,
        "podAffinityTerm": {
            "topologyKey": HOSTNAME,
            "labelSelector": {"matchLabels": {JOB_NAME: job_name}},
        },
    }
    current = sequence(mapping(affinity.get("podAffinity")).get(PREFERRED))
    terms = [*current, *([] if term in current else [term])]
    return {**_preferring_planned_nodes(affinity, None), "podAffinity": {PREFERRED: terms}}
