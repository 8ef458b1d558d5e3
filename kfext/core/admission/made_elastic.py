"""Make a new PyTorchJob elastic that opted in: an elasticPolicy, and Workers alone.

torchrun's agents then meet by its own rendezvous (c10d) at the first worker, so that workers can
come and go. With a Master the operator would fix their ranks; but a Master with the template of the
Workers is one of them by another name, so it becomes a Worker.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kfext import names
from kfext.core.patches.json_patch import Changes, Operation, operations, pointer
from kfext.core.scale.parameters import choice_of
from kfext.core.settings.table import Settings
from kfext.core.settings.values import Range
from kfext.model.job import TrainingJob, parse_job, template_of
from kfext.model.kinds import PYTORCH, WORKER
from kfext.model.policy import Mode
from kfext.model.replica_group import ReplicaGroup
from kfext.model.tolerant import mapping, sequence
from kfext.model.torchrun import why_not_torchrun
from kfext.model.verdict import Verdict

MAX_RESTARTS = 100
"""Each worker that leaves costs torchrun a restart; by default it has none."""
LAST_CALL_SECONDS = 5
"""How long torchrun waits for more agents once the fewest are there; its default of 30 s is part of
the pause at each change of size."""
_MASTER = "Master"
_SPECS = PYTORCH.replica_specs


@dataclass(frozen=True, slots=True)
class MadeElastic:
    """An elastic job.

    `job`, `body`: the job as changed, and its JSON object.
    `operations`: the JSON patch that changes the object.
    `folded`: whether its Master became a worker.
    `verdict`: what was changed, and why.
    """

    job: TrainingJob
    body: Mapping[str, Any]
    operations: tuple[Operation, ...]
    folded: bool
    verdict: Verdict


def wanted_range(job: TrainingJob, body: Mapping[str, Any], settings: Settings) -> Range | None:
    """Return how many training pods a job may have that is to be made elastic, None if it is not.

    It is a PyTorchJob that opted in and has no elasticPolicy.
    """
    own = job.kind is not PYTORCH or mapping(body.get("spec")).get("elasticPolicy") is not None
    return None if own else settings.elastic


def made_elastic(
    job: TrainingJob, body: Mapping[str, Any], *, allowed: Range, settings: Settings
) -> MadeElastic | str:
    """Return a PyTorchJob as an elastic one, or why it cannot be one. Never raises."""
    if (mode := choice_of(settings).mode) is not Mode.ACT:
        return f"companion.scale of the TrainingPolicy is {mode}"
    if why := next(filter(None, _obstacles(job, body, allowed)), ""):
        return why
    changes: Changes = {"elasticPolicy": _policy(allowed)}
    spec = mapping(body.get("spec"))
    specs = mapping(spec.get(_SPECS))
    folded = _MASTER in specs
    moved: list[Operation] = []
    if WORKER not in specs:
        source, target = pointer("spec", _SPECS, _MASTER), pointer("spec", _SPECS, WORKER)
        moved = [{"op": "move", "from": source, "path": target}]
    elif folded:
        changes[_SPECS] = {_MASTER: None, WORKER: {"replicas": job.pods}}
    worker = {**mapping(specs.get(WORKER, specs.get(_MASTER))), "replicas": job.pods}
    alone = {key: one for key, one in specs.items() if key != _MASTER} | {WORKER: worker}
    made = {**body, "spec": {**spec, "elasticPolicy": _policy(allowed), _SPECS: alone}}
    return MadeElastic(
        job=parse_job(made) or job,
        body=made,
        operations=(*moved, *operations(body, {"spec": changes})),
        folded=folded,
        verdict=Verdict(names.REASON_MADE_ELASTIC, _said(allowed, settings, folded=folded)),
    )


def _policy(allowed: Range) -> dict[str, Any]:
    return {
        "rdzvBackend": "c10d",
        "minReplicas": allowed.minimum,
        "maxReplicas": allowed.maximum,
        "maxRestarts": MAX_RESTARTS,
        "rdzvConf": [{"key": "last_call_timeout", "value": str(LAST_CALL_SECONDS)}],
    }


def _said(allowed: Range, settings: Settings, *, folded: bool) -> str:
    master = "; its Master is one of them now" if folded else ""
    return (
        f"the job now starts with torchrun's own rendezvous, so that {allowed.minimum} to "
        f"{allowed.maximum} workers can come and go{master} ({names.ELASTIC} from "
        f"{settings.source(names.ELASTIC)}); {names.ELASTIC}: off keeps it as submitted"
    )


def _obstacles(job: TrainingJob, body: Mapping[str, Any], allowed: Range) -> Iterator[str]:
    """Yield what keeps a job as it is, the command line last because it takes longest to read."""
    policy = mapping(mapping(body.get("spec")).get("runPolicy"))
    specs = mapping(mapping(body.get("spec")).get(_SPECS))
    yield job.excess
    if not allowed.minimum <= job.pods <= allowed.maximum:
        yield f"it has {job.pods} training pods, outside of {allowed.minimum}-{allowed.maximum}"
    if policy.get("cleanPodPolicy") not in (None, "", "None"):
        yield "with its cleanPodPolicy, the first worker that succeeds ends the others"
    if policy.get("backoffLimit") == 0:
        yield "with a backoffLimit of 0, a worker that leaves fails the job"
    for group in job.groups:
        yield from _obstacles_in(group, mapping(specs.get(group.key)))
    if {_MASTER, WORKER} <= specs.keys():
        yield from _unlike(mapping(specs[_MASTER]), mapping(specs[WORKER]))
    pod = mapping(template_of(job, body, job.groups[0]).get("spec"))
    containers = map(mapping, sequence(pod.get("containers")))
    trainer = next((one for one in containers if one.get("name") == job.kind.container), None)
    yield f"no container is named {job.kind.container}" if trainer is None else ""
    yield why_not_torchrun(mapping(trainer))


def _obstacles_in(group: ReplicaGroup, spec: Mapping[str, Any]) -> Iterator[str]:
    """Yield what keeps the job of a replica type as it is."""
    if group.key != group.type:
        yield f"its replica type {group.type} is spelled otherwise"
    if spec.get("replicas") not in (None, group.replicas):
        yield f"the number of its replicas of type {group.type} is malformed"
    if group.fails:
        yield f"with the restartPolicy of its {group.type}, a worker that leaves fails the job"
    if group.networking.own_host:
        yield f"the {group.type} template itself sets the host network or a host port"


def _unlike(first: Mapping[str, Any], second: Mapping[str, Any]) -> Iterator[str]:
    """Yield how the Master and the Workers of a job differ."""
    if first.get("template") != second.get("template"):
        yield "its Master and its Workers have different templates"
    if _restart(first) != _restart(second):
        yield "its Master and its Workers have different restart policies"


def _restart(spec: Mapping[str, Any]) -> object:
    return spec.get("restartPolicy") or PYTORCH.restart
