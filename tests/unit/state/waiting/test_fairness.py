"""Namespaces in the order of their usage: in a simulated cluster, and sample by sample."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kfext.core.lifecycle.steps import Unsuspend
from kfext.core.queue.usage import UsageRecord, decode_usage, usage_after
from kfext.model.label_selector import LabelSelector
from kfext.model.moment import Moment
from kfext.model.namespace import Namespace
from kfext.model.parameters import Fairness, Placement, Queueing, QueueOrder
from kfext.model.plan import Plan
from kfext.model.pod import ReplicaKey
from kfext.model.policy import Mode, PolicyChoice, TrainingPolicy
from kfext.names import (
    MANAGED,
    QUEUE_WEIGHT,
    REASON_NO_ROOM,
    REASON_QUOTA,
    REASON_RESERVED,
    REASON_TOO_BIG,
    REASON_WAITING_FOR_OPERATOR,
    REASON_WAITING_FOR_VOLUME,
)
from kfext.sim.jobs import JobSpec, Pace, Style
from kfext.state.mirror.tracked_job import TrackedJob
from kfext.state.planner.planner import Planner
from kfext.state.planner.recording import planner_of, snapshot_of
from kfext.state.waiting.fairness import LONGEST_WAIT, UsageOrder
from tests.builders import JobBuilder, job, moment, node, pods
from tests.unit.controller.bench import Bench, gang, last_verdict, running
from tests.unit.sim.bed import Bed

DAY, HOUR = 86_400.0, 3600.0


def policy(
    fairness: Fairness = Fairness.USAGE, order: QueueOrder = QueueOrder.ARRIVAL
) -> TrainingPolicy:
    return TrainingPolicy(
        "all",
        placement=Placement(release_after=10 * DAY),
        queue=Queueing(order, fairness, half_life=HOUR),
        companion={"scale": PolicyChoice(Mode.OFF)},
    )


USAGE = policy()


def spec(name: str, at: float, *, steps: int = 100, pods: int = 1, **more: Any) -> JobSpec:
    """Return a job; its namespace is the first letter of its name, and each pod needs a CPU."""
    result = JobSpec(name, "PyTorchJob", Style.GANG, at, pods - 1, Pace(1.0, 0.0, 0.0), steps)
    return replace(result, leaders=1, namespace=name[0], **more)


def weigh(planner: Planner, **weights: str) -> None:
    """Set the weights of managed namespaces."""
    for name, weight in weights.items():
        result = Namespace(name, {MANAGED: "true"}, {QUEUE_WEIGHT: weight} if weight else {})
        planner.settings.observe_namespace(None, result)


def starts(bed: Bed) -> str:
    """Return the names of the jobs in the order of their starts."""
    written = bed.driver.written
    return " ".join(w.job for w in written if isinstance(w.step, Unsuspend) and not w.refused)


# --- the order in a simulated cluster -----------------------------------------------------------


@dataclass(frozen=True)
class Case:
    jobs: tuple[JobSpec, ...]
    want: str
    weights: Mapping[str, str] | None = None
    policy: TrainingPolicy = USAGE
    nodes: Mapping[str, int] | None = None


BURST = tuple(spec(f"h{n}", 5) for n in range(5))
SMALL = tuple(spec(f"b{n}", 705 + 200 * n, steps=400) for n in range(10))
"""Small jobs that arrive without a pause: two of them run at any time."""
WHOLE = spec("a1", 1010, pods=16)
"""A job that needs the whole cluster."""
NODES = {"m": 8000, "n": 8000}
CASES: Mapping[str, Case] = {
    "without usage, the order is by age": Case(
        (*BURST, spec("b0", 20)), "h0 h1 h2 h3 h4 b0", policy=policy(Fairness.NONE)
    ),
    "a namespace without usage comes first": Case((*BURST, spec("b0", 20)), "h0 b0 h1 h2 h3 h4"),
    "two namespaces take turns": Case(
        (*BURST, *(spec(f"b{n}", 20) for n in range(3))), "h0 b0 h1 b1 h2 b2 h3 h4"
    ),
    "a namespace of weight 0 comes last, although it used nothing": Case(
        (*BURST[:3], spec("b0", 20)), "h0 h1 h2 b0", {"b": "0"}
    ),
    "a malformed weight counts as 1": Case(
        (*BURST[:3], spec("b0", 20)), "h0 b0 h1 h2", {"b": "-1", "h": "1e9"}
    ),
    "a namespace of weight 3 comes before a namespace that used somewhat less": Case(
        (spec("b0", 5), *(spec(f"h{n}", 10) for n in range(3)), spec("b1", 20)),
        "b0 h0 h1 h2 b1",
        {"h": "3"},
    ),
    "priority comes before usage": Case(
        (*BURST[:3], spec("h9", 30, priority="urgent"), spec("b0", 20)), "h0 h9 b0 h1 h2"
    ),
    "the shortest job comes first only within its namespace": Case(
        (
            *(spec("h0", 5, trains="short"), spec("h1", 5, steps=600, trains="long")),
            *(spec("h2", 700, steps=600, trains="long"), spec("h3", 701, trains="short")),
            spec("b0", 710, steps=600),
        ),
        "h0 h1 b0 h3 h2",
        policy=policy(order=QueueOrder.SHORTEST),
    ),
    "a namespace alone keeps its order": Case(BURST, "h0 h1 h2 h3 h4"),
    "small jobs do not keep a large job from its turn": Case(
        (*SMALL, WHOLE), "b0 b1 b2 b3 a1 b4 b5 b6 b7 b8 b9", nodes=NODES
    ),
    "small jobs of a namespace that used less keep a large job from its turn": Case(
        (spec("a0", 5, pods=16, steps=9000), *SMALL, WHOLE),
        "a0 b0 b1 b2 b3 b4 b5 b6 b7 b8 b9 a1",
        nodes=NODES,
    ),
}


def bed(case: Case) -> Bed:
    bed = Bed(*case.jobs, policy=case.policy, late_writes=False, **(case.nodes or {"a": 1000}))
    weigh(bed.planner, **(case.weights or {}))
    return bed


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_order_of_starts(case: Case) -> None:
    assert starts(bed(case).run()) == case.want


WEIGHTS: Mapping[str, tuple[str, str]] = {
    "it has weight 1": ("", "a0 b0 b1 b2 b3 b4 a1 b5 b6 b7 b8 b9"),
    "it has weight 0": ("0", "a0 b0 b1 b2 b3 b4 b5 b6 b7 b8 b9 a1"),
}


@pytest.mark.parametrize(("weight", "want"), WEIGHTS.values(), ids=WEIGHTS)
def test_a_job_comes_first_some_time_after_capacity_was_reserved_for_it(
    weight: str, want: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here after 300 s; else small jobs of a namespace that used less would precede it forever."""
    monkeypatch.setattr("kfext.state.waiting.fairness.RESERVED_SECONDS", 300.0)
    case = CASES["small jobs of a namespace that used less keep a large job from its turn"]
    assert starts(bed(replace(case, weights={"a": weight})).run()) == want


