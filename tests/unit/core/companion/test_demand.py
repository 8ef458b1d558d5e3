"""What pods want, and the lowest limit that they may get."""

from typing import Any

import pytest

from kfext.core.companion.demand import is_stopped, least_limit, parts_of, wanted
from kfext.core.companion.share_out import Part
from kfext.model.qos import QoS
from tests.unit.core.companion.jobs import pod

STOPPED: dict[str, tuple[dict[str, Any], bool]] = {
    "at its limit": ({"limit": 100, "use": 95}, True),
    "below its limit": ({"limit": 100, "use": 94}, False),
    "without a limit": ({"use": 1400}, False),
    "its use is not known": ({"limit": 100}, False),
}


@pytest.mark.parametrize(("of", "want"), STOPPED.values(), ids=STOPPED)
def test_whether_a_limit_stops_a_pod(of: dict[str, Any], *, want: bool) -> None:
    assert is_stopped(pod(**of)) is want


WANTS: dict[str, tuple[dict[str, Any], bool, int]] = {
    "its use, where the node has more": ({"use": 300}, False, 300),
    "anything, where the node has no more": ({"use": 300}, True, 1000),
    "its use, where it takes far less than its part": ({"use": 100}, True, 100),
    "anything, where its limit stops it": ({"use": 200, "limit": 200}, False, 1000),
    "anything, where its use is not known": ({}, False, 1000),
    "anything, where it works by bursts under a cap": ({"use": 150, "limit": 200}, False, 1000),
    "its use, far below its cap": ({"use": 140, "limit": 200}, False, 140),
    "its use, below a limit that is its user's": ({"use": 800, "limit": 1000}, False, 800),
    "no more than it may have": ({"use": 1200}, False, 1000),
}


@pytest.mark.parametrize(("of", "full", "want"), WANTS.values(), ids=WANTS)
def test_what_a_pod_wants(of: dict[str, Any], *, full: bool, want: int) -> None:
    assert wanted(pod(**of), most=1000, full=full, part=400.0) == want


LEAST: dict[str, tuple[dict[str, Any], int]] = {
    "a slice of the CFS period": ({"request": 20}, 50),
    "above the request, which would make it Guaranteed": ({"request": 500}, 501),
    "the request of a Guaranteed pod moves with the limit": (
        {"request": 500, "qos": QoS.GUARANTEED},
        50,
    ),
}


@pytest.mark.parametrize(("of", "want"), LEAST.values(), ids=LEAST)
def test_the_lowest_limit_of_a_pod(of: dict[str, Any], want: int) -> None:
    assert least_limit(pod(**of)) == want


def test_pods_of_a_job_have_parts_by_their_use() -> None:
    busy, idle = pod(use=900), pod(use=10, request=500)
    assert parts_of([busy, idle], [1400, 400]) == [Part(900.0, 50, 1400), Part(10.0, 400, 400)]
    assert [one.weight for one in parts_of([busy, pod()], [1400, 1400])] == [1.0, 1.0]
