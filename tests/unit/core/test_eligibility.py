"""Whether kfext may place a job, and the next step of a job that it must not place."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from kfext import names
from kfext.core.eligibility import not_placed, unbound_claims, why_no_host_network
from kfext.core.lifecycle.next_step import next_step
from kfext.core.lifecycle.queued import RELEASE_SECONDS
from kfext.core.lifecycle.steps import Pin, Release, Step, Suspend, Unsuspend, Wait
from kfext.model.constraints import Requirement, Term, VolumeConstraints
from kfext.model.gang_terms import GangTerm
from kfext.model.job import TrainingJob
from kfext.model.job_state import JobState
from kfext.names import (
    GATED,
    PHASE_RELEASED,
    QUEUED,
    REASON_HANDS_OFF,
    REASON_UNMODELLED,
    REASON_WAITING_FOR_VOLUME,
)
from kfext.names import HELD as HELD_MARK
from tests.builders import JobBuilder, Raw, apart, job, pod, pods, situation_of, together
from tests.unit.core.lifecycle.cases import (
    NOW,
    TWO_NODES,
    Case,
    begun,
    check_case,
    full,
    held,
    phase,
    plan,
    stopped,
    three,
    worker,
    workers,
)

WHILE_SCHEDULING = "requiredDuringSchedulingIgnoredDuringExecution"
APART: Raw = {
    "affinity": {"podAntiAffinity": {WHILE_SCHEDULING: [{"topologyKey": "kubernetes.io/hostname"}]}}
}
PART: dict[str, Any] = {"kfext.dev/gpu-1": "50"}
DEVICES: Raw = {"resourceClaims": [{"name": "card"}]}
NAMED: dict[str, tuple[JobBuilder, str]] = {
    "a term in each template is named once": (
        job().master(spec=APART).worker(3, spec=APART),
        "its pods have required podAntiAffinity, which",
    ),
    "a field of one replica type counts for the job": (
        job().master().worker(3, spec=DEVICES),
        "its pods have resourceClaims, which",
    ),
    "a GPU share that is requested by the name of its slot": (
        job().group("Worker", **PART),
        "its pods have requests for kfext.dev/gpu-1, which",
    ),
    "several fields are listed": (
        job().master(spec=APART).worker(3, spec=DEVICES),
        "its pods have required podAntiAffinity and resourceClaims, which",
    ),
}


@pytest.mark.parametrize(("builder", "want"), NAMED.values(), ids=NAMED)
def test_a_job_with_a_term_that_kfext_does_not_model_is_not_placed(
    builder: JobBuilder, want: str
) -> None:
    result = not_placed(builder.build())
    assert result is not None
    assert result.reason == REASON_UNMODELLED
    assert result.message.startswith(want)


@pytest.mark.parametrize(
    "builder",
    [job().worker(3), job().worker(3).group("Master", 0, spec=APART)],
    ids=["no such term", "a term of a type without replicas"],
)
def test_a_job_without_such_a_term_is_placed(builder: JobBuilder) -> None:
    assert not_placed(builder.build()) is None


@pytest.mark.parametrize(
    ("more", "counts"),
    [({"gated": True}, True), ({"bound": "a"}, False)],
    ids=["gated", "bound: kfext no longer keeps its terms"],
)
def test_a_term_that_admission_gave_a_pod_counts_while_it_is_gated(
    more: dict[str, Any], *, counts: bool
) -> None:
    training_job = job().worker(2).build()
    pods = [pod(training_job, "worker", 0), pod(training_job, "worker", 1, spec=APART, **more)]
    assert (not_placed(training_job, pods) is not None) is counts


ALL, OF_WORKERS = GangTerm("train"), GangTerm("train", ("worker",))
TRAIN, WORKERS = apart(ALL), apart(OF_WORKERS)
WITHIN: dict[str, tuple[JobBuilder, bool]] = {
    "all pods of the job have it": (job().master(spec=TRAIN).worker(3, spec=TRAIN), True),
    "one type has it, and it selects that type": (job().master().worker(3, spec=WORKERS), True),
    "each type has one of its own": (
        job("TFJob").ps(2, spec=apart(GangTerm("train", ("ps",)))).worker(3, spec=WORKERS),
        True,
    ),
    "two terms of one type": (job().worker(3, spec=apart(ALL, OF_WORKERS)), True),
    "a type without replicas does not have it": (
        job().worker(3, spec=TRAIN).group("Master", 0),
        True,
    ),
    "it selects a type that does not have it": (job().master().worker(3, spec=TRAIN), False),
    "it does not select the type that has it": (
        job("TFJob").ps(2, spec=WORKERS).worker(3, spec=WORKERS),
        False,
    ),
    "it selects another job": (job().worker(3, spec=apart(GangTerm("other"))), False),
    "a type in a spelling unlike the label": (
        job().worker(3, spec=apart(GangTerm("train", ("Worker",)))),
        False,
    ),
}


@pytest.mark.parametrize(("builder", "within"), WITHIN.values(), ids=WITHIN)
def test_anti_affinity_is_modelled_if_it_is_on_exactly_the_pods_that_it_selects(
    builder: JobBuilder, *, within: bool
) -> None:
    job = builder.build()
    assert (not_placed(job) is None) is within
    assert (not_placed(job, pods(job, gated=True)) is None) is within


ON_ONE_NODE = together(ALL)
TOGETHER: dict[str, tuple[JobBuilder, bool]] = {
    "all pods of the job have it": (
        job().master(spec=ON_ONE_NODE).worker(3, spec=ON_ONE_NODE),
        True,
    ),
    "a type does not have it": (job().master().worker(3, spec=ON_ONE_NODE), False),
    "each type has one of its own": (
        job("TFJob")
        .ps(2, spec=together(GangTerm("train", ("ps",))))
        .worker(3, spec=together(OF_WORKERS)),
        False,
    ),
    "it selects only some of the types that have it": (
        job("TFJob").ps(2, spec=together(OF_WORKERS)).worker(3, spec=together(OF_WORKERS)),
        False,
    ),
    "it selects another job": (job().worker(3, spec=together(GangTerm("other"))), False),
}


@pytest.mark.parametrize(("builder", "within"), TOGETHER.values(), ids=TOGETHER)
def test_affinity_is_modelled_if_it_is_between_all_pods_of_the_job(
    builder: JobBuilder, *, within: bool
) -> None:
    job = builder.build()
    for result in (not_placed(job), not_placed(job, pods(job, gated=True))):
        assert (result is None) is within
        assert result is None or result.message.startswith("its pods have required podAffinity, ")


@pytest.mark.parametrize("spec", [{"affinity": {}}, together(OF_WORKERS)], ids=["gone", "another"])
def test_affinity_that_admission_changed_is_not_modelled(spec: Raw) -> None:
    training_job = job().worker(3, spec=ON_ONE_NODE).build()
    result = not_placed(training_job, [pod(training_job, "worker", 0, gated=True, spec=spec)])
    assert result is not None
    assert "required podAffinity" in result.message


@pytest.mark.parametrize(
    ("builder", "spec"),
    [
        (job().worker(3), TRAIN),
        (job().worker(3, spec=TRAIN), {"affinity": {}}),
        (job().worker(3, spec=TRAIN), WORKERS),
    ],
    ids=["added", "removed", "changed"],
)
def test_anti_affinity_changed_by_admission_is_not_modelled(builder: JobBuilder, spec: Raw) -> None:
    training_job = builder.build()
    result = not_placed(training_job, [pod(training_job, "worker", 0, gated=True, spec=spec)])
    assert result is not None
    assert "required podAntiAffinity" in result.message


def claiming(volumes: VolumeConstraints) -> TrainingJob:
    training_job = job().worker(2).build()
    (group,) = training_job.groups
    return replace(
        training_job,
        groups=(replace(group, constraints=replace(group.constraints, volumes=volumes)),),
    )


def test_a_volume_claim_that_is_not_modelled_counts_as_a_term() -> None:
    result = not_placed(claiming(VolumeConstraints(unmodelled=("volume claim data, odd",))))
    assert result is not None
    assert "volume claim data, odd" in result.message


@pytest.mark.parametrize(
    ("pending", "want"),
    [
        (("data",), "volume claim data is not bound yet"),
        (("data", "more"), "2 volume claims are not bound yet"),
    ],
)
def test_a_job_waits_for_claims_that_are_not_bound(pending: tuple[str, ...], want: str) -> None:
    result = unbound_claims(claiming(VolumeConstraints(pending=pending)))
    assert result is not None
    assert (result.reason, result.message) == (REASON_WAITING_FOR_VOLUME, want)


def test_a_job_with_bound_claims_waits_for_none() -> None:
    assert unbound_claims(claiming(VolumeConstraints())) is None


SPREAD: Raw = {"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]}


def spread() -> JobBuilder:
    """Three workers that kube-scheduler has to spread."""
    return job().worker(3, cpu="1", spec=SPREAD)


def gated(builder: JobBuilder, *, count: int = 3) -> list[Any]:
    """The first `count` pods behind the gate; only the last has the term."""
    job = builder.build()
    plain = [pod(job, "worker", number, gated=True) for number in range(count - 1)]
    return [*plain, pod(job, "worker", count - 1, gated=True, spec=SPREAD)]


def term(*words: str) -> Callable[[Any], bool]:
    def check(step: Any) -> bool:
        return step.verdict.reason == REASON_UNMODELLED and all(
            word in step.verdict.message for word in words
        )

    return check


HELD: dict[str, Case] = {
    "released at once, whether it would fit or not": Case(
        Release, spread().held(), on=full(), check=term("topologySpreadConstraints")
    ),
    "a job that backs off too, since waiting would not help": Case(
        Release, spread().held(), state=JobState(retry_at=NOW + 100)
    ),
    "a required job stays suspended with the reason": Case(
        Wait,
        spread().held(),
        more={"colocation": "required"},
        check=lambda step: (
            phase(QUEUED, REASON_UNMODELLED)(step)
            and step.again is None
            and "required, so it stays suspended" in step.verdict.message
        ),
    ),
    "a required job stays suspended after its pods alone had the term three times": held(
        Wait,
        state=JobState(strikes=3, reason=REASON_UNMODELLED, message="its pods have a term"),
        more={"colocation": "required"},
        check=lambda step: (
            phase(QUEUED, REASON_UNMODELLED)(step)
            and step.again is None
            and step.verdict.message.startswith("its pods have a term; colocation is required")
        ),
    ),
    "such a job is released once it is no longer required": held(
        Release, state=JobState(strikes=3, reason=REASON_UNMODELLED, message="its pods have a term")
    ),
    "a required job is tried again after two starts with the term: the next may lack it": held(
        Unsuspend,
        state=JobState(strikes=2, reason=REASON_UNMODELLED),
        more={"colocation": "required"},
    ),
    "a job with pods that must be apart from each other is placed": Case(
        Unsuspend, job().worker(1, cpu="1", spec=apart(GangTerm("train"))).held()
    ),
    "a job that prefers to be apart is placed": Case(
        Unsuspend,
        job()
        .worker(
            3,
            cpu="1",
            spec={"topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}]},
        )
        .held(),
    ),
}


@pytest.mark.parametrize("case", HELD.values(), ids=HELD)
def test_the_next_step_of_a_held_job_with_an_unmodelled_term(case: Case) -> None:
    check_case(case)


def handed_off(words: str) -> Callable[[Any], bool]:
    def check(step: Any) -> bool:
        return step.verdict.reason == REASON_HANDS_OFF and words in step.verdict.message

    return check


BEHIND_THE_GATE: dict[str, Case] = {
    "a term that admission gave one pod: all are ungated without pins": begun(
        Release,
        gated(three()),
        check=lambda step: term("topologySpreadConstraints")(step) and step.pods == (),
    ),
    "an anti-affinity between its pods that their templates do not have": begun(
        Release, workers(gated=True, spec=apart(GangTerm("train"))), check=term("podAntiAffinity")
    ),
    "at once, before the other pods exist": begun(Release, gated(three(), count=2)),
    "a job that a person resumed": Case(Release, three().resumed(), gated(three())),
    "a required job is suspended for some time": begun(
        Suspend,
        gated(three()),
        more={"colocation": "required"},
        check=stopped(REASON_UNMODELLED, 1),
    ),
    "a required job that Kueue started waits": Case(
        Wait,
        three().resumed().queued_by_kueue(),
        gated(three()),
        more={"colocation": "required"},
        check=phase(GATED, REASON_UNMODELLED),
    ),
    "a scheduler that admission gave one pod places them all, also of a required job": begun(
        Release,
        [*workers(gated=True)[:2], worker(2, gated=True, spec={"schedulerName": "hami-scheduler"})],
        more={"colocation": "required"},
        check=handed_off("scheduler hami-scheduler places its pods"),
    ),
    "pods without such a term are pinned": begun(Pin, workers(gated=True)),
}


@pytest.mark.parametrize("case", BEHIND_THE_GATE.values(), ids=BEHIND_THE_GATE)
def test_a_gang_behind_the_gate_with_an_unmodelled_term(case: Case) -> None:
    check_case(case)


NEVER_HELD: dict[str, Case] = {
    "its TrainingPlan says why": Case(
        Wait,
        spread().resumed(),
        check=lambda step: (
            phase(PHASE_RELEASED, REASON_UNMODELLED)(step)
            and step.verdict.message.endswith("it runs as on plain Kubernetes")
        ),
    ),
    "no report where colocation is off": Case(
        Wait, spread().resumed(), more={"colocation": "off"}, check=phase(None)
    ),
    "no report in a namespace that did not opt in": Case(
        Wait, spread().resumed(), more={"managed": False}, check=phase(None)
    ),
    "no report for a job without such a term": Case(Wait, three().resumed(), check=phase(None)),
}


@pytest.mark.parametrize("case", NEVER_HELD.values(), ids=NEVER_HELD)
def test_the_report_on_a_job_that_kfext_does_not_handle(case: Case) -> None:
    check_case(case)


# --- volume claims --------------------------------------------------------------------------------

ON_B = (Term((Requirement("name", "In", ("b",)),)),)
LATE = VolumeConstraints(unmodelled=("volume claim data, which waits for its first consumer",))
PENDING = VolumeConstraints(pending=("data",))


def step_with(volumes: VolumeConstraints, *, running: bool = False, **more: Any) -> Step:
    """The next step of a job with claims on these volumes: held, or running behind the gate."""
    job = three().build()
    (group,) = job.groups
    constraints = replace(group.constraints, claims=("data",), volumes=volumes)
    claimant = replace(job, suspend=not running, groups=(replace(group, constraints=constraints),))
    if not running:
        claimant = replace(claimant, annotations={HELD_MARK: "true"})
    members = tuple(workers(gated=True)) if running else ()
    planned = plan("a", "a", "a") if running else None
    situation = situation_of(job=claimant, pods=members, plan=planned, now=NOW, **more)
    return next_step(situation, TWO_NODES)


def test_a_job_is_placed_where_its_bound_volume_can_be_used() -> None:
    step = step_with(VolumeConstraints(terms=(ON_B,)))
    assert isinstance(step, Unsuspend)
    assert set(step.plan.assignment.values()) == {"b"}


def test_a_job_with_a_claim_that_needs_a_pod_with_a_node_is_released_at_once() -> None:
    step = step_with(LATE)
    assert isinstance(step, Release)
    assert term("volume claim data, which waits")(step)


def test_a_job_waits_a_minute_for_a_claim_that_is_bound_without_a_pod() -> None:
    step = step_with(PENDING)
    assert isinstance(step, Wait)
    assert phase(QUEUED, REASON_WAITING_FOR_VOLUME)(step)
    assert step.again == RELEASE_SECONDS
    assert isinstance(step_with(PENDING, never_fits=RELEASE_SECONDS), Release)


def test_a_required_job_waits_for_its_claim_without_limit() -> None:
    step = step_with(PENDING, never_fits=9e9, colocation="required")
    assert isinstance(step, Wait)
    assert phase(QUEUED, REASON_WAITING_FOR_VOLUME)(step)


@pytest.mark.parametrize("volumes", [PENDING, LATE], ids=["pending", "waits for a pod"])
def test_a_gang_behind_the_gate_is_ungated_if_its_claim_is_not_bound(
    volumes: VolumeConstraints,
) -> None:
    step = step_with(volumes, running=True)
    assert isinstance(step, Release)
    assert step.pods == ()


# --- sizes: the replicas of such a job are never counted one by one -------------------------------

HUGE = 2**31 - 1
TOLERATIONS = {"tolerations": [{"key": f"k{number}"} for number in range(65)]}


def huge() -> JobBuilder:
    return job().worker(HUGE, cpu="1")


def heavy() -> JobBuilder:
    return job().worker(3, cpu="1", spec=TOLERATIONS)


REQUIRED = {"colocation": "required"}
BEYOND: dict[str, Case] = {
    "a held job with 2^31-1 replicas is released at once": Case(
        Release, huge().held(), check=handed_off(f"{HUGE} pods, more than the 10000")
    ),
    "a held job with a template beyond a bound is released at once": Case(
        Release, heavy().held(), check=handed_off("the Worker template has 65 tolerations")
    ),
    "a required job stays suspended with the reason": Case(
        Wait,
        heavy().held(),
        more=REQUIRED,
        check=lambda step: (
            phase(QUEUED, REASON_HANDS_OFF)(step)
            and "required, so it stays suspended" in step.verdict.message
        ),
    ),
    "a job that backs off does not wait for its end": Case(
        Release, huge().held(), state=JobState(retry_at=NOW + 60), check=handed_off("pods")
    ),
    "gated pods of a running job are ungated": Case(
        Release, heavy().resumed(), [worker(0, gated=True)], check=handed_off("tolerations")
    ),
    "gated pods of a job edited to 2^31-1 replicas are ungated": Case(
        Release, huge().resumed(), [worker(0, gated=True)], plan("a"), check=handed_off("pods")
    ),
    "a pod that admission made too large is ungated with its gang": begun(
        Release,
        [worker(0, gated=True, spec=TOLERATIONS), worker(1, gated=True)],
        check=handed_off("a pod has 65 tolerations"),
    ),
    "a required job with gated pods is suspended for some time": Case(
        Suspend,
        heavy().resumed(),
        [worker(0, gated=True)],
        more=REQUIRED,
        check=stopped(REASON_HANDS_OFF, 1),
    ),
    "a job that runs already continues": Case(
        Wait, huge().resumed(), [worker(0, bound="a")], plan("a"), check=lambda step: step.phase
    ),
    "the TrainingPlan of a job that was never held shows the reason": Case(
        Wait,
        huge().resumed(),
        [worker(0, bound="a")],
        check=phase(PHASE_RELEASED, REASON_HANDS_OFF),
    ),
}


@pytest.mark.parametrize("case", BEYOND.values(), ids=BEYOND)
def test_the_next_step_of_a_job_beyond_a_bound(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    def count(self: TrainingJob) -> None:
        raise AssertionError("its replicas are counted one by one")

    monkeypatch.setattr(TrainingJob, "replicas", count)
    check_case(case)


# --- the host network ---

PSS = "pod-security.kubernetes.io/enforce"


def serving(replicas: int, *ports: Raw, **spec: object) -> JobBuilder:
    container = {"name": "pytorch", "ports": list(ports)}
    return job().master().worker(replicas, spec={"containers": [container], **spec})


def starting(*words: str) -> JobBuilder:
    container = {"name": "pytorch", "command": list(words)}
    return job().master().worker(2, spec={"containers": [container]})


def meshed(at: str, value: str, key: str = names.ISTIO_INJECT, **more: Raw) -> JobBuilder:
    builder = job().master().worker(2)
    template = builder.raw["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
    template["metadata"] = {at: {key: value}, **more}
    return builder


DECLINED = {names.ISTIO_INJECT: "false"}


METRICS = {"name": "metrics", "containerPort": 9090}
OPERATORS = {"name": "pytorchjob-port", "containerPort": 23456}

ON_HOST_NETWORK = {
    "an ordinary job": (job().master().worker(3), {}),
    "a single worker meets no other": (job().worker(1), {}),
    "the operator's own port": (serving(3, OPERATORS), {}),
    "a port that one pod declares": (serving(1, METRICS), {}),
    "Pod Security privileged": (job().master(), {PSS: "privileged"}),
    "Istio is excluded": (meshed("annotations", "false"), {}),
    "Istio is excluded by its preferred label": (
        meshed("annotations", "true", labels=DECLINED),
        {},
    ),
    "Istio is excluded for all revisions": (
        meshed("labels", "canary", "istio.io/rev", annotations=DECLINED),
        {},
    ),
    "Linkerd is excluded": (meshed("annotations", "disabled", "linkerd.io/inject"), {}),
    "the ambient mesh is excluded": (meshed("labels", "none", "istio.io/dataplane-mode"), {}),
    "torchrun without an address": (starting("torchrun", "--nproc_per_node=2", "train.py"), {}),
}


@pytest.mark.parametrize(("builder", "labels"), ON_HOST_NETWORK.values(), ids=ON_HOST_NETWORK)
def test_a_job_may_use_the_host_network(builder: JobBuilder, labels: Mapping[str, str]) -> None:
    assert why_no_host_network(builder.build(), labels) == ""


ON_POD_NETWORK = {
    "torchrun's agents in a Master and in workers": (
        job().master().worker(2).elastic(rdzvBackend="c10d"), {}, "both a Master and an elastic"
    ),
    "one port in two templates": (
        serving(1, METRICS).master(spec={"containers": [{"name": "pytorch", "ports": [METRICS]}]}),
        {}, "2 pods declare port 9090"
    ),
    "a meeting point in the environment": (
        job().master(spec={"containers": [{"name": "pytorch", "env": [
            {"name": "MASTER_PORT", "value": "29500"}]}]}),
        {}, "itself sets"
    ),
    "workers without a meeting point": (job().worker(2), {}, "neither a Master"),
    "Pod Security baseline": (job().worker(2), {PSS: "baseline"}, "Pod Security baseline"),
    "Pod Security restricted": (job().worker(2), {PSS: "restricted"}, "Pod Security restricted"),
    "Kueue": (job().worker(2).queued_by_kueue(), {}, "Kueue"),
    "a host network of the user": (job().master(spec={"hostNetwork": True}), {}, "itself"),
    "a node that the user has named": (job().master(spec={"nodeName": "a"}), {}, "names its node"),
    "a host port of the user": (serving(1, {**METRICS, "hostPort": 9090}), {}, "itself"),
    "a port that two pods declare": (serving(2, METRICS), {}, "2 pods declare port 9090"),
    "Istio by label": (meshed("labels", "true"), {}, "Istio"),
    "Istio by annotation": (meshed("annotations", "true"), {}, "Istio"),
    "Istio by an unusual value": (meshed("annotations", "Yes"), {}, "Istio"),
    "Istio by revision": (meshed("labels", "canary", "istio.io/rev"), {}, "Istio"),
    "Istio's ambient mesh": (
        meshed("labels", "ambient", "istio.io/dataplane-mode"), {}, "Istio"
    ),
    "Linkerd": (meshed("annotations", "enabled", "linkerd.io/inject"), {}, "Linkerd"),
    "a port on the command line": (
        starting("torchrun", "--master_port=29500", "train.py"), {}, "itself sets"
    ),
    "an endpoint in a shell line": (
        starting("sh", "-c", "torchrun --rdzv-endpoint=$HOST:29400 train.py"), {}, "itself sets"
    )
}  # fmt: skip


@pytest.mark.parametrize(("builder", "labels", "why"), ON_POD_NETWORK.values(), ids=ON_POD_NETWORK)
def test_what_keeps_a_job_from_the_host_network(
    builder: JobBuilder, labels: Mapping[str, str], why: str
) -> None:
    assert why in why_no_host_network(builder.build(), labels)


def test_the_port_of_a_sidecar_counts_but_not_the_port_of_an_init_container() -> None:
    sidecar = {"name": "logs", "restartPolicy": "Always", "ports": [METRICS]}
    first = {"name": "fetch", "ports": [METRICS]}
    builder = job().master().worker(2, spec={"initContainers": [sidecar]})
    assert "9090" in why_no_host_network(builder.build(), {})
    builder = job().master().worker(2, spec={"initContainers": [first]})
    assert why_no_host_network(builder.build(), {}) == ""


def test_a_job_beyond_a_bound_uses_the_pod_network() -> None:
    assert "pods, more than the 10000" in why_no_host_network(
        job().master().worker(2**31 - 1).build(), {}
    )
