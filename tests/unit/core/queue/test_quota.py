"""Whether quotas allow all pods of a job: the message, and the pods that count."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext import names
from kfext.core.queue.quota import Demand, QuotaView, demand
from kfext.model.charge import PodCharge, pod_charge
from kfext.model.quota import Quota, ScopeRule, parse_quota
from tests.builders import job, pod, pods


def quota(
    hard: dict[str, str], used: dict[str, str] | None = None, *, name: str = "limit", **spec: Any
) -> Quota:
    return parse_quota(
        {
            "metadata": {"namespace": "team", "name": name},
            "spec": spec,
            "status": {"hard": hard, "used": used or {}},
        }
    )


def pods_of(count: int, *, resources: dict[str, Any] | None = None, **spec: Any) -> Demand:
    """The demand of `count` pods with a container; `resources`: the container's resources."""
    container = {"name": "main", "resources": resources or {}}
    return {pod_charge({"containers": [container], **spec}): count}


def refusal(need: Demand, *quotas: Quota, **more: Any) -> str | None:
    verdict = QuotaView(quotas, **{"defaulted": False, **more}).shortage(need)
    assert verdict is None or verdict.reason == names.REASON_QUOTA
    return verdict.message if verdict else None


TWO_CPU = {"requests": {"cpu": "2"}}
GPU = {"limits": {"nvidia.com/gpu": "4"}}
SAID: dict[str, tuple[Demand, Quota, str | None]] = {
    "just enough for all pods": (pods_of(4), quota({"pods": "10"}, {"pods": "6"}), None),
    "one pod short": (
        pods_of(4),
        quota({"pods": "10"}, {"pods": "7"}),
        "quota team/limit allows 10 pods: 7 used, the job needs 4, 1 short",
    ),
    "more than the quota itself": (
        pods_of(11),
        quota({"pods": "10"}, {"pods": "7"}),
        "the job needs 11 pods, but quota team/limit allows only 10 in all",
    ),
    "the count of pods in every state": (
        pods_of(4),
        quota({"count/pods": "10"}, {"count/pods": "9"}),
        "quota team/limit allows 10 count/pods: 9 used, the job needs 4, 3 short",
    ),
    "one service for every pod": (
        pods_of(4),
        quota({"services": "5"}, {"services": "2"}),
        "quota team/limit allows 5 services: 2 used, the job needs 4, 1 short",
    ),
    "services by count": (
        pods_of(4),
        quota({"count/services": "3"}),
        "the job needs 4 count/services, but quota team/limit allows only 3 in all",
    ),
    "other types of services do not count": (
        pods_of(4),
        quota({"services.loadbalancers": "0", "services.nodeports": "0"}),
        None,
    ),
    "requests of CPU": (
        pods_of(3, resources=TWO_CPU),
        quota({"requests.cpu": "7500m"}, {"requests.cpu": "2"}),
        "quota team/limit allows 7.5 requests.cpu: 2 used, the job needs 6, 0.5 short",
    ),
    "the old name of requests of CPU": (
        pods_of(3, resources=TWO_CPU),
        quota({"cpu": "4"}),
        "the job needs 6 cpu, but quota team/limit allows only 4 in all",
    ),
    "memory": (
        pods_of(3, resources={"requests": {"memory": "2Gi"}}),
        quota({"requests.memory": "8Gi"}, {"requests.memory": "4Gi"}),
        "quota team/limit allows 8 Gi requests.memory: 4 Gi used, the job needs 6 Gi, 2 Gi short",
    ),
    "limits": (
        pods_of(3, resources={"requests": {"cpu": "1"}, "limits": {"cpu": "4"}}),
        quota({"limits.cpu": "8", "requests.cpu": "3"}),
        "the job needs 12 limits.cpu, but quota team/limit allows only 8 in all",
    ),
    "GPUs": (
        pods_of(2, resources=GPU),
        quota({"requests.nvidia.com/gpu": "8"}, {"requests.nvidia.com/gpu": "4"}),
        "quota team/limit allows 8 requests.nvidia.com/gpu: 4 used, the job needs 8, 4 short",
    ),
    "no GPUs at all": (
        pods_of(2, resources=GPU),
        quota({"requests.nvidia.com/gpu": "0"}),
        "the job needs 8 requests.nvidia.com/gpu, but quota team/limit allows only 0 in all",
    ),
    "a quota of an unused resource": (pods_of(2), quota({"requests.nvidia.com/gpu": "0"}), None),
    "a quota of other objects": (pods_of(2), quota({"count/pytorchjobs.kubeflow.org": "0"}), None),
    "local disk": (
        pods_of(2, resources={"requests": {"ephemeral-storage": "2Gi"}}),
        quota({"requests.ephemeral-storage": "3Gi"}),
        "the job needs 4 Gi requests.ephemeral-storage, but quota team/limit allows only 3 Gi "
        "in all",
    ),
    "a quota that was cut below its use": (
        pods_of(1),
        quota({"pods": "3"}, {"pods": "5"}),
        "quota team/limit allows 3 pods: 5 used, the job needs 1, 3 short",
    ),
    "a limit that a quota requires and the template lacks": (
        pods_of(4, resources={"requests": {"cpu": "1"}}),
        quota({"limits.cpu": "100", "memory": "1Ti"}),
        "4 of 4 pods have a container without limits.cpu and requests.memory, which quota "
        "team/limit requires of every container, so the API server refuses them",
    ),
    "a quota of GPUs requires nothing of pods without GPUs": (
        pods_of(4, resources={"requests": {"cpu": "1"}}),
        quota({"requests.nvidia.com/gpu": "100"}),
        None,
    ),
}