def test_a_policy_for_some_namespaces_does_not_order_the_cluster() -> None:
    some = replace(policy(), selector=LabelSelector({"team": "b"}), weight=100)
    case = CASES["without usage, the order is by age"]
    cluster = bed(replace(case, policy=policy(Fairness.NONE)))
    cluster.planner.settings.observe_policy(replace(some, name="some"))
    assert starts(cluster.run()) == case.want


def test_of_two_policies_for_all_namespaces_the_highest_weight_decides() -> None:
    cluster = bed(CASES["a namespace without usage comes first"])
    cluster.planner.settings.observe_policy(replace(policy(Fairness.NONE), name="other", weight=1))
    assert starts(cluster.run()) == CASES["without usage, the order is by age"].want


def test_fairness_does_not_run_if_no_policy_requests_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_measure", "_order", "_charge", "_begin", "projected"):
        monkeypatch.setattr(UsageOrder, name, None)
    cluster = bed(CASES["without usage, the order is by age"]).run()
    assert cluster.planner.cluster.claim_tracker.synced is None


def test_a_policy_that_is_deleted_ends_the_order_at_once() -> None:
    cluster = bed(CASES["a namespace without usage comes first"]).at(50)
    cluster.planner.settings.forget_policy("all")
    cluster.planner.cluster.mark_queue()
    assert starts(cluster.run()) == "h0 h1 h2 h3 h4 b0"
    assert cluster.planner.cluster.claim_tracker.synced is None


