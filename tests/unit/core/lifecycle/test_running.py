"""A job that is not suspended: the barrier, the pins by priority, and the wait for binding."""

import pytest

from kfext.core.ledger.claim import Claim
from kfext.core.ledger.claims import plan_claims, pod_claim, pod_key
from kfext.core.ledger.ledger import Ledger
from kfext.core.ledger.ports import block
from kfext.core.lifecycle.next_step import next_step
from kfext.core.lifecycle.situation import QueueContext, Situation
from kfext.core.lifecycle.steps import DeleteUnbound, Pin, Replan, SaveState, Suspend, Wait
from kfext.core.observed import observed
from kfext.core.settings.table import Settings
from kfext.model.job import TrainingJob
from kfext.model.job_state import JobState
from kfext.model.limit import Excluded, Limit
from kfext.model.parameters import Placement
from kfext.model.plan import Plan
from kfext.model.pod import Pod, ReplicaKey
from kfext.names import (
    BINDING,
    COLOCATION,
    GATED,
    PLACED,
    PLACES,
    PLANNED,
    REASON_CREATE_TIMEOUT,
    REASON_FOREIGN_GATE,
    REASON_NO_ROOM,
)
from tests.builders import job, ledger, node, pod, pods
from tests.unit.core.lifecycle.cases import (
    NOW,
    ON_A,
    RACKS,
    RUNNING,
    TWO_NODES,
    Case,
    begun,
    check_case,
    full,
    moved_to,
    partly_reserved,
    phase,
    plan,
    reservation,
    stopped,
    three,
    worker,
    workers,
)
from tests.unit.core.lifecycle.hosted import ON_HOST, gang, ledger_of, planned, started, step_of

