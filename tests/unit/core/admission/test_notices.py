"""The warnings in the review of a job."""

from dataclasses import replace

import pytest

from kfext import names
from kfext.core.admission.new_job import mutate_job
from kfext.core.admission.review import ReviewContext
from kfext.model.gang_terms import GangTerm
from kfext.model.namespace import Namespace
from tests.builders import ANY_SIZE, apart
from tests.unit.objects import Raw, job, replica

SPREAD = [{"whenUnsatisfiable": "DoNotSchedule", "topologyKey": "zone", "maxSkew": 1}]
CONTEXT = ReviewContext(namespace=Namespace("", {names.MANAGED: "true"}), controller_alive=True)
NO_CONTROLLER = replace(CONTEXT, controller_alive=False)

WARNED = {
    "no replicas": (job(specs={}), CONTEXT, "no replicas"),
    "no controller": (job(), NO_CONTROLLER, "as on plain Kubernetes"),
    "a setting in a template": (
        job(
            specs={
                "Worker": replica(1, metadata={"annotations": {names.COLOCATION: "off"}}),
            }
        ),
        CONTEXT,
        "of the Worker template is overwritten with preferred",
    ),
    "a term that kfext does not model": (
        job(specs={"Worker": replica(2, topologySpreadConstraints=SPREAD)}),
        CONTEXT,
        "topologySpreadConstraints with DoNotSchedule, which kfext does not model; it runs as on",
    ),
    "such a term in a job that must be on one node": (
        job(
            annotations={names.COLOCATION: "required"},
            specs={"Worker": replica(2, topologySpreadConstraints=SPREAD)},
        ),
        CONTEXT,
        "it stays suspended",
    ),
    "pods that cannot share the single node of their job": (
        job(
            annotations={names.COLOCATION: "required"},
            specs={"Worker": replica(3, **apart(GangTerm("train")))},
        ),
        CONTEXT,
        "cannot place this job: 3 of its pods cannot share a node, but kfext.dev/colocation is "
        "required; it stays suspended",
    ),
    "a move would leave its checkpoints behind": (
        job(
            annotations={names.MIGRATE: "checkpointed"},
            specs={
                "Worker": replica(
                    2,
                    containers=[
                        {"name": "pytorch", "volumeMounts": [{"name": "d", "mountPath": "/d"}]}
                    ],
                    volumes=[{"name": "d", "emptyDir": {}}],
                )
            },
        ),
        CONTEXT,
        "kfext.dev/migrate has no effect on this job: the emptyDir volume d is on one node",
    ),
    "a stop could not be at a checkpoint": (
        job(
            annotations={names.PREEMPT: "checkpoint", names.METRICS: "off"},
            specs={"Worker": replica(2)},
        ),
        CONTEXT,
        "kfext.dev/preempt has no effect on this job: kfext.dev/metrics is off, so kfext sees no "
        "checkpoint: set it to auto",
    ),
    "the priority of pods that reserve GPUs": (
        job(specs={"Worker": replica(1, priorityClassName="kfext-gpu-reservation")}),
        CONTEXT,
        "pods of this job are refused with PriorityClass kfext-gpu-reservation",
    ),
}


def opt_in(kind: str, specs: Raw, metrics: str = "auto", **spec: object) -> Raw:
    """A job that lets kfext choose its number of workers."""
    raw = job(kind, annotations={names.ELASTIC: "2-8", names.METRICS: metrics}, specs=specs)
    raw["spec"] |= spec
    return raw


def workers_with_number(number: int) -> Raw:
    """Workers with a command that states their number."""
    command = ["torchrun", f"--nnodes={number}", "train.py"]
    return replica(number, containers=[{"name": "pytorch", "command": command}])


