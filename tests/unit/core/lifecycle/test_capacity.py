"""Where a queued job finds capacity, and where it does not."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from kfext.core.ledger.claim import Claim
from kfext.core.lifecycle.capacity import find_place
from kfext.core.lifecycle.next_step import next_step
from kfext.core.lifecycle.situation import Clocks, HostNetworkRequest, QueueContext, Situation
from kfext.core.lifecycle.steps import Release, Unsuspend, Wait
from kfext.core.queue.no_fit import NoFit, NoFitCache
from kfext.core.settings.resolve import resolve
from kfext.core.settings.table import Settings
from kfext.core.settings.values import Colocation, MetricsSource, Range
from kfext.model.job_state import JobState, ObservedPods
from kfext.model.parameters import Placement
from kfext.model.policy import Mode, PolicyChoice, TrainingPolicy
from kfext.model.timestamps import written_time
from kfext.names import (
    COLOCATION,
    QUEUED,
    REASON_HANDS_OFF,
    REASON_NO_ELIGIBLE_NODE,
    REASON_NO_ROOM,
    REASON_RESERVED,
    REASON_TOO_BIG,
)
from tests.builders import ANY_SIZE, JobBuilder, Raw, job, ledger, node, situation_of
from tests.unit.core.lifecycle.cases import (
    LITTLE_AND_LARGE,
    NOW,
    RACKS,
    Case,
    check_case,
    full,
    held,
    moved_to,
    partly_reserved,
    phase,
    reservation,
    three,
)

TAINT = [{"key": "dedicated", "value": "team", "effect": "NoSchedule"}]
NOT_READY = [{"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}]
SMALL = node("small", cpu="1")
POOL = ledger(node("pool", cpu="4", taints=TAINT), SMALL)
GROUP = three().build().groups[0]
SEEN = JobState(observed={"worker": ObservedPods(GROUP.template, GROUP.requests)})
STALE = JobState(observed={"worker": ObservedPods(GROUP.template + 1, GROUP.requests)})


def in_pool(step: Any) -> object:
    return step.plan.nodes == ("pool",) and step.verdict.message.endswith(
        "; admission is expected to add the tolerations for taint dedicated=team:NoSchedule"
    )


DEDICATED: dict[str, Case] = {
    "only a tainted pool fits the job, and its pods were never seen: one start shows": held(
        Unsuspend, on=POOL, check=in_pool
    ),
    "only a tainted pool fits the job, and colocation is required": held(
        Unsuspend, on=POOL, more={"colocation": "required"}, check=in_pool
    ),
    "its pods had another template": held(Unsuspend, state=STALE, on=POOL, check=in_pool),
    "its pods were seen without the toleration": held(
        Wait, state=SEEN, on=POOL, check=phase(QUEUED, REASON_TOO_BIG)
    ),
    "it fits other nodes, which are full: it waits for them": held(
        Wait,
        on=ledger(
            node("pool", cpu="4", taints=TAINT), node("b", cpu="4"), used={"b": {"cpu": "4"}}
        ),
        check=phase(QUEUED, REASON_NO_ROOM),
    ),
    "the pool is full: it waits for capacity there and is not released": held(
        Wait,
        on=ledger(node("pool", cpu="4", taints=TAINT), SMALL, used={"pool": {"cpu": "4"}}),
        more={"waited": 9e9, "never_fits": 9e9},
        check=lambda step: (
            phase(QUEUED, REASON_NO_ROOM)(step)
            and step.verdict.message.endswith("; admission is expected to add the tolerations")
        ),
    ),
    "the pool is too small": held(
        Wait,
        on=ledger(node("pool", cpu="2", taints=TAINT)),
        check=phase(QUEUED, REASON_NO_ELIGIBLE_NODE),
    ),
    "its nodes are excluded only temporarily": held(
        Wait,
        state=JobState(excluded={"b": NOW + 60}),
        on=ledger(node("pool", cpu="4", taints=TAINT), node("b", cpu="4")),
        check=phase(QUEUED, REASON_NO_ELIGIBLE_NODE),
    ),
    "a node that is not ready counts as no pool": held(
        Wait,
        on=ledger(node("a", cpu="4", taints=NOT_READY)),
        check=phase(QUEUED, REASON_NO_ELIGIBLE_NODE),
    ),
}


@pytest.mark.parametrize("case", DEDICATED.values(), ids=DEDICATED.keys())
def test_a_job_that_fits_only_a_tainted_pool(case: Case) -> None:
    check_case(case)


CAPACITY: dict[str, Case] = {
    "required colocation waits where preferred colocation uses two nodes": held(
        Wait,
        on=ledger(node("a", cpu="2"), node("b", cpu="4"), used={"b": {"cpu": "2"}}),
        more={"colocation": "required"},
        check=phase(QUEUED, REASON_NO_ROOM),
    ),
    "preferred colocation uses two nodes": held(
        Unsuspend,
        on=ledger(node("a", cpu="2"), node("b", cpu="4"), used={"b": {"cpu": "2"}}),
        check=lambda step: step.plan.nodes == ("a", "b"),
    ),
    "no node is possible": Case(
        Wait,
        job().worker(3, spec={"nodeSelector": {"zone": "x"}}).held(),
        check=phase(QUEUED, REASON_NO_ELIGIBLE_NODE),
    ),
    "more replicas than kfext can plan: rejected at once": Case(
        Release,
        job().worker(2**31 - 1, cpu="1").held(),
        check=lambda step: (
            step.verdict.reason == REASON_HANDS_OFF and "2147483647" in step.verdict.message
        ),
    ),
    "capacity is reserved for another job, until a known time": held(
        Wait,
        on=partly_reserved(),
        more={
            "context": QueueContext(
                reservation=reservation(NOW + 60), reserved_for="the head", awaited="x"
            )
        },
        check=lambda step: (
            phase(QUEUED, REASON_RESERVED)(step)
            and "reserved for the head" in step.verdict.message
            and "waits for x" in step.verdict.message
            and "00:17:40 UTC" in step.verdict.message
        ),
    ),
    "capacity is reserved for another job, until an unknown time": held(
        Wait,
        on=partly_reserved(),
        more={"context": QueueContext(reservation=reservation(math.inf), reserved_for="the head")},
        check=lambda step: (
            phase(QUEUED, REASON_RESERVED)(step)
            and "waits for capacity" in step.verdict.message
            and "is unknown (no deadline, no progress)" in step.verdict.message
        ),
    ),
    "capacity is reserved for another job, and would not suffice": held(
        Wait,
        on=partly_reserved(used="2"),
        more={"context": QueueContext(reservation=reservation(), reserved_for="the head")},
        check=lambda step: (
            phase(QUEUED, REASON_NO_ROOM)(step)
            and "2 cpu (kept for the head) free, 3 cpu short" in step.verdict.message
        ),
    ),
    "capacity is reserved for a job later in the queue": held(
        Unsuspend,
        on=partly_reserved(),
        more={"context": QueueContext(reservation=reservation(), may_use_reserved=True)},
        check=moved_to("a", "a", "a"),
    ),
    "no capacity, not even in the job's own reservation": held(
        Wait,
        on=partly_reserved(used="2"),
        more={"context": QueueContext(reservation=reservation(), may_use_reserved=True)},
        check=phase(QUEUED, REASON_NO_ROOM),
    ),
    "the job fits beside the reservation": Case(
        Unsuspend,
        job().worker(2, cpu="1").held(),
        on=partly_reserved(),
        more={"context": QueueContext(reservation=reservation())},
        check=moved_to("a", "a"),
    ),
    "the policy's topology decides": Case(
        Unsuspend,
        job().worker(2, cpu="3").held(),
        on=RACKS,
        more={"placement": Placement(topology_keys=("rack",))},
        check=moved_to("b", "c"),
    ),
    "without a topology, names decide": Case(
        Unsuspend, job().worker(2, cpu="3").held(), on=RACKS, check=moved_to("a", "b")
    ),
    "pods without requests are assumed to use little": Case(
        Unsuspend,
        job().worker(1).held(),
        on=LITTLE_AND_LARGE,
        more={"placement": Placement(assumed_burst=0)},
        check=moved_to("little"),
    ),
    "a node that failed to bind the pods is avoided": held(
        Unsuspend, state=JobState(excluded={"a": NOW + 1}), check=moved_to("b", "b", "b")
    ),
    "an avoided node is tried again after its time": held(
        Unsuspend, state=JobState(excluded={"a": NOW}), check=moved_to("a", "a", "a")
    ),
}


@pytest.mark.parametrize("case", CAPACITY.values(), ids=CAPACITY.keys())
def test_where_there_is_capacity(case: Case) -> None:
    check_case(case)


def test_C2_a_start_on_more_nodes_than_needed_gives_the_reason() -> None:
    free = ledger(node("a", cpu="7"), node("b", cpu="5"), node("c", cpu="4"), node("d", cpu="4"))
    held = job().worker(12, cpu="1").held().build()
    step = next_step(Situation(held, (), None, JobState(), NOW), free)
    assert isinstance(step, Unsuspend)
    assert len(step.plan.nodes) == 3
    assert "instead of 2 with" in step.verdict.message


STARTS: Mapping[str, tuple[int, Range | None, int]] = {
    "all workers if they fit": (8, Range(2, 8), 8),
    "as many as fit": (5, Range(2, 8), 5),
    "its minimum": (2, Range(2, 8), 2),
    "not below its minimum": (1, Range(2, 8), 0),
    "not short without the setting": (5, None, 0),
}


@pytest.mark.parametrize(("cpus", "allowed", "want"), STARTS.values(), ids=STARTS.keys())
def test_an_elastic_job_starts_with(cpus: int, allowed: Range | None, want: int) -> None:
    training_job = job().worker(8, cpu="1").held().elastic(**ANY_SIZE).build()
    situation = situation_of(training_job, (), None, JobState(), NOW, elastic=allowed)
    step = next_step(situation, ledger(node("a", cpu=str(cpus))))
    if want:
        assert isinstance(step, Unsuspend)
        assert len(step.plan.assignment) == want
        assert ("fewer workers than requested" in step.verdict.message) is (want < 8)
    else:
        assert isinstance(step, Wait)
        assert step.verdict is not None
        needs = (
            "it needs at least 2 of its 8 workers: 2 pods need 2 cpu" if allowed else "8 pods need"
        )
        assert step.verdict.message.startswith(needs)


def test_no_estimate_of_other_jobs_keeps_an_elastic_job_waiting_forever() -> None:
    """The other job is expected to end now, but never does. Eight workers take `length` seconds."""
    builder, no_fits = job().worker(8, cpu="1").held(), NoFitCache()
    capacity = ledger(node("a", cpu="8"))
    capacity.claim("other", Claim("a", {"cpu": 4000}, job="other"))

    def step(length: float, waited: float) -> Any:
        context = QueueContext(duration=lambda: length, ends=lambda: {"other": NOW})
        situation = situation_of(
            builder.elastic(**ANY_SIZE).build(), (), None, JobState(), NOW, elastic=Range(2, 8)
        )
        clocks = Clocks(waited=waited)
        return next_step(replace(situation, context=context, clocks=clocks), capacity, no_fits)

    first = step(300.0, 0.0)
    assert isinstance(first, Wait)
    assert first.again is not None
    assert first.again <= 300.0
    assert isinstance(step(300.0, 200.0), Wait)
    assert isinstance(step(100.0, 200.0), Unsuspend)
    # With four of eight workers, a job of 300 s takes 600 s; it waits no longer than that.
    assert isinstance(step(300.0, 599.0), Wait)
    assert isinstance(step(300.0, 600.0), Unsuspend)


def torchrun(*options: str, **policy: Any) -> JobBuilder:
    """Eight workers that torchrun starts; None removes a field of the elasticPolicy."""
    written = {name: value for name, value in (ANY_SIZE | policy).items() if value is not None}
    builder = job().worker(8, cpu="1").held().elastic(**written)
    (container,) = builder.raw["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"][
        "containers"
    ]
    container |= {"name": "pytorch", "command": ["torchrun", *options, "train.py"]}
    return builder


def tf_job(**spec: Any) -> JobBuilder:
    builder = job("TFJob").ps(0).worker(8, cpu="1").held()
    builder.raw["spec"] |= spec
    return builder


def scale_mode(mode: Mode) -> Raw:
    return {"companion": {"scale": PolicyChoice(mode=mode)}}


METRICS_OFF = {"metrics": MetricsSource("off")}
CHOSEN: dict[str, tuple[JobBuilder, Raw, int]] = {
    "torchrun with an open number of agents": (torchrun(), {}, 5),
    "a range of its own": (torchrun("--nnodes=1:8"), {}, 5),
    "at least the range of its own": (torchrun("--nnodes=6:8"), {}, 0),
    "a number of its own": (torchrun("--nnodes=8"), {}, 0),
    "its HorizontalPodAutoscaler": (torchrun(metrics=[{"type": "Resource"}]), {}, 0),
    "no largest number": (torchrun(maxReplicas=None), {}, 0),
    "no restarts": (torchrun(maxRestarts=None), {}, 0),
    "no restarts by the command": (torchrun("--max-restarts=0"), {}, 0),
    "restarts by the command": (torchrun("--max-restarts=9", maxRestarts=None), {}, 5),
    "a policy that observes": (torchrun(), scale_mode(Mode.OBSERVE), 0),
    "a policy that is off": (torchrun(), scale_mode(Mode.OFF), 0),
    "a policy that acts": (torchrun(), scale_mode(Mode.ACT), 5),
    "an autoscaler of the cluster": (torchrun(), {"context": QueueContext(autoscaler=True)}, 5),
    "checkpoints that kfext does not watch": (torchrun(), METRICS_OFF, 0),
    "a TFJob that restarts from a checkpoint": (tf_job(), {}, 5),
    "a TFJob without watched checkpoints": (tf_job(), METRICS_OFF, 0),
    "a policy that observes a TFJob": (tf_job(), scale_mode(Mode.OBSERVE), 0),
}


@pytest.mark.parametrize(("builder", "more", "want"), CHOSEN.values(), ids=CHOSEN)
def test_a_job_starts_short_only_if_kfext_can_add_the_other_workers_later(
    builder: JobBuilder, more: Raw, want: int
) -> None:
    situation = situation_of(
        builder.build(), (), None, JobState(), NOW, elastic=Range(1, 8), **more
    )
    step = next_step(situation, ledger(node("a", cpu="5")))
    started = len(step.plan.assignment) if isinstance(step, Unsuspend) else 0
    assert started == want, step


def test_a_start_on_one_node_gives_no_reason_for_its_nodes() -> None:
    step = next_step(Situation(three().held().build(), (), None, JobState(), NOW), RACKS)
    assert isinstance(step, Unsuspend)
    assert "instead of" not in step.verdict.message


def two_pods(*, colocation: str = "", source: str = "job", cpus: str = "7") -> Unsuspend:
    """The start of two pods without a CPU limit on two nodes of seven cores."""
    written = {COLOCATION: colocation} if colocation else {}
    on_job = source == "job"
    settings = resolve(written if on_job else {}, {} if on_job else written, TrainingPolicy())
    held = job().worker(2, cpu="1", cpu_limit="").held().build()
    situation = Situation(held, (), None, JobState(), NOW, settings=settings)
    step = next_step(situation, ledger(node("a", cpu=cpus), node("b", cpu=cpus)))
    assert isinstance(step, Unsuspend)
    return step


def test_pods_that_can_use_more_than_one_node_has_are_spread_and_the_plan_says_why() -> None:
    step = two_pods()
    assert step.plan.nodes == ("a", "b")
    why = "2 nodes with 1 pod each instead of 1 with 2 pods each, because each pod can use 4 CPUs "
    why += "and no node has 8 free for them"
    assert step.verdict.message.endswith(why)
    assert step.plan.why == f"{written_time(NOW)}: {step.verdict.message}"


NODES: dict[str, tuple[dict[str, str], int]] = {
    "one node has enough for both": ({"cpus": "8"}, 1),
    "the job colocates them": ({"colocation": "preferred"}, 1),
    "the namespace colocates them": ({"colocation": "preferred", "source": "namespace"}, 2),
    "required colocation, by any source": ({"colocation": "required", "source": "namespace"}, 1),
}


@pytest.mark.parametrize(("case", "want"), NODES.values(), ids=NODES)
def test_on_how_many_nodes_pods_without_a_cpu_limit_start(case: dict[str, str], want: int) -> None:
    step = two_pods(**case)
    assert len(step.plan.nodes) == want
    assert ("can use" in step.verdict.message) is (want > 1)


def test_an_elastic_job_does_not_start_short_so_that_each_worker_can_use_more_cpu() -> None:
    training_job = job().worker(8, cpu="1", cpu_limit="").held().elastic(**ANY_SIZE).build()
    situation = situation_of(training_job, (), None, JobState(), NOW, elastic=Range(2, 8))
    step = next_step(situation, ledger(node("a", cpu="8")))
    assert isinstance(step, Unsuspend)
    assert len(step.plan.assignment) == 8


def test_pods_that_host_ports_keep_apart_are_not_said_to_be_spread_for_cpu() -> None:
    builder = job().master(cpu="1", cpu_limit="").held()
    specs = builder.raw["spec"]["pytorchReplicaSpecs"]
    (container,) = specs["Master"]["template"]["spec"]["containers"]
    container["ports"] = [{"containerPort": 80}]
    specs["Worker"] = specs["Master"]
    requested = HostNetworkRequest(ports=(20000, 29999))
    situation = Situation(builder.build(), (), None, JobState(), NOW, host_network=requested)
    step = next_step(situation, ledger(node("a", cpu="8"), node("b", cpu="8")))
    assert isinstance(step, Unsuspend)
    assert (len(step.plan.nodes), step.plan.port > 0) == (2, True)
    assert "can use" not in step.verdict.message


# --- preemption -------------------------------------------------------------------------------

PREEMPT: dict[str, tuple[QueueContext, list[int | None], bool]] = {
    "pods of lower priority": (QueueContext(priority=10, preempts=True), [5, 5], True),
    "pods of equal priority": (QueueContext(priority=10, preempts=True), [10, 10], False),
    "too few of lower priority": (QueueContext(priority=10, preempts=True), [5, 10], False),
    "claims without a pod that could be preempted": (
        QueueContext(priority=10, preempts=True),
        [None, None],
        False,
    ),
    "the job preempts no pod": (QueueContext(priority=10), [5, 5], False),
}


@pytest.mark.parametrize(("context", "priorities", "want"), PREEMPT.values(), ids=PREEMPT)
def test_whether_a_job_could_preempt_pods_for_capacity(
    context: QueueContext, priorities: list[int | None], want: bool
) -> None:
    capacity = ledger(node("a", cpu="4"))
    for number, priority in enumerate(priorities):
        capacity.claim(number, Claim("a", {"cpu": 2000, "pods": 1}, priority=priority))
    training_job = job().worker(4, cpu="1").held().build()
    placement = find_place(
        Situation(training_job, (), None, JobState(), NOW, context=context), capacity, NoFitCache()
    )
    assert isinstance(placement, NoFit)
    assert placement.verdict.reason == REASON_NO_ROOM
    assert (placement.after_preemption is not None) is want


# --- one verdict for jobs of one shape --------------------------------------------------------

WAITS = Situation(three().held().build(), (), None, JobState(), NOW)
OTHER_SHAPES: dict[str, Situation] = {
    "only one node will do": replace(WAITS, settings=Settings(colocation=Colocation.REQUIRED)),
    "a node is excluded": replace(WAITS, state=JobState(excluded={"a": NOW + 1})),
    "a different topology": replace(
        WAITS, settings=Settings(placement=Placement(topology_keys=("rack",)))
    ),
    "a different CPU use is assumed of its pods": replace(
        WAITS, settings=Settings(placement=Placement(assumed_burst=1))
    ),
    "a reservation is open to it": replace(
        WAITS, context=QueueContext(reservation=reservation(), may_use_reserved=True)
    ),
    "fewer workers suffice": replace(
        WAITS,
        job=three().elastic(**ANY_SIZE).held().build(),
        settings=Settings(elastic=Range(1, 3)),
    ),
    "pods could be preempted for it": replace(
        WAITS, context=QueueContext(priority=5, preempts=True)
    ),
    "more workers": replace(WAITS, job=job().worker(4, cpu="1").held().build()),
}


def test_a_job_with_a_refused_shape_is_not_searched_for_again() -> None:
    capacity, no_fits = full(), NoFitCache()
    first = find_place(WAITS, capacity, no_fits)
    other = replace(WAITS, job=job(uid="other").worker(3, cpu="1").held().build())
    assert isinstance(first, NoFit)
    assert find_place(other, capacity, no_fits) is first
    capacity.drop(("other", "a"))
    assert not isinstance(find_place(other, capacity, no_fits), NoFit)


@pytest.mark.parametrize("other", OTHER_SHAPES.values(), ids=OTHER_SHAPES)
def test_a_job_of_a_different_shape_is_searched_for(other: Situation) -> None:
    capacity, no_fits = full(), NoFitCache()
    first = find_place(WAITS, capacity, no_fits)
    assert isinstance(first, NoFit)
    assert find_place(other, capacity, no_fits) is not first
