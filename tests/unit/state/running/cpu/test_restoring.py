"""Who last set the CPU of a pod, and when the user's CPU is restored."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.model.cpu_size import CpuSize
from kfext.model.cpu_state import REMEMBERED, CpuState, PodCpu, decode_cpu
from kfext.model.pod import Pod
from kfext.model.policy import Mode, PolicyChoice
from kfext.model.qos import QoS
from kfext.model.verdict import Verdict
from kfext.state.running.cpu.restoring import Owner, due_restore, owner_of, requested_of, with_sizes
from kfext.state.running.proposal import Proposal, Rank, Size
from tests.unit.state.running.jobs import job, pod, signals
from tests.unit.state.running.pods import REQUEST, running

RESIZE = frozenset({"resize"})
RECORDED = CpuState(
    requested={"worker": PodCpu(20, 1000)},
    written={"worker-0": (PodCpu(20, 350), PodCpu(370, 1000))},
    by=RESIZE,
)

OWNERS: dict[str, tuple[Pod, Owner]] = {
    "the user's CPU": (running(0, 1000), Owner.USER),
    "the CPU that was written last": (running(0, 350), Owner.KFEXT),
    "the previously written request": (running(0, 1000, request=370), Owner.KFEXT),
    "a written request with a different written limit": (running(0, 350, request=370), Owner.OTHER),
    "any other request": (running(0, 1000, request=300), Owner.OTHER),
    "any other limit": (running(0, 777), Owner.OTHER),
    "the CPU that was written to another pod": (running(1, 350), Owner.OTHER),
    "a type without a record": (running(0, 350, type_="ps"), Owner.USER),
    "a pod that is no replica": (running(0, 777, replica=None), Owner.USER),
}


@pytest.mark.parametrize(("pod", "want"), OWNERS.values(), ids=OWNERS)
def test_who_last_set_the_cpu_of_a_pod(pod: Pod, want: Owner) -> None:
    assert owner_of(pod, RECORDED) is want


def test_the_request_of_the_user_is_recorded_once_for_a_type() -> None:
    first = with_sizes(CpuState(), [(running(0, 1000), CpuSize(350))], policies=RESIZE)
    then = with_sizes(
        first, [(running(0, 350), CpuSize(500)), (running(1, 1000), CpuSize(500))], policies=RESIZE
    )
    assert requested_of(running(3), then) == first.requested["worker"] == PodCpu(REQUEST, 1000)
    assert requested_of(running(0, type_="ps"), then) is None


def test_the_users_cpu_of_single_pods_is_recorded_for_all_pods_before_the_first_write() -> None:
    pods = [running(0, 400), running(1, 800), running(2, 400, request=30), running(0, type_="ps")]
    first = with_sizes(CpuState(), [(pods[0], CpuSize(200))], policies=RESIZE, pods=pods)
    assert first.requested == {
        "worker": PodCpu(REQUEST, 400),
        "worker-1": PodCpu(REQUEST, 800),
        "worker-2": PodCpu(30, 400),
    }
    assert [owner_of(pod, first) for pod in pods] == [Owner.USER] * 4
    assert owner_of(running(1, 400), first) is Owner.OTHER
    assert decode_cpu(first.encode()) == first
    again = with_sizes(
        first, [(running(1, 800), CpuSize(300))], policies=RESIZE, pods=[running(0, 200)]
    )
    assert again.requested == first.requested


def test_a_pod_without_a_known_container_is_not_recorded() -> None:
    state = with_sizes(CpuState(), [(running(0, replica=None), CpuSize(1))], policies=RESIZE)
    assert (state.requested, state.written) == ({}, {})


def test_the_disabled_policies_stay_in_the_state() -> None:
    before = CpuState(disabled={"shift": "why"}, by=frozenset({"shift"}))
    after = with_sizes(before, [(running(0, 1000), CpuSize(350))], policies=RESIZE)
    assert (after.disabled, after.by) == (before.disabled, RESIZE)


requests = st.integers(1, 2000)
ARRIVES, LOST, DIED = "arrives", "its response is lost", "the controller dies before it"


@given(
    user=requests,
    writes=st.lists(st.tuples(requests, st.sampled_from([ARRIVES, LOST, DIED])), min_size=1),
)
def test_the_request_of_any_write_never_counts_as_a_foreign_request(
    user: int, writes: list[tuple[int, str]]
) -> None:
    """After a lost response, kfext has not observed the CPU that the pod really has."""
    state, really, seen = CpuState(), user, user
    for request, outcome in writes:
        size = CpuSize(request=request)
        state = with_sizes(state, [(running(0, request=seen), size)], policies=RESIZE)
        state = decode_cpu(state.encode())
        before, really = really, really if outcome == DIED else request
        for cpu in (before, seen, really):
            assert owner_of(running(0, request=cpu), state) is not Owner.OTHER
        seen = before if outcome == LOST else really
    assert len(state.written["worker-0"]) <= REMEMBERED


@given(user=requests, writes=st.lists(requests, min_size=1), other=requests)
def test_an_unrecorded_request_is_foreign(user: int, writes: list[int], other: int) -> None:
    state, now = CpuState(), user
    for request in writes:
        size = CpuSize(request=request)
        state = with_sizes(state, [(running(0, request=now), size)], policies=RESIZE)
        now = request
    if other not in {user, *writes}:
        assert owner_of(running(0, request=other), state) is Owner.OTHER


ACTS, OBSERVES = PolicyChoice(Mode.ACT), PolicyChoice(Mode.OBSERVE)
INFEASIBLE, DEFERRED = Verdict("Infeasible", "too much"), Verdict("Deferred", "no room")
DISABLED = {"resize": "why"}


def state(**fields: Any) -> CpuState:
    """The state of a job with a pod that resize has raised from 20m to 370m."""
    defaults: dict[str, Any] = {
        "requested": {"worker": PodCpu(20, 1000)},
        "written": {"worker-0": (PodCpu(370, 1000),)},
        "by": frozenset({"resize"}),
    }
    return CpuState(**{**defaults, **fields})


def restore(
    *,
    request: int = 370,
    observed: int | None = None,
    recorded: CpuState | None = None,
    chosen: Mapping[str, PolicyChoice] | None = None,
    undo: tuple[str, Verdict] | None = None,
    fit: bool = True,
    awaited: bool = False,
) -> Proposal | None:
    recorded = recorded or state()
    chosen = {"resize": ACTS, "shift": ACTS} if chosen is None else chosen
    user = request if request == 777 else REQUEST  # kfext never wrote 777
    worker = pod("worker-0", limit=1000, request=request, user_request=user)
    training_job = job("j", worker, policies=chosen if fit else {})
    here = signals(training_job)
    nodes = {name: replace(node, awaited=awaited) for name, node in here.nodes.items()}
    return due_restore(
        training_job,
        replace(here, nodes=nodes),
        pods=[running(0, 1000, request=request)],
        state=recorded,
        observed={} if observed is None else {"worker-0": PodCpu(observed, 1000)},
        chosen=chosen,
        undo=undo,
    )


RESTORED: dict[str, tuple[dict[str, Any], str]] = {
    "no policy may decide on the job any more": ({"fit": False}, "resize may no longer change"),
    "the job has opted out": ({"chosen": {}}, "resize may no longer change"),
    "a policy observes": ({"chosen": {"resize": OBSERVES, "shift": OBSERVES}}, "no longer change"),
    "the policy was switched off": ({"chosen": {"shift": ACTS}}, "resize may no longer change"),
    "a policy is disabled": ({"recorded": state(disabled=DISABLED)}, "resize may no longer change"),
    "a kubelet did not set it": ({"undo": ("resize", DEFERRED)}, "no room"),
    "a pod waits for the CPU of its boost": ({"awaited": True}, "needs the free CPU of n1"),
}


@pytest.mark.parametrize(("case", "why"), RESTORED.values(), ids=RESTORED)
def test_the_users_cpu_is_restored_if(case: dict[str, Any], why: str) -> None:
    proposed = restore(**case)
    assert proposed is not None
    assert proposed.stages == ((Size("worker-0", request=REQUEST),),)
    assert (proposed.rank, proposed.measure) == (Rank.RESTORE, None)
    assert why in proposed.reason
    assert not proposed.disabled


NOT_RESTORED: dict[str, dict[str, Any]] = {
    "the policy may act": {},
    "a disabled policy has not written it": {"recorded": state(disabled={"shift": "why"})},
    "another policy is switched off": {"chosen": {"resize": ACTS}},
    "kfext has only written the request of another pod": {
        "request": REQUEST,
        "recorded": state(written={"worker-1": (PodCpu(370, 1000),)}),
    },
    "a pod waits for CPU, and there is no boost": {"request": REQUEST, "awaited": True},
    "nothing is resized": {"request": REQUEST, "chosen": {}},
    "a kubelet did not set the CPU, and the pod has the user's": {
        "request": REQUEST,
        "undo": ("resize", DEFERRED),
    },
}


@pytest.mark.parametrize("case", NOT_RESTORED.values(), ids=NOT_RESTORED)
def test_nothing_is_restored_if(case: dict[str, Any]) -> None:
    assert restore(**case) is None


@pytest.mark.parametrize(
    ("qos", "whole", "restored"),
    [
        pytest.param(QoS.GUARANTEED, False, True, id="Guaranteed pods: a new pod may not fit"),
        pytest.param(QoS.GUARANTEED, True, False, id="Guaranteed pods that all run"),
        pytest.param(QoS.BURSTABLE, False, False, id="Burstable pods: requests do not move"),
    ],
)
def test_shifted_cpu_is_restored_for_a_new_pod(qos: QoS, *, whole: bool, restored: bool) -> None:
    worker = pod("worker-0", limit=350, user_limit=1000, qos=qos)
    acts = {"shift": ACTS}
    training_job = job("j", worker, policies=acts, whole=whole)
    by = state(by=frozenset({"shift"}))
    proposed = due_restore(
        training_job, signals(training_job), pods=[], state=by, observed={}, chosen=acts, undo=None
    )
    assert (proposed is not None) is restored


def test_an_infeasible_size_disables_the_policy() -> None:
    proposed = restore(undo=("resize", INFEASIBLE))
    assert proposed is not None
    assert proposed.disabled == {"resize"}


FOREIGN: dict[str, dict[str, Any]] = {
    "a request that kfext never wrote": {"request": 777},
    "the user's request in place of kfext's": {"request": REQUEST, "observed": 370},
}


@pytest.mark.parametrize("case", FOREIGN.values(), ids=FOREIGN)
def test_a_foreign_change_stays_and_disables_every_policy(case: dict[str, Any]) -> None:
    proposed = restore(**case)
    assert proposed is not None
    assert proposed.disabled == {"resize", "shift"}
    assert proposed.stages == ()
    assert "kfext leaves it unchanged" in proposed.reason


def test_a_users_request_that_kfext_never_replaced_is_no_foreign_change() -> None:
    assert restore(request=REQUEST) is None
    restored = state(written={"worker-0": (PodCpu(REQUEST, 1000), PodCpu(370, 1000))})
    assert restore(request=REQUEST, observed=370, recorded=restored) is None


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(
            {"recorded": state(disabled=dict.fromkeys(["resize", "shift"], "why"))},
            id="a second time",
        ),
        pytest.param({"chosen": {}}, id="for a job that has opted out"),
    ],
)
def test_a_foreign_change_is_not_recorded(case: dict[str, Any]) -> None:
    assert restore(request=777, **case) is None
