"""The patches of a job for each step, as the API server would apply them."""

import json
from copy import deepcopy
from dataclasses import replace
from typing import Any

import jsonpatch
import pytest

from kfext import names
from kfext.core.elastic import requested_workers, workers_of
from kfext.core.patches.job import (
    forget_plan_patch,
    release_patch,
    replan_patch,
    rescale_patch,
    save_state_patch,
    suspend_patch,
    unsuspend_patch,
    user_release_patch,
)
from kfext.core.patches.json_patch import Operation
from kfext.model.bounds import MAX_PODS, plan_excess
from kfext.model.job import TrainingJob, parse_job
from kfext.model.job_state import JobState, state_of
from kfext.model.plan import Plan, decode_plan
from kfext.model.pod import ReplicaKey
from kfext.model.verdict import Verdict
from tests.builders import JobBuilder, Raw, affinity_to, job, state_in

PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
ZONE = {"weight": 100, "preference": {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}}
NOT_BAD = {
    "weight": 100,
    "preference": {
        "matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["bad"]}]
    },
}


def by_name(*nodes: str) -> Raw:
    """The preference for nodes by name; kfext's own terms have one node each."""
    fields = [{"key": "metadata.name", "operator": "In", "values": list(nodes)}]
    return {"weight": 100, "preference": {"matchFields": fields}}


RELEASE = Verdict(names.REASON_TOO_BIG, "too big")


def gang() -> JobBuilder:
    return job().master(cpu="1").worker(2, cpu="1")


def with_affinity(affinity: Raw) -> JobBuilder:
    return job().worker(2, spec={"affinity": affinity}).held()


def a_plan(*nodes: str, uid: str = "uid-1", generation: int = 1) -> Plan:
    return Plan(uid, generation, {ReplicaKey("worker", n): to for n, to in enumerate(nodes)})


def parsed(raw: Raw) -> TrainingJob:
    job = parse_job(raw)
    assert job is not None
    return job


def applied(operations: list[Operation], raw: Raw) -> Raw:
    """The object after the API server has applied the patch."""
    result: Raw = jsonpatch.apply_patch(deepcopy(raw), operations)
    return result


def started(raw: Raw, plan: Plan, *, state: JobState | None = None) -> Raw:
    return applied(unsuspend_patch(raw, parsed(raw), plan, state=state), raw)


def template(raw: Raw, type_: str = "Worker") -> Raw:
    result: Raw = raw["spec"]["pytorchReplicaSpecs"][type_]["template"]
    return result


def preferred_terms(raw: Raw) -> list[Raw]:
    results: list[Raw] = template(raw)["spec"]["affinity"]["nodeAffinity"][PREFERRED]
    return results


def nodes_in(terms: list[Raw]) -> list[list[str]]:
    return [term["preference"]["matchFields"][0]["values"] for term in terms]


def test_a_start_unsuspends_the_job_under_its_plan_and_removes_the_mark_held() -> None:
    raw = gang().held().raw
    after = started(raw, a_plan("a", "b"))
    result = parsed(after)
    assert not result.suspend
    assert not result.held, "a later suspend is a person's"
    assert decode_plan(result.annotations[names.PLAN], job_uid="uid-1") == a_plan("a", "b")
    for type_ in ("Master", "Worker"):
        metadata = template(after, type_)["metadata"]
        assert metadata["annotations"][names.PLAN_GENERATION] == "1"
    assert nodes_in(preferred_terms(after)) == [["a"], ["b"]]


def _resumed(raw: Raw) -> None:
    raw["spec"]["runPolicy"]["suspend"] = False


def _recreated(raw: Raw) -> None:
    raw["metadata"]["uid"] = "uid-2"


