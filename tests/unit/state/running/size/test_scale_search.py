"""The cost of a change of size, and the search for donors, in a simulated cluster."""

from dataclasses import replace

import pytest

from kfext.core.queue.duration import START_SECONDS
from kfext.model.label_selector import LabelSelector
from kfext.model.log_line import LogLine
from kfext.model.namespace import Namespace
from kfext.model.pod import Pod
from kfext.model.policy import PolicyChoice, TrainingPolicy
from kfext.names import MANAGED
from kfext.sim.jobs import JobSpec
from kfext.state.running.capacity_search import CapacitySearch
from kfext.state.running.operation import Phase
from kfext.state.running.restarts import expected_restart
from kfext.state.running.running_job import RunningJob
from kfext.state.running.size.executor import SizeExecutor
from kfext.state.running.size.record import SizeRecord
from kfext.state.running.size.record import record_of as size_record
from kfext.state.running.size.size_monitor import WATCHED_SECONDS
from tests.builders import executor_of
from tests.unit.sim.bed import ANEW, DYNAMIC, GANG, LONG, PERIODIC, Bed, scaled_bed, sizes

GROWS = replace(PERIODIC, workers=2, bounds=(1, 3), steps=100_000)
"""Its pods start in 10 s, their rendezvous takes 8 s, and it prints a step a second later."""
DOWNTIME = GROWS.starts + GROWS.meets + 1
LATE = 4.0
"""The most seconds that the simulation takes to write a step, three, and to bind a pod, one."""


def size_of(bed: Bed) -> SizeRecord:
    return size_record(executor_of(bed.planner, SizeExecutor).jobs["uid-train"])


def downtime(bed: Bed) -> float:
    return executor_of(bed.planner, SizeExecutor).jobs["uid-train"].restart.downtime


def cost_of(bed: Bed, *, now: float) -> float:
    sizes = executor_of(bed.planner, SizeExecutor)
    return sizes._scale._search.cost(sizes.jobs["uid-train"], now=now)


def until_changed(bed: Bed) -> Bed:
    while not sizes(bed):
        bed.at(bed.clock.now + 1)
        assert bed.clock.now < 1000
    return bed


def print_step_before_rendezvous(bed: Bed) -> None:
    """Let the old processes print another step once all workers run."""
    while size_of(bed).phase is not Phase.MEASURING:
        bed.at(bed.clock.now + 0.5)
    training = bed.job().training
    training.lines.append(LogLine(bed.clock.wall + 1, f"step {int(training.done) + 20} loss=1.0"))


@pytest.mark.parametrize("grace", [2.0, 30.0])
def test_the_expected_downtime_of_a_first_change_is_the_start_of_the_job(grace: float) -> None:
    bed = scaled_bed(replace(GROWS, grace=grace)).at(60)
    created = max(live.pod.created for live in bed.job().pods.values())
    began = bed.job().training.began
    assert began is not None
    first_step = bed.clock.wall + began + 1 - bed.clock.now
    assert downtime(bed) == first_step - created + grace
    assert DOWNTIME <= downtime(bed) - grace <= DOWNTIME + LATE


def test_the_expected_downtime_of_a_later_change_is_as_of_the_last_change() -> None:
    bed = until_changed(scaled_bed(GROWS))
    bed.at(bed.clock.now + WATCHED_SECONDS)
    assert DOWNTIME <= downtime(bed) <= DOWNTIME + LATE


def test_a_step_of_the_old_processes_before_the_rendezvous_does_not_end_the_downtime() -> None:
    bed = until_changed(scaled_bed(GROWS))
    print_step_before_rendezvous(bed)
    bed.at(bed.clock.now + WATCHED_SECONDS)
    assert DOWNTIME <= downtime(bed) <= DOWNTIME + LATE


def test_a_silence_long_after_a_change_does_not_count_as_its_downtime() -> None:
    bed = until_changed(scaled_bed(GROWS))
    bed.at(bed.clock.now + DOWNTIME + WATCHED_SECONDS + 10)
    measured = downtime(bed)
    later = bed.clock.wall + 500.0
    bed.job().training.lines.append(LogLine(later, "step 99999 loss=1.0"))
    bed.at(bed.clock.now + 600)
    assert downtime(bed) == measured


LOST_WORK: dict[str, tuple[JobSpec, float, float]] = {
    "torchrun: its work since the checkpoint": (PERIODIC, 4.0, 4.0),
    "at most FRESH_SECONDS of work": (PERIODIC, 100.0, 10.0),
    "a job that is stopped for it: its work since the checkpoint": (ANEW, 4.0, 4.0),
    "a job with a clock that is ahead: no work": (PERIODIC, -5.0, 0.0),
    "a job that saves on request: no work": (LONG, 4.0, 0.0),
}


