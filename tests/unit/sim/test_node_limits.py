"""A limit of the settings on single nodes holds in every decision about a node."""

from dataclasses import replace

import pytest

from kfext import names
from kfext.core.lifecycle.steps import Unsuspend
from kfext.core.settings.table import Settings
from kfext.model.limit import Excluded, Limit
from tests.unit.sim.bed import GANG, LONG, Bed

AVOIDED: dict[str, Limit] = {names.COLOCATION: Excluded(frozenset("a"))}


@pytest.fixture(autouse=True)
def _every_job_avoids_node_a(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Settings, "node_limits", property(lambda _: AVOIDED))


def nodes(bed: Bed, name: str) -> set[str]:
    return {live.pod.node_name for live in bed.job(name).pods.values()}


def test_a_start_respects_the_limit_and_the_gang_is_not_born_pinned() -> None:
    bed = Bed(GANG, policy=None, a=8000, b=2000).at(110)
    assert nodes(bed, "gang") == {"b"}
    starts = [write.step for write in bed.driver.written if isinstance(write.step, Unsuspend)]
    assert [start.gated_by for start in starts] == ["limit"]


def test_a_reservation_respects_the_limit() -> None:
    first = replace(GANG, name="first", arrives=5.0, steps=5000)
    bed = Bed(first, GANG, policy=None, a=8000, b=2000).at(500)
    reservation = bed.planner.queue.reservations.current
    assert reservation is not None
    assert (reservation.job, reservation.nodes) == ("uid-gang", ("b",))


def test_growth_respects_the_limit() -> None:
    growing = replace(LONG, workers=2, bounds=(2, 8))
    bed = Bed(growing, policy=None, a=8000, b=4000).at(600)
    assert (bed.job().workers, nodes(bed, "train")) == (4, {"b"})