TOLERATION = {"key": "dedicated", "operator": "Equal", "value": "team", "effect": "NoSchedule"}
DEDICATED = ledger(node("a", cpu="4", taints=[{**TOLERATION}]))
OF_POOL = workers(gated=True, spec={"tolerations": [TOLERATION]})
FAILED_ON_A = {"failed_on": frozenset("a"), "doubted": frozenset("a")}
BORN_PINNED = three().resumed()
BORN_PINNED.raw["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["metadata"] = {
    "annotations": {PLACES: "{}"}
}
LEARNT = JobState(observed=observed(RUNNING, OF_POOL, JobState(), plan=None))
BARRIER: dict[str, Case] = {
    "admission added the toleration for the planned node: it is recorded first": begun(
        SaveState, OF_POOL, on=DEDICATED, check=lambda step: step.state == LEARNT
    ),
    "it is recorded, and the pods are pinned": begun(Pin, OF_POOL, state=LEARNT, on=DEDICATED),
    "a toleration that the planned node does not need costs no write": begun(Pin, OF_POOL),
    "resumed by hand: from now on a suspend is a person's": Case(
        SaveState,
        three().held().resumed(),
        workers(gated=True),
        check=lambda step: step.state == JobState(),
    ),
    "no plan, no gate: not handled": Case(Wait, three().resumed(), workers(), check=phase(None)),
    "no pod yet": begun(Wait, check=lambda step: phase(PLANNED)(step) and step.again == 30.0),
    "some pods": begun(
        Wait,
        workers(gated=True)[:2],
        more={"waited": 50.0, "quiet": 20.0},
        check=lambda step: (
            phase(PLANNED)(step) and "2 of 3" in step.verdict.message and step.again == 10.0
        ),
    ),
    "the operator is busy with another job's pods": begun(
        Wait, workers(gated=True)[:2], more={"waited": 9e9, "quiet": 29.0}, check=phase(PLANNED)
    ),
    "pods do not come": begun(
        Suspend,
        workers(gated=True)[:2],
        more={"waited": 30.0, "quiet": 30.0},
        check=stopped(REASON_CREATE_TIMEOUT, 1),
    ),
    "pods do not come, of a job that Kueue started": Case(
        Wait,
        three().resumed().queued_by_kueue(),
        workers(gated=True)[:2],
        more={"waited": 9e9, "quiet": 9e9},
        check=lambda step: phase(PLANNED)(step) and step.again is None,
    ),
    "a stop keeps the number of the plan that it removes": begun(
        Suspend,
        workers(gated=True)[:2],
        plan=plan("a", "a", "a", generation=7),
        more={"waited": 30.0, "quiet": 30.0},
        check=lambda step: step.state.generation == 7,
    ),
    "a lost member is not recreated, others run, and no pod is gated": begun(
        Wait,
        workers(bound="a")[:2],
        more={"waited": 9e9, "quiet": 9e9},
        check=lambda step: phase(PLACED)(step) and step.again is None,
    ),
    "one of two lost members is recreated, at the gate": begun(
        Wait, [worker(0, bound="a"), worker(1, gated=True)], check=phase(GATED)
    ),
    "all pods exist and the plan still fits": begun(
        Pin,
        workers(gated=True),
        plan=plan("b", "a", "a"),
        check=lambda step: [node for _, node in step.pins] == ["b", "a", "a"],
    ),
    "a pod that is being deleted does not count": begun(
        Wait, [*workers(gated=True)[:2], worker(2, deleting=True)], check=phase(PLANNED)
    ),
    "a pod beyond the replicas is ignored": begun(
        Pin,
        [*workers(gated=True), pod(RUNNING, "worker", 3, gated=True)],
        check=lambda step: len(step.pins) == 3,
    ),
    "a pod beyond the replicas does not replace a missing pod": begun(
        Wait,
        [*workers(gated=True)[:2], pod(RUNNING, "worker", 3, gated=True)],
        check=phase(PLANNED),
    ),
    "a gate of another system": begun(
        Wait,
        [*workers(gated=True)[:2], worker(2, gated=True, gates=["other/gate"])],
        check=phase(GATED, REASON_FOREIGN_GATE),
    ),
    "the planned node has become full": begun(
        Replan,
        workers(gated=True),
        on=ledger(node("a", cpu="4"), node("b", cpu="4"), used={"a": {"cpu": "2"}}),
        check=lambda step: moved_to("b", "b", "b")(step) and step.plan.generation == 2,
    ),
    "the planned node was removed": begun(
        Replan,
        workers(gated=True),
        plan=plan("gone", "gone", "gone"),
        check=moved_to("a", "a", "a"),
    ),
    "the planned node was cordoned": begun(
        Replan,
        workers(gated=True),
        on=ledger(node("a", cordoned=True), node("b")),
        check=moved_to("b", "b", "b"),
    ),
    "its start failed on the planned node: it goes to another": begun(
        Replan,
        workers(gated=True),
        more=FAILED_ON_A,
        check=lambda step: (
            moved_to("b", "b", "b")(step)
            and step.verdict.message == "the pods go to b; pods failed at their start on a"
        ),
    ),
    "its start failed on the planned node, and no other has capacity: a new plan for it": begun(
        Replan,
        workers(gated=True),
        on=ledger(node("a", cpu="4")),
        more=FAILED_ON_A,
        check=lambda step: moved_to("a", "a", "a")(step) and step.plan.generation == 2,
    ),
    "its start failed on the planned node under an earlier plan": begun(
        Pin, workers(gated=True), more={"doubted": frozenset("a")}
    ),
    "a pod failed at its start on the planned node, where others run: it joins them": begun(
        Pin, [*workers(bound="a", phase="Running")[:2], worker(2, gated=True)], more=FAILED_ON_A
    ),
    "it failed there twice, and another node has capacity: it goes there": begun(
        Replan,
        [*workers(bound="a", phase="Running")[:2], worker(2, gated=True)],
        more={**FAILED_ON_A, "blamed": frozenset("a")},
        check=moved_to("a", "a", "b"),
    ),
    "it failed there twice, and no other node has capacity: a new plan for it": begun(
        Replan,
        [*workers(bound="a", phase="Running")[:2], worker(2, gated=True)],
        on=ledger(node("a", cpu="4")),
        more={**FAILED_ON_A, "blamed": frozenset("a")},
        check=moved_to("a", "a", "a"),
    ),
    "a pod failed at its start while others are created: the next one is not born pinned": Case(
        SaveState,
        BORN_PINNED,
        workers(bound="a", phase="Failed")[:1],
        ON_A,
        more=FAILED_ON_A,
        check=lambda step: step.state == JobState(),
    ),
    "no node has capacity any more": begun(
        Suspend, workers(gated=True), on=full(), check=stopped(REASON_NO_ROOM, 0)
    ),
    "no node has capacity any more, for a job that Kueue started": Case(
        Wait,
        three().resumed().queued_by_kueue(),
        workers(gated=True),
        on=full(),
        check=phase(GATED, REASON_NO_ROOM),
    ),
    "required, and the capacity is fragmented": begun(
        Suspend,
        workers(gated=True),
        on=ledger(
            node("a", cpu="4"), node("b", cpu="4"), used={"a": {"cpu": "2"}, "b": {"cpu": "2"}}
        ),
        more={"colocation": "required"},
        check=stopped(REASON_NO_ROOM, 0),
    ),
    "no node has capacity any more after a back-off: tried again at once": begun(
        Suspend,
        workers(gated=True),
        state=JobState(strikes=1, retry_at=NOW + 60),
        on=full(),
        check=lambda step: (step.state.strikes, step.state.retry_at) == (1, 0.0),
    ),
    "its capacity has been reserved for another job: the running job goes first": begun(
        Pin,
        workers(gated=True),
        on=partly_reserved(),
        more={"context": QueueContext(reservation=reservation())},
    ),
    "a member that has ended attracts no pod": Case(
        Replan,
        three().resumed(),
        [worker(0, bound="b", phase="Succeeded"), *workers(gated=True)[1:]],
        check=lambda step: step.plan.nodes == ("a",),
    ),
    "planned from the pods by the topology of the policy": Case(
        Replan,
        job().worker(2, cpu="3").resumed(),
        pods(job().worker(2, cpu="3").build(), gated=True),
        on=RACKS,
        more={"placement": Placement(topology_keys=("rack",))},
        check=moved_to("b", "c"),
    ),
    "resumed by hand: planned from the pods": Case(
        Replan,
        three().resumed(),
        workers(gated=True),
        check=lambda step: moved_to("a", "a", "a")(step) and step.plan.generation == 1,
    ),
    "started by Kueue: planned from the pods": Case(
        Replan, three().resumed().queued_by_kueue(), workers(gated=True), check=moved_to(*"aaa")
    ),
    "part of the gang was created ungated and is bound: it stays there": Case(
        Replan,
        three().resumed(),
        [worker(0, bound="b"), *workers(gated=True)[1:]],
        check=moved_to("b", "b", "b"),
    ),
    "part of the gang was created ungated and is not bound, the plan still fits": begun(
        Pin,
        [worker(0), *workers(gated=True)[1:]],
        check=lambda step: [node for _, node in step.pins] == ["a", "a"],
    ),
    "part of the gang was created ungated, the capacity is gone: kfext awaits its nodes": (
        begun(
            Wait,
            [worker(0), *workers(gated=True)[1:]],
            plan=plan("gone", "gone", "gone"),
            more={"waited": 20.0},
            check=lambda step: phase(GATED)(step) and step.again == 40.0,
        )
    ),
    "part of the gang was created ungated and is never bound: the rest is not held forever": begun(
        Replan,
        [worker(0), *workers(gated=True)[1:]],
        plan=plan("gone", "gone", "gone"),
        more={"waited": 60.0},
        check=lambda step: len(step.plan.assignment) == 2,
    ),
    "the controller died when some of the pins were written": begun(
        Pin,
        [worker(0, pinned="b"), *workers(gated=True)[1:]],
        plan=plan("b", "b", "b"),
        check=lambda step: [(p.replica.index, to) for p, to in step.pins] == [(1, "b"), (2, "b")],
    ),
    "some of the pins are written, no capacity for the rest: nothing is stopped": begun(
        Wait,
        [worker(0, bound="b"), *workers(gated=True)[1:]],
        plan=plan("b", "b", "b"),
        on=full(),
        check=lambda step: phase(GATED, REASON_NO_ROOM)(step) and step.again == 60.0,
    ),
    "a member is never bound, and the rest has no capacity: that member moves first": begun(
        DeleteUnbound,
        [worker(0, pinned="b"), *workers(gated=True)[1:]],
        plan=plan("b", "gone", "gone"),
        on=full(),
        more={"waited": 60.0},
        check=lambda step: [p.replica.index for p in step.pods] == [0],
    ),
    "a member is not bound yet, and there is no capacity for the rest": begun(
        Wait,
        [worker(0, pinned="b"), *workers(gated=True)[1:]],
        plan=plan("b", "gone", "gone"),
        on=full(),
        more={"waited": 20.0},
        check=lambda step: phase(BINDING)(step) and step.again == 40.0,
    ),
    "a member of a running gang is recreated: it goes next to the survivors": begun(
        Replan,
        [worker(0, bound="b"), worker(1, bound="b"), worker(2, gated=True)],
        plan=plan("b", "b", "gone"),
        check=moved_to("b", "b", "b"),
    ),
    "admission gave a pod a larger request than its template": begun(
        Replan,
        [
            *workers(gated=True)[:2],
            worker(2, gated=True, spec={"containers": [{"resources": {"requests": {"cpu": "3"}}}]}),
        ],
        check=lambda step: len(step.plan.nodes) == 2,
    ),
}