WORKERS: Raw = {"Worker": replica(3)}
WITH_PS: Raw = {"PS": replica(1), "Worker": replica(3)}
SCALED = {
    "a PyTorchJob without an elasticPolicy": (
        opt_in("PyTorchJob", WORKERS),
        "has no effect on this job: it has no command line",
    ),
    "a PyTorchJob with an elasticPolicy": (
        opt_in("PyTorchJob", WORKERS, elasticPolicy=ANY_SIZE),
        "",
    ),
    "a PyTorchJob with an elasticPolicy that names no other size": (
        opt_in("PyTorchJob", WORKERS, elasticPolicy={"maxRestarts": 100}),
        "has no effect on this job: its elasticPolicy has no maxReplicas",
    ),
    "a PyTorchJob with workers that torchrun may not restart": (
        opt_in("PyTorchJob", WORKERS, elasticPolicy={"maxReplicas": 8}),
        "has no effect on this job: torchrun may not restart its workers",
    ),
    "a PyTorchJob that a HorizontalPodAutoscaler scales": (
        opt_in("PyTorchJob", WORKERS, elasticPolicy={**ANY_SIZE, "metrics": [{}]}),
        "has no effect on this job: a HorizontalPodAutoscaler scales it",
    ),
    "a PyTorchJob without watched checkpoints": (
        opt_in("PyTorchJob", WORKERS, elasticPolicy=ANY_SIZE, metrics="off"),
        "kfext.dev/metrics is off, so kfext sees no checkpoint",
    ),
    "a PyTorchJob with a number of workers in its command": (
        opt_in("PyTorchJob", {"Worker": workers_with_number(3)}, elasticPolicy=ANY_SIZE),
        "its command line starts torchrun with --nnodes=3",
    ),
    "a PyTorchJob with a number in its command and a Master": (
        opt_in("PyTorchJob", {"Master": replica(1), **WORKERS}, elasticPolicy={}),
        "has no effect on this job: its Master fixes",
    ),
    "a range within its own": (
        opt_in(
            "PyTorchJob", WORKERS, elasticPolicy={**ANY_SIZE, "minReplicas": 2, "maxReplicas": 8}
        ),
        "",
    ),
    "a range below its own": (
        opt_in("PyTorchJob", WORKERS, elasticPolicy={**ANY_SIZE, "minReplicas": 3}),
        "is 2-8, but the elasticPolicy of this job allows 3-10000 workers",
    ),
    "a range above its own": (
        opt_in("PyTorchJob", WORKERS, elasticPolicy={**ANY_SIZE, "maxReplicas": 6}),
        "is 2-8, but the elasticPolicy of this job allows 1-6 workers",
    ),
    "a TFJob with dynamic workers": (opt_in("TFJob", WITH_PS, enableDynamicWorker=True), ""),
    "a TFJob without dynamic workers": (opt_in("TFJob", WITH_PS), "restarts all pods of this job"),
    "a TFJob without PS": (
        opt_in("TFJob", WORKERS, enableDynamicWorker=True),
        "restarts all pods of this job",
    ),
    "a TFJob without workers": (
        opt_in("TFJob", {"PS": replica(1)}),
        "has no effect on this job: it has no workers",
    ),
    "a job without pods": (opt_in("PyTorchJob", {}), "has no replicas"),
}


@pytest.mark.parametrize(("raw", "want"), SCALED.values(), ids=SCALED)
def test_a_range_that_scaling_cannot_use_is_a_warning(raw: Raw, want: str) -> None:
    warnings = mutate_job(raw, CONTEXT).warnings
    assert len(warnings) == bool(want)
    assert all(want in warning for warning in warnings)


def test_a_job_that_did_not_opt_in_is_not_warned_about_scaling() -> None:
    assert mutate_job(job("TFJob", specs=WORKERS), CONTEXT).warnings == ()


def test_a_template_that_agrees_with_the_job_causes_no_warning() -> None:
    written = {names.COLOCATION: "required"}
    specs = {"Worker": replica(1, metadata={"annotations": written})}
    assert mutate_job(job(annotations=written, specs=specs), CONTEXT).warnings == ()


@pytest.mark.parametrize(("raw", "context", "want"), WARNED.values(), ids=WARNED)
def test_an_unexpected_effect_is_a_warning(raw: Raw, context: ReviewContext, want: str) -> None:
    warnings = mutate_job(raw, context).warnings
    assert len(warnings) == 1
    assert want in warnings[0]


GPU = "nvidia.com/gpu"