def _scaled(raw: Raw) -> None:
    raw["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = 5


def _taken_over(raw: Raw) -> None:
    del raw["metadata"]["annotations"][names.HELD]


MEANWHILE = {
    "resumed by a person": _resumed,
    "deleted and created again": _recreated,
    "scaled": _scaled,
    "suspended by a person, who removed kfext's mark": _taken_over,
}


@pytest.mark.parametrize("change", MEANWHILE.values(), ids=MEANWHILE.keys())
def test_a_start_fails_if_the_job_has_changed(change: Any) -> None:
    raw = gang().held().raw
    operations = unsuspend_patch(raw, parsed(raw), a_plan("a", "b"))
    change(raw)
    with pytest.raises(jsonpatch.JsonPatchException):
        applied(operations, raw)


@pytest.mark.parametrize("change", [_recreated, _scaled], ids=["created again", "scaled"])
@pytest.mark.parametrize("patch", ["replan", "stop", "forget", "rescale", "release", "save"])
def test_every_patch_tests_its_preconditions(patch: str, change: Any) -> None:
    raw = gang().resumed().raw
    result = parsed(raw)
    operations = {
        "replan": lambda: replan_patch(raw, result, a_plan("a", "b", generation=2)),
        "stop": lambda: suspend_patch(raw, result, JobState(strikes=1)),
        "forget": lambda: forget_plan_patch(raw, result, JobState(generation=1)),
        "rescale": lambda: rescale_patch(
            raw,
            result,
            a_plan("a", generation=2),
            workers=1,
            state=JobState(requested=2, assigned=1),
        ),
        "release": lambda: release_patch(raw, result, RELEASE),
        "save": lambda: save_state_patch(raw, result, JobState(strikes=1)),
    }[patch]()
    assert applied(operations, raw) != raw
    change(raw)
    with pytest.raises(jsonpatch.JsonPatchException):
        applied(operations, raw)


def test_a_job_that_a_person_resumed_and_suspends_again_stays_suspended() -> None:
    raw = gang().held().resumed().raw
    raw = applied(save_state_patch(raw, parsed(raw), JobState()), raw)
    raw["spec"]["runPolicy"]["suspend"] = True
    assert not parsed(raw).held


def test_saving_the_state_of_a_queued_job_leaves_it_held() -> None:
    raw = gang().held().raw
    assert parsed(applied(save_state_patch(raw, parsed(raw), JobState(strikes=1)), raw)).held


def test_status_writes_of_the_operator_do_not_conflict() -> None:
    raw = gang().held().raw
    operations = unsuspend_patch(raw, parsed(raw), a_plan("a", "b"))
    raw["metadata"]["resourceVersion"] = "99"
    raw["status"] = {"conditions": [{"type": "Suspended", "status": "True"}]}
    assert not parsed(applied(operations, raw)).suspend


DEFAULTS: dict[str, Any] = {"written as null": None, "not written": ...}


@pytest.mark.parametrize("replicas", DEFAULTS.values(), ids=DEFAULTS.keys())
def test_a_start_without_a_stated_number_of_replicas(replicas: Any) -> None:
    raw = gang().held().raw
    spec = raw["spec"]["pytorchReplicaSpecs"]["Worker"]
    if replicas is ...:
        del spec["replicas"]
    else:
        spec["replicas"] = replicas
    assert not parsed(started(raw, a_plan("a"))).suspend


AFFINITIES: dict[str, Raw] = {
    "required": affinity_to("x"),
    "preferred nodes": {"nodeAffinity": {PREFERRED: [ZONE]}},
    "preferred by name, in another form": {"nodeAffinity": {PREFERRED: [NOT_BAD]}},
    "preferred by name, but two nodes at once": {"nodeAffinity": {PREFERRED: [by_name("x", "y")]}},
    "preferred by name, at less weight": {
        "nodeAffinity": {PREFERRED: [{**by_name("x"), "weight": 99}]}
    },
    "pods": {"podAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": {}}]}},
    "anti": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}},
    "all": {
        **affinity_to("x"),
        "podAntiAffinity": {PREFERRED: [{"weight": 7}]},
        "podAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": {}}]},
    },
    "none": {},
    "null": {"nodeAffinity": None},
}


