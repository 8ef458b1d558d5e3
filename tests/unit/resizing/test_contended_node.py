"""The policy resize on a shared node: writes, restores, faults and conditions.

Names with F6 check the statements of tests/statements.md.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import event, given, note, settings
from hypothesis import strategies as st

from kfext import names
from kfext.core.lifecycle.steps import Resize
from kfext.errors import ApiError, Forbidden
from kfext.model.cpu_state import CpuState, PodCpu
from kfext.model.moment import Moment
from kfext.model.policy import Mode, PolicyChoice, TrainingPolicy
from kfext.model.quota import LimitRange, Quota
from kfext.model.timestamps import timestamp
from kfext.model.verdict import Verdict
from kfext.sim.objects import LivePod
from kfext.sim.training import Doing
from kfext.state.mirror.tracked_job import TrackedJob
from kfext.state.running.cpu import executor as cpu_executor
from kfext.state.running.cpu.executor import CpuExecutor
from kfext.state.running.executor import TURN_SECONDS
from kfext.state.running.running_job import RunningJob
from tests.builders import executor_of
from tests.unit.resizing.bed import LIMIT, NODE_CPU, SCAN_SECONDS, CpuBed, ServerAndWorkerBed
from tests.unit.resizing.history import EVENTS, CpuHistory

FORBIDDEN = 'cannot patch resource "pods/resize" in API group ""'
BEYOND = "maximum cpu usage per Container is 1, but request is 1226m"
REQUEST = 20
BOOSTED = REQUEST + int(0.9 * (NODE_CPU - 3 * REQUEST))
"""The request of the prioritised job of three jobs: nine tenths of the free CPU."""


def contended(policy: TrainingPolicy | None = None, *, resize: str = "cpu") -> CpuBed:
    """Return a node with three jobs; the last to arrive would end first."""
    bed = CpuBed(policy)
    bed.add("long", work=4000.0, resize=resize)
    bed.add("longer", work=5000.0, resize=resize)
    bed.add("short", work=1500.0, resize=resize)
    return bed


def boosted() -> CpuBed:
    """Return the same node once the prioritised job has its boost."""
    bed = contended().after(200)
    assert requests(bed) == {"long": REQUEST, "longer": REQUEST, "short": BOOSTED}
    return bed


def requests(bed: CpuBed) -> dict[str, int]:
    return {name: bed.request(name) for name in bed.present}


def policy(**modes: Mode) -> TrainingPolicy:
    return TrainingPolicy("p", companion={name: PolicyChoice(mode) for name, mode in modes.items()})


def later(bed: CpuBed, seconds: float) -> Moment:
    now = bed.driver.moment
    return Moment(wall=now.wall + seconds, monotonic=now.monotonic + seconds)


def kubelets_refusing(why: str) -> Callable[[LivePod], Verdict | None]:
    """Return a fault of kubelets: they allocate only the user's request, for the reason `why`."""

    def problem(live: LivePod) -> Verdict | None:
        request = live.pod.trainer.request if live.pod.trainer else REQUEST
        return None if request == REQUEST else Verdict(why, "not now")

    return problem


def refuse_resizes(bed: CpuBed, message: str, *, above: int = 0) -> list[str]:
    """Let the API server refuse CPU above some millicores; return the pods as they are refused."""
    tried: list[str] = []

    def refusal(uid: str, change: Any) -> ApiError | None:
        if not isinstance(change, dict):
            return None
        (container,) = change["spec"]["containers"]
        amounts = [int(amount["cpu"][:-1]) for amount in container["resources"].values()]
        if max(amounts) <= above:
            return None
        tried.append(uid)
        return Forbidden(status=403, reason="Forbidden", message=message)

    bed.faults.refusal = refusal
    return tried


# --- acting ---------------------------------------------------------------------------------------


def test_the_job_that_would_end_first_gets_the_cpu_and_no_other_pod_is_written() -> None:
    bed = boosted()
    assert bed.use("short") > 0.9 * NODE_CPU
    assert bed.limit("short") is None
    bed.after(300)
    assert {name for name, step in bed.resized[-1:] if step.sizes} == {"short"}