@pytest.mark.parametrize(("need", "limit", "want"), SAID.values(), ids=SAID)
def test_the_message_about_a_shortage(need: Demand, limit: Quota, want: str | None) -> None:
    assert refusal(need, limit) == want


def test_a_namespace_without_quotas_has_no_limit() -> None:
    assert refusal(pods_of(10_000, resources=GPU)) is None


def test_only_the_pods_without_the_required_request_are_counted() -> None:
    need = {**pods_of(2, resources={"limits": {"cpu": "1"}}), **pods_of(3)}
    assert refusal(need, quota({"cpu": "100"})) == (
        "3 of 5 pods have a container without requests.cpu, which quota team/limit requires of "
        "every container, so the API server refuses them"
    )


def test_a_missing_request_is_no_obstacle_where_a_limit_range_may_add_it() -> None:
    assert refusal(pods_of(3), quota({"cpu": "100"}), defaulted=True) is None


def test_every_quota_counts_and_a_permanent_shortage_comes_first() -> None:
    message = refusal(
        pods_of(4, resources=TWO_CPU),
        quota({"requests.cpu": "6"}, name="b"),
        quota({"pods": "4"}, {"pods": "1"}, name="a"),
    )
    assert message == (
        "the job needs 8 requests.cpu, but quota team/b allows only 6 in all; "
        "quota team/a allows 4 pods: 1 used, the job needs 4, 1 short"
    )


def test_a_message_names_three_causes_at_most() -> None:
    message = refusal(pods_of(9), *(quota({"pods": "1"}, name=f"q{n}") for n in range(5)))
    assert message is not None
    assert message.count("quota team/") == 3


SCOPED: dict[str, tuple[dict[str, Any], Demand, bool]] = {
    "BestEffort, and the pods have no requests": ({"scopes": ["BestEffort"]}, pods_of(2), True),
    "BestEffort, and the pods have requests": (
        {"scopes": ["BestEffort"]},
        pods_of(2, resources=TWO_CPU),
        False,
    ),
    "Terminating, and the pods have no deadline": ({"scopes": ["Terminating"]}, pods_of(2), False),
    "Terminating, and the pods have a deadline": (
        {"scopes": ["Terminating"]},
        pods_of(2, activeDeadlineSeconds=1),
        True,
    ),
    "two scopes, and the pods are in one": (
        {"scopes": ["Terminating", "NotBestEffort"]},
        pods_of(2, activeDeadlineSeconds=1),
        False,
    ),
}


