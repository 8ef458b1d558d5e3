"""The rollout of CPU for a job with two workers: one shrinks before the other grows."""

import pytest

from kfext import names
from kfext.core.lifecycle.steps import Resize
from kfext.model.cpu_state import CpuState, PodCpu
from kfext.model.job_state import JobState
from kfext.model.verdict import Verdict
from kfext.state.running.cpu.record import record_of as cpu_record
from kfext.state.running.operation import KUBELET_SECONDS, MEASURE_SECONDS, Trial
from kfext.state.running.proposal import Rank
from tests.unit.state.running.jobs import proposal
from tests.unit.state.two_workers import GROW, SHRINK, TWO_STAGES, TwoWorkers

FORBIDDEN = 'pods "x" is forbidden: User "kfext" cannot patch resource "pods/resize"'
BEYOND = "maximum cpu usage per Container is 500m, but limit is 600m"
TRIAL = Trial(TWO_STAGES, before=(1.0,))
DISABLES = proposal("uid-1", stages=(), rank=Rank.RESTORE, disabled=frozenset({"resize"}))


def limits(step: Resize | None) -> list[int | None]:
    return [size.limit for _, size in step.sizes] if step else []


def shrunk() -> TwoWorkers:
    """Return a job after its first stage was written and set."""
    bed = TwoWorkers()
    bed.write(bed.begin(trial=TRIAL))
    bed.set(0)
    return bed


def grown() -> TwoWorkers:
    """Return a job after both stages were written and set at 0 s; its pods were measured once."""
    bed = shrunk()
    bed.measure(0)
    bed.write(bed.advance())
    bed.set(1)
    assert bed.advance() is None
    return bed


def undo_of(bed: TwoWorkers) -> tuple[str, str]:
    """Return the policy of the incomplete change and why it is incomplete."""
    undo = cpu_record(bed.job).undo
    assert undo is not None
    return undo[0], undo[1].reason


def test_a_growing_pod_waits_until_the_kubelet_has_set_the_shrinking_pod() -> None:
    bed = TwoWorkers()
    step = bed.begin()
    assert limits(step) == [SHRINK.limit]
    bed.write(step)
    assert bed.advance() is None
    bed.set(0)
    assert limits(bed.advance()) == [GROW.limit]


def test_every_stage_is_recorded_before_it_is_written() -> None:
    bed = TwoWorkers()
    first = bed.begin()
    assert first is not None
    assert first.state.cpu.written == {"worker-0": (PodCpu(20, 200),)}
    bed.write(first)
    bed.set(0)
    second = bed.advance()
    assert second is not None
    assert second.state.cpu.written == {
        "worker-0": (PodCpu(20, 200),),
        "worker-1": (PodCpu(20, 600),),
    }
    assert second.state.cpu.by == {"resize"}


def test_nothing_is_advanced_while_a_step_of_the_job_is_written() -> None:
    bed = shrunk()
    bed.job.tracked.busy = True
    assert bed.advance() is None
    bed.job.tracked.busy = False
    assert bed.advance() is not None


def test_a_step_that_was_never_written_ends_its_operation() -> None:
    bed = TwoWorkers()
    bed.begin()
    assert bed.advance() is None
    assert (cpu_record(bed.job).operation, cpu_record(bed.job).undo) == (None, None)


# --- pods that are deleted ------------------------------------------------------------------------


def test_no_operation_begins_for_a_deleted_pod() -> None:
    bed = TwoWorkers()
    bed.lose(0)
    assert bed.begin() is None
    assert cpu_record(bed.job).operation is None


def test_nothing_grows_if_the_growing_pod_was_deleted() -> None:
    bed = shrunk()
    bed.lose(1)
    assert bed.advance() is None
    assert cpu_record(bed.job).operation is None
    assert undo_of(bed) == ("resize", "BrokenOff")


def test_nothing_grows_if_another_client_has_changed_its_limit_meanwhile() -> None:
    bed = shrunk()
    bed.change(1, limit=300)
    assert bed.advance() is None
    assert cpu_record(bed.job).operation is None
    undo = cpu_record(bed.job).undo
    assert undo is not None
    assert undo[1].message == "another client changed the CPU of a pod"