def test_a_change_is_shown_with_its_time_until_the_next_change() -> None:
    bed = boosted().after(300)
    shown = bed.resized_condition("short")
    assert shown is not None
    assert shown.holds
    assert shown.verdict.reason == names.REASON_CPU_MOVED
    since, message = shown.verdict.message.split(": ", 1)
    assert message.endswith(f"becomes {BOOSTED}m: it would end first of the 3 jobs on a")
    assert 0 < timestamp(since) < bed.clock.wall - 200


def test_a_job_that_has_just_begun_keeps_an_equal_share() -> None:
    bed = boosted()
    bed.add("new", work=3000.0)
    bed.after(2 * SCAN_SECONDS)
    assert bed.use("new") == pytest.approx(NODE_CPU / 4, rel=0.05)
    assert requests(bed.after(120))["new"] == REQUEST


def test_the_end_of_the_prioritised_job_causes_an_early_scan() -> None:
    bed = boosted()
    assert bed.planner.companion.steps(later(bed, 1)) == []
    bed.delete("short")
    steps = bed.planner.companion.steps(later(bed, 2))
    assert {tracked.job.name for tracked, _ in steps} == {"long"}


def test_a_job_alone_on_its_node_is_unchanged() -> None:
    bed = CpuBed()
    bed.add("alone", work=9000.0)
    assert not bed.after(600).resized
    assert bed.reason("alone") == names.REASON_NOTHING_TO_MOVE


def test_the_request_of_the_last_job_on_a_node_is_restored() -> None:
    bed = boosted()
    bed.delete("long")
    bed.delete("longer")
    assert requests(bed.after(60)) == {"short": REQUEST}


@pytest.mark.parametrize("resize", ["off", "observe"])
def test_nothing_is_written_to_jobs_that_did_not_opt_in(resize: str) -> None:
    assert not contended(resize=resize).after(600).resized


@pytest.mark.parametrize(
    ("by", "resize"), [(None, "observe"), (policy(resize=Mode.OBSERVE), "cpu")]
)
def test_a_dry_run_is_shown_and_not_carried_out(by: TrainingPolicy | None, resize: str) -> None:
    bed = contended(by, resize=resize).after(200)
    shown = bed.resized_condition("short")
    assert shown is not None
    assert not shown.holds
    assert shown.verdict.reason == names.REASON_WOULD_MOVE
    assert f"becomes {BOOSTED}m" in shown.verdict.message
    assert not bed.resized


def test_a_replaced_pod_is_boosted_again() -> None:
    bed = boosted()
    bed.replace_pod("short")
    assert bed.request("short") == REQUEST
    assert requests(bed.after(120))["short"] == BOOSTED


