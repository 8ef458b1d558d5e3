"""The failed pods that count against a node: for the job itself, and for all jobs."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Self

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext import names
from kfext.model.moment import Moment
from kfext.model.plan import Plan
from kfext.model.pod import Pod, ReplicaKey
from kfext.model.snapshot import FailedStart
from kfext.model.timestamps import written_time
from kfext.state.mirror.cluster import Cluster
from kfext.state.mirror.tracked_job import TrackedJob
from kfext.state.reports.failed_starts import (
    CURED_SECONDS,
    LASTS_SECONDS,
    START_SECONDS,
    WINDOW_SECONDS,
    FailedStarts,
    suspicions,
)
from tests.builders import job, node, pod

NOW = 1_000_000.0
HOUR = 3600.0


def cured(
    namespace: str, series: str, ago: float = HOUR, node: str = "bad", *, ran: bool = False
) -> FailedStart:
    job, series = f"{namespace} {series} {ago} {ran}", f"{namespace}/{series}"
    return FailedStart(node, job, namespace, series, NOW - ago, cured=True, ran=ran)


def ran(namespace: str, series: str, ago: float) -> FailedStart:
    return cured(namespace, series, ago, ran=True)


def three(ago: float) -> list[FailedStart]:
    """Return three failures of two series of a namespace; the last was `ago` seconds ago."""
    return [cured("team", series, ago + more) for more, series in enumerate("abb")]


OWN = [cured("team", "a"), cured("team", "a", 2 * HOUR), cured("team", "b")]
OF_THREE = [cured("x", "a"), cured("y", "a"), cured("z", "a")]
CASES: dict[str, tuple[list[FailedStart], bool, bool]] = {
    "nothing has failed": ([], False, False),
    "three jobs of two series of the namespace": (OWN, True, False),
    "two jobs of two series of the namespace": (OWN[1:], False, False),
    "many jobs of one series": ([cured("team", "a", ago) for ago in range(9)], False, False),
    "any number of jobs and series of one other namespace": (
        [cured("x", f"series-{number}") for number in range(9)],
        False,
        False,
    ),
    "three other namespaces": (OF_THREE, True, True),
    "two other namespaces, and a job of the namespace": (
        [*OF_THREE[:2], cured("team", "a")],
        True,
        True,
    ),
    "another namespace, and two jobs of the namespace": ([OF_THREE[0], *OWN[1:]], True, False),
    "the first failure was more than 6 h before the last": (
        [*OWN[:2], cured("team", "b", HOUR - WINDOW_SECONDS)],
        False,
        False,
    ),
    "the last was 24 h ago": (three(LASTS_SECONDS), False, False),
    "the last was nearly 24 h ago": (three(LASTS_SECONDS - 9), True, False),
    "three jobs failed, and a job of the namespace has run there since": (
        [*OWN, ran("team", "a", 60)],
        False,
        False,
    ),
    "three jobs failed after a job of the namespace ran there": (
        [ran("team", "a", 3 * HOUR), *OWN],
        True,
        False,
    ),
    "four jobs failed, and a job of the namespace has run there since": (
        [*OWN, cured("team", "b", 3 * HOUR), ran("team", "a", 60)],
        True,
        False,
    ),
    "three jobs failed, one ran, and another failed": (
        [*OWN, ran("team", "a", 60), cured("team", "b", 30)],
        True,
        False,
    ),
    "four other namespaces, and any number of jobs of a fifth have run there since": (
        [*OF_THREE, cured("w", "a"), *(ran("v", "a", ago) for ago in range(9))],
        True,
        True,
    ),
    "three other namespaces, and a job of a fourth has run there since": (
        [*OF_THREE, ran("v", "a", 60)],
        False,
        False,
    ),
    "four other namespaces, and a job of one of them has run there since": (
        [*OF_THREE, cured("w", "a"), ran("w", "b", 60)],
        False,
        False,
    ),
    "on three nodes": ([cured(name, "a", node=name) for name in "xyz"], False, False),
    "the clock was set back since": ([cured(name, "a", -HOUR) for name in "xyz"], False, False),
    "the clock was set back between them": ([*OF_THREE[:2], cured("z", "a", -HOUR)], False, False),
}


@pytest.mark.parametrize(("failures", "for_team", "for_others"), CASES.values(), ids=CASES)
def test_whether_a_node_is_suspect(
    failures: list[FailedStart], *, for_team: bool, for_others: bool
) -> None:
    for namespace, want in (("team", for_team), ("", for_others)):
        result = suspicions(failures, namespace=namespace, now=NOW)
        assert set(result) == ({"bad"} if want else set()), namespace


def test_a_suspicion_states_its_time_and_evidence() -> None:
    result = suspicions([*OWN, cured("x", "a"), cured("x", "b")], namespace="team", now=NOW)
    until = written_time(NOW - HOUR + LASTS_SECONDS)
    assert result["bad"].startswith("4 jobs of 3 series failed here at their start")
    assert result["bad"].endswith(f"; the jobs of one namespace use it last until {until}")


some_failures = st.lists(
    st.builds(
        cured,
        st.sampled_from(["team", "x"]),
        st.sampled_from("abc"),
        st.floats(0, 2 * LASTS_SECONDS),
        st.sampled_from("mn"),
        ran=st.booleans(),
    )
)


@given(some_failures)
def test_two_namespaces_never_accuse_a_node_for_a_third(failures: list[FailedStart]) -> None:
    assert suspicions(failures, namespace="", now=NOW) == {}


@given(some_failures, st.sampled_from(["team", "x", ""]))
def test_the_order_in_which_failures_were_recorded_does_not_matter(
    failures: list[FailedStart], namespace: str
) -> None:
    result = suspicions(failures, namespace=namespace, now=NOW)
    assert result == suspicions(failures[::-1], namespace=namespace, now=NOW)


@given(some_failures, st.sampled_from(["team", "x", ""]))
def test_a_job_that_ran_there_never_makes_a_node_suspect(
    failures: list[FailedStart], namespace: str
) -> None:
    alone = [failure for failure in failures if not failure.ran]
    result = suspicions(failures, namespace=namespace, now=NOW)
    assert result.keys() <= suspicions(alone, namespace=namespace, now=NOW).keys()


# --- which failures count ------------------------------------------------------------------------

SERIES = ("alpha", "beta", "gamma")


class Bed:
    """A cluster in which jobs start, fail and run; each start has a new plan."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.starts = FailedStarts(self.cluster)
        self.wall, self.monotonic, self.number = 1_000_000.0, 50.0, 0

    def after(self, seconds: float) -> Self:
        self.wall, self.monotonic = self.wall + seconds, self.monotonic + seconds
        self.cluster.settle(self.monotonic)
        self.starts.settle(Moment(wall=self.wall, monotonic=self.monotonic))
        return self

    def job(self, name: str) -> TrackedJob:
        return self.cluster.jobs[f"uid-{name}"]

    def add(self, *nodes: str) -> Self:
        """Add the nodes that do not exist yet."""
        for name in nodes:
            if self.cluster.ledger.row(name) is None:
                self.cluster.observe_node(None, node(name))
        return self

    def start(self, name: str, *nodes: str, namespace: str = "team") -> list[Pod]:
        """Start a job under a new plan; return its pods, which run on their planned nodes."""
        self.add(*nodes)
        self.number += 1
        places = {ReplicaKey("worker", index): node for index, node in enumerate(nodes)}
        builder = job(name=name, uid=f"uid-{name}").worker(len(nodes), cpu="1").resumed()
        builder.raw["metadata"]["namespace"] = namespace
        plan = Plan(f"uid-{name}", self.number, places).encode()
        self.cluster.observe_job(builder.annotated(names.PLAN, plan).version(self.number).raw)
        pods = [
            replace(
                pod(builder.build(), "worker", index, bound=node, phase="Running"),
                uid=f"pod-{self.number}-{index}",
                created=self.wall,
            )
            for index, node in enumerate(nodes)
        ]
        for each in pods:
            self.cluster.observe_pod(None, each)
        return pods

    def end(self, pods: list[Pod], *, phase: str = "Failed", deleting: bool = False) -> Self:
        """End pods, which the operator then deletes; kfext sees both at once."""
        for each in pods:
            ended = replace(each, phase=phase, deleting=deleting)
            self.cluster.observe_pod(each, ended)
            self.cluster.observe_pod(ended, None)
        return self.after(0.0)

    def fail(self, name: str, *nodes: str, after: float = 10.0, namespace: str = "team") -> Self:
        pods = self.start(name, *nodes, namespace=namespace)
        return self.after(after).end(pods)

    def run(
        self, name: str, *nodes: str, seconds: float = CURED_SECONDS, namespace: str = "team"
    ) -> Self:
        pods = self.start(name, *nodes, namespace=namespace)
        self.job(name).phase = names.PLACED
        return self.after(0.0).after(seconds).after(10.0).end(pods, phase="Succeeded")

    def cure(self, name: str, namespace: str = "team") -> Self:
        """Let a job fail on the node `bad`, and then run on the node `good`."""
        failed = self.fail(name, "bad", namespace=namespace)
        return failed.run(name, "good", namespace=namespace)

    def succeed(self, name: str, node: str) -> Self:
        """Let a job run on a node, and succeed at once."""
        self.start(name, node)
        self.number += 1
        plan = Plan(f"uid-{name}", self.number, {ReplicaKey("worker", 0): node}).encode()
        builder = job(name=name, uid=f"uid-{name}").worker(1, cpu="1").resumed()
        builder.condition("Succeeded").annotated(names.PLAN, plan).version(self.number)
        self.cluster.observe_job(builder.raw)
        return self.after(10.0)

    def suspects(self, namespace: str = "team") -> set[str]:
        """Return the nodes that a new job of a namespace avoids."""
        name = f"new-{self.number}"
        self.start(name, "elsewhere", namespace=namespace)
        return set(self.starts.doubted(self.job(name)))