def test_changes_before_an_error_of_kfext_are_to_be_restored() -> None:
    bed = shrunk()
    assert limits(bed.advance()) == [GROW.limit]
    assert bed.advance() is None
    assert undo_of(bed) == ("resize", "BrokenOff")


def test_a_pending_restore_stays_if_one_of_its_pods_was_deleted() -> None:
    bed, undo = TwoWorkers(), ("resize", Verdict("NotSet", ""))
    cpu_record(bed.job).undo = undo
    bed.lose(0)
    assert bed.begin(proposal("uid-1", stages=((SHRINK,),), rank=Rank.RESTORE)) is None
    assert cpu_record(bed.job).undo == undo


def test_a_pod_deleted_after_its_write_is_not_awaited() -> None:
    bed = TwoWorkers()
    bed.write(bed.begin())
    bed.lose(0)
    assert limits(bed.advance()) == [GROW.limit]


def test_a_deleted_job_leaves_no_operation() -> None:
    bed = shrunk()
    bed.cluster.forget_job("uid-1")
    assert bed.advance() is None
    assert cpu_record(bed.job).operation is None


# --- the end --------------------------------------------------------------------------------------


def test_a_trial_begins_once_every_pod_was_measured_twice() -> None:
    bed = grown()
    for at, trial in ((30, None), (60, TRIAL)):
        assert cpu_record(bed.job).trial is None
        bed.measure(at)
        bed.advance(now=at)
        assert cpu_record(bed.job).trial is trial
    assert cpu_record(bed.job).operation is None


def test_an_unmeasured_pod_is_not_awaited_forever() -> None:
    bed = grown()
    for at in (30, 60, 90):
        bed.measure(at, 0)
        bed.advance(now=at)
    assert cpu_record(bed.job).operation is not None
    bed.advance(now=MEASURE_SECONDS)
    assert cpu_record(bed.job).operation is None
    assert cpu_record(bed.job).trial is TRIAL


def test_an_operation_without_sizes_ends_when_it_is_written() -> None:
    bed = TwoWorkers()
    step = bed.begin(DISABLES)
    assert step is not None
    assert (step.sizes, step.state.cpu.disabled) == ((), {"resize": "a reason"})
    bed.write(step)
    assert cpu_record(bed.job).operation is None


def test_a_restore_does_not_end_the_back_off() -> None:
    bed = TwoWorkers()
    bed.begin()
    bed.refuse()
    bed.write(bed.begin(DISABLES))
    assert cpu_record(bed.job).back_off is not None


# --- the policies that have set sizes -------------------------------------------------------------


@pytest.mark.parametrize(
    ("resized", "rank", "want"),
    [
        pytest.param(True, Rank.RESIZE, {"shift", "resize"}, id="earlier and new policies"),
        pytest.param(False, Rank.RESIZE, {"resize"}, id="the new policy if no pod was resized"),
        pytest.param(True, Rank.RESTORE, {"shift"}, id="earlier policies during a restore"),
        pytest.param(False, Rank.RESTORE, set(), id="no policy after a restore"),
    ],
)
def test_the_policies_that_have_set_sizes(rank: Rank, want: set[str], *, resized: bool) -> None:
    bed = TwoWorkers()
    before = CpuState(by=frozenset({"shift"}))
    bed.job.tracked.state = JobState(cpu=before)
    shrink = proposal("uid-1", stages=((SHRINK,),), rank=rank)
    step = bed.resizing.begin(bed.job, shrink, resized=resized)
    assert step is not None
    assert step.state.cpu.by == want


def test_a_change_of_cpu_leaves_the_other_fields_of_the_state() -> None:
    bed = TwoWorkers()
    bed.job.tracked.state = JobState(strikes=2, cpu=CpuState(disabled={"shift": "why"}))
    step = bed.begin(DISABLES)
    assert step is not None
    assert step.state.strikes == 2
    assert step.state.cpu.disabled == {"shift": "why", "resize": "a reason"}
    forgotten = bed.resizing.forget(bed.job)
    assert (forgotten.sizes, forgotten.state) == ((), JobState(strikes=2))