def test_a_restarted_controller_orders_by_the_stored_usage() -> None:
    cluster = bed(CASES["two namespaces take turns"]).at(330)
    stored = cluster.planner.queue.usage.record.encode()
    cluster.restart()
    cluster.planner.queue.usage.restore(decode_usage(stored))
    assert starts(cluster.run()) == CASES["two namespaces take turns"].want


def test_a_snapshot_keeps_the_order() -> None:
    cluster = bed(CASES["two namespaces take turns"]).at(330)
    again = planner_of(snapshot_of(cluster.planner, cluster.driver.moment), cluster.driver.moment)
    again.tick(cluster.driver.moment)
    result, want = (
        [tracked.job.name for tracked in planner.queue.queued()]
        for planner in (again, cluster.planner)
    )
    assert result == want
    assert len(want) > 3


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 300), st.integers(1, 3)), max_size=9)
)
def test_every_job_starts_once_whatever_happens(drawn: list[tuple[str, int, int]]) -> None:
    jobs = [
        spec(f"{name}{n}", 5.0 + at, pods=size, steps=30)
        for n, (name, at, size) in enumerate(drawn)
    ]
    bed = Bed(*jobs, policy=policy(), late_writes=False, a=3000)
    assert sorted(starts(bed.run()).split()) == sorted(job.name for job in jobs)


# --- usage, sample by sample ----------------------------------------------------------------------


class Teams:
    """A planner with a node of ten CPUs; it samples usage, and decides on no job."""

    def __init__(self, policy: TrainingPolicy = USAGE) -> None:
        self.wall, self.monotonic = 1_000_000.0, 50.0
        self.raws: dict[str, Any] = {}
        self.planner = Planner()
        self.planner.settings.observe_policy(policy)
        weigh(self.planner, a="", b="")
        self.planner.cluster.observe_node(None, node("n", cpu="10", memory="1Ti"))
        self.sample()

    @property
    def usage(self) -> UsageOrder:
        return self.planner.queue.usage

    def put(self, builder: JobBuilder, namespace: str) -> JobBuilder:
        builder.raw["metadata"]["namespace"] = namespace
        self.raws[builder.raw["metadata"]["uid"]] = builder.raw
        self.planner.cluster.observe_job(builder.raw)
        return builder

    def runs(self, uid: str, namespace: str, *, cpu: str = "5", since: float = 0.0) -> JobBuilder:
        """Add a job that runs on node n."""
        builder = running(uid, "n", cpu=cpu)
        if since:
            builder.raw["status"] = {"startTime": moment(since)}
        return self.put(builder, namespace)

    def waits(self, uid: str, namespace: str, *, created: float = 0.0) -> JobBuilder:
        return self.put(gang(uid, workers=1, created=created or self.wall), namespace)

    def sample(self, seconds: float = 0.0, *, wall: float | None = None) -> None:
        self.monotonic += seconds
        self.wall += seconds if wall is None else wall
        self.planner.cluster.set_time(self.wall)
        self.planner.cluster.settle(self.monotonic)
        self.usage.begin_tick(Moment(self.wall, self.monotonic))

    def sample_often(self, seconds: float) -> None:
        for _ in range(10):
            self.sample(seconds / 10)

    def used(self, namespace: str) -> float:
        usage = self.usage.record.namespaces.get(namespace)
        return usage.used if usage else 0.0

    def first(self) -> str:
        jobs = self.planner.cluster.jobs.values()
        waiting = [tracked for tracked in jobs if tracked.job.in_queue]
        return min(waiting, key=self.planner.queue.key).job.uid


def held_for(seconds: float, fraction: float = 0.5) -> Any:
    return pytest.approx(usage_after(seconds, 0.0, held=fraction, half_life=HOUR), rel=1e-6)