# --- the job itself -----------------------------------------------------------------------------

AVOIDED: dict[str, tuple[Callable[[Bed], object], set[str], set[str]]] = {
    "no start has failed": (lambda bed: bed.run("alpha", "a", seconds=1.0), set(), set()),
    "its start failed on a": (lambda bed: bed.fail("alpha", "a"), {"a"}, {"a"}),
    "it failed after minutes": (
        lambda bed: bed.fail("alpha", "a", after=START_SECONDS + 1),
        set(),
        set(),
    ),
    "its pods were deleted at its start, and ended": (
        lambda bed: bed.end(bed.start("alpha", "a"), deleting=True),
        set(),
        set(),
    ),
    "its pods succeeded at once": (
        lambda bed: bed.end(bed.start("alpha", "a"), phase="Succeeded"),
        set(),
        set(),
    ),
    "a pod of its name ran where kfext had not planned it": (
        lambda bed: bed.end([replace(bed.start("alpha", "a")[0], uid="forged", node_name="b")]),
        set(),
        set(),
    ),
    "two pods failed on two nodes: the first is avoided": (
        lambda bed: bed.fail("alpha", "a", "b"),
        {"a"},
        {"a"},
    ),
    "it failed on a, and then on b": (
        lambda bed: bed.fail("alpha", "a").fail("alpha", "b"),
        {"a", "b"},
        {"b"},
    ),
}