@pytest.mark.parametrize(("spec", "need", "want_short"), SCOPED.values(), ids=SCOPED)
def test_quotas_with_scopes(spec: dict[str, Any], need: Demand, *, want_short: bool) -> None:
    assert (refusal(need, quota({"pods": "1"}, **spec)) is not None) is want_short


def test_only_the_pods_in_its_scope_charge_to_a_quota() -> None:
    need = {**pods_of(2), **pods_of(3, resources=TWO_CPU)}
    assert refusal(need, quota({"pods": "2"}, scopes=["NotBestEffort"])) == (
        "the job needs 3 pods, but quota team/limit allows only 2 in all"
    )


def test_a_quota_with_a_scope_counts_no_service() -> None:
    assert refusal(pods_of(2), quota({"services": "0"}, scopes=["BestEffort"])) is None


def test_pods_without_a_class_count_with_the_default_class() -> None:
    rule = {"scopeName": "PriorityClass", "operator": "In", "values": ["low"]}
    limit = quota({"pods": "1"}, scopeSelector={"matchExpressions": [rule]})
    assert refusal(pods_of(2), limit) is None
    assert refusal(pods_of(2), limit, default_class="low") is not None


# --- pods that are started but do not exist yet ---------------------------------------------------


def test_two_jobs_never_use_the_same_headroom() -> None:
    limit = quota({"pods": "10"}, {"pods": "2"})
    first = job().worker(6, cpu="1").build()
    assert refusal(demand(first), limit) is None
    assert refusal(demand(first), limit, pending=demand(first)) == (
        "quota team/limit allows 10 pods: 2 used, 6 promised to jobs just started, the job needs "
        "6, 4 short"
    )


def test_a_pod_of_a_started_job_counts_once_as_pending_or_as_used() -> None:
    started = job().master(cpu="1").worker(5, cpu="1").build()
    for number in range(7):
        created = pods(started)[:number]
        limit = quota({"pods": "12"}, {"pods": str(len(created))})
        assert refusal(pods_of(6), limit, pending=demand(started, created)) is None
        assert refusal(pods_of(7), limit, pending=demand(started, created)) is not None


DUE: dict[str, tuple[list[dict[str, Any]], int]] = {
    "no pod": ([], 3),
    "a pod that runs": ([{"phase": "Running"}], 2),
    "a pod that has ended is not created again": ([{"phase": "Succeeded"}], 2),
    "a terminating pod is still counted as used": ([{"deleting": True}], 2),
    "more pods than the job has now": ([{}, {}, {}, {}], 0),
}


@pytest.mark.parametrize(("states", "want"), DUE.values(), ids=DUE)
def test_the_pods_that_are_yet_to_be_created(states: list[dict[str, Any]], want: int) -> None:
    training_job = job().worker(3, cpu="1").build()
    existing = [pod(training_job, "worker", index, **state) for index, state in enumerate(states)]
    assert sum(demand(training_job, existing).values()) == want


def test_pending_pods_outside_the_scope_of_a_quota_do_not_count() -> None:
    limit = quota({"pods": "2"}, scopes=["BestEffort"])
    assert refusal(pods_of(2), limit, pending=pods_of(5, resources=TWO_CPU)) is None
    assert refusal(pods_of(2), limit, pending=pods_of(1)) is not None


# --- compared with creating the pods one by one ---------------------------------------------------

CHARGES = [
    *pods_of(1),
    *pods_of(1, resources=TWO_CPU),
    *pods_of(1, resources={"limits": {"cpu": "1", "memory": "1Gi"}}),
    *pods_of(1, resources=GPU, activeDeadlineSeconds=5),
]
demands = st.dictionaries(st.sampled_from(CHARGES), st.integers(1, 4), max_size=3)
limits = st.dictionaries(
    st.sampled_from(["pods", "requests.cpu", "limits.cpu", "requests.nvidia.com/gpu", "services"]),
    st.integers(0, 12),
    min_size=1,
)
quotas_of_a_namespace = st.lists(
    st.builds(
        lambda number, hard, used, scope: Quota(
            "team",
            f"q{number}",
            {key: value * (500 if "cpu" in key else 1) for key, value in hard.items()},
            {key: used for key in hard},  # noqa: C420 - fromkeys loses the type
            (ScopeRule(scope),) if scope else (),
        ),
        st.integers(0, 99),
        limits,
        st.integers(0, 2),
        st.sampled_from(["", "", "BestEffort", "NotTerminating"]),
    ),
    max_size=3,
)