def test_held_capacity_is_charged_to_its_namespace() -> None:
    teams = Teams()
    teams.runs("job", "a")
    teams.sample(5)
    teams.sample_often(600)
    assert teams.used("a") == held_for(600)
    assert teams.used("b") == 0.0
    assert teams.usage.record.namespaces["a"].held == pytest.approx(0.5)


def test_the_claims_of_a_plan_and_of_its_pods_are_charged_once() -> None:
    teams = Teams()
    builder = teams.runs("job", "a")
    teams.sample(5)
    for pod in pods(builder.build(), bound="n"):
        teams.planner.cluster.observe_pod(None, pod)
    teams.sample_often(600)
    assert teams.used("a") == held_for(600)


def test_a_pod_of_another_namespace_that_names_the_job_as_its_owner_is_not_charged() -> None:
    teams = Teams()
    builder = teams.runs("job", "a", cpu="1")
    forged = replace(pods(builder.build(), bound="n")[0], namespace="b", requests={"cpu": 8000})
    teams.planner.cluster.observe_pod(None, forged)
    teams.sample(5)
    teams.sample_often(600)
    assert teams.used("a") == held_for(600, 0.1)


def test_a_pin_of_another_client_is_charged_while_it_has_a_claim() -> None:
    teams = Teams()
    builder = teams.put(job(name="job", uid="job").worker(1, cpu="5").released(), "a")
    pod = replace(pods(builder.build())[0], pinned_to="n", created=teams.wall)
    teams.planner.cluster.observe_pod(None, pod)
    teams.sample(5)
    assert teams.usage.record.namespaces["a"].held == pytest.approx(0.5)
    teams.sample(HOUR)
    assert teams.usage.record.namespaces["a"].held == 0.0


def test_a_job_of_kueue_is_charged_and_not_ordered() -> None:
    teams = Teams()
    builder = teams.put(running("job", "n", cpu="5").queued_by_kueue(), "a")
    suspended = teams.put(gang("other", workers=1).queued_by_kueue(), "a")
    del suspended.raw["metadata"]["annotations"]["kfext.dev/held"]
    teams.put(suspended.version(2), "a")
    for pod in pods(builder.build(), bound="n"):
        teams.planner.cluster.observe_pod(None, pod)
    teams.sample(5)
    teams.sample_often(600)
    assert teams.used("a") == held_for(600)
    assert teams.usage.record.namespaces["a"].waiting == 0


def test_a_job_that_starts_again_is_charged_for_its_earlier_run_too() -> None:
    teams = Teams()
    builder = teams.runs("job", "a")
    teams.sample(5)
    teams.sample(300)
    teams.put(builder.suspended().version(2), "a")
    teams.sample(1)
    teams.sample(300)
    teams.put(builder.resumed().version(3), "a")
    teams.sample(1)
    teams.sample(300)
    gap = usage_after(
        300, usage_after(301, 0.0, held=0.5, half_life=HOUR), held=0.0, half_life=HOUR
    )
    assert teams.used("a") == pytest.approx(
        usage_after(300, usage_after(1, gap, held=0.0, half_life=HOUR), held=0.5, half_life=HOUR),
        rel=0.01,
    )


def test_workers_beyond_the_requested_size_are_free_unless_another_namespace_waits() -> None:
    teams = Teams()
    builder = running("job", "n", cpu="1", workers=4)
    builder.annotated("kfext.dev/state", '{"uid":"job","asked":2,"admitted":4}')
    teams.put(builder, "a")
    teams.sample(5)
    teams.sample_often(600)
    assert teams.used("a") == held_for(600, 0.2)
    teams.waits("own", "a")
    teams.sample(1)
    before = teams.used("a")
    teams.waits("other", "b")
    teams.sample(1)
    before = teams.used("a")
    teams.sample(600)
    want = usage_after(600, before, held=0.4, half_life=HOUR)
    assert teams.used("a") == pytest.approx(want, rel=1e-6)


