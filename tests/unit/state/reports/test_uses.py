"""The CPU that pods and jobs use."""

import pytest

from kfext import names
from kfext.core.ledger.ledger import Ledger
from kfext.core.progress.followed import Followed
from kfext.model.cpu_use import CpuUse
from kfext.model.verdict import Verdict
from kfext.state.reports.uses import Uses, record_use
from tests.builders import job, node, pods

UNKNOWN = Verdict("NotMeasured", "the metrics API does not answer")


def numbers(*rounds: dict[str, CpuUse | Verdict]) -> list[int | None]:
    """Return the number of measurements of pod p after each round."""
    uses, results = Uses(), []
    for measured in rounds:
        uses.record(measured)
        known = uses.use_of("p")
        results.append(known.number if known else None)
    return results


def at(when: float, cores: float = 0.35) -> dict[str, CpuUse | Verdict]:
    return {"p": CpuUse(cores, at=when, window=30.0)}


def test_a_use_is_read_in_millicores() -> None:
    uses = Uses()
    uses.record(at(30, cores=0.3504))
    known = uses.use_of("p")
    assert known is not None
    assert known.millicores == 350


def test_the_use_of_a_node_is_that_of_the_last_round() -> None:
    uses = Uses()
    uses.record({}, {"node-1": CpuUse(3.5, at=30.0, window=30.0)})
    assert (uses.of_node("node-1"), uses.of_node("node-2")) == (3500, None)
    uses.record({})
    assert uses.of_node("node-1") is None


def test_each_new_measurement_counts() -> None:
    assert numbers(at(30), at(60), at(90)) == [1, 2, 3]


def test_a_measurement_that_is_read_again_does_not_count() -> None:
    assert numbers(at(30), at(30), at(60)) == [1, 1, 2]


def test_a_pod_without_a_measurement_in_the_last_round_has_an_unknown_use() -> None:
    assert numbers(at(30), {}) == [1, None]
    assert numbers(at(30), {"p": UNKNOWN}) == [1, None]


PODS = pods(job().worker(2, cpu="1").build(), bound="a")
FORBIDDEN = Verdict(names.REASON_CPU_USE_FORBIDDEN, "may not")
PENDING = Verdict(names.REASON_CPU_USE_PENDING, "too early")
USE = CpuUse(0.5, at=1.0, window=30.0)

FOUND: dict[str, tuple[list[CpuUse | Verdict], float | None, Verdict | None]] = {
    "the sum": ([USE, USE], 1.0, None),
    "a pod without a result is left out": ([USE], 0.5, None),
    "no pod was measured": ([], None, None),
    "a pod with a pending result makes the sum unknown": ([USE, PENDING], None, None),
    "a pod may not be measured": ([USE, FORBIDDEN], None, FORBIDDEN),
}


@pytest.mark.parametrize(("found", "cores", "why"), FOUND.values(), ids=FOUND)
def test_the_recorded_use_of_a_job(
    found: list[CpuUse | Verdict], cores: float | None, why: Verdict | None
) -> None:
    followed = Followed()
    uses = {pod.uid: use for pod, use in zip(PODS, found, strict=False)}
    record_use(followed, PODS, uses, ledger=Ledger([node("a", cpu="4")]))
    reported = followed.reported()
    assert (reported.cpu, reported.unmeasured) == (cores, why)


def test_a_pending_measurement_is_shown_once_it_stays_pending() -> None:
    followed, ledger = Followed(), Ledger([node("a", cpu="4")])
    shown = []
    rounds: list[CpuUse | Verdict] = [*[PENDING] * 7, USE, PENDING]
    for use in rounds:
        record_use(followed, PODS[:1], {PODS[0].uid: use}, ledger=ledger)
        shown.append(followed.reported().unmeasured)
    assert shown == [*[None] * 5, PENDING, PENDING, None, None]