@pytest.mark.parametrize("case", BARRIER.values(), ids=BARRIER.keys())
def test_all_pods_are_pinned_together(case: Case) -> None:
    check_case(case)


BINDS: dict[str, Case] = {
    "pinned, not bound yet": begun(
        Wait,
        workers(pinned="a"),
        more={"waited": 59.0},
        check=lambda step: phase(BINDING)(step) and step.again == 1.0,
    ),
    "all bound": begun(Wait, workers(bound="a"), check=phase(PLACED)),
    "all bound, some ended": begun(
        Wait,
        [*workers(bound="a")[:2], worker(2, bound="a", phase="Succeeded")],
        check=phase(PLACED),
    ),
    "all bound after failed attempts: the attempts are forgotten": begun(
        SaveState,
        workers(bound="b"),
        plan=plan("b", "b", "b"),
        state=JobState(strikes=2, excluded={"a": NOW + 9}, suspended_at=5.0, generation=3),
        check=lambda step: step.state == JobState(suspended_at=5.0, generation=3),
    ),
    "one pod is not bound in time: moved, the bound pods stay": begun(
        DeleteUnbound,
        [*workers(bound="a")[:2], worker(2, pinned="a", unschedulable="no volume here")],
        more={"waited": 60.0},
        check=lambda step: (
            [p.replica.index for p in step.pods] == [2]
            and step.state.strikes == 1
            and step.state.excluded == {"a": NOW + 300}
            and step.state.suspended_at == 0.0
            and "no volume here" in step.state.message
        ),
    ),
    "one pod is not bound in time, while another member is recreated again and again": begun(
        DeleteUnbound,
        [*workers(bound="a")[:2], worker(2, pinned="a")],
        more={"waited": 1.0, "unbound": {worker(2).uid: 60.0}},
        check=lambda step: [p.replica.index for p in step.pods] == [2],
    ),
    "one pod was pinned a moment ago, and nothing else changed for long": begun(
        Wait,
        [*workers(bound="a")[:2], worker(2, pinned="a")],
        more={"waited": 9e9, "unbound": {worker(2).uid: 50.0}},
        check=lambda step: phase(BINDING)(step) and step.again == 10.0,
    ),
    "one pod is not bound in time, like another before: both nodes are avoided": begun(
        DeleteUnbound,
        [*workers(bound="a")[:2], worker(2, pinned="a")],
        state=JobState(strikes=1, excluded={"c": NOW + 9}),
        more={"waited": 60.0},
        check=lambda step: step.state.excluded == {"c": NOW + 9, "a": NOW + 300},
    ),
    "a pod ended on a node that is now avoided: it stays": begun(
        Wait,
        [worker(0, pinned="a", phase="Failed"), *workers(pinned="b")[1:]],
        plan=plan("a", "b", "b"),
        state=JobState(excluded={"a": NOW + 9}),
        check=phase(BINDING),
    ),
    "a pod without a pin is left to kube-scheduler": begun(
        Wait, workers(), more={"waited": 9e9}, check=phase(BINDING)
    ),
    "two pods are pinned by an earlier plan: deleted at once, and no strike": begun(
        DeleteUnbound,
        [worker(0, bound="b"), worker(1, pinned="a"), worker(2, pinned="a")],
        plan=plan("b", "b", "b", generation=2),
        state=JobState(strikes=1),
        more={"waited": 2.0},
        check=lambda step: (
            [p.replica.index for p in step.pods] == [1, 2]
            and step.state.strikes == 1
            and step.state.excluded == {}
            and "earlier plan" in step.state.message
        ),
    ),
    "pinned by an earlier plan, or by a plan that kfext is about to see": begun(
        Wait,
        workers(pinned="a"),
        plan=plan("b", "b", "b", generation=2),
        more={"waited": 1.5},
        check=lambda step: phase(BINDING)(step) and step.again == 0.5,
    ),
    "bound where an earlier plan placed it: it stays there": begun(
        Wait,
        [worker(0, bound="a"), *workers(bound="b")[1:]],
        plan=plan("b", "b", "b", generation=2),
        check=phase(PLACED),
    ),
    "one pod of a required job is not bound in time: its node stays a candidate": begun(
        DeleteUnbound,
        [*workers(bound="a")[:2], worker(2, pinned="a")],
        more={"waited": 60.0, "colocation": "required"},
        check=lambda step: step.state.strikes == 1 and step.state.excluded == {},
    ),
    "no pod of a required job is bound in time: another node": begun(
        DeleteUnbound,
        workers(pinned="a"),
        more={"waited": 60.0, "colocation": "required"},
        check=lambda step: step.state.excluded == {"a": NOW + 300},
    ),
    "one pod of a required job is not bound for the third time: the job moves": begun(
        Suspend,
        [*workers(bound="a")[:2], worker(2, pinned="a")],
        state=JobState(strikes=2, excluded={"c": NOW + 9}),
        more={"waited": 60.0, "colocation": "required"},
        check=lambda step: step.state.excluded == {"c": NOW + 9, "a": NOW + 300},
    ),
}


