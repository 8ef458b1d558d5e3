"""In each round every job is decided on, in the queue's order, whatever is freed or changed.

The tests count ticks. A round decides on each of 1,000 jobs once, at most 64 in a tick, and
searches for 200 reservations, at most four in a tick.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest

from kfext import names
from kfext.core.lifecycle.steps import Unsuspend
from kfext.model.moment import Moment
from kfext.model.namespace import Namespace
from kfext.model.pod import Pod, parse_pod
from kfext.model.priority import PriorityClass
from kfext.model.quota import Quota
from kfext.names import QUEUED, REASON_QUOTA, REASON_WAITING_FOR_OPERATOR
from kfext.state.mirror.pod_backlog import MAX_OUTSTANDING
from kfext.state.planner.planner import MAX_DECISIONS, Planner
from kfext.state.waiting.reservations import MAX_SEARCHES
from tests.builders import JobBuilder, job, node
from tests.unit.controller.bench import gang, running

TEAM = "team"
JOBS, SHAPES, NODES = 1000, 200, 4
ROUND = JOBS // MAX_DECISIONS + SHAPES // MAX_SEARCHES + 2
EARLY, LATE = 1000.0, 100_000.0
"""A time before and a time after the jobs created at 0 to 1,000 s may have a reservation."""


def foreign_pod(uid: str, cpu: str, node_name: str = "n0", **more: Any) -> Pod:
    """A running pod that no job owns."""
    spec = {
        "nodeName": node_name,
        "containers": [{"resources": {"requests": {"cpu": cpu}}}],
        **more,
    }
    metadata = {"namespace": "x", "name": uid, "uid": uid, "resourceVersion": "1"}
    return parse_pod({"metadata": metadata, "spec": spec, "status": {"phase": "Running"}})


class Bed:
    """A planner on nodes of 64 CPUs, ticked by hand; its steps are never carried out.

    `most`: the most decisions in a tick. `started`: the jobs started so far, by name. `decided`:
    the number of decisions in the last tick.
    """

    def __init__(self, *, nodes: int = NODES, most: int = MAX_DECISIONS, at: float = EARLY):
        self.planner = Planner(most=most)
        self.cluster = self.planner.cluster
        self.now = at
        self.started: list[str] = []
        self.decided = 0
        self.planner.settings.observe_namespace(None, Namespace(TEAM, {names.MANAGED: "true"}))
        for number in range(nodes):
            self.cluster.observe_node(None, node(f"n{number}", cpu="64", pods=5000))

    def submit(self, *jobs: JobBuilder) -> None:
        for builder in jobs:
            self.cluster.observe_job(builder.raw)

    def tick(self) -> int:
        """Run one tick; return the number of jobs that are left to decide on."""
        self.now += 0.01
        tick = self.planner.tick(Moment(wall=self.now, monotonic=self.now))
        assert not tick.failures
        self.started += [
            tracked.job.name for tracked, step in tick.steps if isinstance(step, Unsuspend)
        ]
        self.decided = tick.decided
        return tick.remainder

    def tick_all(self) -> None:
        """Tick until no decision is left."""
        while self.tick():
            pass

    def until(self, holds: Callable[[], bool], *, each: Callable[[], object], most: int) -> int:
        """Return the number of ticks until `holds` returns True; `each` runs before every tick."""
        for count in range(1, most + 1):
            each()
            self.tick()
            if holds():
                return count
        return most + 1


def end_pods(bed: Bed, *, cpu: str, number: int = 500) -> Iterator[None]:
    """Let pods of this size end, one pod with each step of the iterator."""
    pods = [foreign_pod(f"ends-{count}", cpu) for count in range(number)]
    for pod in pods:
        bed.cluster.observe_pod(None, pod)
    bed.tick_all()
    for pod in pods:
        bed.cluster.observe_pod(pod, None)
        yield


def crowd(bed: Bed, *, used: str = "60") -> None:
    """Submit 1,000 jobs of 200 shapes that fit nowhere; `used`: the used CPUs of each node."""
    for number in range(NODES):
        bed.cluster.observe_pod(None, foreign_pod(f"stays-{number}", used, f"n{number}"))
    for number in range(JOBS):
        cpu = f"{20_000 + number % SHAPES}m"
        bed.submit(gang(f"job-{number}", cpu=cpu, workers=4, created=number))


CHURN: dict[str, tuple[str, str]] = {
    "no pod of a gang fits": ("60", "10m"),
    "one pod of each gang fits, but no gang": ("40", "10m"),
}
"""The used CPUs of each node, and the CPU of each pod that ends."""


@pytest.mark.parametrize("at", [EARLY, LATE], ids=["early", "late"])
@pytest.mark.parametrize(("used", "cpu"), CHURN.values(), ids=CHURN)
def test_the_last_job_starts_in_a_round_while_pods_end(used: str, cpu: str, at: float) -> None:
    bed = Bed(at=at)
    crowd(bed, used=used)
    ending = end_pods(bed, cpu=cpu)
    next(ending)
    bed.tick()
    bed.submit(gang("small", cpu="1", created=at - 1, workers=1))
    ticks = bed.until(lambda: "small" in bed.started, each=lambda: next(ending), most=2 * ROUND)
    assert ticks <= ROUND


def test_no_job_is_decided_on_for_freed_capacity_that_cannot_help_it() -> None:
    bed = Bed()
    crowd(bed)
    ending = end_pods(bed, cpu="10m", number=3)
    for _ in range(3):
        next(ending)
        assert bed.tick() == 0
        assert bed.decided == 0


def test_the_position_in_the_queue_is_shown_within_a_round_while_pods_end() -> None:
    bed = Bed()
    crowd(bed, used="40")
    ending = end_pods(bed, cpu="10m")
    bed.submit(gang("young", cpu="20", workers=4, created=5000))
    young = bed.cluster.jobs["young"]

    def shows_position() -> bool:
        verdict = bed.planner.queue.shown_verdict(young)
        return verdict is not None and "jobs are ahead" in verdict.message

    assert bed.until(shows_position, each=lambda: next(ending), most=2 * ROUND) <= ROUND


# --- jobs that change -------------------------------------------------------------------------


def test_jobs_that_are_edited_in_every_tick_delay_no_job_behind_them() -> None:
    bed = Bed()
    crowd(bed)
    bed.tick_all()
    versions = iter(range(2, 100_000))

    def edit() -> None:
        for number in range(2 * MAX_DECISIONS):
            version = next(versions)
            cpu = f"{20_000 + version}m"
            edited = gang(f"job-{number}", cpu=cpu, workers=4, created=number)
            bed.submit(edited.version(version))

    edit()
    bed.tick()
    bed.submit(gang("small", cpu="1", created=5000, workers=1))
    assert bed.until(lambda: "small" in bed.started, each=edit, most=99) <= ROUND


def test_running_jobs_that_change_delay_no_job_of_the_queue() -> None:
    bed = Bed()
    crowd(bed)
    bed.tick_all()
    large = [job(name=f"runs-{number}", uid=f"runs-{number}") for number in range(9)]
    versions = iter(range(1, 100_000))

    def change() -> None:
        for builder in large:
            builder.worker(6000, cpu="1").resumed().version(next(versions))
            bed.submit(builder)

    change()
    bed.tick()
    bed.submit(gang("small", cpu="1", created=5000, workers=1))
    assert bed.until(lambda: "small" in bed.started, each=change, most=99) <= 9


def test_a_running_job_is_decided_on_in_the_next_tick_of_a_round() -> None:
    bed = Bed()
    crowd(bed, used="40")
    bed.tick_all()
    bed.cluster.mark_queue()
    assert bed.tick() > MAX_DECISIONS
    bed.submit(running("young", "n0", cpu="1").created(9000))
    assert bed.tick() > MAX_DECISIONS
    assert bed.cluster.jobs["young"].phase is not None


# --- the order --------------------------------------------------------------------------------


def two_waiting_jobs() -> Bed:
    """Two jobs that need the capacity of a pod; the older was decided on, the younger is next."""
    bed = Bed(nodes=1, most=1)
    bed.cluster.observe_pod(None, foreign_pod("taken", "40"))
    bed.submit(
        gang("older", cpu="30", created=1, workers=1),
        gang("younger", cpu="30", created=2, workers=1),
    )
    bed.tick()
    assert bed.cluster.jobs["older"].phase == QUEUED
    assert bed.cluster.jobs["younger"].phase is None
    return bed


def first_started(bed: Bed) -> str:
    bed.until(lambda: bool(bed.started), each=lambda: None, most=9)
    return bed.started[0]


def end_pod(bed: Bed) -> None:
    bed.cluster.observe_pod(foreign_pod("taken", "40"), None)


def shrink_pod(bed: Bed) -> None:
    bed.cluster.observe_pod(foreign_pod("taken", "40"), foreign_pod("taken", "30"))


def add_node(bed: Bed) -> None:
    bed.cluster.observe_node(None, node("n9", cpu="30"))


def grow_node(bed: Bed) -> None:
    bed.cluster.observe_node(bed.cluster.ledger.node("n0"), node("n0", cpu="70", pods=5000))


GAINS = (end_pod, shrink_pod, add_node, grow_node)


@pytest.mark.parametrize("gain", GAINS)
def test_capacity_freed_in_a_round_goes_to_the_queue_head(gain: Callable[[Bed], None]) -> None:
    bed = two_waiting_jobs()
    gain(bed)
    assert first_started(bed) == "older"


@pytest.mark.parametrize("gain", GAINS)
def test_a_job_of_higher_priority_goes_first_in_a_round(gain: Callable[[Bed], None]) -> None:
    bed = two_waiting_jobs()
    bed.planner.queue.observe_class(None, PriorityClass("high", 100, preempts=False))
    bed.submit(gang("urgent", cpu="30", created=9, workers=1).prioritized("high"))
    gain(bed)
    assert first_started(bed) == "urgent"


def test_quota_freed_in_a_round_is_offered_to_the_head_of_the_queue_first() -> None:
    bed = Bed(most=1)
    quota = [Quota(TEAM, "q", {"pods": 4}, {"pods": used}) for used in (4, 2, 3, 2)]
    bed.planner.queue.quotas.observe_quota(None, quota[0])
    bed.submit(
        *(gang(name, cpu="1", workers=2, created=age) for age, name in enumerate(("old", "new")))
    )
    bed.tick()
    assert bed.cluster.jobs["old"].verdict.reason == REASON_QUOTA  # type: ignore[union-attr]
    for before, after in pairwise(quota):
        bed.planner.queue.quotas.observe_quota(before, after)
    assert first_started(bed) == "old"


def test_a_job_that_waits_for_the_operator_goes_before_a_later_job_of_a_round() -> None:
    bed = Bed(most=1)
    bed.cluster.observe_node(None, node("big", cpu="5000", pods=5000))
    bed.submit(running("huge", "big", cpu="1", workers=MAX_OUTSTANDING).created(9000))
    bed.tick_all()
    bed.submit(
        *(gang(name, cpu="1", created=age, workers=1) for age, name in ((1, "old"), (2, "new")))
    )
    bed.tick()
    verdict = bed.cluster.jobs["old"].verdict
    assert verdict is not None
    assert verdict.reason == REASON_WAITING_FOR_OPERATOR
    bed.cluster.forget_job("huge")
    assert first_started(bed) == "old"


# --- reservations -----------------------------------------------------------------------------


def test_a_job_starts_in_its_reservation_once_all_awaited_jobs_have_ended() -> None:
    bed = Bed(nodes=1, at=LATE)
    bed.submit(*(running(name, "n0", cpu="32").created(9000) for name in ("one", "two")))
    bed.submit(
        gang("due", cpu="64", created=1, workers=1), gang("young", cpu="32", created=2, workers=1)
    )
    bed.tick_all()
    reservation = bed.planner.queue.reservations.current
    assert reservation is not None
    assert (reservation.job, reservation.waits_for) == ("due", ("one", "two"))
    bed.cluster.forget_job("one")
    bed.tick_all()
    assert bed.started == []
    bed.cluster.forget_job("two")
    bed.tick_all()
    assert bed.started == ["due"]


def test_the_first_job_with_a_possible_reservation_keeps_it_while_pods_end() -> None:
    """The jobs before it have no possible reservation: the end of no job frees enough for them."""
    bed = Bed(at=LATE)
    crowd(bed)
    bed.cluster.observe_node(None, node("own", cpu="9"))
    bed.submit(running("runs", "own", cpu="9").created(9000))
    bed.submit(gang("due", cpu="9", created=2000, workers=1))
    ending = end_pods(bed, cpu="10m")

    def holds() -> bool:
        reservation = bed.planner.queue.reservations.current
        return reservation is not None and reservation.job == "due"

    assert bed.until(holds, each=lambda: next(ending), most=3 * ROUND) <= 2 * ROUND
    for _ in range(2 * ROUND):
        next(ending)
        bed.tick()
        assert holds()
