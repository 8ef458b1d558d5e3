"""kfext learns from pods how admission changes them, and plans with these changes."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from kfext.core.observed import as_observed, differences, expecting_tolerations, observed
from kfext.core.queue.quota import QuotaView, demand
from kfext.model.constraints import Toleration
from kfext.model.job_state import JobState, ObservedPods
from kfext.model.plan import Plan
from kfext.model.pod import Pod, ReplicaKey
from kfext.model.quota import parse_quota
from tests.builders import Raw, job, ledger, node, pod, pods, state_in

JOB = job().worker(2, cpu="1", gpus=1).resumed()
TOLERATED = {"tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}]}
LISTENS = {"initContainers": [
    {"restartPolicy": "Always", "ports": [{"containerPort": 9100, "hostPort": 9100}]}
]}  # fmt: skip


def admit(spec: Raw | None = None, *, cpu: str = "1", gated: bool = True) -> list[Pod]:
    """The pods of the job after admission changed them."""
    resources = {"requests": {"cpu": cpu, "nvidia.com/gpu": "1"}}
    changed = {"containers": [{"resources": resources}], **TOLERATED, **(spec or {})}
    return pods(JOB.build(), gated=gated, spec=changed)


def learn(*admitted: Pod, plan: Plan | None = None) -> JobState:
    """The state after these pods were seen, written and read back."""
    result = observed(JOB.build(), admitted, JobState(), plan=plan)
    return state_in(JobState(observed=result).encode(job_uid="u"))


CHANGED: dict[str, tuple[list[Pod], Mapping[str, Any], str]] = {
    "a LimitRange or a sidecar makes them larger": (
        admit(cpu="3"),
        {"cpu": 3000},
        "a worker has 3 cpu instead of 1 cpu",
    ),
    "a RuntimeClass has an overhead": (
        admit({"overhead": {"memory": "1Gi"}}),
        {"memory": 2**30},
        "a worker has 1 Gi memory instead of 0 bytes of memory",
    ),
    "an annotation of the namespace selects nodes": (
        admit({"nodeSelector": {"pool": "x"}}),
        {"node_selector": (("pool", "x"),)},
        "a worker has another nodeSelector",
    ),
    "a sidecar has a port of the node": (
        admit(LISTENS),
        {"host_ports": (("TCP", 9100),)},
        "a worker has host port 9100",
    ),
    "nothing tolerates the taint of its GPUs": (
        admit({"tolerations": []}),
        {"devices": ()},
        "a worker has no toleration for nvidia.com/gpu",
    ),
}


POOL = {"key": "dedicated", "operator": "Equal", "value": "team", "effect": "NoSchedule"}
OF_POOL = Toleration("dedicated", "Equal", "team", "NoSchedule")
DEFAULTS = [
    {"key": f"node.kubernetes.io/{what}", "operator": "Exists", "effect": "NoExecute"}
    for what in ("not-ready", "unreachable")
]
GPUS = TOLERATED["tolerations"]
TOLERATIONS: dict[str, tuple[list[Pod], tuple[Toleration, ...]]] = {
    "a toleration of a pool": (admit({"tolerations": [*GPUS, POOL, *DEFAULTS]}), (OF_POOL,)),
    "a toleration of everything": (
        admit({"tolerations": [{"operator": "Exists"}]}),
        (Toleration("", "Exists"),),
    ),
    "only the tolerations of Kubernetes and of the GPUs": (
        admit({"tolerations": [*GPUS, *DEFAULTS]}),
        (),
    ),
    "a toleration of one pod": ([admit({"tolerations": [*GPUS, POOL]})[0], admit()[1]], ()),
}


@pytest.mark.parametrize(("admitted", "want"), TOLERATIONS.values(), ids=TOLERATIONS)
def test_plans_include_tolerations_that_admission_added(
    admitted: list[Pod], want: tuple[Toleration, ...]
) -> None:
    state = learn(*admitted)
    assert (state == JobState()) is (want == ())
    (group,) = as_observed(JOB.build(), state).groups
    assert group.constraints.tolerations == want
    again = observed(as_observed(JOB.build(), state), admitted, state, plan=None)
    assert again == state.observed


def test_plans_exclude_a_toleration_that_admission_no_longer_adds() -> None:
    first = learn(*admit({"tolerations": [*GPUS, POOL]}))
    known = as_observed(JOB.build(), first)
    second = JobState(observed=observed(known, admit(), first, plan=None))
    assert as_observed(JOB.build(), second) == JOB.build()


WITH_POOL = ledger(node("a", gpus=8), node("b", gpus=8, taints=[POOL]))


def test_tolerations_are_expected_of_pods_that_were_never_seen_under_their_template() -> None:
    training_job, other = JOB.build(), job().worker(2, cpu="2", gpus=1).resumed().build()
    plain = JobState(
        observed=observed(training_job, admit(), JobState(), plan=None, unchanged=True)
    )
    for unseen, state in ((training_job, JobState()), (other, plain)):
        result = expecting_tolerations(unseen, state, WITH_POOL)
        assert result is not None
        assert [group.constraints.expects_tolerations for group in result.groups] == [True]
    assert expecting_tolerations(training_job, plain, WITH_POOL) is None
    assert expecting_tolerations(training_job, JobState(), ledger(node("a", gpus=8))) is None
    assert as_observed(training_job, plain) == training_job


@pytest.mark.parametrize(("admitted", "want", "message"), CHANGED.values(), ids=CHANGED)
def test_a_job_is_planned_with_its_pods_as_observed(
    admitted: list[Pod], want: Mapping[str, Any], message: str
) -> None:
    assert differences(JOB.build(), admitted, plan=None, eligible=False) == message
    (group,) = as_observed(JOB.build(), learn(*admitted)).groups
    for key, value in want.items():
        if key in group.requests:
            assert group.requests[key] == value
        else:
            assert getattr(group.constraints, key) == value


def test_quotas_count_the_observed_requests_of_its_pods() -> None:
    plain = job().worker(4, cpu_limit="3").resumed().build()
    large = pods(
        plain, gated=True, spec={"containers": [{"resources": {"requests": {"cpu": "1"}}}]}
    )
    state = JobState(observed=observed(plain, large, JobState(), plan=None))
    raw = {"spec": {"hard": {"requests.cpu": "2"}}, "status": {"hard": {"requests.cpu": "2"}}}
    quota = parse_quota({"metadata": {"namespace": "team", "name": "q"}, **raw})
    refused = QuotaView((quota,)).shortage(demand(as_observed(plain, state)))
    assert refused is not None
    assert "requests.cpu" in refused.message
    (group,) = as_observed(plain, state).groups
    assert dict(group.charge.usage)["requests.cpu"] == 1000
    assert not group.charge.best_effort


def test_pods_equal_to_their_template_add_nothing() -> None:
    assert differences(JOB.build(), admit(), plan=None, eligible=False) == ""
    assert learn(*admit()) == JobState()


def test_a_missing_toleration_is_no_difference_where_a_node_is_eligible() -> None:
    assert differences(JOB.build(), admit({"tolerations": []}), plan=None, eligible=True) == ""


def test_only_gated_pods_show_their_requirements() -> None:
    assert learn(*admit({"nodeSelector": {"pool": "x"}}, gated=False)) == JobState()


def test_a_pod_beyond_a_bound_is_not_read_and_shows_nothing() -> None:
    (observed, _) = admit(cpu="3")
    assert observed.constraints is not None
    beyond = replace(observed, constraints=replace(observed.constraints, excess="30000 containers"))
    assert learn(beyond) == JobState()
    assert differences(JOB.build(), [beyond], plan=None, eligible=True) == ""


def test_the_largest_pod_of_a_type_counts() -> None:
    state = learn(admit(cpu="3")[0], admit(cpu="2")[1])
    assert state.observed["worker"].requests["cpu"] == 3000


def test_an_observation_stays_in_the_plans() -> None:
    state = learn(*admit(cpu="3"))
    once = as_observed(JOB.build(), state)
    assert as_observed(once, state) == once
    assert differences(once, admit(cpu="3"), plan=None, eligible=True) == ""


def test_the_first_observation_stays_when_more_is_observed() -> None:
    first = learn(*admit({"tolerations": [], **LISTENS}))
    known = as_observed(JOB.build(), first)
    second = observed(known, admit({"tolerations": [], **LISTENS}, cpu="3"), first, plan=None)
    assert second["worker"].untolerated
    assert second["worker"].host_ports == (("TCP", 9100),)
    assert second["worker"].requests["cpu"] == 3000


def test_ports_that_only_some_pods_of_a_type_have_are_not_recorded() -> None:
    pods = [admit(LISTENS)[0], admit()[1]]
    assert learn(*pods) == JobState()
    assert differences(JOB.build(), pods, plan=None, eligible=True) == "a worker has host port 9100"


def test_the_ports_that_kfext_assigned_to_pods_are_no_difference() -> None:
    container = {"name": "pytorch", "ports": [{"name": "own", "containerPort": 8080}]}
    training_job = job().master(spec={"containers": [container]}).resumed().build()
    ports = [{"containerPort": number} for number in (8080, 20000)]
    on_host = {"hostNetwork": True, "containers": [{"name": "pytorch", "ports": ports}]}
    pods = [pod(training_job, "master", 0, gated=True, spec=on_host)]
    plan = Plan(training_job.uid, 1, {ReplicaKey("master", 0): "a"}, port=20000)
    assert differences(training_job, pods, plan=plan, eligible=True) == ""
    assert observed(training_job, pods, JobState(), plan=plan) == {}
    assert observed(training_job, pods, JobState(), plan=None) != {}


NOT_LEARNT: dict[str, tuple[Raw, str]] = {
    "another affinity to nodes": (
        {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "pool", "operator": "Exists"}]}]
        }}}},
        "a worker has another node affinity"
    ),
    "a toleration was removed": (
        {"tolerations": []},
        "a worker has fewer tolerations"
    ),
    "a volume claim was added": (
        {"volumes": [{"persistentVolumeClaim": {"claimName": "data"}}]},
        "a worker has other volume claims"
    )
}  # fmt: skip


@pytest.mark.parametrize(("spec", "message"), NOT_LEARNT.values(), ids=NOT_LEARNT)
def test_other_differences_are_reported_and_not_stored(spec: Raw, message: str) -> None:
    builder = job().worker(2, cpu="1", spec={"tolerations": [{"key": "team"}]}).resumed()
    training_job = builder.build()
    template = {"containers": [{"resources": {"requests": {"cpu": "1"}}}]}
    admitted = pods(
        training_job, gated=True, spec={**template, "tolerations": [{"key": "team"}], **spec}
    )
    assert differences(training_job, admitted, plan=None, eligible=True) == message
    assert observed(training_job, admitted, JobState(), plan=None) == {}


def test_after_an_edit_the_template_counts_again() -> None:
    state = learn(*admit(cpu="3"))
    edited = job().worker(2, cpu="2", gpus=1).resumed().build()
    assert as_observed(edited, state) == edited


def test_other_types_follow_their_templates() -> None:
    training_job = job("TFJob").ps(1, cpu="1").worker(1, cpu="1").resumed().build()
    large = pod(training_job, "worker", 0, gated=True, spec={"overhead": {"cpu": "1"}})
    result = observed(
        training_job, [large, pod(training_job, "ps", 0, gated=True)], JobState(), plan=None
    )
    assert set(result) == {"worker"}


def test_an_observation_too_long_to_store_is_not_stored() -> None:
    names = {f"example.com/{'x' * 50}-{number}": "1" for number in range(40)}
    admitted = admit({"containers": [{"resources": {"requests": names}}]})
    known = {"worker": ObservedPods(template=1, requests={"cpu": 1, "pods": 1})}
    assert observed(JOB.build(), admitted, JobState(observed=known), plan=None) == known


def test_a_state_larger_than_kfext_writes_is_ignored() -> None:
    names = {f"example.com/{number}": 1 for number in range(1000)}
    written = json.dumps({"uid": "u", "observed": {"worker": {"template": 1, "requests": names}}})
    assert state_in(written) == JobState()