def sized(*, cpu_limit: str = "", gpus: str = "", workers: int = 3) -> Raw:
    """The specs of a job with workers that request one CPU each."""
    limits = {name: amount for name, amount in (("cpu", cpu_limit), (GPU, gpus)) if amount}
    resources = {"requests": {"cpu": "1"}, "limits": limits}
    return {"Worker": replica(workers, containers=[{"name": "pytorch", "resources": resources}])}


CROWDS: dict[str, tuple[str, Raw, bool]] = {
    "no limit": ("preferred", sized(), True),
    "no limit, required": ("required", sized(), True),
    "a limit beyond the request": ("preferred", sized(cpu_limit="2"), True),
    "a limit that is the request": ("preferred", sized(cpu_limit="1"), False),
    "GPUs": ("preferred", sized(gpus="1"), False),
    "one pod": ("preferred", sized(workers=1), False),
    "an unset colocation": ("", sized(), False),
    "colocation off": ("off", sized(), False),
}


@pytest.mark.parametrize(("colocation", "specs", "warned"), CROWDS.values(), ids=CROWDS)
def test_a_colocation_setting_that_may_crowd_pods_is_a_warning(
    colocation: str, specs: Raw, warned: bool
) -> None:
    raw = job(specs=specs, annotations={names.COLOCATION: colocation} if colocation else {})
    crowded = [
        warning for warning in mutate_job(raw, CONTEXT).warnings if "share too little" in warning
    ]
    assert len(crowded) == warned
    want = "only their requests count (3 CPUs), not their usable CPU"
    assert all(want in warning for warning in crowded)


def test_a_colocation_setting_of_the_namespace_causes_no_warning() -> None:
    context = replace(
        CONTEXT, namespace=Namespace("", CONTEXT.namespace.labels, {names.COLOCATION: "preferred"})
    )
    assert mutate_job(job(specs=sized()), context).warnings == ()


HOST = {names.NETWORK: "host"}


def test_a_job_that_kfext_does_not_place_gets_no_ports() -> None:
    specs = {"Worker": replica(2, topologySpreadConstraints=SPREAD)}
    left, without = mutate_job(job(annotations=HOST, specs=specs), CONTEXT).warnings
    assert "does not place this job" in left
    assert "only a job that kfext starts" in without


ON_POD_NETWORK = {
    "Pod Security": ({}, {"pod-security.kubernetes.io/enforce": "baseline"}, "Pod Security"),
    "colocation off": ({names.COLOCATION: "off"}, {}, "only a job that kfext starts"),
}


def test_a_job_that_a_person_starts_gets_no_ports() -> None:
    mutation = mutate_job(job(annotations=HOST, run_policy={"suspend": True}), CONTEXT)
    assert "only a job that kfext starts" in mutation.warnings[0]


def test_without_a_controller_a_job_that_shares_gpus_is_told_that_it_waits() -> None:
    limited = {"name": "pytorch", "resources": {"limits": {names.NATIVE_GPU: 1}}}
    raw = job(
        annotations={names.GPU_SHARE: "0.5"}, specs={"Worker": replica(1, containers=[limited])}
    )
    (warning,) = mutate_job(raw, NO_CONTROLLER).warnings
    assert "does not answer: it shares GPUs, so it stays suspended" in warning


def test_without_a_controller_a_job_gets_no_ports() -> None:
    away, without = mutate_job(job(annotations=HOST), NO_CONTROLLER).warnings
    assert "does not answer" in away
    assert "only a job that kfext starts" in without


def test_the_network_of_a_job_that_requests_the_host_network_is_reported() -> None:
    mutation = mutate_job(job(annotations=HOST), CONTEXT)
    assert mutation.warnings == ()
    (network,) = [
        verdict for verdict in mutation.verdicts if verdict.reason == names.REASON_HOST_NETWORK
    ]
    assert "hostNetwork is true" in network.message