@pytest.mark.parametrize("case", BINDS.values(), ids=BINDS.keys())
def test_the_wait_for_kube_scheduler(case: Case) -> None:
    check_case(case)


def test_only_a_job_on_few_nodes_keeps_a_node_where_members_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limit: dict[str, Limit] = {COLOCATION: Excluded(frozenset("c"))}
    monkeypatch.setattr(Settings, "node_limits", property(lambda _: limit))
    excluded = {"a": NOW + 300}
    check_case(
        begun(
            DeleteUnbound,
            [*workers(bound="a")[:2], worker(2, pinned="a")],
            more={"waited": 60.0},
            check=lambda step: step.state.excluded == excluded,
        )
    )


def test_a_plan_does_not_block_itself() -> None:
    capacity = ledger(node("a", cpu="3"))
    for key, claim in plan_claims(RUNNING, ON_A, workers(gated=True)).items():
        capacity.claim(key, claim)
    step = next_step(
        Situation(RUNNING, tuple(workers(gated=True)), ON_A, JobState(), NOW), capacity
    )
    assert isinstance(step, Pin)
    cordoned = JobState(excluded={"b": NOW + 1})
    capacity.set_node(node("b", cpu="3"))
    step = next_step(Situation(RUNNING, tuple(workers(gated=True)), None, cordoned, NOW), capacity)
    assert isinstance(step, Replan)
    assert step.plan.nodes == ("a",)


