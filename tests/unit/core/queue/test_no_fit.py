"""What did not fit is remembered for all jobs of its shape, until room comes free."""

import pytest

from kfext.core.ledger.claim import Claim
from kfext.core.queue.no_fit import NoFit, NoFitCache, shape_of
from kfext.model.verdict import Verdict
from kfext.names import REASON_NO_ROOM
from tests.builders import JobBuilder, job, ledger, node

REFUSED = NoFit(Verdict(REASON_NO_ROOM, "8 short"), preemptible=True)


def test_a_refusal_is_known_until_room_comes_free() -> None:
    no_fits, on = NoFitCache(), ledger(node("a", cpu="8"))
    assert no_fits.known("shape", on) is None
    no_fits.note("shape", REFUSED, on)
    assert no_fits.known("shape", on) is REFUSED
    assert no_fits.known("another", on) is None
    on.claim("more", Claim("a", {"cpu": 1000}))
    assert no_fits.known("shape", on) is REFUSED
    on.drop("more")
    assert no_fits.known("shape", on) is None
    assert no_fits.known("shape", on) is None


def test_that_a_shape_would_fit_is_known_until_anything_is_claimed() -> None:
    no_fits, on = NoFitCache(), ledger(node("a", cpu="8"))
    refused = NoFit(Verdict(REASON_NO_ROOM, "8 short"), would_fit=True)
    assert no_fits.known("shape", on) is None
    no_fits.note("shape", refused, on)
    assert no_fits.known("shape", on) is refused
    on.claim("more", Claim("a", {"cpu": 1000}))
    assert no_fits.known("shape", on) is None


SAME: dict[str, JobBuilder] = {
    "of another name": job(name="other", uid="uid-2").worker(3, cpu="1"),
    "older": job().worker(3, cpu="1").created(-100),
    "with other settings": job().worker(3, cpu="1").annotated("kfext.dev/metrics", "off"),
}
OTHER: dict[str, JobBuilder] = {
    "more replicas": job().worker(4, cpu="1"),
    "larger pods": job().worker(3, cpu="2"),
    "another resource": job().worker(3, cpu="1", gpus=1),
    "elsewhere": job().worker(3, cpu="1", spec={"nodeSelector": {"zone": "a"}}),
    "a port of the node": job().worker(3, cpu="1", ports=[80]),
    "a type besides": job().master(cpu="1").worker(3, cpu="1"),
    "of another type": job("TFJob").ps(3, cpu="1"),
}
THREE = shape_of(job().worker(3, cpu="1").build())


@pytest.mark.parametrize("made", SAME.values(), ids=SAME)
def test_jobs_that_ask_for_the_same_have_one_shape(made: JobBuilder) -> None:
    assert shape_of(made.build()) == THREE


@pytest.mark.parametrize("made", OTHER.values(), ids=OTHER)
def test_jobs_that_ask_for_something_else_have_another(made: JobBuilder) -> None:
    assert shape_of(made.build()) != THREE


def test_pods_that_may_burst_have_another_shape_than_those_that_may_not() -> None:
    shapes = {
        shape_of(job().worker(3, cpu="1", memory="1Gi", guaranteed=limited).build())
        for limited in (True, False)
    }
    assert len(shapes) == 2
