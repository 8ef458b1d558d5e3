"""Make a new job elastic if it opted in and its kind supports it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kfext import names
from kfext.core.elastic import scales
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
    `folded`: the replica type that became the first worker, if any.
    `verdict`: the change and its reason.
    """

    job: TrainingJob
    body: Mapping[str, Any]
    operations: tuple[Operation, ...]
    folded: str
    verdict: Verdict


def wanted_range(job: TrainingJob, body: Mapping[str, Any], settings: Settings) -> Range | None:
    """Return the allowed numbers of training pods of a job to make elastic, or None.

    The job must opt in, and must not be elastic by its own spec.
    """
    lacks = job.kind.lacks_elasticity(mapping(body.get("spec")))
    return settings.elastic if lacks else None


def made_elastic(
    job: TrainingJob, body: Mapping[str, Any], *, allowed: Range, settings: Settings
) -> MadeElastic | str:
    """Return the elastic job, or the obstacle to elasticity. Never raises."""
    if (mode := scales(settings)) is not Mode.ACT:
        return f"companion.scale of the TrainingPolicy is {mode}"
    spec = mapping(body.get("spec"))
    made = job.kind.elastic_spec(job, spec, least=allowed.minimum, most=allowed.maximum)
    if isinstance(made, str):
        return made
    changed = {**body, "spec": made.spec}
    return MadeElastic(
        job=parse_job(changed) or job,
        body=changed,
        operations=(
            *_renaming(job.kind.replica_specs, made),
            *operations(body, {"spec": made.changes}),
        ),
        folded=made.folded,
        verdict=Verdict(names.REASON_MADE_ELASTIC, _message(made, allowed, settings)),
    )


def _renaming(specs: str, made: ElasticSpec) -> list[Operation]:
    if made.renamed is None:
        return []
    source, target = (pointer("spec", specs, key) for key in made.renamed)
    return [{"op": "move", "from": source, "path": target}]


def _message(made: ElasticSpec, allowed: Range, settings: Settings) -> str:
    folded = f"; its {made.folded} is one of them now" if made.folded else ""
    return (
        f"the job now starts with {made.meets_by}, so that {allowed.minimum} to "
        f"{allowed.maximum} workers can come and go{folded} ({names.ELASTIC} from "
        f"{settings.source(names.ELASTIC)}); {names.ELASTIC}: off keeps it as submitted"
    )
