"""The companion drives resize on a node of trainings: what is written, restored and shown."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import event, given, note, settings
from hypothesis import strategies as st

from kfext import names
from kfext.core.lifecycle.steps import Resize
from kfext.errors import ApiError, Forbidden
from kfext.model.cpu_state import CpuState
from kfext.model.job_state import state_of
from kfext.model.moment import Moment
from kfext.model.policy import Mode, PolicyChoice, TrainingPolicy
from kfext.model.quota import LimitRange, Quota
from kfext.model.verdict import Verdict
from kfext.sim.objects import LivePod
from kfext.state import cpu_executor
from kfext.state.cpu_executor import MOST_BEGUN
from kfext.state.executor import TURN_SECONDS
from kfext.state.running_job import RunningJob
from kfext.state.tracked_job import TrackedJob
from tests.unit.resizing.bed import LIMIT, ROUND, SIZE, CpuBed, SplitJob
from tests.unit.resizing.history import ACTS, CpuHistory

FORBIDDEN = 'cannot patch resource "pods/resize" in API group ""'
BEYOND = "maximum cpu usage per Container is 1, but limit is 1400m"


def contended(
    policy: TrainingPolicy | None = None, *, resize: str = "cpu", limit: int | None = None
) -> CpuBed:
    """Two jobs that have converged long since, the first with a limit, and a job that grows."""
    bed = CpuBed(policy)
    bed.add("old", converges=2.0, resize=resize, limit=limit)
    bed.add("older", converges=2.0, resize=resize)
    bed.after(1500)
    bed.add("new", converges=400.0, resize=resize)
    return bed


def squeezed() -> CpuBed:
    """The same after the first two were restricted."""
    bed = contended().after(120)
    assert bed.limit("old") == bed.limit("older") == SIZE // 4
    return bed


def policy(**modes: Mode) -> TrainingPolicy:
    return TrainingPolicy("p", companion={name: PolicyChoice(mode) for name, mode in modes.items()})


def limits(bed: CpuBed) -> set[int | None]:
    return {bed.limit(name) for name in ("old", "older")}


def later(bed: CpuBed, seconds: float) -> Moment:
    now = bed.driver.moment
    return Moment(wall=now.wall + seconds, monotonic=now.monotonic + seconds)


def refusing(why: str) -> Callable[[LivePod], Verdict | None]:
    """Kubelets that set no limit but the size of the node."""

    def problem(live: LivePod) -> Verdict | None:
        limit = live.pod.trainer.limit if live.pod.trainer else None
        return None if limit == SIZE else Verdict(why, "not now")

    return problem


def refuse_resizes(bed: CpuBed, message: str, *, above: int = 0) -> list[str]:
    """Refuse limits above a number as the API server; return the pods that were to get them."""
    tried: list[str] = []

    def refusal(uid: str, change: Any) -> ApiError | None:
        if not isinstance(change, dict):
            return None
        (container,) = change["spec"]["containers"]
        if int(container["resources"]["limits"]["cpu"][:-1]) <= above:
            return None
        tried.append(uid)
        return Forbidden(status=403, reason="Forbidden", message=message)

    bed.faults.refusal = refusal
    return tried


# --- acting ---------------------------------------------------------------------------------------


def test_jobs_that_converged_leave_cpu_to_a_job_that_grows() -> None:
    bed = squeezed().after(200)
    assert {name for name, _ in bed.resized} == {"old", "older"}
    assert bed.use("new") == SIZE / 2
    assert bed.limit("new") is None


def test_what_was_done_is_shown_as_long_as_it_stands() -> None:
    shown = squeezed().after(300).shown("old")
    assert shown is not None
    assert shown.holds
    assert shown.verdict.reason == names.REASON_CPU_MOVED
    assert "350m of the 1400m" in shown.verdict.message


def test_cpu_moves_among_jobs_that_keep_coming() -> None:
    bed = CpuBed()
    bed.add("old", converges=2.0)
    bed.add("older", converges=2.0)
    bed.after(1500)
    for number in range(4):
        bed.add(f"new-{number}", converges=400.0)
        bed.after(40)
    assert None not in limits(bed)
    assert all(bed.limit(f"new-{number}") is None for number in range(4))


def test_a_job_alone_on_its_node_is_left_as_it_is() -> None:
    bed = CpuBed()
    bed.add("alone")
    assert not bed.after(600).resized
    assert bed.reason("alone") == names.REASON_NOTHING_TO_MOVE


@pytest.mark.parametrize("resize", ["off", "observe"])
def test_nothing_is_written_of_jobs_that_did_not_opt_in(resize: str) -> None:
    assert not contended(resize=resize).after(600).resized


def test_what_would_be_done_is_shown_before_it_is_done() -> None:
    bed = contended(resize="observe").after(120)
    shown = bed.shown("old")
    assert shown is not None
    assert not shown.holds
    assert shown.verdict.reason == names.REASON_WOULD_MOVE
    assert "350m of the 1400m" in shown.verdict.message


def test_a_policy_that_may_only_observe_writes_nothing() -> None:
    bed = contended(policy(resize=Mode.OBSERVE)).after(300)
    assert not bed.resized
    assert bed.reason("old") == names.REASON_WOULD_MOVE


def test_what_was_taken_is_given_back_once_the_growing_job_has_ended() -> None:
    bed = squeezed()
    bed.finish("new")
    assert limits(bed.after(300)) == {SIZE}


def test_what_a_job_leaves_is_given_to_the_others_before_the_next_look() -> None:
    bed = squeezed().after(200)
    assert bed.planner.companion.steps(later(bed, 1)) == []
    bed.finish("new")
    steps = bed.planner.companion.steps(later(bed, 2))
    assert {tracked.job.name for tracked, _ in steps} == {"old", "older"}


def test_what_a_job_leaves_does_not_idle_until_the_others_are_measured_anew() -> None:
    bed = contended()
    while not bed.resized:
        bed.after(ROUND)
    bed.after(20)
    assert limits(bed) == {SIZE // 4}
    bed.finish("new")
    bed.after(ROUND)
    assert SIZE in limits(bed)


def test_a_replaced_pod_is_restricted_again() -> None:
    bed = squeezed()
    bed.replace_pod("old")
    assert bed.limit("old") in {None, SIZE}
    assert limits(bed.after(300)) == {SIZE // 4}


def test_few_operations_begin_at_once() -> None:
    bed = CpuBed(size=48_000)
    for number in range(3 * MOST_BEGUN):
        bed.add(f"old-{number}", converges=2.0)
    bed.after(600)
    bed.add("new", converges=400.0)
    begun = []
    for _ in range(30):
        before = len(bed.resized)
        bed.after(ROUND)
        begun.append(len(bed.resized) - before)
    assert max(begun) == MOST_BEGUN


def test_a_job_that_loses_its_budget_is_left_alone() -> None:
    bed = squeezed().after(2400)
    assert bed.reason("old") == names.REASON_RESTS
    assert bed.limit("old") == SIZE
    assert "resize" in state_of(bed.tracked("old").job).cpu.rests


def test_a_change_that_helps_no_job_is_undone_once() -> None:
    bed = CpuBed()
    bed.add("old", converges=2.0)
    bed.after(1500)
    bed.add("new", converges=40.0, pace=20.0)
    assert bed.after(100).limit("old") not in {None, SIZE}
    bed.after(400)
    assert bed.limit("old") == SIZE
    assert bed.reason("old") == names.REASON_RESTS
    before = len(bed.resized)
    assert len(bed.after(600).resized) == before


# --- giving back ----------------------------------------------------------------------------------


def test_off_gives_back_at_the_next_look_and_leaves_no_note() -> None:
    bed = squeezed()
    bed.opt("old", "off")
    bed.after(ROUND)
    assert bed.limit("old") == SIZE
    bed.after(60)
    assert bed.tracked("old").state.cpu == CpuState()
    assert bed.shown("old") is None


def test_what_a_kubelet_refuses_is_restored_at_the_next_look() -> None:
    bed = contended()
    bed.faults.resize = refusing("Deferred")
    while bed.limit("old") is None:
        bed.after(ROUND)
    assert bed.after(20).limit("old") == SIZE


def test_an_error_of_kfext_leaves_all_as_it_is_and_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise KeyError("a bug")

    bed = squeezed()
    with monkeypatch.context() as patched:
        patched.setattr(cpu_executor, "judged", fails)
        failures = bed.driver.failures = []
        bed.after(60)
        assert {name for name, _ in failures} <= set(bed.present)
        assert {str(error) for _, error in failures} == {"'a bug'"}
        assert limits(bed) == {SIZE // 4}
        bed.opt("old", "off")
        assert bed.after(10).limit("old") == SIZE
    bed.finish("new")
    assert limits(bed.after(300)) == {SIZE}


@pytest.mark.parametrize(
    "part", ["whether it is watched", "what is seen of it", "what it does next"]
)
def test_an_error_of_kfext_with_one_job_leaves_that_job_out(
    part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bed = contended()
    cpu = bed.planner.companion.cpu
    owner, method = {
        "whether it is watched": (cpu, "follows"),
        "what is seen of it": (cpu._signals, "of"),
        "what it does next": (cpu._stages, "advance"),
    }[part]
    real = getattr(owner, method)

    def fails(job: RunningJob | TrackedJob, *rest: object, **more: object) -> object:
        tracked = job.tracked if isinstance(job, RunningJob) else job
        if tracked.job.name == "older":
            raise KeyError("a bug")
        return real(job, *rest, **more)

    monkeypatch.setattr(owner, method, fails)
    failures = bed.driver.failures = []
    bed.after(120)
    assert bed.limit("old") is not None
    assert {name for name, _ in failures} == {"older"}


def test_an_error_of_kfext_with_cpu_loses_no_change_of_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: object) -> None:
        raise KeyError("a bug")

    bed = squeezed()
    tracked, companions = bed.tracked("old"), bed.planner.companion
    sized = Resize((), tracked.state, Verdict(names.REASON_CPU_MOVED, "in place of a rescale"))
    monkeypatch.setattr(companions.sizes, "advance", lambda now: [(tracked, sized)])
    monkeypatch.setattr(companions.cpu, "enrol", fails)
    assert companions.steps(later(bed, TURN_SECONDS)) == [(tracked, sized)]
    assert [str(error) for _, error in companions.failures] == ["'a bug'"]


def test_observe_gives_back_and_goes_on_to_show() -> None:
    bed = squeezed()
    bed.opt("old", "observe")
    bed.after(ROUND)
    assert bed.limit("old") == SIZE
    assert bed.after(300).reason("old") == names.REASON_WOULD_MOVE


def test_a_namespace_that_is_opted_out_gets_everything_back() -> None:
    bed = squeezed()
    bed.manage("false")
    bed.after(ROUND)
    assert limits(bed) == {SIZE}


@pytest.mark.parametrize("how", ["it ends", "it opts out, and its limits are put back"])
def test_what_is_shown_of_a_job_that_is_left_alone_while_no_controller_runs_goes(how: str) -> None:
    bed = squeezed()
    if how == "it ends":
        bed.operator.end(bed.job("old"))
    else:
        bed.opt("old", "off")
        bed.opt("old", "{}", key=names.STATE)
        bed.size_by_hand("old", SIZE)
    bed.driver.shown.clear()
    bed.restart()
    bed.after(60)
    assert bed.shown("old") is None


def test_a_job_is_not_capped_for_good_if_its_use_is_not_read_any_more() -> None:
    bed = squeezed()
    bed.opt("old", "off", key=names.METRICS)
    bed.finish("new")
    bed.after(600)
    assert bed.limit("old") == SIZE


def test_a_policy_that_is_switched_off_gives_back_although_another_may_act() -> None:
    bed = squeezed()
    bed.planner.settings.observe_policy(policy(resize=Mode.OFF))
    bed.after(ROUND)
    assert limits(bed) == {SIZE}


def test_a_size_that_another_client_wrote_stays_and_the_job_is_left_alone() -> None:
    bed = squeezed()
    bed.size_by_hand("old", 777)
    bed.after(900)
    assert bed.limit("old") == 777
    assert bed.reason("old") == names.REASON_RESTS
    assert [name for name, step in bed.resized if name == "old" and step.sizes] == ["old"]


def test_a_client_that_puts_the_users_limit_back_is_not_overruled() -> None:
    bed = contended(limit=1300).after(120)
    assert bed.limit("old") == SIZE // 4
    bed.size_by_hand("old", 1300)
    bed.after(300)
    assert bed.limit("old") == 1300
    assert bed.reason("old") == names.REASON_RESTS


@pytest.mark.parametrize("off", [False, True], ids=["and it rests", "and it opts out"])
def test_a_pod_that_another_client_gave_another_request_gets_its_limit_back(*, off: bool) -> None:
    bed = squeezed()
    bed.request_by_hand("old", 150)
    if off:
        bed.opt("old", "off")
    bed.after(60)
    assert bed.limit("old") == SIZE
    bed.after(600)
    assert bed.limit("old") == SIZE
    if not off:
        assert bed.reason("old") == names.REASON_RESTS


def test_a_pod_that_is_made_anew_after_off_and_on_is_no_hand_of_others() -> None:
    """What was given back is a limit, which the job is taken to have been submitted with."""
    bed = squeezed()
    bed.opt("old", "off")
    bed.after(60)
    bed.opt("old", "cpu")
    bed.after(200)
    bed.replace_pod("old")
    bed.after(60)
    assert bed.reason("old") != names.REASON_RESTS


def test_a_limit_of_the_user_is_what_comes_back() -> None:
    bed = CpuBed()
    bed.add("old", converges=2.0, limit=1000)
    bed.after(300)
    bed.add("new", converges=400.0)
    bed.after(120)
    assert (bed.limit("old") or 0) < 1000
    bed.opt("old", "off")
    bed.after(ROUND)
    assert bed.limit("old") == 1000


# --- faults ---------------------------------------------------------------------------------------


def test_after_a_restart_sizes_stay_until_new_windows_are_there() -> None:
    bed = squeezed()
    bed.restart()
    before = len(bed.resized)
    bed.after(60)
    assert len(bed.resized) == before
    assert limits(bed.after(240)) == {SIZE // 4}


def test_after_a_restart_what_is_lent_is_not_lost() -> None:
    bed = CpuBed(size=1000)
    for name, takes in {"long": 4000.0, "longer": 5000.0, "short": 1500.0}.items():
        bed.add(name, takes=takes)
    bed.after(300)
    before = len(bed.resized)
    for _ in range(3):
        bed.restart()
        bed.after(200)
    assert len(bed.resized) == before
    assert (bed.limit("long"), bed.limit("longer"), bed.limit("short")) == (250, 250, None)


def test_lenders_are_not_left_alone_if_the_job_that_they_served_ended_meanwhile() -> None:
    bed = CpuBed(size=1000)
    for name, takes in {"long": 400.0, "longer": 500.0, "short": 150.0}.items():
        bed.add(name, takes=takes)
    bed.after(200)
    bed.restart()
    bed.finish("short")
    bed.after(300)
    assert not any(bed.tracked(name).state.cpu.rests for name in bed.present)
    assert (bed.limit("longer") or 0) < SIZE // 2


def test_the_budget_of_a_job_is_not_forgotten_at_restarts() -> None:
    bed = squeezed()
    for _ in range(8):
        bed.restart()
        bed.after(300)
    assert "resize" in bed.tracked("old").state.cpu.rests
    assert bed.limit("old") == SIZE


def test_a_size_that_was_recorded_and_never_written_is_no_hand_of_others() -> None:
    bed = squeezed()
    step = next(step for name, step in bed.resized if name == "old")
    (pod, _), noted = step.sizes[0], step.state
    cpu = replace(noted.cpu, written={"worker-0": (900, SIZE // 4)})
    bed.opt("old", replace(noted, cpu=cpu).encode(job_uid=pod.owner_uid), key=names.STATE)
    bed.restart()
    bed.after(300)
    assert bed.reason("old") != names.REASON_RESTS


def loosen_a_quota(bed: CpuBed) -> None:
    quotas, quota = bed.planner.queue.quotas, Quota("team", "q")
    quotas.observe_quota(None, quota)
    quotas.observe_quota(quota, replace(quota, hard={"cpu": 1}))


def remove_a_limit_range(bed: CpuBed) -> None:
    bed.planner.queue.quotas.observe_limit_range(LimitRange("team", "1"), None)


def edit_a_limit_range(bed: CpuBed) -> None:
    quotas = bed.planner.queue.quotas
    quotas.observe_limit_range(LimitRange("team", "1"), LimitRange("team", "2"))


@pytest.mark.parametrize("change", [loosen_a_quota, remove_a_limit_range, edit_a_limit_range])
def test_F6_what_the_api_server_refuses_is_not_tried_again_before_what_refused_it_changes(
    change: Callable[[CpuBed], None],
) -> None:
    bed = contended()
    bed.planner.queue.quotas.observe_limit_range(None, LimitRange("team", "1"))
    tried = refuse_resizes(bed, BEYOND)
    bed.after(1200)
    assert len(tried) == 2
    assert bed.reason("old") == names.REASON_RESIZE_REFUSED
    change(bed)
    bed.faults.refusal = lambda _uid, _change: None
    assert limits(bed.after(120)) == {SIZE // 4}
    assert bed.reason("old") == names.REASON_CPU_MOVED


def test_F6_without_the_right_it_is_tried_seldom() -> None:
    bed = contended()
    tried = refuse_resizes(bed, FORBIDDEN)
    bed.after(1200)
    assert 6 <= len(tried) <= 16
    bed.faults.refusal = lambda _uid, _change: None
    assert limits(bed.after(400)) == {SIZE // 4}


@pytest.mark.parametrize(
    ("why", "rests"),
    [
        pytest.param("Infeasible", True, id="what can never be is given up"),
        pytest.param("Deferred", False, id="what is deferred is tried again"),
        pytest.param("Error", False, id="so is what failed"),
    ],
)
def test_F6_what_a_kubelet_does_not_set_is_restored(why: str, *, rests: bool) -> None:
    bed = contended()
    bed.faults.resize = refusing(why)
    bed.after(150)
    sizes = [step.sizes[0][1].limit for name, step in bed.resized if name == "old"]
    assert sizes[:2] == [SIZE // 4, SIZE]
    bed.faults.resize = lambda _pod: None
    bed.after(400)
    assert (bed.reason("old") == names.REASON_RESTS) is rests
    assert limits(bed) == ({SIZE} if rests else {SIZE // 4})


def test_F6_a_guaranteed_pod_is_left_alone_with_the_reason() -> None:
    bed = CpuBed()
    bed.add("old", converges=2.0, limit=20, guaranteed=True)
    assert not bed.after(300).resized
    shown = bed.shown("old")
    assert shown is not None
    assert shown.verdict.reason == names.REASON_NOTHING_TO_MOVE
    assert "resize leaves it alone: its pod of type worker is Guaranteed" in shown.verdict.message


def test_a_job_without_a_read_log_is_left_alone_with_the_reason() -> None:
    bed = CpuBed()
    bed.add("silent")
    bed.opt("silent", "off", key=names.METRICS)
    shown = bed.after(300).shown("silent")
    assert shown is not None
    assert shown.verdict.reason == names.REASON_STANDS_DOWN
    assert "kfext.dev/metrics is off" in shown.verdict.message


def test_a_job_without_a_known_trainer_is_left_alone_with_the_reason() -> None:
    bed = SplitJob()
    for live in bed.job().pods.values():
        odd = replace(live.pod, trainer=None, resource_version="999")
        bed.planner.cluster.observe_pod(live.pod, odd)
    shown = bed.after(ROUND).shown("train")
    assert shown is not None
    assert shown.verdict.reason == names.REASON_STANDS_DOWN
    assert "not known what trains" in shown.verdict.message


def test_a_job_is_not_touched_while_a_pod_of_it_is_missing() -> None:
    bed = contended()
    pod = bed.pod("old").pod
    bed.planner.cluster.observe_pod(pod, replace(pod, phase="Pending", resource_version="999"))
    bed.after(30)
    assert not [name for name, _ in bed.resized if name == "old"]


# --- operations of two stages ---------------------------------------------------------------------


def shrunk() -> SplitJob:
    """The server has been restricted, and the worker is to get what that had."""
    bed = SplitJob()
    while not bed.written():
        bed.after(1)
    assert bed.limits() == {"worker": LIMIT, "ps": 50}
    return bed


def test_cpu_moves_from_the_server_to_the_worker() -> None:
    bed = shrunk()
    bed.after(ROUND)
    assert bed.limits() == {"worker": 2 * LIMIT - 50, "ps": 50}


def test_a_pod_gets_its_limit_back_when_another_pod_of_the_job_does_not_come_back() -> None:
    bed = shrunk().after(ROUND)
    bed.api.mark_deleted(bed.pod("train"))  # on a node that does not answer
    bed.after(200)
    assert bed.limits()["ps"] == 50
    bed.after(200)
    assert bed.limits()["ps"] == LIMIT


def test_a_job_that_opts_out_between_two_stages_is_written_one_step_at_a_time() -> None:
    bed = shrunk()
    bed.annotate(names.RESIZE, "off")
    for _ in range(30):
        before = len(bed.resized)
        bed.after(1)
        assert len(bed.resized) <= before + 1
    assert bed.limits() == {"worker": LIMIT, "ps": LIMIT}


def test_what_was_written_before_a_refusal_is_given_back_and_not_tried_again() -> None:
    bed = shrunk()
    refuse_resizes(bed, BEYOND, above=LIMIT)
    bed.after(100)
    assert bed.limits() == {"worker": LIMIT, "ps": LIMIT}
    before = len(bed.written())
    bed.after(600)
    assert len(bed.written()) == before


# --- whatever happens -----------------------------------------------------------------------------

CROWDED_BY_HAND = (
    CpuHistory.crowds,
    CpuHistory.is_sized_by_hand,
    CpuHistory.crowds,
)
histories = st.builds(
    lambda beginning, acts: [*beginning, *acts],
    st.sampled_from([(), (CpuHistory.crowds,), CROWDED_BY_HAND]),
    st.lists(st.sampled_from(ACTS), max_size=15),
)


@pytest.mark.histories
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_limits_stay_in_bounds_and_end_as_the_user_wrote_them(data: st.DataObject) -> None:
    history = CpuHistory(data)
    for act in data.draw(histories, label="acts"):
        note(f"{history.clock.now:g} s: {act.__name__}")
        act(history)
    history.ends()
    event("resized" if any(step.sizes for _, step in history.resized) else "left as they are")