@pytest.mark.parametrize(("act", "doubted", "under_plan"), AVOIDED.values(), ids=AVOIDED)
def test_the_nodes_that_a_job_avoids(
    act: Callable[[Bed], object], doubted: set[str], under_plan: set[str]
) -> None:
    bed = Bed()
    act(bed)
    assert bed.starts.doubted(bed.job("alpha")) == doubted
    assert bed.starts.failed_on(bed.job("alpha")) == under_plan


def test_a_node_is_blamed_once_the_same_replica_has_failed_there_twice() -> None:
    bed = Bed()
    pods = bed.start("alpha", "a", "a")
    results = []
    for number, index in enumerate((0, 1, 0)):
        again = replace(pods[index], uid=f"again-{number}", created=bed.wall)
        bed.cluster.observe_pod(None, again)
        bed.after(10.0).end([again])
        results.append(bed.starts.failed_on(bed.job("alpha"), twice=True))
    assert results == [set(), set(), {"a"}]


def test_the_failed_start_of_a_job_does_not_affect_another_job() -> None:
    bed = Bed()
    bed.fail("alpha", "a")
    bed.start("beta", "a")
    assert bed.starts.doubted(bed.job("beta")) == set()


def test_a_cured_job_avoids_no_node() -> None:
    bed = Bed()
    bed.cure("alpha")
    assert bed.starts.doubted(bed.job("alpha")) == set()


