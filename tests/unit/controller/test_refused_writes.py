"""Writes that the API server refuses permanently: by a policy engine, or for their size."""

from collections.abc import Callable

import pytest

from kfext.core.lifecycle.steps import Pin, Release, Step, Ungate, Unsuspend
from kfext.core.patches.json_patch import Unpatchable
from kfext.errors import ApiError, Conflict, Forbidden, Invalid, TooManyRequests, Unavailable
from kfext.model.plan import Plan
from kfext.model.pod import ReplicaKey
from kfext.names import GATED, PLAN, QUEUED, REASON_WRITE_REFUSED
from kfext.state.mirror.tracked_job import MAX_REFUSALS, TrackedJob
from tests.builders import JobBuilder, job, pods
from tests.unit.controller.bench import Bench, gang, refusing

TOO_LONG = Invalid(status=422, reason="Invalid", message="metadata.annotations: Too long")
DENIED = Forbidden(status=403, reason="Forbidden", message="denied by policy no-pod-updates")


async def hours(bench: Bench, uid: str, *, number: float) -> None:
    """Let a number of hours pass; the job is decided on every half minute."""
    end = bench.now + number * 3600
    while bench.now < end:
        bench.planner._retry(uid)
        await bench.tick()
        bench.now += 30


def refusing_only(error: ApiError, *steps: type[Step]) -> Callable[..., object]:
    """Return the answer of a writer that refuses steps of these types."""

    async def answer(tracked: TrackedJob, step: Step) -> bool:
        if isinstance(step, steps):
            raise error
        return True

    return answer


def written_types(bench: Bench) -> set[str]:
    return {type(step).__name__ for _, step in bench.writer.steps}


def planned(uid: str = "one") -> JobBuilder:
    """A gang that was started under a plan."""
    plan = Plan(uid, 1, {ReplicaKey("worker", index): "a" for index in range(3)})
    builder = job(name=uid, uid=uid).worker(3, cpu="1").resumed()
    return builder.annotated(PLAN, plan.encode())


@pytest.mark.parametrize(
    "error",
    [
        TOO_LONG,
        DENIED,
        Unpatchable("/metadata/annotations is no object"),
        Unavailable(status=500, reason="", message="etcdserver: request is too large"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_a_job_with_a_refused_start_is_released(bench: Bench, error: Exception) -> None:
    bench.writer.answer = refusing_only(error, Unsuspend)  # type: ignore[arg-type,assignment]
    bench.submit(gang("one"))
    await hours(bench, "one", number=0.1)
    steps = [type(step) for _, step in bench.writer.steps]
    assert steps[: MAX_REFUSALS + 1] == [*[Unsuspend] * MAX_REFUSALS, Release]


@pytest.mark.parametrize(
    "error",
    [
        Conflict(status=409, reason="Conflict", message=""),
        TooManyRequests(status=429, reason="", message="", retry_after=1.0),
        Unavailable(status=0, reason="", message="no connection"),
        Unavailable(status=500, reason="", message="failed calling webhook"),
    ],
    ids=lambda error: f"{type(error).__name__} {error.status}",
)
async def test_a_temporary_failure_is_retried(bench: Bench, error: ApiError) -> None:
    bench.writer.answer = refusing(error)
    bench.submit(gang("one"))
    await hours(bench, "one", number=0.5)
    assert written_types(bench) == {"Unsuspend"}


async def test_a_permanent_refusal_is_shown_and_holds_no_capacity(bench: Bench) -> None:
    bench.writer.answer = refusing(TOO_LONG)
    bench.submit(gang("one"))
    await hours(bench, "one", number=6)
    uid, phase, verdict = bench.reports[-1]
    assert (uid, phase) == ("one", QUEUED)
    assert verdict is not None
    assert verdict.reason == REASON_WRITE_REFUSED
    assert "Too long" in verdict.message
    assert len(bench.writer.steps) < 6 * 3600 / 300 * 2 + 2 * MAX_REFUSALS
    assert len(bench.cluster.ledger) == 0


@pytest.mark.parametrize(
    ("builder", "gated", "phase"),
    [(gang("one"), False, QUEUED), (planned(), True, GATED)],
    ids=["its start", "its pins"],
)
async def test_the_first_refusal_is_shown_at_once(
    bench: Bench, builder: JobBuilder, gated: bool, phase: str
) -> None:
    bench.writer.answer = refusing(DENIED)
    bench.submit(builder)
    for gated_pod in pods(builder.build(), gated=True) if gated else ():
        bench.cluster.observe_pod(None, gated_pod)
    await bench.tick()
    assert len(bench.writer.steps) == 1
    uid, shown, verdict = bench.reports[-1]
    assert (uid, shown) == ("one", phase)
    assert verdict is not None
    assert verdict.reason == REASON_WRITE_REFUSED
    assert "no-pod-updates" in verdict.message


@pytest.mark.parametrize(
    ("error", "gone"),
    [(Unavailable(status=0, reason="", message="no connection"), False), (DENIED, True)],
    ids=["a temporary failure", "a write about a job deleted meanwhile"],
)
async def test_a_failed_write_is_not_shown_for(bench: Bench, error: ApiError, gone: bool) -> None:
    async def answer(_tracked: TrackedJob, _step: Step) -> bool:
        if gone:
            bench.cluster.forget_job("one")
        raise error

    bench.writer.answer = answer
    bench.submit(gang("one"))
    await bench.tick()
    assert bench.reports == []


async def test_a_gang_is_released_if_its_pins_are_refused_permanently(bench: Bench) -> None:
    bench.writer.answer = refusing_only(DENIED, Pin)  # type: ignore[assignment]
    bench.submit(planned())
    for gated_pod in pods(planned().build(), gated=True):
        bench.cluster.observe_pod(None, gated_pod)
    await hours(bench, "one", number=0.1)
    assert isinstance(bench.writer.steps[MAX_REFUSALS][1], Release)


async def test_the_capacity_of_an_unwritable_gang_is_given_to_others(bench: Bench) -> None:
    bench.writer.answer = refusing_only(DENIED, Pin, Release, Ungate)  # type: ignore[assignment]
    bench.submit(planned())
    for gated_pod in pods(planned().build(), gated=True):
        bench.cluster.observe_pod(None, gated_pod)
    bench.submit(gang("other", created=9))
    await hours(bench, "one", number=0.2)
    assert written_types(bench) == {"Pin", "Release", "Ungate", "Unsuspend"}
    assert "other" in bench.started()


async def test_a_step_that_is_accepted_later_is_carried_out(bench: Bench) -> None:
    bench.writer.answer = refusing(TOO_LONG)
    bench.submit(gang("one").annotated("kfext.dev/colocation", "required"))
    await hours(bench, "one", number=0.5)
    before = len(bench.writer.steps)
    bench.writer.answer = refusing_only(TOO_LONG)  # type: ignore[assignment]
    await hours(bench, "one", number=0.1)
    assert [type(step) for _, step in bench.writer.steps[before:]][:1] == [Unsuspend]


async def test_a_refused_step_is_tried_at_once_after_an_edit_of_the_job(bench: Bench) -> None:
    bench.writer.answer = refusing(TOO_LONG)
    required = {"kfext.dev/colocation": "required"}
    for version, workers in ((1, 3), (2, 2)):
        builder = gang("one", workers=workers).version(version)
        builder.raw["metadata"]["annotations"] |= required
        bench.submit(builder)
        before = len(bench.writer.steps)
        await bench.tick()
        assert len(bench.writer.steps) == before + 1
        await hours(bench, "one", number=0.04)