def test_the_rest_of_an_eviction_is_evicted_before_a_new_plan() -> None:
    state = JobState(strikes=1, excluded={"a": NOW + 300}, retry_at=NOW + 60)
    members = [worker(0, pinned="a"), worker(1, gated=True), worker(2, gated=True)]
    situation = Situation(RUNNING, tuple(members), plan("a", "a", "a"), state, NOW)
    step = next_step(situation, TWO_NODES)
    assert step == DeleteUnbound((members[0],), state)


def test_a_pod_bound_to_an_excluded_node_after_all_stays() -> None:
    state = JobState(strikes=1, excluded={"a": NOW + 300}, retry_at=NOW + 60)
    members = [worker(0, pinned="a", bound="a"), worker(1, gated=True), worker(2, gated=True)]
    situation = Situation(RUNNING, tuple(members), plan("a", "a", "a"), state, NOW)
    assert isinstance(next_step(situation, TWO_NODES), Replan)


# --- on the host network ----------------------------------------------------------------------


def agents(job: TrainingJob, *, bound: str = "") -> tuple[Pod, ...]:
    """Two workers on the host network, with the port that both declare; the first may run."""
    container = {"resources": {"requests": {"cpu": "2"}}, "ports": [{"containerPort": 20000}]}
    spec = {**ON_HOST, "containers": [container]}
    return (
        pod(job, "worker", 0, gated=not bound, bound=bound, spec=spec),
        pod(job, "worker", 1, gated=True, spec=spec),
    )


ELASTIC = job().worker(2, cpu="2").resumed().elastic(rdzvBackend="c10d")
APART = Plan("uid-1", 1, {ReplicaKey("worker", n): on for n, on in enumerate("ab")}, port=20000)