@pytest.mark.parametrize(("spec", "ago", "lost"), LOST_WORK.values(), ids=LOST_WORK)
def test_a_change_also_costs_lost_work(spec: JobSpec, ago: float, lost: float) -> None:
    bed = scaled_bed(spec).at(60)
    saved = bed.planner.progress.followed("uid-train").checkpoints.saved or bed.clock.wall
    assert cost_of(bed, now=saved + ago) == pytest.approx(downtime(bed) + lost)


def test_a_start_that_kfext_did_not_observe_costs_an_estimate_and_the_grace_period() -> None:
    bed = scaled_bed(replace(LONG, grace=25.0)).at(60)
    bed.restart()
    bed.at(120)
    assert downtime(bed) == 0
    assert cost_of(bed, now=bed.clock.wall) == START_SECONDS + 25.0


def test_a_change_costs_only_a_start_if_the_other_workers_continue_to_train() -> None:
    bed = scaled_bed(replace(DYNAMIC, grace=30.0), GANG).at(60)
    start = downtime(bed)
    until_changed(bed).after(60)
    assert downtime(bed) == start
    assert 0 < cost_of(bed, now=bed.clock.wall) == start - 30


def test_a_stop_is_expected_to_cost_more_than_a_change_in_place() -> None:
    bed = until_changed(scaled_bed(replace(GROWS, grace=60.0)))
    bed.after(WATCHED_SECONDS)
    job = executor_of(bed.planner, SizeExecutor).jobs["uid-train"]
    assert job.restart.downtime <= DOWNTIME + LATE
    assert expected_restart(job) == START_SECONDS + 60


def test_the_downtime_of_a_start_is_written_with_the_first_change() -> None:
    bed = scaled_bed(LONG, GANG).at(60)
    start = downtime(bed)
    until_changed(bed)
    assert start > 0
    assert bed.planner.cluster.jobs["uid-train"].state.scale.pause == start


DONOR, WAITING = "donor", "waiting"


def in_two_namespaces(bed: Bed, *forbidding: str) -> Bed:
    """Show the planner two namespaces; `forbidding` do not scale across namespaces."""
    for name in (DONOR, WAITING):
        namespace = Namespace(name, labels={MANAGED: "true", "name": name})
        bed.planner.settings.observe_namespace(None, namespace)
    for name in forbidding:
        within = PolicyChoice(parameters={"acrossNamespaces": 0})
        selector = LabelSelector({"name": name})
        policy = TrainingPolicy(name, selector=selector, companion={"scale": within})
        bed.planner.settings.observe_policy(policy)
    return bed


ACROSS: dict[str, tuple[str, tuple[str, ...], list[int]]] = {
    "both allow it": (WAITING, (), [2]),
    "the namespace of the waiting job does not allow it": (WAITING, (WAITING,), []),
    "the namespace of the donor does not allow it": (WAITING, (DONOR,), []),
    "within a namespace it needs no permission": (DONOR, (DONOR,), [2]),
}


@pytest.mark.parametrize(("namespace", "forbidding", "changes"), ACROSS.values(), ids=ACROSS)
def test_jobs_give_across_namespaces_only_if_both_allow_it(
    namespace: str, forbidding: tuple[str, ...], changes: list[int]
) -> None:
    gang = replace(GANG, namespace=namespace)
    bed = in_two_namespaces(scaled_bed(replace(LONG, namespace=DONOR), gang), *forbidding).at(150)
    assert sizes(bed) == changes
    assert (bed.job("gang").training.began is not None) == bool(changes)


def test_a_job_that_no_donor_can_help_does_not_keep_the_next_job_from_a_rescue() -> None:
    never = replace(GANG, name="never", workers=1, cpu=4500, uses=4500, arrives=50.0)
    bed = scaled_bed(LONG, never, replace(GANG, arrives=60.0), cpu=4500)
    daemon = Pod("kube-system", "agent", "agent", node_name="a", requests={"cpu": 500})
    bed.planner.cluster.observe_pod(None, daemon)
    bed.at(450)
    assert bed.job("never").training.began is None
    assert bed.job("gang").training.began is not None


def test_capacity_for_growth_is_searched_again_only_after_capacity_was_released(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = replace(GANG, arrives=0.0, workers=2, steps=2000)
    bed = scaled_bed(replace(LONG, workers=2), other, cpu=4000).at(300)
    searched: list[int] = []
    more_places = CapacitySearch.more_places

    def recording(search: CapacitySearch, job: RunningJob, workers: int, *, now: float) -> object:
        searched.append(workers)
        return more_places(search, job, workers, now=now)

    monkeypatch.setattr(CapacitySearch, "more_places", recording)
    bed.at(600)
    assert searched == []
    assert sizes(bed) == []
    bed.at(3000)
    assert bed.job("gang").job.finished
    assert sizes(bed) == [3]