def contains(after: Any, before: Any) -> bool:
    """Whether everything in `before` is still in `after`, where lists may be longer."""
    if isinstance(before, dict):
        return all(contains(after.get(key), value) for key, value in before.items())
    if isinstance(before, list):
        return bool(after[: len(before)] == before)
    return before is None or bool(after == before)


@pytest.mark.parametrize("affinity", AFFINITIES.values(), ids=AFFINITIES.keys())
def test_a_users_affinity_is_never_lost(affinity: Raw) -> None:
    raw = with_affinity(affinity).raw
    first = started(raw, a_plan("a", "b"))
    first["spec"]["runPolicy"]["suspend"] = True
    first["metadata"]["annotations"][names.HELD] = "true"
    second = started(first, a_plan("c", "c", generation=2))
    released = applied(release_patch(second, parsed(second), RELEASE), second)
    for after in (first, second, released):
        assert contains(template(after)["spec"]["affinity"], affinity)


def test_a_new_plan_replaces_the_preference_of_the_last_plan_and_nothing_else() -> None:
    raw = started(with_affinity({"nodeAffinity": {PREFERRED: [ZONE]}}).raw, a_plan("a", "b"))
    stopped = applied(suspend_patch(raw, parsed(raw), JobState(strikes=1)), raw)
    after = started(stopped, a_plan("b", "c", generation=2))
    assert preferred_terms(after)[0] == ZONE
    assert nodes_in(preferred_terms(after)[1:]) == [["b"], ["c"]]


def test_stop_suspends_and_marks_the_job_and_removes_the_plan() -> None:
    raw = started(gang().held().raw, a_plan("a", "b"))
    state = JobState(strikes=2, suspended_at=7.0, reason="R", message="M")
    result = parsed(applied(suspend_patch(raw, parsed(raw), state), raw))
    assert result.suspend
    assert result.held
    assert names.PLAN not in result.annotations
    assert state_in(result.annotations[names.STATE]) == state


def test_deleting_the_plan_leaves_the_job_suspended_but_not_held() -> None:
    raw = started(gang().held().raw, replace(a_plan("a", "b"), port=20000))
    raw["spec"]["runPolicy"]["suspend"] = True
    state = JobState(generation=1)
    after = applied(forget_plan_patch(raw, parsed(raw), state), raw)
    result = parsed(after)
    assert result.suspend
    assert not result.held
    assert names.PLAN not in result.annotations
    assert names.PORT_BASE not in str(after["spec"])
    assert state_in(result.annotations[names.STATE]) == state


def test_the_plan_of_a_job_that_was_resumed_meanwhile_stays() -> None:
    raw = started(gang().held().raw, a_plan("a", "b"))
    raw["spec"]["runPolicy"]["suspend"] = True
    operations = forget_plan_patch(raw, parsed(raw), JobState(generation=1))
    _resumed(raw)
    with pytest.raises(jsonpatch.JsonPatchException):
        applied(operations, raw)


def test_stop_removes_the_ports_of_the_host_network() -> None:
    raw = started(gang().held().raw, replace(a_plan("a", "b"), port=20000))
    after = applied(suspend_patch(raw, parsed(raw), JobState()), raw)
    assert names.PORT_BASE in str(raw["spec"])
    assert names.PORT_BASE not in str(after["spec"])


def test_stop_of_a_job_without_the_field_suspend() -> None:
    raw = gang().raw
    del raw["spec"]["runPolicy"]
    result = parsed(applied(suspend_patch(raw, parsed(raw), JobState()), raw))
    assert result.suspend
    assert result.held


def test_release_lets_the_job_start_and_its_pods_prefer_each_other() -> None:
    raw = gang().held().annotated(names.PLAN, "{}").raw
    after = applied(release_patch(raw, parsed(raw), RELEASE), raw)
    result = parsed(after)
    assert result.released
    assert not result.suspend
    assert not result.held
    assert names.PLAN not in result.annotations
    for type_ in ("Master", "Worker"):
        released = template(after, type_)
        assert released["metadata"]["annotations"][names.RELEASED] == names.REASON_TOO_BIG
        (term,) = released["spec"]["affinity"]["podAffinity"][PREFERRED]
        assert term["weight"] == 100
        assert term["podAffinityTerm"]["topologyKey"] == names.HOSTNAME