@pytest.mark.parametrize(("more", "labels", "why"), ON_POD_NETWORK.values(), ids=ON_POD_NETWORK)
def test_a_job_that_cannot_have_the_host_network_is_told_at_once(
    more: dict[str, str], labels: dict[str, str], why: str
) -> None:
    context = replace(CONTEXT, namespace=Namespace("", {**CONTEXT.namespace.labels, **labels}))
    mutation = mutate_job(job(annotations={**HOST, **more}), context)
    assert why in mutation.warnings[0]
    assert names.REASON_HOST_NETWORK not in [verdict.reason for verdict in mutation.verdicts]


def reasons(raw: Raw) -> dict[str, str]:
    return {verdict.reason: verdict.message for verdict in mutate_job(raw, CONTEXT).verdicts}


def test_changes_of_the_templates_are_reported() -> None:
    message = reasons(job(annotations={names.COLOCATION: "required"}))[
        names.REASON_TEMPLATES_EDITED
    ]
    assert message.startswith("pod templates (2) ")
    assert "colocation required" in message
    assert "network pod" in message


def test_templates_are_counted_instead_of_their_changes() -> None:
    specs = {"Worker": replica(3, metadata={"labels": {"a": "b"}, "annotations": {"a": "b"}})}
    assert reasons(job(specs=specs))[names.REASON_TEMPLATES_EDITED].startswith("pod templates (1) ")


def test_no_changes_are_reported_for_a_job_that_is_not_changed() -> None:
    assert names.REASON_TEMPLATES_EDITED not in reasons(job(specs={}))


def test_the_removed_marks_of_a_copied_manifest_are_named() -> None:
    copied = {names.PLAN: "{}", names.STATE: "{}"}
    message = reasons(job(annotations=copied))[names.REASON_COPIED_MARKS_REMOVED]
    assert names.PLAN in message
    assert names.STATE in message
    assert names.HELD not in message


def test_a_template_copied_from_another_job_has_no_marks() -> None:
    copied = replica(2, metadata={"annotations": {names.PORT_BASE: "20000"}})
    assert names.REASON_COPIED_MARKS_REMOVED not in reasons(job(specs={"Worker": copied}))
    assert names.REASON_COPIED_MARKS_REMOVED not in reasons(job())


KUEUE = {names.KUEUE_QUEUE: "q"}
REQUIRED = {names.COLOCATION: "required"}
ZONED: Raw = {
    "podAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "zone", "labelSelector": {"matchLabels": {names.JOB_NAME: "train"}}}
        ]
    }
}
BY_ZONE = {"Worker": replica(2, affinity=ZONED)}
ELSEWHERE = {"managedBy": "kueue.x-k8s.io/multikueue"}
IN_TEMPLATE = {"Worker": replica(2, metadata={"annotations": {names.COLOCATION: "required"}})}

SHARE = {names.GPU_SHARE: "0.5"}
GPU_CONTAINER = {"name": "pytorch", "resources": {"limits": {names.NATIVE_GPU: 1}}}
PLACED = {"Worker": replica(2, containers=[GPU_CONTAINER])}
UNPLACED: dict[str, Raw] = {
    "no term": PLACED,
    "a term that kfext does not model": {
        "Worker": replica(2, containers=[GPU_CONTAINER], affinity=ZONED)
    },
    "beyond a bound": {"Worker": replica(2**20, containers=[GPU_CONTAINER])},
}