def restart(teams: Teams, record: UsageRecord, *, after: float = 0.0) -> Teams:
    """Return a new controller on the same objects, started `after` seconds later."""
    new = Teams()
    new.wall, new.monotonic = teams.wall + after, 7.0
    for raw in teams.raws.values():
        new.planner.cluster.observe_job(raw)
    new.usage.restore(record)
    new.sample()
    return new


def test_a_restart_between_two_records_loses_nothing_and_charges_nothing_twice() -> None:
    teams = Teams()
    teams.runs("job", "a", since=teams.wall + 5)
    teams.sample(5)
    teams.sample_often(300)
    stored = decode_usage(teams.usage.record.encode())
    teams.sample_often(200)
    new = restart(teams, stored, after=60)
    assert new.used("a") == held_for(560)
    new.sample_often(100)
    assert new.used("a") == held_for(660)


def by_half_life(hours: float) -> TrainingPolicy:
    return replace(USAGE, queue=replace(USAGE.queue, half_life=hours * HOUR))


@pytest.mark.parametrize("hours", [0.25, 24])
def test_a_changed_half_life_keeps_the_mean_usage_of_a_namespace(hours: float) -> None:
    teams = Teams()
    teams.runs("job", "a")
    teams.sample(5)
    teams.sample_often(2 * HOUR)
    mean = teams.usage.record.mean("a")
    stored = decode_usage(teams.usage.record.encode())
    teams.planner.settings.observe_policy(by_half_life(hours))
    teams.sample(1)
    assert teams.usage.record.mean("a") == pytest.approx(mean, rel=0.01)
    new = Teams(policy=by_half_life(hours))
    new.usage.restore(stored)
    new.sample()
    assert new.usage.record.mean("a") == pytest.approx(mean, rel=0.01)


RECORDS: Mapping[str, str] = {"lost": "", "garbled": '{"namespaces": {"a": {"used": NaN}'}


@pytest.mark.parametrize("written", RECORDS.values(), ids=RECORDS)
def test_without_a_record_running_jobs_are_charged_since_their_start(written: str) -> None:
    teams = Teams()
    teams.runs("job", "a", since=teams.wall - 600)
    teams.runs("new", "b", cpu="1")
    new = restart(teams, decode_usage(written))
    assert new.used("a") == held_for(600)
    assert new.used("b") == 0.0


def test_a_record_of_a_clock_that_was_ahead_counts_as_present() -> None:
    teams = Teams()
    teams.runs("job", "a", since=teams.wall - 600)
    teams.sample(5)
    teams.sample_often(300)
    stored = decode_usage(replace(teams.usage.record, at=teams.wall + DAY).encode())
    new = restart(teams, stored)
    assert new.used("a") == pytest.approx(teams.used("a"))


def test_a_clock_that_is_set_back_and_forth_changes_nothing() -> None:
    teams = Teams()
    teams.runs("job", "a")
    teams.sample(5)
    teams.sample(300, wall=-DAY)
    teams.sample(300, wall=DAY + 600)
    assert teams.used("a") == held_for(600)


def test_a_job_that_ends_between_two_samples_is_charged_up_to_the_last() -> None:
    teams = Teams()
    builder = teams.runs("job", "a")
    teams.sample(5)
    teams.sample(300)
    teams.planner.cluster.forget_job(builder.raw["metadata"]["uid"])
    teams.sample(1)
    assert teams.used("a") == held_for(301)
    teams.sample(HOUR)
    assert teams.used("a") == pytest.approx(
        usage_after(HOUR, usage_after(301, 0, held=0.5, half_life=HOUR), held=0.0, half_life=HOUR)
    )


def test_a_deleted_namespace_with_a_running_job_is_charged_and_then_forgotten() -> None:
    teams = Teams()
    builder = teams.runs("job", "a")
    for pod in pods(builder.build(), bound="n"):
        teams.planner.cluster.observe_pod(None, pod)
    teams.sample(5)
    teams.planner.settings.observe_namespace(Namespace("a"), None)
    teams.waits("last", "a")
    teams.waits("other", "b")
    teams.sample_often(300)
    assert teams.used("a") == held_for(300)
    assert teams.first() == "other"
    for uid in (builder.raw["metadata"]["uid"], "last"):
        teams.planner.cluster.forget_job(uid)
    teams.sample(1)
    teams.sample(40 * HOUR)
    assert "a" not in teams.usage.record.namespaces