def test_a_deleted_job_is_forgotten() -> None:
    bed = Bed()
    bed.fail("alpha", "a")
    bed.cluster.forget_job("uid-alpha")
    bed.after(20.0)
    assert bed.starts.uncured == {}


# --- all jobs -----------------------------------------------------------------------------------


def for_each_series(bed: Bed, act: Callable[[Bed, str], object]) -> None:
    for name in SERIES:
        act(bed, name)
        bed.after(10.0)


CURES: dict[str, tuple[Callable[[Bed, str], object], bool]] = {
    "it fails there, and runs on another node": (Bed.cure, True),
    "it fails there, and ends well on another node at once": (
        lambda bed, name: bed.fail(name, "bad").succeed(name, "good"),
        True,
    ),
    "it fails there, and runs on another node for a shorter time": (
        lambda bed, name: bed.fail(name, "bad").run(name, "good", seconds=200.0),
        False,
    ),
    "it fails there, and runs there": (
        lambda bed, name: bed.fail(name, "bad").run(name, "bad"),
        False,
    ),
    "it fails on each node": (
        lambda bed, name: bed.fail(name, "bad").fail(name, "good").fail(name, "bad"),
        False,
    ),
    "it fails late": (
        lambda bed, name: bed.fail(name, "bad", after=300.0).run(name, "good"),
        False,
    ),
    "its pods fail on two nodes in one start": (
        lambda bed, name: bed.fail(name, "bad", "other").run(name, "good", "good"),
        False,
    ),
    "it fails there, runs on another node, and another job runs there": (
        lambda bed, name: bed.cure(name).run(f"{name}-2", "bad"),
        False,
    ),
    "it fails there, runs on another node, and another job runs there for a shorter time": (
        lambda bed, name: bed.cure(name).run(f"{name}-2", "bad", seconds=200.0),
        True,
    ),
    "two of its pods fail there": (
        lambda bed, name: bed.fail(name, "bad", "bad").run(name, "good", "good"),
        True,
    ),
}


@pytest.mark.parametrize(("cure", "suspect"), CURES.values(), ids=CURES)
def test_the_failures_that_make_a_node_suspect(
    cure: Callable[[Bed, str], object], *, suspect: bool
) -> None:
    bed = Bed()
    for_each_series(bed, cure)
    assert bed.suspects() == ({"bad"} if suspect else set())


def test_a_job_that_ran_there_before_the_failures_cancels_no_failure() -> None:
    bed = Bed()
    bed.start("old", "bad")
    for_each_series(bed.after(1000.0), Bed.cure)
    assert bed.suspects() == {"bad"}


def test_jobs_of_one_namespace_accuse_a_node_for_that_namespace_alone() -> None:
    bed = Bed()
    for_each_series(bed, Bed.cure)
    assert (bed.suspects(), bed.suspects("other")) == ({"bad"}, set())
    (why,) = bed.starts.suspects().values()
    assert why.startswith(
        "3 jobs of 3 series failed here at their start and then ran on other nodes; the jobs of one"
    )


