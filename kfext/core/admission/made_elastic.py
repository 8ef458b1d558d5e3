"""Make a new job elastic if it opted in and its kind supports it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kfext import names
from kfext.core.elastic import scale_mode
from kfext.core.patches.json_patch import Operation, operations, pointer
from kfext.core.settings.table import Settings
from kfext.core.settings.values import Range
from kfext.model.job import TrainingJob, parse_job
from kfext.model.kinds.job_kind import ElasticSpec
from kfext.model.policy import Mode
from kfext.model.tolerant import mapping
from kfext.model.verdict import Verdict


@dataclass(frozen=True, slots=True)
class MadeElastic:
    """A job that was made elastic.

    `job`, `body`: the changed job, and its JSON object.
    `operations`: the JSON patch that changes the object.
    `folded`: the replica type that became the first worker, or an empty string.
    `verdict`: the change and its reason.
    """

    job: TrainingJob
    body: Mapping[str, Any]
    operations: tuple[Operation, ...]
    folded: str
    verdict: Verdict


def wanted_range(job: TrainingJob, body: Mapping[str, Any], settings: Settings) -> Range | None:
    """Return the allowed range of training pods of a job to be made elastic, or None.

    The job must opt in, and must not be elastic by its own spec.
    """
    lacks_elasticity = job.kind.lacks_elasticity(mapping(body.get("spec")))
    return settings.elastic if lacks_elasticity else None


def made_elastic(
    job: TrainingJob, body: Mapping[str, Any], *, allowed: Range, settings: Settings
) -> MadeElastic | str:
    """Return the elastic job, or the obstacle to elasticity. Never raises."""
    if (mode := scale_mode(settings)) is not Mode.ACT:
        return f"companion.scale of the TrainingPolicy is {mode}"
    spec = mapping(body.get("spec"))
    elastic_spec = job.kind.elastic_spec(job, spec, least=allowed.minimum, most=allowed.maximum)
    if isinstance(elastic_spec, str):
        return elastic_spec
    changed = {**body, "spec": elastic_spec.spec}
    return MadeElastic(
        job=parse_job(changed) or job,
        body=changed,
        operations=(
            *_renaming(job.kind.replica_specs, elastic_spec),
            *operations(body, {"spec": elastic_spec.changes}),
        ),
        folded=elastic_spec.folded,
        verdict=Verdict(names.REASON_MADE_ELASTIC, _message(elastic_spec, allowed, settings)),
    )


def _renaming(specs: str, elastic_spec: ElasticSpec) -> list[Operation]:
    if elastic_spec.renamed is None:
        return []
    source, target = (pointer("spec", specs, key) for key in elastic_spec.renamed)
    return [{"op": "move", "from": source, "path": target}]


def _message(elastic_spec: ElasticSpec, allowed: Range, settings: Settings) -> str:
    folded = f"; its {elastic_spec.folded} is one of them now" if elastic_spec.folded else ""
    return (
        f"the job now starts with {elastic_spec.meets_by}, so that {allowed.minimum} to "
        f"{allowed.maximum} workers can come and go{folded} ({names.ELASTIC} from "
        f"{settings.source(names.ELASTIC)}); {names.ELASTIC}: off keeps it as submitted"
    )