def test_a_namespace_without_a_record_counts_as_unused() -> None:
    teams = Teams()
    teams.waits("job", "a")
    teams.waits("new", "b", created=teams.wall + 5)
    known = decode_usage('{"at": 1000000, "half_life": 3600, "namespaces": {"a": {"used": 60}}}')
    assert restart(teams, known).first() == "new"


def test_more_nodes_make_the_same_job_a_smaller_fraction_of_the_cluster() -> None:
    teams = Teams()
    teams.runs("job", "a")
    teams.sample(5)
    teams.planner.cluster.observe_node(None, node("m", cpu="10", memory="1Ti"))
    teams.sample(1)
    assert teams.usage.record.namespaces["a"].held == pytest.approx(0.25)


WAITED: Mapping[str, tuple[float, str, str]] = {
    "a day": (LONGEST_WAIT + 1, REASON_NO_ROOM, "old"),
    "almost a day": (LONGEST_WAIT - 60, REASON_NO_ROOM, "new"),
    "a day, for one of its volumes": (LONGEST_WAIT + 1, REASON_WAITING_FOR_VOLUME, "new"),
}


@pytest.mark.parametrize(("waited", "reason", "first"), WAITED.values(), ids=WAITED)
@pytest.mark.parametrize("weight", ["", "0"])
def test_a_job_that_has_waited_for_capacity_for_a_day_comes_first(
    waited: float, reason: str, first: str, weight: str
) -> None:
    teams = Teams()
    weigh(teams.planner, a=weight)
    teams.runs("job", "a")
    teams.sample(5)
    teams.sample(HOUR)
    teams.waits("old", "a", created=teams.wall - waited)
    teams.planner.cluster.jobs["old"].not_started_reason = reason
    teams.waits("new", "b")
    teams.sample(1)
    assert teams.first() == first


NOT_STARTED: Mapping[str, bool] = {
    "": True,
    REASON_NO_ROOM: True,
    REASON_RESERVED: True,
    REASON_WAITING_FOR_OPERATOR: True,
    REASON_QUOTA: False,
    REASON_TOO_BIG: False,
    REASON_WAITING_FOR_VOLUME: False,
}


@pytest.mark.parametrize(("reason", "counts"), NOT_STARTED.items())
def test_a_job_delays_jobs_of_its_namespace_while_it_may_start(reason: str, counts: bool) -> None:
    teams = Teams()
    for uid in ("a-1", "a-2", "b-1", "b-2"):
        teams.waits(uid, uid[0])
    jobs = teams.planner.cluster.jobs
    jobs["a-1"].not_started_reason = reason
    teams.sample(1)
    result = {uid: teams.usage.projected(tracked) for uid, tracked in jobs.items()}
    assert result["a-1"] == result["b-1"] == 0.0
    assert result["a-2"] == (result["b-2"] if counts else 0.0)
    assert result["b-2"] > 0.0


def test_a_new_job_is_ordered_among_all_waiting_jobs() -> None:
    teams = Teams()
    teams.runs("job", "a")
    teams.sample(5)
    teams.sample(600)
    for number in range(3):
        teams.waits(f"a-{number}", "a")
    teams.waits("b-0", "b", created=teams.wall + 9)
    teams.sample(0.01)
    assert teams.first() == "b-0"


def test_usage_counts_only_while_two_namespaces_have_waiting_jobs() -> None:
    teams = Teams()
    teams.runs("job", "a")
    teams.sample(5)
    teams.sample(600)
    for uid in ("first", "second"):
        teams.waits(uid, "a")
    teams.sample(1)
    jobs = teams.planner.cluster.jobs
    assert [teams.usage.projected(jobs[uid]) for uid in ("job", "first", "second")] == [0.0] * 3
    teams.waits("other", "b")
    teams.sample(0.01)
    first, second = (teams.planner.queue.key(jobs[uid])[1] for uid in ("first", "second"))
    assert teams.usage.projected(jobs["other"]) == 0.0 < first < second