def full() -> CpuBed:
    """Return a node with three jobs that request a quarter of its CPU each."""
    bed = CpuBed()
    for name, work in {"long": 4000.0, "longer": 5000.0, "short": 1500.0}.items():
        bed.add(name, work=work, cpu=NODE_CPU // 4, uses=NODE_CPU)
    return bed


def test_on_a_full_node_other_requests_are_lowered_and_the_sum_stays() -> None:
    bed = full()
    bed.add("other", cpu=NODE_CPU // 4, resize="")
    for _ in range(30):
        bed.after(SCAN_SECONDS)
        assert sum(requests(bed).values()) <= NODE_CPU
    others = {"long": 10, "longer": 10, "other": NODE_CPU // 4}
    assert requests(bed) == {**others, "short": 3 * (NODE_CPU // 4) - 20}


def test_lowered_requests_are_restored_when_the_prioritised_job_ends() -> None:
    bed = full().after(300)
    bed.delete("short")
    bed.after(100)
    assert sum(requests(bed).values()) <= NODE_CPU
    bed.delete("long")
    assert requests(bed.after(100)) == {"longer": NODE_CPU // 4}


# --- capacity for other pods ----------------------------------------------------------------------


def test_the_ledger_counts_requests_as_users_wrote_them() -> None:
    bed = boosted()
    bed.add("waits", cpu=NODE_CPU - 3 * REQUEST, resize="", uses=NODE_CPU)
    bed.after(40)
    assert bed.pod("waits").runs, "it is planned at once, and the boost is removed for it"
    assert sum(requests(bed).values()) == NODE_CPU


def add_refused_pod(bed: CpuBed, **fields: Any) -> None:
    """Add a pod of no job that kube-scheduler has refused."""
    waits = replace(
        bed.pod("long").pod,
        namespace="other",
        uid="foreign",
        name="foreign",
        owner_uid="",
        replica=None,
        node_name="",
        phase="Pending",
        pinned_to="",
        unschedulable="0/1 nodes are available: 1 Insufficient cpu.",
    )
    bed.planner.cluster.observe_pod(None, replace(waits, **fields))


def test_a_boost_is_removed_for_a_foreign_pod_for_a_minute() -> None:
    bed = boosted()
    add_refused_pod(bed, requests={"cpu": 600, "pods": 1})
    assert requests(bed.after(2 * SCAN_SECONDS))["short"] == REQUEST
    assert (
        "another pod needs the free CPU of a"
        in (bed.resized_condition("short") or fail()).verdict.message
    )
    assert requests(bed.after(2 * SCAN_SECONDS))["short"] == REQUEST, "the node waits for the pod"
    assert requests(bed.after(80))["short"] == BOOSTED, "the pod was not bound in time"


def test_a_pod_that_fits_nowhere_does_not_prevent_boosts() -> None:
    bed = CpuBed()
    bed.add("long", work=4000.0)
    bed.after(5)
    add_refused_pod(bed, requests={"cpu": 600, "pods": 1, "nvidia.com/gpu": 1})
    bed.add("longer", work=5000.0)
    bed.add("short", work=1500.0)
    assert requests(bed.after(195))["short"] == BOOSTED


def fail() -> Any:
    raise AssertionError("nothing is shown")


def test_a_boost_keeps_a_tenth_of_a_quota_free() -> None:
    bed = contended()
    quota = Quota("team", "q", hard={"requests.cpu": 1000}, used={"requests.cpu": 3 * REQUEST})
    bed.planner.queue.quotas.observe_quota(None, quota)
    while not bed.resized:
        bed.after(1)
    assert sum(requests(bed).values()) <= 900


def test_with_an_autoscaler_the_sum_of_the_requests_stays() -> None:
    bed = contended()
    bed.planner.queue.observe_autoscaler(present=True)
    assert requests(bed.after(300)) == {"long": 10, "longer": 10, "short": 40}


# --- restoring ------------------------------------------------------------------------------------


def test_opting_out_restores_at_the_next_scan_and_removes_the_record() -> None:
    bed = boosted()
    bed.set_policy("short", "off")
    bed.after(SCAN_SECONDS)
    assert bed.request("short") == REQUEST
    bed.after(60)
    assert bed.tracked("short").state.cpu == CpuState()
    assert bed.resized_condition("short") is None


def test_an_error_of_kfext_changes_nothing_and_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise KeyError("a bug")

    bed = boosted()
    with monkeypatch.context() as patched:
        patched.setattr(cpu_executor, "undo_proposals", fails)
        failures = bed.driver.failures = []
        bed.after(60)
        assert {name for name, _ in failures} <= set(bed.present)
        assert {str(error) for _, error in failures} == {"'a bug'"}
        assert requests(bed)["short"] == BOOSTED
        bed.set_policy("short", "off")
        assert bed.after(10).request("short") == REQUEST


@pytest.mark.parametrize("about", ["whether it is followed", "its signals", "its next change"])
def test_an_error_of_kfext_about_a_job_affects_no_other_job(
    about: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bed = contended().after(1)
    cpu = executor_of(bed.planner, CpuExecutor)
    owner, method = {
        "whether it is followed": (cpu, "follows"),
        "its signals": (cpu._signals, "signal_of"),
        "its next change": (cpu._stages, "advance"),
    }[about]
    real = getattr(owner, method)

    def fails(job: RunningJob | TrackedJob, *args: object, **kwargs: object) -> object:
        tracked = job.tracked if isinstance(job, RunningJob) else job
        if tracked.job.name == "longer":
            raise KeyError("a bug")
        return real(job, *args, **kwargs)

    monkeypatch.setattr(owner, method, fails)
    failures = bed.driver.failures = []
    bed.after(200)
    assert bed.request("short") > REQUEST
    assert {name for name, _ in failures} == {"longer"}


def test_an_error_of_kfext_about_cpu_stops_no_new_size(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise KeyError("a bug")

    bed = boosted()
    tracked, companion = bed.tracked("short"), bed.planner.companion
    sizes, cpu = companion._size_executor(), executor_of(bed.planner, CpuExecutor)
    companion.executors = {names.SCALED: sizes, names.RESIZED: cpu}
    sized = Resize((), tracked.state, Verdict(names.REASON_CPU_MOVED, "in place of a rescale"))
    monkeypatch.setattr(sizes, "advance", lambda now: [(tracked, sized)])
    monkeypatch.setattr(cpu, "enrol", fails)
    assert companion.steps(later(bed, TURN_SECONDS)) == [(tracked, sized)]
    assert [str(error) for _, error in companion.failures] == ["'a bug'"]


def test_a_job_that_changes_to_observe_is_restored_and_shows_dry_runs() -> None:
    bed = boosted()
    bed.set_policy("short", "observe")
    bed.after(SCAN_SECONDS)
    assert bed.request("short") == REQUEST
    assert bed.after(100).reason("short") == names.REASON_WOULD_MOVE


@pytest.mark.parametrize("how", ["the namespace loses its label", "the policy is switched off"])
def test_everything_is_restored_if(how: str) -> None:
    bed = boosted()
    if how == "the namespace loses its label":
        bed.manage("false")
    else:
        bed.planner.settings.observe_policy(policy(resize=Mode.OFF))
    bed.after(SCAN_SECONDS)
    assert set(requests(bed).values()) == {REQUEST}


@pytest.mark.parametrize("how", ["it ends", "it opts out, and its request is put back"])
def test_the_condition_of_a_job_that_opts_out_while_no_controller_runs_is_removed(how: str) -> None:
    bed = boosted()
    if how == "it ends":
        bed.operator.end(bed.job("short"))
    else:
        bed.set_policy("short", "off")
        bed.set_policy("short", "{}", key=names.STATE)
        bed.size_by_hand("short", request=REQUEST)
    bed.driver.shown.clear()
    bed.restart()
    bed.after(60)
    assert bed.resized_condition("short") is None


def test_a_boost_is_removed_if_the_log_is_no_longer_read() -> None:
    bed = boosted()
    bed.set_policy("short", "off", key=names.METRICS)
    bed.after(600)
    assert bed.request("short") == REQUEST


@pytest.mark.parametrize("by_hand", [777, REQUEST], ids=["a new request", "the user's request"])
def test_a_request_that_another_client_wrote_stays_and_resize_is_disabled(by_hand: int) -> None:
    bed = boosted()
    bed.size_by_hand("short", request=by_hand)
    bed.after(300)
    assert bed.request("short") == by_hand
    assert bed.reason("short") == names.REASON_RESTS


def test_a_pod_recreated_after_off_and_on_does_not_count_as_a_foreign_change() -> None:
    bed = boosted()
    bed.set_policy("short", "off")
    bed.after(60)
    bed.set_policy("short", "cpu")
    bed.after(100)
    bed.replace_pod("short")
    bed.after(60)
    assert bed.reason("short") != names.REASON_RESTS


# --- faults ---------------------------------------------------------------------------------------


def test_after_a_restart_the_prioritised_job_stays() -> None:
    bed = boosted()
    before = len(bed.resized)
    for _ in range(3):
        bed.restart()
        bed.after(100)
    assert len(bed.resized) == before
    assert requests(bed)["short"] == BOOSTED


def hang(bed: CpuBed, name: str) -> None:
    """Let a job stop training and printing."""
    bed.job(name).training._become(Doing.IDLE)


def test_a_prioritised_job_that_is_silent_beyond_its_expected_end_is_replaced() -> None:
    bed = boosted()
    hang(bed, "short")
    assert requests(bed.after(300))["short"] == BOOSTED
    assert requests(bed.after(1500))["short"] == REQUEST


def test_a_new_controller_waits_300_s_for_a_step_of_the_prioritised_job() -> None:
    bed = boosted()
    hang(bed, "short")
    bed.restart()
    training = bed.job("short").training
    training._print(bed.clock.now, training._progress(training.done))
    assert requests(bed.after(280))["short"] == BOOSTED
    assert requests(bed.after(60))["short"] == REQUEST


def test_no_cpu_idles_when_the_prioritised_job_ends_without_a_controller() -> None:
    bed = contended().after(200)
    assert bed.request("short") == BOOSTED
    live = bed.driver
    bed.driver = Dead(bed)  # type: ignore[assignment]
    while bed.job("short").ended is None:
        bed.after(1)
    assert (bed.job("short").ended or 0.0) < 1500 * 1000 / NODE_CPU * 1.6
    assert bed.use("long") + bed.use("longer") == pytest.approx(NODE_CPU, rel=0.01)
    bed.driver = live


class Dead:
    """A controller that does nothing."""

    def __init__(self, bed: CpuBed) -> None:
        self._bed = bed

    def next_turn(self) -> float:
        return self._bed.clock.now + SCAN_SECONDS

    def turn(self) -> None:
        pass

    def wake(self) -> None:
        pass


def test_a_size_recorded_but_never_written_does_not_count_as_a_foreign_change() -> None:
    bed = boosted()
    name, step = bed.resized[-1]
    (pod, _), recorded = step.sizes[0], step.state
    written = {"worker-0": (PodCpu(900, None), PodCpu(BOOSTED, None))}
    cpu = replace(recorded.cpu, written=written)
    bed.set_policy(name, replace(recorded, cpu=cpu).encode(job_uid=pod.owner_uid), key=names.STATE)
    bed.restart()
    bed.after(100)
    assert bed.reason(name) != names.REASON_RESTS


def loosen_a_quota(bed: CpuBed) -> None:
    quotas, quota = bed.planner.queue.quotas, Quota("team", "q")
    quotas.observe_quota(None, quota)
    quotas.observe_quota(quota, replace(quota, hard={"cpu": 100_000}))


def remove_a_limit_range(bed: CpuBed) -> None:
    bed.planner.queue.quotas.observe_limit_range(LimitRange("team", "1"), None)


def edit_a_limit_range(bed: CpuBed) -> None:
    quotas = bed.planner.queue.quotas
    quotas.observe_limit_range(LimitRange("team", "1"), LimitRange("team", "2"))


@pytest.mark.parametrize("change", [loosen_a_quota, remove_a_limit_range, edit_a_limit_range])
def test_F6_a_refused_size_waits_for_a_change_of_the_cause(
    change: Callable[[CpuBed], None],
) -> None:
    bed = contended()
    bed.planner.queue.quotas.observe_limit_range(None, LimitRange("team", "1"))
    tried = refuse_resizes(bed, BEYOND, above=REQUEST)
    bed.after(600)
    assert len(tried) == len(set(tried)) > 0
    assert bed.reason("short") == names.REASON_RESIZE_REFUSED
    change(bed)
    bed.faults.refusal = lambda _uid, _change: None
    assert requests(bed.after(60))["short"] == BOOSTED
    assert bed.reason("short") == names.REASON_CPU_MOVED


def test_F6_without_permission_a_resize_is_tried_at_most_30_times_in_600_s() -> None:
    bed = contended()
    tried = refuse_resizes(bed, FORBIDDEN)
    bed.after(600)
    assert 3 <= len(tried) <= 30  # the back-off grows to 300 s for each of three jobs
    bed.faults.refusal = lambda _uid, _change: None
    assert requests(bed.after(310))["short"] == BOOSTED


@pytest.mark.parametrize(
    ("why", "disabled"),
    [
        pytest.param("Infeasible", True, id="Infeasible: not tried again"),
        pytest.param("Deferred", False, id="Deferred: tried again"),
        pytest.param("Error", False, id="Error: tried again"),
    ],
)
def test_F6_a_size_that_a_kubelet_does_not_set_is_restored(why: str, *, disabled: bool) -> None:
    bed = contended()
    bed.faults.resize = kubelets_refusing(why)
    bed.after(150)
    sizes = [step.sizes[0][1].request for name, step in bed.resized if name == "short"]
    assert sizes[1] == REQUEST < (sizes[0] or 0)
    bed.faults.resize = lambda _pod: None
    bed.after(300)
    assert (bed.reason("short") == names.REASON_RESTS) is disabled
    assert (requests(bed)["short"] == REQUEST) is disabled


def test_F6_a_guaranteed_pod_is_not_resized_with_the_reason() -> None:
    bed = CpuBed()
    bed.add("old", work=900.0, limit=20, guaranteed=True)
    assert not bed.after(300).resized
    shown = bed.resized_condition("old")
    assert shown is not None
    assert shown.verdict.reason == names.REASON_NOTHING_TO_MOVE
    assert "ineligible for resize: its pod of type worker is Guaranteed" in shown.verdict.message


def test_a_job_without_a_read_log_is_not_resized_with_the_reason() -> None:
    bed = CpuBed()
    bed.add("silent")
    bed.set_policy("silent", "off", key=names.METRICS)
    shown = bed.after(300).resized_condition("silent")
    assert shown is not None
    assert shown.verdict.reason == names.REASON_STANDS_DOWN
    assert "kfext.dev/metrics is off" in shown.verdict.message


def test_a_job_with_an_unknown_training_container_is_not_resized_with_the_reason() -> None:
    bed = ServerAndWorkerBed()
    for live in bed.job().pods.values():
        odd = replace(live.pod, trainer=None, resource_version="999")
        bed.planner.cluster.observe_pod(live.pod, odd)
    shown = bed.after(SCAN_SECONDS).resized_condition("train")
    assert shown is not None
    assert shown.verdict.reason == names.REASON_STANDS_DOWN
    assert "the training container is unknown" in shown.verdict.message


def test_a_job_is_not_resized_while_one_of_its_pods_is_missing() -> None:
    bed = contended().after(SCAN_SECONDS)
    pod = bed.pod("short").pod
    bed.planner.cluster.observe_pod(pod, replace(pod, phase="Pending", resource_version="999"))
    bed.after(30)
    assert not [name for name, _ in bed.resized if name == "short"]


# --- operations of two stages ---------------------------------------------------------------------


def shrunk() -> ServerAndWorkerBed:
    """Return a job after its first stage: its server is lowered, its worker not raised yet."""
    bed = ServerAndWorkerBed()
    while not bed.written():
        bed.after(1)
    assert bed.limits() == {"worker": LIMIT, "ps": 50}
    return bed


def test_a_pod_gets_its_limit_back_when_another_pod_is_not_recreated() -> None:
    bed = shrunk().after(SCAN_SECONDS)
    bed.api.mark_deleted(bed.pod("train"))  # on a node that does not answer
    bed.after(200)
    assert bed.limits()["ps"] == 50
    bed.after(200)
    assert bed.limits()["ps"] == LIMIT


def test_a_job_that_opts_out_between_two_stages_is_restored_by_one_step_a_second_at_most() -> None:
    bed = shrunk()
    bed.annotate(names.RESIZE, "off")
    for _ in range(30):
        before = len(bed.resized)
        bed.after(1)
        assert len(bed.resized) <= before + 1
    assert bed.limits() == {"worker": LIMIT, "ps": LIMIT}


def test_a_stage_before_a_refusal_is_restored_and_not_tried_again() -> None:
    bed = shrunk()
    refuse_resizes(bed, BEYOND, above=LIMIT)
    bed.after(100)
    assert bed.limits() == {"worker": LIMIT, "ps": LIMIT}
    before = len(bed.written())
    bed.after(600)
    assert len(bed.written()) == before


# --- whatever happens -----------------------------------------------------------------------------

CROWDED_BY_HAND = (CpuHistory.crowds, CpuHistory.is_sized_by_hand, CpuHistory.crowds)
histories = st.builds(
    lambda beginning, events: [*beginning, *events],
    st.sampled_from([(), (CpuHistory.crowds,), CROWDED_BY_HAND]),
    st.lists(st.sampled_from(EVENTS), max_size=15),
)


@pytest.mark.histories
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_requests_stay_in_bounds_and_end_as_the_user_wrote_them(data: st.DataObject) -> None:
    history = CpuHistory(data)
    for action in data.draw(histories, label="events"):
        note(f"{history.clock.now:g} s: {action.__name__}")
        action(history)
    history.ends()
    event("resized" if any(step.sizes for _, step in history.resized) else "not resized")