def test_release_removes_the_preference_for_planned_nodes() -> None:
    raw = started(with_affinity({"nodeAffinity": {PREFERRED: [ZONE]}}).raw, a_plan("a", "b"))
    after = applied(release_patch(raw, parsed(raw), RELEASE), raw)
    assert preferred_terms(after) == [ZONE]


def test_release_records_the_reason_and_adds_nothing_to_templates() -> None:
    raw = gang().held().raw
    after = applied(release_patch(raw, parsed(raw), RELEASE), raw)
    assert state_in(after["metadata"]["annotations"][names.STATE]).message == "too big"
    assert template(after)["spec"]["affinity"].keys() == {"podAffinity"}


@pytest.mark.parametrize("before", [None, JobState(requested=12, message="not bound in time")])
def test_a_release_by_the_user_does_not_change_the_state(before: JobState | None) -> None:
    builder = gang().held().annotated(names.PLAN, "{}")
    if before:
        builder.annotated(names.STATE, before.encode(job_uid="uid-1"))
    raw = builder.raw
    after = applied(user_release_patch(raw, parsed(raw)), raw)
    marks, old_marks = after["metadata"]["annotations"], raw["metadata"]["annotations"]
    assert marks[names.RELEASED] == names.REASON_RELEASED_BY_USER
    assert not marks.keys() & {names.PLAN, names.HELD}
    assert marks.get(names.STATE) == old_marks.get(names.STATE)
    assert not parsed(after).suspend
    released = applied(release_patch(raw, parsed(raw), RELEASE), raw)
    assert template(after)["spec"] == template(released)["spec"]


def test_every_state_that_is_written_names_its_job() -> None:
    raw = gang().held().raw
    short = JobState(strikes=1, requested=2, assigned=1)
    patches = (
        unsuspend_patch(raw, parsed(raw), a_plan("a"), state=short),
        suspend_patch(raw, parsed(raw), short),
        save_state_patch(raw, parsed(raw), short),
        release_patch(raw, parsed(raw), RELEASE),
    )
    for patch in patches:
        assert state_of(parsed(applied(patch, raw))) != JobState()


def test_a_second_release_changes_nothing() -> None:
    raw = gang().held().raw
    once = applied(release_patch(raw, parsed(raw), RELEASE), raw)
    assert applied(release_patch(once, parsed(once), RELEASE), once) == once


def test_release_does_not_resume_a_job_that_a_person_suspended() -> None:
    raw = gang().suspended().raw
    assert parsed(applied(release_patch(raw, parsed(raw), RELEASE), raw)).suspend


def test_release_of_a_kueue_job_changes_neither_suspend_nor_templates() -> None:
    raw = gang().held().queued_by_kueue().raw
    after = applied(release_patch(raw, parsed(raw), RELEASE), raw)
    assert after["spec"] == raw["spec"]
    assert parsed(after).released


@pytest.mark.parametrize("key", ["Worker", "worker", "WORKER"])
def test_replica_types_in_any_case(key: str) -> None:
    raw = job().group(key, 2, cpu="1").held().raw
    after = started(raw, a_plan("a", "a"))
    assert set(after["spec"]["pytorchReplicaSpecs"]) == {key}
    assert names.PLAN_GENERATION in template(after, key)["metadata"]["annotations"]


def test_saving_an_unchanged_state_writes_nothing() -> None:
    raw = gang().resumed().raw
    once = applied(save_state_patch(raw, parsed(raw), JobState(strikes=1)), raw)
    again = save_state_patch(once, parsed(once), JobState(strikes=1))
    assert {operation["op"] for operation in again} == {"test"}


# --- elastic jobs that start below their requested size ---------------------------------------


def elastic_job(workers: int) -> Raw:
    return job().worker(workers, cpu="1").held().elastic().raw