def test_jobs_of_three_namespaces_accuse_a_node_for_all_jobs_for_a_day() -> None:
    bed = Bed()
    for namespace in ("x", "y", "z"):
        bed.cure(f"alpha-{namespace}", namespace=namespace)
    assert (bed.suspects(), bed.suspects("x")) == ({"bad"}, {"bad"})
    assert "; all jobs use it last until 1970-01-1" in bed.starts.suspects()["bad"]
    bed.after(LASTS_SECONDS)
    assert (bed.suspects(), bed.starts.suspects()) == (set(), {})


def test_the_nodes_that_a_namespace_accuses_come_after_the_suspects_of_all() -> None:
    own = [
        cured("a-tenant", f"{job % 2}", ago=HOUR + job, node=f"node-{number}")
        for number in range(9)
        for job in range(3)
    ]
    bed = Bed().add("bad", *(each.node for each in own))
    bed.starts.restore([*own, *OF_THREE])
    bed.after(0.0)
    assert (len(bed.starts.suspects()), next(iter(bed.starts.suspects()))) == (10, "bad")
    assert set(bed.starts.suspects_of_all) == {"bad"}


def test_a_removed_node_is_no_suspect() -> None:
    bed = Bed()
    for_each_series(bed, Bed.cure)
    bed.cluster.observe_node(node("bad"), None)
    bed.after(10.0)
    assert (bed.starts.suspects(), bed.starts.cured) == ({}, ())


def test_a_suspect_of_all_namespaces_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[str] = []

    def record(failures: Sequence[FailedStart], *, namespace: str, now: float) -> dict[str, str]:
        computed.append(namespace)
        return suspicions(failures, namespace=namespace, now=now)

    monkeypatch.setattr("kfext.state.reports.failed_starts.suspicions", record)
    bed = Bed().add("bad")
    bed.starts.restore([cured(f"team-{number}", "a") for number in range(40)])
    bed.after(0.0)
    assert (set(bed.starts.suspects()), computed) == ({"bad"}, [""])


def test_a_suspicion_pauses_while_the_clock_is_behind() -> None:
    bed = Bed()
    for_each_series(bed, Bed.cure)
    bed.wall -= 7200.0
    bed.after(10.0)
    assert bed.suspects() == set()
    bed.wall += 7200.0
    bed.after(10.0)
    assert bed.suspects() == {"bad"}


def test_a_new_controller_suspects_no_node_until_jobs_fail_again() -> None:
    bed = Bed()
    for_each_series(bed, Bed.cure)
    bed.starts = FailedStarts(bed.cluster)
    bed.after(10.0)
    assert bed.suspects() == set()
    for_each_series(bed, lambda bed, name: bed.cure(f"{name}-again"))
    assert bed.suspects() == {"bad"}


def test_a_planner_from_a_snapshot_suspects_the_same_nodes() -> None:
    bed = Bed()
    for_each_series(bed, Bed.cure)
    bed.fail("alpha-2", "a")
    before, bed.starts = bed.starts, FailedStarts(bed.cluster)
    bed.starts.restore(before.all)
    bed.after(10.0)
    assert bed.starts.doubted(bed.job("alpha-2")) == before.doubted(bed.job("alpha-2"))
    assert bed.starts.suspects() == before.suspects()


def test_the_records_of_a_namespace_are_bounded() -> None:
    bed = Bed()
    for number in range(50):
        bed.fail("poison", f"node-{number}")
        bed.cure(f"alpha-{number}")
    assert len(bed.starts.uncured["uid-poison"]) == 8
    assert len([each for each in bed.starts.cured if each.node == "bad"]) == 4


def test_a_standby_keeps_no_failed_pods() -> None:
    bed = Bed()
    (running,) = bed.start("alpha", "a")
    bed.cluster.observe_pod(running, replace(running, phase="Failed"))
    bed.cluster.stand_by(bed.monotonic)
    assert bed.cluster.failed == []