# --- faults ---------------------------------------------------------------------------------------

CHANGED = "422 Invalid: the server rejected our request due to an error in our request"
BACK_OFFS: dict[str, tuple[str, float, bool]] = {
    "a conflict": ("", 30, False),
    "a refusal by a LimitRange": (BEYOND, 10_000, True),
    "a refusal by a quota": (
        'pods "p" is forbidden: exceeded quota: q, requested: limits.cpu',
        10_000,
        True,
    ),
    "a refusal by a webhook": ('admission webhook "p.example" denied the request', 30, False),
    "a missing permission": (FORBIDDEN, 30, False),
    "a job that changed meanwhile": (CHANGED, 30, False),
}


@pytest.mark.parametrize(("final", "later", "paused"), BACK_OFFS.values(), ids=BACK_OFFS)
def test_the_back_off_after_a_failed_write_ends_in_time_or_with_a_change_of_quotas_after(
    final: str, later: float, *, paused: bool
) -> None:
    bed = TwoWorkers()
    bed.begin()
    bed.refuse(final)
    assert cpu_record(bed.job).operation is None
    assert bed.resizing.paused(bed.job, 29)
    assert bed.resizing.paused(bed.job, later) is paused
    bed.changes += 1
    assert not bed.resizing.paused(bed.job, 29)
    why = Verdict(names.REASON_RESIZE_REFUSED, final) if final else None
    assert cpu_record(bed.job).refused == why


def test_a_size_that_a_kubelet_does_not_set_is_to_be_restored() -> None:
    bed = TwoWorkers()
    bed.write(bed.begin())
    assert bed.advance(now=KUBELET_SECONDS - 1) is None
    assert cpu_record(bed.job).operation is not None
    assert bed.advance(now=KUBELET_SECONDS) is None
    assert cpu_record(bed.job).operation is None
    assert undo_of(bed) == ("resize", "NotSet")
    assert bed.resizing.paused(bed.job, KUBELET_SECONDS)


def test_stages_before_a_refused_stage_are_to_be_restored() -> None:
    bed = shrunk()
    assert limits(bed.advance()) == [GROW.limit]
    bed.refuse(BEYOND)
    assert cpu_record(bed.job).undo == ("resize", Verdict(names.REASON_RESIZE_REFUSED, BEYOND))


def test_a_lasting_refusal_remains_after_the_restore() -> None:
    bed = TwoWorkers()
    bed.begin()
    bed.refuse(BEYOND)
    bed.write(bed.begin(DISABLES))
    assert bed.resizing.paused(bed.job, 10_000)
    assert cpu_record(bed.job).refused is not None


def test_the_kubelets_reason_for_a_size_that_it_did_not_set_is_shown() -> None:
    bed = TwoWorkers()
    bed.write(bed.begin())
    bed.change(0, resize_problem=Verdict("Infeasible", "too much"))
    bed.advance()
    refused = cpu_record(bed.job).refused
    assert refused is not None
    assert refused.message == "Infeasible: too much"


RESTORE = proposal("uid-1", policy="", stages=((SHRINK,),), rank=Rank.RESTORE)


@pytest.mark.parametrize("undo", [None, ("shift", Verdict("NotSet", "why"))])
def test_a_restore_that_no_kubelet_sets_stays_pending(undo: tuple[str, Verdict] | None) -> None:
    bed = TwoWorkers()
    cpu_record(bed.job).undo = undo
    bed.write(bed.begin(RESTORE))
    bed.advance(now=KUBELET_SECONDS)
    assert cpu_record(bed.job).undo == undo


def test_a_new_operation_ends_the_pending_restore_and_the_trial() -> None:
    bed = TwoWorkers()
    cpu_record(bed.job).undo, cpu_record(bed.job).trial = ("resize", Verdict("NotSet", "")), TRIAL
    bed.begin()
    assert not cpu_record(bed.job).undo
    assert not cpu_record(bed.job).trial
