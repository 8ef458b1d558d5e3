"""A plan is checked before it is believed: whoever may edit a job might write one."""

from collections.abc import Callable

import pytest

from kfext import names
from kfext.core.lifecycle.next_step import NOTICE_SECONDS
from kfext.core.lifecycle.steps import Release, Unsuspend
from kfext.model.moment import Moment
from kfext.model.namespace import Namespace
from kfext.model.plan import Plan
from kfext.model.pod import ReplicaKey
from kfext.names import REASON_NO_ROOM
from kfext.state.planner import Planner
from kfext.state.recording import planner_of, snapshot_of
from tests.builders import JobBuilder, job, node, pod

START = Moment(wall=1000.0, monotonic=300.0)
OPTED_IN = {names.MANAGED: "true"}


def after(seconds: float) -> Moment:
    return Moment(wall=START.wall + seconds, monotonic=START.monotonic + seconds)


@pytest.fixture
def planner() -> Planner:
    """Two nodes of four CPUs; the team is opted in."""
    made = Planner()
    made.settings.observe_namespace(None, Namespace("team", OPTED_IN))
    for name in "ab":
        made.cluster.observe_node(None, node(name, cpu="4"))
    return made


def planned(where: str = "ab", *, pods: int = 8, cpu: str = "1") -> JobBuilder:
    """A job that runs under a plan over some nodes, and has no pod yet."""
    places = {ReplicaKey("worker", n): where[n % len(where)] for n in range(pods)}
    made = job(name="forged", uid="forged").worker(pods, cpu=cpu).resumed()
    return made.annotated(names.PLAN, Plan("forged", 1, places).encode())


def elsewhere(made: JobBuilder) -> JobBuilder:
    made.raw["metadata"]["namespace"] = "theirs"
    return made


def another_system(made: JobBuilder) -> JobBuilder:
    made.raw["spec"]["runPolicy"]["managedBy"] = "kueue.x-k8s.io/multikueue"
    return made


def of_masters(made: JobBuilder) -> JobBuilder:
    specs = made.raw["spec"]["pytorchReplicaSpecs"]
    specs["Master"] = specs.pop("Worker")
    return made


def submit(planner: Planner, *made: JobBuilder) -> None:
    for one in made:
        planner.cluster.observe_job(one.raw)


def starts(planner: Planner, now: Moment = START) -> list[str]:
    """The jobs that are started now."""
    planner.cluster.mark_queue()
    steps = planner.tick(now).steps
    return [tracked.job.name for tracked, step in steps if isinstance(step, Unsuspend)]


def victim() -> JobBuilder:
    return job(name="victim", uid="victim").worker(2, cpu="1").held().created(900)


UNBELIEVED: dict[str, Callable[[], JobBuilder]] = {
    "in a namespace that is not opted in": lambda: elsewhere(planned()),
    "of a job that another system runs": lambda: another_system(planned()),
    "of a job too large to be planned": lambda: planned().worker(10_001, cpu="1"),
    "of replicas that the job has not": lambda: planned().worker(0, cpu="1"),
    "of a type that the job has not": lambda: of_masters(planned()),
    "on nodes that do not exist": lambda: planned("xyz", pods=600),
}


@pytest.mark.parametrize("forged", UNBELIEVED.values(), ids=UNBELIEVED)
def test_a_plan_that_is_not_believed_keeps_nobody_waiting(
    planner: Planner, forged: Callable[[], JobBuilder]
) -> None:
    submit(planner, forged(), victim())
    assert starts(planner) == ["victim"]
    assert planner.cluster.backlog.missing("forged") == 0


def test_a_plan_of_a_job_that_the_operator_runs_is_believed(planner: Planner) -> None:
    submit(planner, planned(), victim())
    assert starts(planner) == []
    assert planner.cluster.backlog.missing("forged") == 8


def test_a_namespace_that_is_opted_out_frees_what_its_plans_claim(planner: Planner) -> None:
    submit(planner, planned(), elsewhere(victim()))
    planner.settings.observe_namespace(None, Namespace("theirs", OPTED_IN))
    assert starts(planner) == []
    team = Namespace("team", OPTED_IN)
    planner.settings.observe_namespace(team, Namespace("team"))
    assert starts(planner) == ["victim"]
    planner.settings.observe_namespace(Namespace("team"), team)
    planner.tick(START)
    assert planner.cluster.backlog.missing("forged") == 8


def test_a_queued_job_is_released_some_time_after_its_namespace_was_opted_out(
    planner: Planner,
) -> None:
    submit(planner, planned(), victim())
    assert starts(planner) == []
    planner.settings.observe_namespace(None, Namespace("team"))
    found = {}
    for seconds in (100, 100 + NOTICE_SECONDS - 1, 100 + NOTICE_SECONDS):
        steps = planner.tick(after(seconds)).steps
        found[seconds - 100] = [type(step) for _, step in steps]
    assert found == {0: [], NOTICE_SECONDS - 1: [], NOTICE_SECONDS: [Release]}


def test_pods_that_are_planned_on_a_node_are_waited_for_while_it_exists(planner: Planner) -> None:
    submit(planner, planned("c"))
    expected = []
    for old, new in ((None, node("c")), (node("c"), None), (None, node("c"))):
        planner.cluster.observe_node(old, new)
        planner.tick(START)
        expected.append(planner.cluster.backlog.missing("forged"))
    assert expected == [8, 0, 8]


def test_a_plan_of_kueue_s_job_lapses_when_its_pods_do_not_come(planner: Planner) -> None:
    submit(planner, planned().queued_by_kueue(), victim())
    assert starts(planner) == []
    assert planner.cluster.jobs["victim"].verdict.reason == REASON_NO_ROOM  # type: ignore[union-attr]
    assert planner.next_alarm() <= after(60).monotonic
    again = planner_of(snapshot_of(planner, after(59)), after(59))
    for one in (planner, again):
        assert starts(one, after(59)) == []
        assert starts(one, after(61)) == ["victim"]


def test_that_a_plan_has_lapsed_is_known_from_a_snapshot(planner: Planner) -> None:
    submit(planner, planned().queued_by_kueue())
    planner.tick(START)
    planner.tick(after(61))
    again = planner_of(snapshot_of(planner, after(61)), after(61))
    assert len(again.cluster.ledger) == len(planner.cluster.ledger) == 0


def test_a_plan_claims_again_when_the_pods_come_after_all(planner: Planner) -> None:
    of = planned().queued_by_kueue()
    submit(planner, of)
    planner.tick(START)
    planner.tick(after(61))
    assert len(planner.cluster.ledger) == 0
    planner.cluster.observe_pod(None, pod(of.build(), "worker", 0, gated=True))
    planner.tick(after(62))
    assert len(planner.cluster.ledger) == 8


def test_a_plan_does_not_claim_for_ever_for_pods_that_the_webhook_missed(planner: Planner) -> None:
    of = planned(pods=3, where="a", cpu="2")
    submit(planner, of)
    for index in range(3):
        planner.cluster.observe_pod(None, pod(of.build(), "worker", index))
    planner.tick(START)
    assert len(planner.cluster.ledger) == 3
    planner.tick(after(61))
    assert len(planner.cluster.ledger) == 0