CASES: dict[str, tuple[Raw, ReviewContext, str, list[str]]] = {
    "Kueue starts it, kfext places it": (
        job(labels=KUEUE), CONTEXT, "Kueue decides when the job starts; then kfext places it", [],
    ),
    "Kueue starts it, a term that kfext does not model": (
        job(labels=KUEUE, specs=BY_ZONE),
        CONTEXT,
        "Kueue decides when the job starts; kfext does not place it: its pods have ",
        ["kfext does not place this job: its pods have ", "it runs as on plain Kubernetes"],
    ),
    "Kueue starts it, such a term, and required": (
        job(labels=KUEUE, specs=BY_ZONE, annotations=REQUIRED),
        CONTEXT,
        "Kueue decides when the job starts; kfext does not place it: its pods have ",
        ["kfext does not place this job: its pods have ", "its pods wait at the gate"],
    ),
    "Kueue starts it, beyond a bound, and required": (
        job(labels=KUEUE, specs={"Worker": replica(2**20)}, annotations=REQUIRED),
        CONTEXT,
        "Kueue decides when the job starts; kfext does not place it: it has 1048576 pods",
        ["kfext does not place this job: it has 1048576 pods", "its pods wait at the gate"],
    ),
    "Kueue starts it, colocation off": (
        job(labels=KUEUE, annotations={names.COLOCATION: "off"}),
        CONTEXT,
        "Kueue decides when the job starts; kfext does not place it: colocation is off",
        [],
    ),
    "Kueue starts it, no controller": (
        job(labels=KUEUE),
        NO_CONTROLLER,
        "Kueue decides when the job starts; kfext does not place it: kfext's controller does not",
        ["does not answer"],
    ),
    "no controller, and required": (
        job(annotations=REQUIRED, specs={"Worker": replica(1)}),
        NO_CONTROLLER,
        "kfext's controller does not answer",
        ["does not answer: the job runs as on plain Kubernetes"],
    ),
    "required, and a term that kfext does not model": (
        job(specs=BY_ZONE, annotations=REQUIRED),
        CONTEXT,
        "suspended; kfext does not place it: its pods have ",
        ["kfext does not place this job: its pods have ", "it stays suspended"],
    ),
    "another system runs it": (
        job(run_policy=ELSEWHERE, specs=BY_ZONE, annotations=REQUIRED), CONTEXT, "managedBy", [],
    ),
    "another system runs it, beyond a bound, and required": (
        job(run_policy=ELSEWHERE, specs={"Worker": replica(2**20)}, annotations=REQUIRED),
        CONTEXT,
        "managedBy",
        [],
    ),
    "it is released": (
        job(annotations={names.RELEASED: "NoRoom"}, specs=BY_ZONE), NO_CONTROLLER, "is set", [],
    ),
    "another system runs it, a setting in a template": (
        job(run_policy=ELSEWHERE, specs=IN_TEMPLATE), CONTEXT, "managedBy", [],
    ),
    "another system runs it, the host network": (
        job(run_policy=ELSEWHERE, annotations=HOST),
        CONTEXT,
        "managedBy",
        ["only a job that kfext starts has ports"],
    ),
    "another system runs it, a number of workers": (
        job("TFJob", run_policy=ELSEWHERE, annotations={names.ELASTIC: "1-8"}, specs=WORKERS),
        CONTEXT,
        "managedBy",
        ["kfext.dev/elastic has no effect on this job: runPolicy.managedBy is "],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("raw", "context", "verdict", "warnings"), CASES.values(), ids=CASES)
def test_verdict_and_warnings_agree(
    raw: Raw, context: ReviewContext, verdict: str, warnings: list[str]
) -> None:
    mutation = mutate_job(raw, context)
    assert verdict in mutation.verdicts[0].message
    assert len(mutation.warnings) == bool(warnings)
    assert all(part in mutation.warnings[0] for part in warnings)


@pytest.mark.parametrize("alive", [True, False])
@pytest.mark.parametrize("setting", [{}, REQUIRED, SHARE])
@pytest.mark.parametrize("spec", UNPLACED.values(), ids=UNPLACED)
def test_a_job_that_is_reported_to_run_is_not_held(spec: Raw, setting: Raw, *, alive: bool) -> None:
    mutation = mutate_job(job(specs=spec, annotations=setting), CONTEXT if alive else NO_CONTROLLER)
    held = mutation.verdicts[0].reason == names.REASON_HELD
    warnings = "; ".join(mutation.warnings)
    assert ("as on plain Kubernetes" in warnings) is not (held or bool(mutation.refusal))
    assert held or "stays suspended" not in warnings
    assert bool(warnings) is not (bool(mutation.refusal) or (alive and spec == PLACED))


@pytest.mark.parametrize("raw", [*(case[0] for case in (*WARNED.values(), *SCALED.values()))])
def test_a_clause_of_a_warning_has_at_most_25_words(raw: Raw) -> None:
    for warning in mutate_job(raw, NO_CONTROLLER).warnings:
        assert all(len(clause.split()) <= 25 for clause in warning.split("; ")), warning
