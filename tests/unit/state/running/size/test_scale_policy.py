"""The policy scale in a simulated cluster: rescues, growth, edits and conditions.

Names with D3 or another code check the statements of tests/statements.md.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest

from kfext import names
from kfext.core.lifecycle.steps import RequestCheckpoint, Rescale, RestartWorkers
from kfext.core.patches.job import user_release_patch
from kfext.model.label_selector import parse_selector
from kfext.model.namespace import Namespace
from kfext.model.policy import Mode, PolicyChoice, TrainingPolicy
from kfext.model.quota import Quota
from kfext.model.timestamps import written_time
from kfext.sim.api import TEAM
from kfext.sim.jobs import JobSpec, Pace, Saving
from kfext.state.running.operation import Phase
from kfext.state.running.size.executor import SizeExecutor
from kfext.state.running.size.record import record_of as size_record
from tests.builders import executor_of
from tests.unit.sim.bed import ANEW, DYNAMIC, GANG, LONG, PERIODIC, Bed, refuse, scaled_bed, sizes


def shown(bed: Bed) -> tuple[bool | None, str]:
    result = bed.driver.shown["train", names.SCALED]
    assert result is not None
    return result.holds, result.verdict.reason


def message(bed: Bed) -> str:
    result = bed.driver.shown["train", names.SCALED]
    assert result is not None
    return result.verdict.message


def until_started(bed: Bed, *, by: float = 400.0) -> None:
    bed.at(by)
    assert bed.job("gang").training.began is not None


def until_changed(bed: Bed) -> None:
    while not sizes(bed):
        bed.at(bed.clock.now + 1)


DONORS = {
    "torchrun, which saves on request": (LONG, 2),
    "torchrun, which saves periodically": (PERIODIC, 2),
    "a TFJob with dynamic workers": (DYNAMIC, 1),
    "a TFJob that is suspended for the change": (ANEW, 1),
}


@pytest.mark.parametrize(("donor", "least"), DONORS.values(), ids=DONORS)
def test_a_donor_releases_workers_and_regains_them(donor: JobSpec, least: int) -> None:
    bed = scaled_bed(donor, GANG)
    bed.at(104)
    assert sizes(bed) == []
    until_started(bed)
    assert sizes(bed)[0] == least
    bed.at(1500)
    assert bed.job("gang").job.finished
    assert sizes(bed) == [least, donor.workers]
    assert shown(bed) == (False, names.REASON_AS_ASKED)
    assert not bed.job().job.has("Failed")
    assert bed.job().training.lost_all == 0


def test_no_job_scales_down_for_a_long_job_of_unknown_length() -> None:
    donor = replace(LONG, bounds=(1, 4), steps=4200)
    waiting = replace(GANG, arrives=300.0, workers=3, steps=21_600, shows_end=False, deadline=None)
    bed = scaled_bed(donor, waiting).at(1400)
    assert bed.job().job.finished
    assert sizes(bed) == []


def test_the_plan_has_the_time_and_the_reason_of_the_size() -> None:
    bed = Bed(LONG, GANG, policy=None, late_writes=False, a=4000)
    bed.at(400)
    (first, *_) = (write for write in bed.driver.written if isinstance(write.step, Rescale))
    assert isinstance(first.step, Rescale)
    at = written_time(bed.clock.wall + first.at - bed.clock.now)
    assert first.step.plan.why.startswith(f"{at}: scaled down from 4 to 2 workers: ")


def test_freed_capacity_is_held_for_the_waiting_job() -> None:
    small = replace(GANG, name="small", arrives=101.0, workers=1)
    slow = replace(LONG, grace=30.0)
    bed = scaled_bed(slow, GANG, small).at(102)
    while bed.job("gang").training.began is None:
        bed.at(bed.clock.now + 1)
        assert bed.clock.now < 400
        assert bed.job("small").job.suspend


def test_no_job_scales_down_for_a_smaller_job_before_the_first_waiting_job() -> None:
    large = replace(GANG, name="large", arrives=99.0, workers=3)
    bed = scaled_bed(LONG, large, GANG)
    bed.at(120)
    assert sizes(bed) == []  # the two workers that may be removed are not enough for the first
    assert bed.job("large").training.began is None


def two_namespaces(**parameters: float) -> Bed:
    """Return a donor of up to three workers and two waiting jobs, the first in a second namespace.

    `parameters`: the parameters of scale in the second namespace.
    """
    donor = replace(LONG, bounds=(1, 4), steps=200_000)
    first = replace(GANG, name="first", namespace="other", arrives=99.0)
    bed = Bed(donor, first, GANG, policy=None, a=4000)
    labels = {**TEAM.labels, "kubernetes.io/metadata.name": "other"}
    bed.planner.settings.observe_namespace(None, Namespace("other", labels=labels))
    bed.planner.settings.observe_policy(
        TrainingPolicy(
            "other",
            weight=5,
            selector=parse_selector({"matchLabels": {"kubernetes.io/metadata.name": "other"}}),
            companion={"scale": PolicyChoice(Mode.ACT, parameters=parameters)},
        )
    )
    return bed


@pytest.mark.parametrize(
    "parameters",
    [{"wait": 86_400.0}, {"acrossNamespaces": 0.0}],
    ids=["its policy lets it wait longer", "its policy forbids donors of other namespaces"],
)
def test_a_waiting_job_that_gets_no_rescue_does_not_block_the_next_job(
    parameters: dict[str, float],
) -> None:
    bed = two_namespaces(**parameters)
    until_started(bed, by=600.0)
    assert sizes(bed)[0] == 2


@pytest.mark.parametrize(
    ("cpu", "changes"),
    [(4000, []), (5000, [2])],
    ids=["no capacity for its server", "capacity for all"],
)
def test_D3_no_job_scales_down_unless_servers_fit_too(cpu: int, changes: list[int]) -> None:
    bed = scaled_bed(LONG, replace(GANG, kind="TFJob", servers=1, steps=2000), cpu=cpu).at(400)
    assert sizes(bed) == changes
    assert (bed.job("gang").training.began is not None) is bool(changes)


def test_a_job_without_a_shown_checkpoint_is_not_scaled_and_shows_the_reason() -> None:
    bed = scaled_bed(replace(LONG, saving=Saving.NEVER), GANG).at(400)
    assert sizes(bed) == []
    assert shown(bed) == (False, names.REASON_NO_CHECKPOINT)


def test_a_job_that_does_not_answer_is_not_changed_and_not_asked_again_at_once() -> None:
    bed = scaled_bed(replace(LONG, answers=5000.0), GANG).at(400)
    requested = [write for write in bed.driver.written if isinstance(write.step, RequestCheckpoint)]
    assert (len(requested), sizes(bed)) == (1, [])
    assert shown(bed) == (False, names.REASON_AWAITS_CHECKPOINT)


def test_a_size_that_a_person_sets_is_the_new_requested_size() -> None:
    bed = scaled_bed(LONG, replace(GANG, workers=1, steps=1000), cpu=4000)
    until_started(bed, by=200)
    bed.scale(2)
    bed.at(2500)
    assert sizes(bed) == [3]
    assert bed.job().workers == 2
    assert shown(bed) == (False, names.REASON_RESTS)


def test_a_size_that_a_person_sets_ends_a_change_that_waits_for_a_checkpoint() -> None:
    bed = scaled_bed(replace(LONG, answers=60.0), GANG).at(150)
    assert shown(bed) == (False, names.REASON_AWAITS_CHECKPOINT)
    bed.scale(3)
    bed.at(300)
    assert (sizes(bed), bed.job().workers) == ([], 3)
    assert bed.planner.progress._awaited == set(), "no checkpoint is awaited any more"


def test_a_job_that_opts_out_regains_its_requested_size_once_there_is_capacity() -> None:
    bed = scaled_bed(LONG, replace(GANG, steps=1000))
    until_started(bed)
    bed.annotate(names.ELASTIC, "off")
    bed.at(bed.clock.now + 60)
    assert sizes(bed) == [2]
    bed.at(2500)
    assert sizes(bed) == [2, 4]
    assert bed.driver.shown["train", names.SCALED] is None


LATER = 335
"""After this time, in seconds, a gang without a known end counts as longer than the next job."""


def started_short(job: JobSpec, *, steps: int = 1500) -> Bed:
    """Return a job that has started with two workers, because a gang uses the other capacity.

    `steps`: the steps that the gang still makes.
    """
    cpu = 1000 * (job.workers + job.servers)
    steps += 2 * LATER
    gang = replace(GANG, arrives=1.0, steps=steps, shows_end=False, deadline=None)
    bed = scaled_bed(gang, replace(job, arrives=5.0 + LATER), cpu=cpu).at(25 + LATER)
    assert bed.job().workers == 2
    return bed


def opts_out(bed: Bed) -> None:
    bed.annotate(names.ELASTIC, "off")


def observes(bed: Bed) -> None:
    choice = PolicyChoice(Mode.OBSERVE)
    bed.planner.settings.observe_policy(TrainingPolicy("see", companion={"scale": choice}))


def is_autoscaled(bed: Bed) -> None:
    bed.write("train", "spec", "elasticPolicy", "metrics", value=[{"type": "Resource"}])


def is_released(bed: Bed) -> None:
    live = bed.job()
    bed.api.patch_job(live.uid, user_release_patch(live.raw, live.job))


def is_placed_by_others(bed: Bed) -> None:
    bed.annotate(names.COLOCATION, "off")


def is_not_managed(bed: Bed) -> None:
    bed.planner.settings.observe_namespace(None, Namespace("team"))


NO_LONGER_SCALED = (
    opts_out,
    observes,
    is_autoscaled,
    is_released,
    is_placed_by_others,
    is_not_managed,
)


@pytest.mark.parametrize("change", NO_LONGER_SCALED)
@pytest.mark.parametrize("job", [PERIODIC, replace(DYNAMIC, workers=4, bounds=(2, 4))])
def test_a_job_that_kfext_may_no_longer_scale_regains_its_requested_size(
    job: JobSpec, change: Callable[[Bed], None]
) -> None:
    if change is is_autoscaled and job.kind == "TFJob":
        return  # it has no elasticPolicy
    bed = started_short(job)
    change(bed)
    bed.at(1200 + LATER)
    assert bed.job("gang").job.finished
    assert (bed.job().workers, len(bed.job().pods) - job.servers) == (4, 4)


def test_a_job_without_a_step_regains_its_missing_workers_without_a_checkpoint() -> None:
    slow = replace(LONG, saving=Saving.NEVER, meets=60.0)
    bed = started_short(slow, steps=18)
    bed.at(100 + LATER)
    assert bed.job("gang").job.finished
    assert sizes(bed) == [4]
    assert bed.job().training.lost_all == 0


def test_a_job_with_steps_but_no_checkpoint_keeps_its_size() -> None:
    bed = started_short(replace(LONG, saving=Saving.NEVER), steps=100).at(600 + LATER)
    assert bed.job("gang").job.finished
    assert sizes(bed) == []
    assert shown(bed) == (True, names.REASON_NO_CHECKPOINT)


def test_a_policy_that_observes_shows_its_dry_run() -> None:
    bed = scaled_bed(replace(LONG, workers=2, bounds=(1, 4)))
    observes(bed)
    bed.at(300)
    assert sizes(bed) == []
    assert shown(bed) == (False, names.REASON_WOULD_SCALE)


def test_a_policy_that_observes_shows_the_size_of_a_donor_in_a_rescue() -> None:
    bed = scaled_bed(LONG, GANG)
    observes(bed)
    bed.at(200)
    assert message(bed) == "it would be scaled down to 2 workers for a waiting job"
    assert sizes(bed) == []


def test_the_message_names_a_quota_that_keeps_a_job_below_its_requested_size() -> None:
    bed = scaled_bed(PERIODIC, GANG)
    until_changed(bed)
    full = Quota("team", "tight", hard={"pods": 4}, used={"pods": 4})
    bed.planner.queue.quotas.observe_quota(None, full)
    bed.at(600)
    assert "tight" in message(bed)
    assert sizes(bed) == [2]


def test_a_job_scales_up_beyond_its_requested_size_if_that_pays() -> None:
    bed = scaled_bed(replace(PERIODIC, workers=2, bounds=(1, 4)), cpu=6000).at(1500)
    assert sizes(bed) == [3, 4]
    assert shown(bed) == (True, names.REASON_GROWN)


def test_D4_the_job_that_ends_first_gets_workers_first_up_to_97_percent_of_the_cpu() -> None:
    late = replace(DYNAMIC, name="late", workers=2, bounds=(1, 6))
    soon = replace(late, name="soon", arrives=6.0, steps=1000)
    other = replace(GANG, arrives=1.0, steps=300)
    bed = scaled_bed(other, late, soon, cpu=8000).at(300)
    first = next(write.job for write in bed.driver.written if isinstance(write.step, Rescale))
    assert first == "soon"
    # An eighth pod of 1,000m would request all of the CPU, more than 97 %.
    assert (sizes(bed, "soon"), sizes(bed, "late")) == ([3], [])


def test_growth_that_does_not_pay_is_undone_and_not_tried_again() -> None:
    bed = scaled_bed(
        replace(PERIODIC, workers=2, bounds=(1, 4), pace=Pace(0.1, 0.5, 0.05), steps=4000)
    )
    bed.at(2000)
    assert sizes(bed) == [3, 2]


def test_with_an_autoscaler_a_job_scales_up_only_on_nodes_that_are_kept_anyway() -> None:
    grows = replace(PERIODIC, workers=3, bounds=(3, 6), steps=20_000)
    other = replace(GANG, workers=1, steps=400)
    bed = Bed(grows, other, policy=None, a=3000, b=3000)
    bed.planner.queue.observe_autoscaler(present=True)
    bed.at(400)
    assert sizes(bed) == [4]
    assert {live.pod.node_name for live in bed.job().pods.values()} == {"a", "b"}
    bed.at(1500)  # the other gang has ended
    assert sizes(bed) == [4, 3]
    assert {live.pod.node_name for live in bed.job().pods.values()} == {"a"}
    assert message(bed).endswith("only on nodes that the autoscaler keeps anyway")


def test_growth_that_did_not_pay_is_undone_once_the_job_has_saved() -> None:
    slow = replace(PERIODIC, workers=2, bounds=(1, 4), pace=Pace(0.1, 0.5, 0.05), steps=20_000)
    bed = scaled_bed(replace(slow, every=400))  # kfext waits 120 s for a checkpoint
    bed.at(600)
    assert sizes(bed) == [3]
    bed.at(6000)
    assert sizes(bed) == [3, 2]


def test_no_job_scales_up_while_a_waiting_job_has_no_reservation_yet() -> None:
    big = replace(GANG, name="big", workers=4, arrives=60.0)
    bed = scaled_bed(replace(PERIODIC, workers=2, bounds=(2, 4)), big).at(300)
    assert sizes(bed) == []


def test_pods_without_a_node_are_removed_before_the_job_is_released() -> None:
    bed = scaled_bed(replace(PERIODIC, workers=2, bounds=(1, 4)))
    until_changed(bed)
    bed.faults.closed.add("a")
    bed.at(bed.clock.now + 300)
    assert sizes(bed) == [3, 2]
    assert not bed.job().job.released
    assert not bed.job().job.suspend


def test_growth_without_a_node_is_tried_with_a_growing_back_off() -> None:
    bed = scaled_bed(replace(PERIODIC, workers=2, bounds=(1, 3), steps=100_000))
    until_changed(bed)
    bed.faults.closed.add("a")
    bed.at(10_000)
    assert sizes(bed)[:4] == [3, 2, 3, 2]
    assert len(sizes(bed)) <= 12


@pytest.mark.parametrize("second", [131.0, 140.0, 150.0, 170.0, 190.0, 260.0])
@pytest.mark.parametrize("donor", [PERIODIC, ANEW], ids=["torchrun", "a TFJob that is suspended"])
def test_the_successor_of_a_dead_controller_completes_a_change(
    donor: JobSpec, second: float
) -> None:
    bed = scaled_bed(donor, GANG).at(second)
    bed.restart()
    until_started(bed, by=600)
    bed.at(1800)
    assert bed.job("gang").job.finished
    assert bed.job().workers == donor.workers
    assert not bed.job().job.has("Failed")


def test_a_job_that_ends_during_a_change_ends_the_change() -> None:
    bed = scaled_bed(replace(LONG, steps=600, answers=60.0), GANG).at(400)
    assert bed.job().job.finished
    assert (sizes(bed), bed.job("gang").training.began is not None) == ([], True)


def test_workers_that_hang_after_a_change_are_replaced_only_once() -> None:
    bed = scaled_bed(LONG, GANG)
    until_changed(bed)
    bed.job().training.hang()
    bed.at(1500)
    restarts = [write for write in bed.driver.written if isinstance(write.step, RestartWorkers)]
    assert len(restarts) == 1
    assert shown(bed)[1] == names.REASON_RESTS


def test_workers_are_replaced_again_if_the_first_replacement_failed() -> None:
    bed = scaled_bed(LONG, GANG)
    until_changed(bed)
    bed.job().training.hang()
    refuse(bed, lambda _uid, change: change is None)
    bed.at(1500)
    restarts = [write for write in bed.driver.written if isinstance(write.step, RestartWorkers)]
    assert len(restarts) == 2
    assert shown(bed)[1] == names.REASON_RESTS


def test_no_job_is_scaled_below_a_MIN_that_was_raised_while_it_saved() -> None:
    bed = scaled_bed(replace(LONG, answers=60.0, bounds=(1, 4)), replace(GANG, workers=3)).at(150)
    job = executor_of(bed.planner, SizeExecutor).jobs["uid-train"]
    assert size_record(job).phase is Phase.SAVING
    bed.annotate(names.ELASTIC, "4-4")
    bed.at(300)
    assert sizes(bed) == []


def test_a_new_controller_first_learns_the_remaining_time_of_a_donor() -> None:
    train = replace(DYNAMIC, workers=4, bounds=(1, 4), steps=4000)
    waiting = replace(GANG, workers=3, steps=990, arrives=700.0, shows_end=False)
    bed = Bed(train, waiting, policy=None, a=5000).at(799)
    bed.restart()
    bed.at(900)
    assert sizes(bed) == []


def test_the_expected_duration_of_a_waiting_job_counts_the_workers_it_starts_with() -> None:
    donor = replace(DYNAMIC, workers=4, bounds=(1, 4), steps=4000)
    waiting = replace(
        PERIODIC, name="waiting", workers=4, bounds=(1, 4), steps=1000, arrives=200.0, every=20
    )
    bed = Bed(donor, waiting, policy=None, a=5000).at(800)
    assert sizes(bed) == []


def test_after_a_change_of_size_the_remaining_time_follows_the_new_speed() -> None:
    train = replace(DYNAMIC, workers=4, bounds=(1, 4), steps=3900, prints=20.0)
    gang = replace(GANG, workers=3, steps=4500, deadline=400)
    bed = Bed(train, gang, policy=None, a=5000).at(1500)
    while bed.job().workers == 1:
        bed.after(1)
    bed.after(90)
    live = bed.job()
    left = bed.planner.queue.durations.shown_remaining(live.job, now=bed.clock.wall)
    assert left == pytest.approx((3900 - live.training.done) / live.training.speed, rel=0.2)


def test_a_job_that_lasts_longer_than_its_series_is_still_a_donor() -> None:
    smoke = [
        replace(
            DYNAMIC, name=f"train-{number}", workers=1, bounds=None, steps=40, trains="train",
            arrives=1.0 + 100 * number, shows_end=False,
        )
        for number in range(3)
    ]  # fmt: skip
    real = replace(
        DYNAMIC, name="train-9", workers=4, bounds=(1, 4), steps=200_000, trains="train",
        arrives=400.0, shows_end=False,
    )  # fmt: skip
    waiting = replace(GANG, workers=3, steps=990, arrives=4000.0, shows_end=False)
    bed = Bed(*smoke, real, waiting, policy=None, a=5000).at(4300)
    assert bed.job("gang").training.began is not None


def test_the_job_that_ends_first_regains_its_workers_first() -> None:
    shorter = replace(PERIODIC, name="a", bounds=(1, 4), steps=6000)
    longer = replace(shorter, name="b", bounds=(2, 4), steps=7000, arrives=6.0)
    gang = replace(GANG, workers=5, steps=3000)
    bed = Bed(shorter, longer, gang, policy=None, a=8000).at(101)
    while not bed.job("gang").job.finished:
        bed.after(1)
    bed.submit(replace(GANG, name="next", workers=3, steps=50_000, arrives=bed.clock.now))
    bed.after(60)
    assert (bed.job("a").workers, bed.job("b").workers) == (3, 2)