def with_agents(capacity: Ledger, job: TrainingJob, pods: tuple[Pod, ...]) -> Ledger:
    """The ledger with the claims of these pods and of the plan."""
    for key, claim in plan_claims(job, APART, pods).items():
        capacity.claim(key, claim)
    for placed in pods:
        if taken := pod_claim(placed):
            capacity.claim(pod_key(placed.uid), taken)
    return capacity


def test_elastic_workers_are_not_brought_together_once_they_have_started_on_the_host_network() -> (
    None
):
    job = ELASTIC.build()
    capacity = with_agents(ledger(node("a", cpu="4"), node("b", cpu="2")), job, agents(job))
    capacity.claim("thief", Claim(node="b", requests={"cpu": 2000}))
    assert isinstance(step_of(job, capacity, plan=APART, pods=agents(job)), Suspend)


def test_a_replaced_elastic_worker_on_the_host_network_goes_to_a_node_of_its_own() -> None:
    job = ELASTIC.build()
    pods = agents(job, bound="a")
    nodes = ledger(node("a", cpu="8"), node("b", cpu="2"), node("c", cpu="2"))
    capacity = with_agents(nodes, job, pods)
    capacity.claim("thief", Claim(node="b", requests={"cpu": 2000}))
    step = step_of(job, capacity, plan=APART, pods=pods)
    assert isinstance(step, Replan)
    assert step.plan.assignment[ReplicaKey("worker", 1)] == "c"


def test_a_gang_is_not_excluded_by_its_own_ports() -> None:
    job, plan = started("TFJob"), planned()
    listening = [
        pod(job, "worker", n, gated=True, spec={
            **ON_HOST,
            "containers": [{"resources": {"requests": {"cpu": "1"}},
                            "ports": [{"containerPort": number}]}]
        })
        for n, (_, number) in enumerate(block(job, plan.port))
    ]  # fmt: skip
    step = step_of(job, ledger_of(job, plan), plan=plan, pods=tuple(listening))
    assert isinstance(step, Pin)


def test_a_gang_that_moves_keeps_its_ports() -> None:
    job, plan = started(), planned()
    capacity = ledger_of(job, plan)
    capacity.claim("thief", Claim(node="a", requests={"cpu": 4000}))
    step = step_of(job, capacity, plan=plan, pods=gang(job))
    assert isinstance(step, Replan)
    assert step.plan.nodes == ("b",)
    assert step.plan.port == plan.port


HIGH = {"priority": 100}


def high(index: int, **more: object) -> Pod:
    return worker(index, spec=HIGH, **more)


TURNS: dict[str, Case] = {
    "equal members are pinned at once": begun(
        Pin,
        [worker(number, gated=True) for number in range(3)],
        check=lambda step: len(step.pins) == 3,
    ),
    "members of the highest priority are pinned first": begun(
        Pin,
        [worker(0, gated=True), high(1, gated=True), high(2, gated=True)],
        check=lambda step: (
            [pod.name for pod, _ in step.pins] == ["train-worker-1", "train-worker-2"]
        ),
    ),
    "members of lower priority wait until those are bound": begun(
        Wait,
        [worker(0, gated=True), high(1, bound="a"), high(2, pinned="a")],
        check=lambda step: phase(BINDING)(step) and step.again == 60.0,
    ),
    "members of lower priority are pinned then": begun(
        Pin,
        [worker(0, gated=True), high(1, bound="a"), high(2, bound="a")],
        check=lambda step: [pod.name for pod, _ in step.pins] == ["train-worker-0"],
    ),
    "an unbound member of lower priority keeps no other waiting": begun(
        Pin,
        [high(0, gated=True), worker(1, pinned="a"), worker(2, bound="a")],
        check=lambda step: [pod.name for pod, _ in step.pins] == ["train-worker-0"],
    ),
    "pods that are not bound in time are planned again": begun(
        DeleteUnbound,
        [worker(0, gated=True), high(1, bound="a"), high(2, pinned="a")],
        more={"waited": 60.0},
        check=lambda step: [pod.name for pod in step.pods] == ["train-worker-2"],
    ),
}


@pytest.mark.parametrize("case", TURNS.values(), ids=TURNS)
def test_members_are_pinned_by_priority(case: Case) -> None:
    check_case(case)
