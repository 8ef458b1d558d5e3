"""The CPU that the pods of a job use together."""

import pytest

from kfext import names
from kfext.core.ledger.ledger import Ledger
from kfext.core.progress.followed import Followed
from kfext.model.cpu_use import CpuUse
from kfext.model.verdict import Verdict
from kfext.state.job_cpu import note_use
from tests.builders import job, node, pods

PODS = pods(job().worker(2, cpu="1").build(), bound="a")
FORBIDDEN = Verdict(names.REASON_CPU_USE_FORBIDDEN, "may not")
PENDING = Verdict(names.REASON_CPU_USE_PENDING, "too early")
USE = CpuUse(0.5, at=1.0, window=30.0)

FOUND: dict[str, tuple[list[CpuUse | Verdict], float | None, Verdict | None]] = {
    "the sum": ([USE, USE], 1.0, None),
    "those that are measured": ([USE], 0.5, None),
    "none was measured": ([], None, None),
    "one is not yet": ([USE, PENDING], None, None),
    "one may not be": ([USE, FORBIDDEN], None, FORBIDDEN),
}


@pytest.mark.parametrize(("found", "cores", "why"), FOUND.values(), ids=FOUND)
def test_what_is_noted(
    found: list[CpuUse | Verdict], cores: float | None, why: Verdict | None
) -> None:
    followed = Followed()
    uses = {one.uid: use for one, use in zip(PODS, found, strict=False)}
    note_use(followed, PODS, uses, ledger=Ledger([node("a", cpu="4")]))
    reported = followed.reported()
    assert (reported.cpu, reported.unmeasured) == (cores, why)


def test_that_it_is_pending_is_shown_once_it_stays_so() -> None:
    followed, ledger = Followed(), Ledger([node("a", cpu="4")])
    shown = []
    rounds: list[CpuUse | Verdict] = [*[PENDING] * 7, USE, PENDING]
    for use in rounds:
        note_use(followed, PODS[:1], {PODS[0].uid: use}, ledger=ledger)
        shown.append(followed.reported().unmeasured)
    assert shown == [*[None] * 5, PENDING, PENDING, None, None]
