"""The policy shift moves CPU from the server of a job to its worker despite faults."""

from collections.abc import Callable

import pytest
from hypothesis import example, given, note, settings
from hypothesis import strategies as st

from kfext import names
from kfext.model.cpu_size import CpuSize
from kfext.model.cpu_state import CpuState
from kfext.model.quantity import CPU
from tests.unit.resizing.bed import (
    LIMIT,
    NODE_CPU,
    SCAN_SECONDS,
    SERVER,
    WORKER,
    ServerAndWorkerBed,
)

SETTLED = 60
"""An interrupted operation has begun again and ended after this many scans."""
SHIFTED = {"worker": 2 * LIMIT - 50, "ps": 50}


def after_writes(writes: int) -> ServerAndWorkerBed:
    """Return a job after this many written stages: the server shrinks, then the worker grows."""
    bed = ServerAndWorkerBed()
    while len(bed.written()) < writes:
        bed.after(1)
    return bed


def the_controller_dies(bed: ServerAndWorkerBed) -> None:
    bed.restart()


def the_controller_dies_before_its_next_write(bed: ServerAndWorkerBed) -> None:
    bed.faults.dies = True


def the_worker_is_recreated(bed: ServerAndWorkerBed) -> None:
    bed.replace_pod("train", WORKER)


def the_server_is_recreated(bed: ServerAndWorkerBed) -> None:
    bed.replace_pod("train", SERVER)


def all_pods_are_recreated_and_the_controller_dies(bed: ServerAndWorkerBed) -> None:
    bed.replace_pod("train", WORKER)
    bed.replace_pod("train", SERVER)
    bed.restart()


FAULTS: tuple[Callable[[ServerAndWorkerBed], None], ...] = (
    the_controller_dies,
    the_controller_dies_before_its_next_write,
    the_worker_is_recreated,
    the_server_is_recreated,
    all_pods_are_recreated_and_the_controller_dies,
)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(
    ("writes", "scans"),
    [
        pytest.param(0, 0, id="before the first stage"),
        pytest.param(1, 0, id="between two stages"),
        pytest.param(2, 0, id="after the last write"),
        pytest.param(2, 30, id="long after it"),
    ],
)
def test_cpu_moves_again_after_a_fault_and_none_is_lost(
    writes: int, scans: int, fault: Callable[[ServerAndWorkerBed], None]
) -> None:
    bed = after_writes(writes).after(SCAN_SECONDS * scans)
    fault(bed)
    assert bed.after(SCAN_SECONDS * SETTLED).limits() == SHIFTED
    assert not bed.tracked("train").state.cpu.disabled


def test_a_stage_before_the_loss_of_the_worker_is_restored_at_the_next_scan() -> None:
    bed = after_writes(1)
    the_worker_is_recreated(bed)
    assert bed.after(20).limits() == {"worker": LIMIT, "ps": LIMIT}


# --- Guaranteed pods: their requests move too -----------------------------------------------------

BEYOND_FREE = NODE_CPU - 2 * LIMIT + 50
"""Millicores that are only free after the server has shrunk and before the worker grows."""


def test_no_other_job_takes_cpu_that_moves_between_two_pods() -> None:
    bed = ServerAndWorkerBed(guaranteed=True, waiting_cpu=BEYOND_FREE).after(300)
    assert bed.limits() == SHIFTED
    assert not list(bed.started())


def test_no_other_job_takes_cpu_between_two_stages_after_a_restart_of_the_controller() -> None:
    bed = ServerAndWorkerBed(guaranteed=True, waiting_cpu=BEYOND_FREE)
    while not bed.written():
        bed.after(1)
    bed.restart()
    assert bed.after(SCAN_SECONDS * SETTLED).limits() == SHIFTED
    assert not list(bed.started())


def test_a_restore_does_not_wait_for_a_waiting_job() -> None:
    bed = ServerAndWorkerBed(guaranteed=True, waiting_cpu=BEYOND_FREE).after(300)
    bed.annotate(names.RESIZE, "off")
    assert bed.after(100).limits() == {"worker": LIMIT, "ps": LIMIT}
    assert not list(bed.started())


def test_an_ended_operation_holds_no_capacity() -> None:
    bed = ServerAndWorkerBed(guaranteed=True, waiting_cpu=BEYOND_FREE)
    while not bed.written():
        bed.after(1)
    bed.after(SCAN_SECONDS)
    bed.delete("train")
    assert list(bed.after(1).started()) == ["waits"]


def test_the_users_cpu_is_restored_for_a_recreated_pod() -> None:
    bed = ServerAndWorkerBed(guaranteed=True).after(300)
    before, server = len(bed.resized), bed.pod("train", SERVER)
    assert server.pod.requests[CPU] == 50
    bed.api.mark_deleted(server)
    bed.after(SCAN_SECONDS)
    _, step = bed.resized[before]
    assert [size for _, size in step.sizes] == [CpuSize(LIMIT, LIMIT)]


# --- whatever happens -----------------------------------------------------------------------------


@pytest.mark.histories
@settings(max_examples=30, deadline=None)
@example(
    faults=[
        (the_controller_dies, 10),
        (the_controller_dies_before_its_next_write, 0),
        (the_worker_is_recreated, 0),
    ],
    guaranteed=False,
)
@given(
    faults=st.lists(st.tuples(st.sampled_from(FAULTS), st.integers(0, 12)), max_size=6),
    guaranteed=st.booleans(),
)
def test_after_any_faults_the_sum_is_the_users_and_opting_out_restores_each_pod(
    faults: list[tuple[Callable[[ServerAndWorkerBed], None], int]], *, guaranteed: bool
) -> None:
    bed = ServerAndWorkerBed(guaranteed=guaranteed, waiting_cpu=BEYOND_FREE)
    for fault, scans in faults:
        note(f"{bed.clock.now:g} s: {fault.__name__}, {bed.limits()}")
        fault(bed)
        bed.after(SCAN_SECONDS * scans)
    assert (
        sum(limit or 0 for limit in bed.after(SCAN_SECONDS * SETTLED).limits().values())
        == 2 * LIMIT
    )
    assert not (guaranteed and list(bed.started()))
    bed.annotate(names.RESIZE, "off")
    assert bed.after(100).limits() == {"worker": LIMIT, "ps": LIMIT}
    assert bed.tracked("train").state.cpu == CpuState()