def test_a_job_that_starts_below_its_requested_size_is_scaled_down_and_keeps_the_size() -> None:
    raw = started(elastic_job(8), a_plan(*"aaaaa"), state=JobState(requested=8, assigned=5))
    result = parsed(raw)
    assert (result.suspend, workers_of(result)) == (False, 5)
    assert state_in(raw["metadata"]["annotations"][names.STATE]).requested == 8


def test_a_job_that_starts_at_its_requested_size_gets_no_state() -> None:
    raw = started(elastic_job(8), a_plan(*"aaaaaaaa"))
    assert names.STATE not in raw["metadata"]["annotations"]


def test_a_stop_restores_the_requested_size() -> None:
    raw = started(elastic_job(8), a_plan(*"aaaaa"), state=JobState(requested=8, assigned=5))
    result = parsed(raw)
    state = state_in(raw["metadata"]["annotations"][names.STATE])
    stopped = applied(suspend_patch(raw, result, state), raw)
    result = parsed(stopped)
    assert (result.suspend, workers_of(result)) == (True, 8)
    assert state_in(stopped["metadata"]["annotations"][names.STATE]).requested == 0


def test_a_stop_keeps_the_size_that_a_person_has_set() -> None:
    raw = started(elastic_job(8), a_plan(*"aaaaa"), state=JobState(requested=8, assigned=5))
    raw["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = 3
    edited = parsed(raw)
    state = state_in(raw["metadata"]["annotations"][names.STATE])
    stopped = applied(suspend_patch(raw, edited, state), raw)
    assert stopped["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] == 3


def tensorflow_job(workers: int, *, dynamic: bool) -> Raw:
    builder = job("TFJob").ps(1).worker(workers).held()
    builder.raw["spec"]["enableDynamicWorker"] = dynamic
    return builder.raw


SHORT, LARGER = JobState(requested=4, assigned=3), JobState(requested=4, assigned=6)
SIZES: dict[str, tuple[Raw, JobState, bool, int]] = {
    "torchrun admits more workers": (elastic_job(3), SHORT, True, 4),
    "parameter servers with dynamic workers admit more": (
        tensorflow_job(3, dynamic=True), SHORT, True, 4
    ),
    "workers with a fixed list of peers": (tensorflow_job(3, dynamic=False), SHORT, True, 3),
    "the same, but none runs": (tensorflow_job(3, dynamic=False), SHORT, False, 4),
    "workers of torchrun, but none runs": (elastic_job(3), SHORT, False, 4),
    "a running worker is not removed": (elastic_job(6), LARGER, True, 6),
    "a worker that does not run is removed": (elastic_job(6), LARGER, False, 4),
    "a size that another client has set is kept": (elastic_job(2), SHORT, True, 2),
    "a job at its requested size keeps it": (elastic_job(3), JobState(), True, 3),
}  # fmt: skip


@pytest.mark.parametrize("by_user", [False, True], ids=["by kfext", "by its user"])
@pytest.mark.parametrize(("raw", "state", "runs", "want"), SIZES.values(), ids=SIZES)
def test_the_size_of_a_released_job(
    raw: Raw, state: JobState, *, runs: bool, want: int, by_user: bool
) -> None:
    raw = deepcopy(raw)
    annotations = raw["metadata"]["annotations"]
    annotations[names.STATE] = state.encode(job_uid=parsed(raw).uid)
    if runs:
        del annotations[names.HELD]
        raw["spec"]["runPolicy"]["suspend"] = False
    result = parsed(raw)
    patch = user_release_patch(raw, result) if by_user else release_patch(raw, result, RELEASE)
    after = parsed(applied(patch, raw))
    assert (after.released, after.suspend, workers_of(after)) == (True, False, want)
    if want == state.requested:
        assert requested_workers(after, state_of(after)) == want


# --- the host network -------------------------------------------------------------------------

ON_HOST = replace(a_plan("a", "b"), port=20000)


def test_every_template_has_the_base_and_the_interfaces() -> None:
    raw = gang().held().raw
    after = applied(unsuspend_patch(raw, parsed(raw), ON_HOST, interfaces=("ib0", "eth0")), raw)
    for type_ in ("Master", "Worker"):
        annotations = template(after, type_)["metadata"]["annotations"]
        assert annotations[names.PORT_BASE] == "20000"
        assert annotations[names.INTERFACES] == "ib0,eth0"


def test_on_the_pod_network_templates_have_neither_base_nor_interfaces() -> None:
    raw = gang().held().raw
    patch = unsuspend_patch(raw, parsed(raw), a_plan("a", "b"), interfaces=("ib0",))
    annotations = template(applied(patch, raw))["metadata"]["annotations"]
    assert annotations.keys() == {names.PLAN_GENERATION}


def test_a_later_plan_for_the_pod_network_removes_the_base() -> None:
    raw = started(gang().held().raw, ON_HOST)
    raw["spec"]["runPolicy"]["suspend"] = True
    raw["metadata"]["annotations"][names.HELD] = "true"
    annotations = template(started(raw, a_plan("a")))["metadata"]["annotations"]
    assert names.PORT_BASE not in annotations


@pytest.mark.parametrize("runs", [True, False])
def test_release_removes_the_base_unless_pods_may_exist_already(runs: bool) -> None:
    raw = started(gang().held().raw, ON_HOST)
    raw["spec"]["runPolicy"]["suspend"] = not runs
    after = applied(release_patch(raw, parsed(raw), RELEASE), raw)
    assert (names.PORT_BASE in template(after)["metadata"]["annotations"]) == runs


def test_templates_prefer_at_most_16_nodes_else_none() -> None:
    nodes = [f"n{number:02}" for number in range(17)]
    raw = job().worker(17, cpu="1").held().raw
    few = started(raw, a_plan(*nodes[:16]))
    assert nodes_in(preferred_terms(few)) == [[name] for name in nodes[:16]]
    assert "affinity" not in template(started(raw, a_plan(*nodes)))["spec"]


def test_a_plan_for_many_nodes_removes_an_earlier_preference() -> None:
    raw = with_affinity({"nodeAffinity": {PREFERRED: [ZONE, by_name("old")]}}).raw
    after = started(raw, a_plan(*(f"n{number}" for number in range(17))))
    assert preferred_terms(after) == [ZONE]


def test_the_largest_gang_starts_by_a_patch_that_the_api_server_accepts() -> None:
    raw = job().worker(MAX_PODS, cpu="1").held().raw
    places = {ReplicaKey("worker", at): f"gpu-node-{at % 5000:05}" for at in range(MAX_PODS)}
    plan = Plan("uid-1", 1, places)
    patch = unsuspend_patch(raw, parsed(raw), plan)
    written = len(plan.encode())
    assert plan_excess(written, other_bytes=0) == ""
    assert len(json.dumps(patch)) < 1.5 * written
    assert len(json.dumps(template(applied(patch, raw)))) < 1000


def test_D6_a_rescale_is_one_patch_of_workers_plan_and_state() -> None:
    raw = job().master().worker(3).resumed().raw
    plan, state = a_plan("a", "b", generation=2), JobState(requested=3, assigned=1)
    result = applied(rescale_patch(raw, parsed(raw), plan, workers=1, state=state), raw)
    assert decode_plan(result["metadata"]["annotations"][names.PLAN], job_uid="uid-1") == plan
    assert state_of(parsed(result)) == state
    result["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = 3
    assert result["spec"] == raw["spec"]


def test_D6_a_job_suspended_to_be_resized_keeps_its_requested_size() -> None:
    raw = job("TFJob").ps(1).worker(3).resumed().raw
    state = JobState(requested=3, assigned=2)
    result = parsed(applied(suspend_patch(raw, parsed(raw), state, workers=2), raw))
    assert (result.suspend, result.held, workers_of(result)) == (True, True, 2)
    assert state_of(result) == state