def test_a_job_behind_jobs_of_equal_usage_shows_no_usage() -> None:
    teams = Teams()
    for uid, namespace in (("first", "a"), ("second", "a"), ("other", "b")):
        teams.waits(uid, namespace)
    teams.sample(1)
    jobs = teams.planner.cluster.jobs
    assert [teams.usage.why_behind(jobs[uid]) for uid in ("first", "second", "other")] == [""] * 3
    teams.runs("job", "a")
    teams.sample(1)
    teams.sample(600)
    assert "less (0 % against 5 % of the last 60m)" in teams.usage.why_behind(jobs["second"])
    assert teams.usage.why_behind(jobs["other"]) == ""


def test_a_job_that_is_being_started_counts_once() -> None:
    teams = Teams()
    for uid, namespace in (("first", "a"), ("second", "a"), ("other", "b")):
        teams.waits(uid, namespace)
    teams.sample(1)
    jobs = teams.planner.cluster.jobs
    before = teams.usage.projected(jobs["second"])
    jobs["first"].assumed = Plan("first", 1, {ReplicaKey("worker", 0): "n"})
    teams.planner.cluster.sync_claims(jobs["first"])
    teams.sample(0.5)
    assert teams.usage.projected(jobs["second"]) == pytest.approx(before, rel=0.01)


def test_each_order_computes_the_key_of_a_job_once(monkeypatch: pytest.MonkeyPatch) -> None:
    teams = Teams()
    for number in range(50):
        teams.waits(f"job-{number}", "ab"[number % 2])
    keyed: list[str] = []
    real: Callable[..., Any] = teams.usage._key

    def key_of(tracked: TrackedJob) -> Any:
        keyed.append(tracked.job.uid)
        return real(tracked)

    monkeypatch.setattr(teams.usage, "_key", key_of)
    teams.sample(1)
    teams.sample(0.1)
    assert len(keyed) == len(set(keyed)) == 50


# --- messages to users --------------------------------------------------------------------------


def fill(bench: Bench) -> None:
    """Run a job on the whole node."""
    builder = running("runs", "a", cpu="4")
    bench.submit(builder)
    for pod in pods(builder.build(), bound="a", phase="Running"):
        bench.cluster.observe_pod(None, pod)


async def behind(*, after: int) -> Bench:
    """Return a bench; its node is full for `after` times 600 s before jobs of two teams wait."""
    bench = Bench()
    bench.planner.settings.observe_policy(policy())
    weigh(bench.planner, secret="", team="")
    fill(bench)
    await bench.tick()
    for _ in range(after):
        bench.now += 600
        await bench.tick()
    bench.submit(gang("mine", created=10))
    other = gang("other", created=20)
    other.raw["metadata"]["namespace"] = "secret"
    bench.submit(other)
    for _ in range(2):
        bench.now += 5
        await bench.tick()
    return bench


async def test_a_job_shows_that_another_namespace_used_less_and_not_which() -> None:
    bench = await behind(after=3)
    _, sentence = last_verdict(bench, "mine")
    want = "1 job is ahead in the queue; it is behind a namespace that used less (0 % against 29 %"
    assert want in sentence
    assert "secret" not in sentence
    assert "used less" not in last_verdict(bench, "other")[1]


async def test_a_job_shows_small_usage_without_percentages() -> None:
    bench = await behind(after=0)
    assert "is behind a namespace that used less" in last_verdict(bench, "mine")[1]
    assert "%" not in last_verdict(bench, "mine")[1]


async def test_a_job_of_weight_0_shows_its_weight() -> None:
    bench = Bench()
    bench.planner.settings.observe_policy(policy())
    weigh(bench.planner, other="", team="0")
    fill(bench)
    bench.submit(gang("mine", created=10))
    other = gang("other", created=20)
    other.raw["metadata"]["namespace"] = "other"
    bench.submit(other)
    await bench.tick()
    bench.now += 5
    await bench.tick()
    assert "its namespace has weight 0 and comes last" in last_verdict(bench, "mine")[1]
