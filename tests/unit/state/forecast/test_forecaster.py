"""Expected starts of waiting jobs, why a start is unknown, and when it is forecast again."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kfext.core.queue.expected import Accuracy, ExpectedStart
from kfext.model.moment import Moment
from kfext.model.priority import PriorityClass
from kfext.model.quota import parse_quota
from kfext.model.volume import VolumeClaim
from kfext.state.forecast.forecaster import EVERY
from kfext.state.forecast.outset import MAX_JOBS
from tests.builders import pods as members
from tests.builders import using
from tests.unit.state.forecast.scene import NOW, Scene, elsewhere, ended, runs, started, waits


def known(scene: Scene, uid: str = "head") -> ExpectedStart:
    result = scene.expected(uid)
    assert result is not None
    assert not result.unknown
    return result


def unknown(scene: Scene, uid: str = "head") -> ExpectedStart:
    result = scene.expected(uid)
    assert result is not None
    assert result.time is None
    return result


def test_a_job_starts_when_the_job_on_its_node_ends() -> None:
    result = known(Scene(runs("first"), waits("head"), first=600))
    assert result == ExpectedStart(NOW + 600, NOW + 380, NOW + 980, after="PyTorchJob team/first")


def test_the_last_of_several_ends_counts_and_all_are_named() -> None:
    result = known(Scene(runs("first"), runs("second"), waits("head"), first=600, second=900))
    assert result.time == NOW + 900
    assert result.after == "PyTorchJob team/first and PyTorchJob team/second"


def test_a_job_behind_a_waiting_job_starts_after_the_duration_of_its_series() -> None:
    waiting = waits("head-2"), waits("next", created=NOW - 10)
    scene = Scene(runs("first"), ended("head-1", seconds=300), *waiting, first=600)
    assert known(scene, "head-2").time == NOW + 600
    assert known(scene, "next").time == pytest.approx(NOW + 900, abs=2)


def test_a_job_that_fits_beside_the_first_starts_before_it() -> None:
    """The first has not waited long enough for a reservation."""
    jobs = waits("head", created=NOW - 100), waits("small", 2, created=NOW - 90)
    scene = Scene(runs("first", 2), runs("long"), *jobs, first=60, long=600)
    assert known(scene, "small").time == NOW + 60


def test_a_deadline_bounds_an_unknown_duration() -> None:
    result = known(Scene(runs("first", deadline=int(NOW) + 1800), waits("head")))
    assert result.time == pytest.approx(NOW + 1801)  # it started in second 1


def set_quota(scene: Scene) -> None:
    hard = {"hard": {"requests.cpu": "2"}}
    raw = {"metadata": {"namespace": "team", "name": "q"}, "spec": hard, "status": {}}
    scene.planner.queue.quotas.observe_quota(None, parse_quota(raw))


def add_autoscaler(scene: Scene) -> None:
    scene.planner.queue.observe_autoscaler(present=True)


def add_unbound_claim(scene: Scene) -> None:
    scene.planner.cluster.volumes.observe_claim(None, VolumeClaim("team", "data"))


def leave_pods(scene: Scene, uid: str = "head") -> None:
    """Leave pods of a job that does not run, as on a lost node, for more than a minute."""
    result = scene.planner.cluster.jobs[uid].job
    for pod in members(result, bound="a", phase="Running"):
        scene.planner.cluster.observe_pod(None, replace(pod, deleting=True))
    scene.tick()
    scene.after(61)


def leave_pods_of_ended_job(scene: Scene) -> None:
    leave_pods(scene, "first-1")


def change_nothing(scene: Scene) -> None:
    pass


WHY = "the duration of PyTorchJob team/first is unknown"
UNKNOWN: dict[str, tuple[tuple[Any, ...], Callable[[Scene], None], str]] = {
    "the job before it does not show its progress": (
        (runs("first"), waits("head")),
        change_nothing,
        WHY,
    ),
    "such a job of another namespace is not named": (
        (elsewhere(runs("first")), waits("head")),
        change_nothing,
        "the duration of 1 job of another namespace is unknown",
    ),
    "the duration of a waiting job before it is unknown": (
        (runs("first"), waits("older", created=NOW - 7200), waits("head")),
        change_nothing,
        "the duration of PyTorchJob team/first and PyTorchJob team/older is unknown",
    ),
    "a quota stops it": ((waits("head"),), set_quota, "a quota of its namespace stops it"),
    "its volume is not bound": (
        (waits("head", spec=using("data")),),
        add_unbound_claim,
        "one of its volumes is not bound",
    ),
    "pods of its last start still exist": (
        (waits("head"),),
        leave_pods,
        "the pods of PyTorchJob team/head have not ended",
    ),
    "pods of a job that has ended still exist": (
        (ended("first-1", seconds=100), waits("head")),
        leave_pods_of_ended_job,
        "the pods of PyTorchJob team/first-1 have not ended",
    ),
    "it is larger than the cluster": (
        (waits("head", 5).annotated("kfext.dev/colocation", "required"),),
        change_nothing,
        "it would not fit even after all running jobs have ended",
    ),
    "it needs new nodes": (
        (waits("head", 5).annotated("kfext.dev/colocation", "required"),),
        add_autoscaler,
        "it waits for new nodes, which an autoscaler may add",
    ),
}


@pytest.mark.parametrize(("jobs", "change", "why"), UNKNOWN.values(), ids=UNKNOWN)
def test_the_reason_why_a_start_is_unknown(
    jobs: tuple[Any, ...], change: Callable[[Scene], None], why: str
) -> None:
    scene = Scene(*jobs)
    change(scene)
    assert unknown(scene) == ExpectedStart(unknown=why)


def test_a_start_behind_a_job_of_days_is_unknown() -> None:
    why = "no capacity for it is expected within 24 hours"
    assert unknown(Scene(runs("first"), waits("head"), first=259_200)) == ExpectedStart(unknown=why)


def test_pods_that_begin_to_terminate_free_capacity_at_once() -> None:
    scene = Scene(ended("first-1", seconds=100), waits("head"))
    leave_pods_of_ended_job(scene)
    scene.now = Moment(scene.now.wall - 1, scene.now.monotonic - 1)
    assert known(scene).time == pytest.approx(scene.now.wall + 10)


def test_a_start_is_forecast_again_once_remaining_pods_are_deleted() -> None:
    scene = Scene(ended("first-1", seconds=100), waits("head"), waits("next", created=NOW - 60))
    leave_pods_of_ended_job(scene)
    scene.forecast()
    scene.after(EVERY)
    assert not scene.forecaster.due(scene.now)
    for pod in scene.planner.cluster.pods("first-1"):
        scene.planner.cluster.observe_pod(pod, None)
    assert scene.forecaster.due(scene.now)


def test_a_start_is_known_if_it_needs_no_job_of_unknown_duration() -> None:
    """A job of unknown duration runs on a CPU that the waiting job does not need."""
    result = known(Scene(runs("first", 2), runs("silent"), waits("head", 3), first=600))
    assert (result.time, result.after) == (NOW + 600, "PyTorchJob team/first")


def test_a_start_is_not_before_the_known_ends() -> None:
    result = unknown(Scene(runs("first"), runs("silent"), waits("head"), first=7200))
    assert result.unknown == "the duration of PyTorchJob team/silent is unknown"
    assert result.earliest == NOW + 7100  # to five minutes


@pytest.mark.parametrize(
    "builder",
    [waits("head").queued_by_kueue(), waits("head").annotated("kfext.dev/colocation", "off")],
    ids=["Kueue starts it", "kfext does not place it"],
)
def test_a_job_that_kfext_does_not_start_has_no_forecast(builder: Any) -> None:
    assert Scene(runs("first"), builder, first=600).expected("head") is None


def test_a_job_that_a_person_suspended_has_no_forecast() -> None:
    builder = waits("head")
    del builder.raw["metadata"]["annotations"]["kfext.dev/held"]
    assert Scene(runs("first"), builder, first=600).expected("head") is None


def test_only_the_first_jobs_of_the_queue_are_forecast() -> None:
    many = [waits(f"job-{n}", 1, created=NOW - 3600 + n) for n in range(MAX_JOBS)]
    scene = Scene(runs("first", 4), *many, waits("last", 1, created=NOW - 10), first=600)
    result = unknown(scene, "last")
    assert result.unknown == f"it is behind the first {MAX_JOBS} jobs of the queue"
    assert scene.forecaster.expected("job-0") != result


def test_recent_jobs_may_arrive_again_and_start_first() -> None:
    """A job of higher priority that arrived 15 minutes ago may arrive again in 15 minutes."""
    urgent = ended("urgent-1", seconds=400).created(NOW - 900).prioritized("high")
    scene = Scene(urgent, runs("first"), waits("head"), first=1200)
    scene.planner.queue.observe_class(None, PriorityClass("high", 100))
    result = known(scene)
    assert result.time == NOW + 1200
    alone = known(Scene(runs("first"), waits("head"), first=1200))
    assert (result.latest, alone.latest) == (NOW + 2000, NOW + 1880)


# --- when due -----------------------------------------------------------------------------------


def forecast_scene() -> Scene:
    scene = Scene(runs("first", 2), runs("second", 2), waits("head"), first=600, second=6000)
    scene.forecast()
    return scene


def end_job(scene: Scene) -> None:
    scene.end("first")


def add_job(scene: Scene) -> None:
    scene.planner.cluster.observe_job(waits("other").raw)


def slow_down(scene: Scene) -> None:
    scene.show(second=9000)


def fall_silent(scene: Scene) -> None:
    del scene.left["second"]
    scene.show()


def slow_down_a_little(scene: Scene) -> None:
    scene.show(second=6200)


DUE = {
    "nothing changed": (change_nothing, False),
    "a job ended": (end_job, True),
    "a job was created": (add_job, True),
    "a remaining time changed": (slow_down, True),
    "a remaining time is no longer known": (fall_silent, True),
    "a remaining time changed a little": (slow_down_a_little, False),
}


@pytest.mark.parametrize(("change", "due"), DUE.values(), ids=DUE)
def test_a_forecast_is_due_once_something_changed(
    change: Callable[[Scene], None], due: bool
) -> None:
    scene = forecast_scene()
    change(scene)
    scene.after(EVERY - 1)
    assert not scene.forecaster.due(scene.now)
    scene.after(1)
    assert scene.forecaster.due(scene.now) is due


def test_a_missed_start_is_forecast_again() -> None:
    """Nothing else changes while, for example, the operator is slow."""
    scene = Scene(runs("first"), waits("head"), first=600)
    scene.tick()
    scene.end("first")
    assert list(scene.forecaster.forecast(scene.now))
    scene.now = Moment(NOW + 60, 560)
    assert not scene.forecaster.due(scene.now)
    scene.now = Moment(NOW + 61, 561)
    assert scene.forecaster.due(scene.now)


@pytest.mark.parametrize("ended", [False, True], ids=["it still prints", "it has ended"])
def test_a_missed_start_is_forecast_less_and_less_often(ended: bool) -> None:
    """A job runs beyond its expected end, or it ends and the operator is slow."""
    scene = Scene(runs("first", 4), waits("head"), first=600)
    scene.forecast()
    if ended:
        scene.end("first")
    forecasts = 0
    for _ in range(4 * 60):
        scene.show(first=max(0.0, NOW + 600 - scene.now.wall))
        scene.now = Moment(scene.now.wall + 60, scene.now.monotonic + 60)
        if scene.forecaster.due(scene.now):
            assert list(scene.forecaster.forecast(scene.now))
            forecasts += 1
    assert 5 < forecasts < 25  # in four hours


def test_nothing_is_forecast_if_no_job_waits() -> None:
    scene = Scene(runs("first"), first=600)
    scene.tick()
    assert not scene.forecaster.due(scene.now)


def test_only_changes_are_news() -> None:
    scene = forecast_scene()
    assert [tracked.job.uid for tracked in scene.forecaster.news()] == ["head"]
    scene.forecast()
    assert scene.forecaster.news() == []
    scene.show(second=9000)
    scene.forecast()
    assert [tracked.job.uid for tracked in scene.forecaster.news()] == ["head"]


def test_a_job_may_be_deleted_while_it_is_forecast() -> None:
    scene = forecast_scene()
    parts = scene.forecaster.forecast(scene.now)
    next(parts)
    scene.planner.cluster.forget_job("head")
    assert list(parts) is not None
    assert scene.forecaster.news() == []
    list(scene.forecaster.scores_of_started(scene.now.wall))
    assert scene.forecaster.expected("head") is None


def test_a_job_created_during_a_forecast_is_part_of_the_next_forecast() -> None:
    scene = forecast_scene()
    parts = scene.forecaster.forecast(scene.now)
    next(parts)
    add_job(scene)
    scene.tick()
    assert list(parts) is not None
    assert scene.forecaster.expected("other") is None
    assert scene.expected("other") is not None


def test_a_job_is_forecast_after_the_clock_was_set_back() -> None:
    scene = forecast_scene()
    scene.now = Moment(NOW - 86_400, scene.now.monotonic + EVERY)
    assert scene.forecaster.due(scene.now) in {True, False}
    assert scene.expected("head") is not None


def test_after_an_error_all_starts_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = forecast_scene()
    monkeypatch.setattr("kfext.state.forecast.forecaster.outset_of", None)
    with pytest.raises(TypeError):
        list(scene.forecaster.forecast(scene.now))
    result = scene.forecaster.expected("head")
    assert result == ExpectedStart(unknown="an error of kfext; see the controller's log")


# --- scores -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "was"), [(100, Accuracy.EARLIER), (600, Accuracy.WITHIN), (2000, Accuracy.LATER)]
)
def test_a_start_is_scored(seconds: float, was: Accuracy) -> None:
    scene = Scene(runs("first"), waits("head"), first=600)
    scene.forecast()
    scene.planner.cluster.observe_job(started("head").raw)
    scene.after(seconds)
    (score,) = scene.forecaster.scores_of_started(scene.now.wall)
    assert (score.lead, score.was) == ("10-60m", was)
    assert (score.wait, score.error) == (seconds, abs(600 - seconds))
    assert not list(scene.forecaster.scores_of_started(scene.now.wall))


def test_each_class_of_wait_has_one_score() -> None:
    scene = Scene(runs("first"), waits("head"), first=700)
    for left in (700, 640, 580, 520, 100):
        scene.show(first=left)
        scene.forecast()
        scene.after(60)
    scene.planner.cluster.observe_job(started("head").raw)
    scene.after(60)
    leads = [score.lead for score in scene.forecaster.scores_of_started(scene.now.wall)]
    assert leads == ["10-60m", "2-10m", "0-2m"]


def delete(scene: Scene) -> None:
    scene.planner.cluster.forget_job("head")


def suspend(scene: Scene) -> None:
    builder = waits("head").version(2)
    del builder.raw["metadata"]["annotations"]["kfext.dev/held"]
    scene.planner.cluster.observe_job(builder.raw)


def release(scene: Scene) -> None:
    builder = waits("head").resumed().released().version(2)
    scene.planner.cluster.observe_job(builder.raw)


def start_at_once(scene: Scene) -> None:
    scene.planner.cluster.observe_job(started("head").raw)
    scene.now = Moment(NOW + 20, 520)


@pytest.mark.parametrize("change", [delete, suspend, release, start_at_once])
def test_a_job_that_does_not_start_or_starts_at_once_has_no_score(
    change: Callable[[Scene], None],
) -> None:
    scene = Scene(runs("first"), waits("head"), first=600)
    scene.forecast()
    change(scene)
    scene.tick()
    assert not list(scene.forecaster.scores_of_started(scene.now.wall))