def created_one_by_one(need: Demand, pending: Demand, quotas: list[Quota]) -> bool:
    """Whether the API server would create every pod and its Service, one after the other."""
    used = [Counter(quota.used) for quota in quotas]
    for charge in (Counter(pending) + Counter(need)).elements():
        for quota_, state in zip(quotas, used, strict=True):
            usage = dict(charge.usage) if quota_.covers(charge) else {}
            if not quota_.rules:
                usage["services"] = 1
            for key, number in usage.items():
                if key in quota_.hard:
                    state[key] += number
                    if state[key] > quota_.hard[key]:
                        return False
    return True


@given(demands, demands, quotas_of_a_namespace)
def test_no_shortage_means_that_every_pod_can_be_created(
    need: dict[PodCharge, int], pending: dict[PodCharge, int], quotas: list[Quota]
) -> None:
    result = QuotaView(tuple(quotas), pending=pending).shortage(need)
    if result is None and created_one_by_one({}, pending, quotas):
        assert created_one_by_one(need, pending, quotas)
    if result is not None:
        assert not created_one_by_one(need, pending, quotas)


@given(demands, quotas_of_a_namespace)
def test_the_order_of_quotas_changes_nothing(
    need: dict[PodCharge, int], quotas: list[Quota]
) -> None:
    unique = tuple({quota_.name: quota_ for quota_ in quotas}.values())
    backwards = QuotaView(unique[::-1], defaulted=False)
    assert QuotaView(unique, defaulted=False).shortage(need) == backwards.shortage(
        dict(reversed(need.items()))
    )


def sharing_pods(count: int, hundredths: int) -> Demand:
    """The demand of pods that share GPUs."""
    gpu = {"limits": {"nvidia.com/gpu": "1"}}
    (charge,) = pods_of(1, resources=gpu)
    return {charge.sharing(hundredths): count}


GPU_SHARES: dict[str, tuple[Demand, dict[str, str], Demand, str | None]] = {
    "two halves are one GPU": (sharing_pods(2, 50), {}, {}, None),
    "three halves are more": (
        sharing_pods(3, 50),
        {},
        {},
        "the job needs 1.5 requests.nvidia.com/gpu, but quota team/limit allows only 1 in all",
    ),
    "whole GPUs count too": (
        sharing_pods(1, 50),
        {"requests.nvidia.com/gpu": "1"},
        {},
        "quota team/limit allows 1 requests.nvidia.com/gpu: 1 used, the job needs 0.5, 0.5 short",
    ),
    "the shares of other jobs count, although Kubernetes does not count them": (
        sharing_pods(1, 50),
        {},
        sharing_pods(2, 30),
        "quota team/limit allows 1 requests.nvidia.com/gpu: 0.6 used, the job needs 0.5, 0.1 short",
    ),
    "the remaining share of a GPU": (sharing_pods(1, 40), {}, sharing_pods(2, 30), None),
}


@pytest.mark.parametrize(("need", "used", "sharing", "want"), GPU_SHARES.values(), ids=GPU_SHARES)
def test_gpu_shares_count_as_fractions_of_gpus(
    need: Demand, used: dict[str, str], sharing: Demand, want: str | None
) -> None:
    limited = quota({"requests.nvidia.com/gpu": "1"}, used)
    assert refusal(need, limited, sharing=sharing, defaulted=True) == want


def test_gpu_shares_do_not_count_where_no_quota_limits_gpus() -> None:
    need = sharing_pods(9, 90)
    assert refusal(need, quota({"pods": "9"}), sharing=need, defaulted=True) is None
