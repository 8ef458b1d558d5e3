"""The job webhook's decision: hold a new job until it can be placed, and record its settings.

A copied manifest may contain the annotations of its original. If the mark `held` is among them,
kfext had set `suspend`, not a person, so the decision ignores both. That also makes the decision
idempotent: the API server may send kfext's own output again, and nothing distinguishes a second
review from the first (each has its own uid).
"""

from collections.abc import Mapping
from typing import Any

from kfext import names
from kfext.core.admission.gpu import why_not_shared
from kfext.core.admission.hold import hold_of
from kfext.core.admission.made_elastic import MadeElastic, made_elastic, wanted_range
from kfext.core.admission.notices import edits, scaling_warnings, warnings
from kfext.core.admission.review import ReviewContext, ReviewResult
from kfext.core.patches.json_patch import Changes, Unpatchable, operations
from kfext.core.settings.resolve import settings_of
from kfext.core.settings.table import TO_PODS, Settings
from kfext.model.job import TrainingJob, parse_job, template_of
from kfext.model.kinds.job_kind import EVERY_TYPE
from kfext.model.networking import istio_sidecar
from kfext.model.tolerant import mapping
from kfext.model.verdict import Verdict

_HELD = "true"
_GPU_PREFIX = f"{names.DOMAIN}/gpu-"
_STARTED = frozenset({names.REASON_HELD, names.REASON_SUSPENDED_BY_USER})
# Only a plan puts pods on the host network or assigns GPU shares.
_NO_PLAN = dict.fromkeys(
    (
        *(names.PORT_BASE, names.INTERFACES, names.PLAN_GENERATION, names.PLACES),
        *(names.GPU_SLOTS, names.GPU_TERMS),
    )
)
UNMANAGED = ReviewResult(
    verdicts=(
        Verdict(names.REASON_HANDS_OFF, f"the namespace is not labelled {names.MANAGED}=true"),
    )
)


def mutate_job(raw: object, context: ReviewContext) -> ReviewResult:
    """Return the result of the admission of a new training job. Never raises."""
    body = mapping(raw)
    job = parse_job(body)
    if job is None:
        return ReviewResult()
    if not context.namespace.managed:
        return UNMANAGED
    settings = settings_of(job, context.namespace, context.policies)
    if settings.errors:
        invalid = "; ".join(map(str, settings.errors))
        return _refused(settings, names.REASON_SETTINGS_INVALID, invalid)
    verdict = hold_of(job, settings=settings, context=context)
    why_unshared = settings.shares_gpus and why_not_shared(job, settings=settings, verdict=verdict)
    if why_unshared:
        return _refused(settings, names.REASON_SHARE_REFUSED, f"{names.GPU_SHARE}: {why_unshared}")
    elastic, why_not = _made_elastic(job, body, settings=settings, context=context, verdict=verdict)
    if elastic is not None:
        job, body = elastic.job, elastic.body
    try:
        ops = operations(body, _changes(job, body, settings=settings, reason=verdict.reason))
    except Unpatchable as error:
        # The API server will refuse such an object, with a better message.
        malformed = Verdict(names.REASON_HANDS_OFF, f"the object is malformed: {error}")
        return ReviewResult(warnings=settings.warnings, verdicts=(malformed,))
    return ReviewResult(
        ops=(*(elastic.operations if elastic else ()), *ops),
        warnings=(
            *settings.warnings,
            *warnings(job, body, settings=settings, context=context, verdict=verdict),
            *scaling_warnings(
                job, settings, verdict=verdict, made_elastic=elastic, why_fixed=why_not
            ),
        ),
        verdicts=(
            verdict,
            *([elastic.verdict] if elastic else []),
            *edits(job, settings, context, verdict=verdict, ops=ops),
        ),
    )


def _made_elastic(
    job: TrainingJob,
    body: Mapping[str, Any],
    *,
    settings: Settings,
    context: ReviewContext,
    verdict: Verdict,
) -> tuple[MadeElastic | None, str]:
    """Return the elastic job, or the obstacle to elasticity of a job that opted in, if any.

    kfext does not scale a job that it does not start.
    """
    if settings.elastic is None or (allowed := wanted_range(job, body, settings)) is None:
        return None, ""
    if verdict.reason not in _STARTED:
        return None, verdict.message
    elastic = made_elastic(job, body, allowed=allowed, settings=settings)
    if isinstance(elastic, str):
        return None, elastic
    # Its pods have other names and labels now, and terms may select by them.
    second = hold_of(elastic.job, settings=settings, context=context)
    return (elastic, "") if second.reason == verdict.reason else (None, second.message)


def _refused(settings: Settings, reason: str, why: str) -> ReviewResult:
    return ReviewResult(warnings=settings.warnings, refusal=why, verdicts=(Verdict(reason, why),))


def _changes(
    job: TrainingJob, body: Mapping[str, Any], *, settings: Settings, reason: str
) -> Changes:
    """Return the changes as a merge patch."""
    hold = reason == names.REASON_HELD
    annotations: Changes = {names.PLAN: None, names.STATE: None}
    annotations[names.HELD] = _HELD if hold else None
    spec: Changes = {}
    if hold or (job.held and job.suspend and not job.started_by and job.run_by_operator):
        spec |= job.kind.suspend(hold)
    templates = {
        group.key: mapping(template_of(job, body, group).get("metadata")) for group in job.groups
    }
    if job.kind.rendered:  # the operator renders the templates later, from these annotations
        templates = {EVERY_TYPE: {"annotations": job.template_settings}}
    template_edits = {
        key: {"template": {"metadata": metadata}}
        for key, written in templates.items()
        if (metadata := _template_changes(job, written, settings=settings, reason=reason))
    }
    if template_edits:
        spec |= job.kind.template_changes(template_edits, written=mapping(body.get("spec")))
    return {"metadata": {"annotations": annotations}, "spec": spec}


def _template_changes(
    job: TrainingJob, metadata: Mapping[str, Any], *, settings: Settings, reason: str
) -> Changes:
    """Return the changes of one template's metadata."""
    written = mapping(metadata.get("annotations"))
    untouched = reason == names.REASON_HANDS_OFF
    if job.kind.rendered and (untouched or reason == names.REASON_RELEASED):
        return {"annotations": {}} if written else {}  # a copied manifest may have annotations
    if reason == names.REASON_RELEASED:
        # The pod webhook sees only pods: without the mark on them, new pods would be gated.
        return {"annotations": {names.RELEASED: job.annotations[names.RELEASED], **_NO_PLAN}}
    if untouched:
        return {}
    changes: Changes = {
        "annotations": {
            # The pod webhook reads these keys, but only the job's own annotations count.
            **{key: None for key in written if key in TO_PODS or key.startswith(_GPU_PREFIX)},
            **settings.stated,
            **settings.to_pods,
            # This mark keeps every pod from being gated, also of types without such a term.
            names.RELEASED: reason if reason == names.REASON_UNMODELLED else None,
            **_NO_PLAN,
        }
    }
    if not job.kind.rendered and istio_sidecar(metadata) is None:
        changes["annotations"][names.ISTIO_INJECT] = "false"
        changes["labels"] = {names.ISTIO_INJECT: "false"}
    return changes
