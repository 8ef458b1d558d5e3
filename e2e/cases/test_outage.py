"""Faults of the API server: watches break, history expires, writes are refused or time out."""

from collections.abc import Callable

import pytest

from e2e.harness.faults import (
    Delay,
    ErrorEvent,
    Fault,
    Match,
    Refuse,
    job_patch,
    pod_patch,
    unsuspend_patch,
    watch_of,
)
from e2e.harness.jobs import workers
from e2e.harness.kfext_process import Kfext
from e2e.harness.space import Space

GPU = {"nvidia.com/gpu": "1", "cpu": "1"}


def check_placed_once(space: Space, name: str, pods: int) -> None:
    """Check that a job is placed on one node, and each pod is pinned once."""
    nodes_by_pod = space.bound(name, pods)
    assert len(set(nodes_by_pod.values())) == 1
    space.phase(name, "Placed")
    pinned = space.pins()
    assert {pod: pinned[pod] for pod in nodes_by_pod} == dict.fromkeys(nodes_by_pod, 1)


def test_watches_that_are_cut_are_resumed(space: Space, kfext: Kfext) -> None:
    space.submit(workers("before", 3, each=GPU))
    check_placed_once(space, "before", 3)
    assert kfext.proxy.drop_watches() >= 5
    space.submit(workers("after", 3, each=GPU))
    check_placed_once(space, "after", 3)


def test_watches_cut_while_a_gang_is_pinned_lose_no_pod(space: Space, kfext: Kfext) -> None:
    pins = Delay(pod_patch(space.name))
    kfext.proxy.arm(pins)
    space.submit(workers("one", 6, each=GPU))
    space.until(lambda: pins.seen, "the pins are on their way")
    kfext.proxy.drop_watches()
    pins.go.set()
    check_placed_once(space, "one", 6)


@pytest.mark.parametrize(
    ("plural", "form"),
    [
        ("pods", "event"),
        ("pods", "answer"),
        ("nodes", "event"),
        ("namespaces", "answer"),
        ("pytorchjobs", "event"),
    ],
)
def test_a_watch_with_an_expired_version_is_followed_by_a_new_list(
    space: Space, kfext: Kfext, plural: str, form: str
) -> None:
    match = watch_of(plural)
    fault: Fault = Refuse(match, status=410) if form == "answer" else ErrorEvent(match, status=410)
    kfext.proxy.arm(fault)
    kfext.proxy.drop_watches(match)
    space.until(lambda: fault.seen, "the watch was answered that its version has expired")
    space.submit(workers("one", 3, each=GPU))
    check_placed_once(space, "one", 3)


@pytest.mark.long
def test_a_controller_ends_when_its_watch_of_jobs_is_refused_and_its_successor_continues(
    space: Space, kfext: Kfext
) -> None:
    """kopf handles 410 only inside the stream, where API servers send it, not as HTTP status."""
    kfext.proxy.arm(Refuse(watch_of("pytorchjobs"), status=410))
    kfext.proxy.drop_watches(watch_of("pytorchjobs"))
    space.patiently(lambda: kfext.controller_pid is None, seconds=120)
    space.submit(workers("one", 3, each=GPU))
    kfext.restart_killed_controller()
    check_placed_once(space, "one", 3)


REFUSED_WRITES = {
    "the start patch conflicts once": (unsuspend_patch, 409, 1, 1),
    "the start patch fails three times": (unsuspend_patch, 500, 1, 3),
    "the start patch is throttled": (unsuspend_patch, 429, 1, 2),
    "the first pin conflicts": (pod_patch, 409, 1, 1),
    "a pin in the middle fails": (pod_patch, 500, 3, 1),
    "half of the pins fail": (pod_patch, 500, 4, 3),
    "all pins fail at first": (pod_patch, 500, 1, 6),
    "pins are throttled": (pod_patch, 429, 2, 4),
    "a pin is refused as invalid": (pod_patch, 422, 2, 1),
}


@pytest.mark.parametrize(
    ("match", "status", "first", "times"), REFUSED_WRITES.values(), ids=REFUSED_WRITES.keys()
)
def test_a_job_is_placed_once_although_writes_are_refused(
    space: Space, kfext: Kfext, match: Callable[[str], Match], status: int, first: int, times: int
) -> None:
    fault = Refuse(match(space.name), status=status, first=first, times=times)
    kfext.proxy.arm(fault)
    space.submit(workers("one", 6, each=GPU))
    check_placed_once(space, "one", 6)
    assert fault.seen >= first + times - 1
    assert space.starts() == 1


LOST = {"start patch": unsuspend_patch, "first pin": pod_patch}


@pytest.mark.parametrize("match", LOST.values(), ids=LOST.keys())
def test_a_write_that_was_carried_out_but_answered_500_is_not_done_twice(
    space: Space, kfext: Kfext, match: Callable[[str], Match]
) -> None:
    kfext.proxy.arm(Refuse(match(space.name), status=500, carried_out=True))
    space.submit(workers("one", 4, each=GPU))
    check_placed_once(space, "one", 4)
    assert space.starts() == 1


def test_a_job_with_writes_that_always_fail_delays_no_other_job(space: Space, kfext: Kfext) -> None:
    kfext.proxy.arm(
        Refuse(
            lambda exchange: job_patch(space.name)(exchange) and exchange.path.endswith("/cursed"),
            times=1_000_000,
        )
    )
    space.submit(workers("cursed", 2, each=GPU))
    for number in range(3):
        space.submit(workers(f"fine-{number}", 2, each=GPU))
    for number in range(3):
        check_placed_once(space, f"fine-{number}", 2)
    kfext.proxy.heal()
    check_placed_once(space, "cursed", 2)


def test_events_and_plans_that_cannot_be_written_do_not_stop_placement(
    space: Space, kfext: Kfext
) -> None:
    def is_report(request: object) -> bool:
        path = getattr(request, "path", "")
        return f"/{space.name}/events" in path or f"/{space.name}/trainingplans" in path

    kfext.proxy.arm(Refuse(is_report, times=1_000_000))
    space.submit(workers("mute", 3, each=GPU))
    assert len(set(space.bound("mute", 3).values())) == 1
    assert set(space.pins().values()) == {1}


def test_slow_pins_of_one_gang_do_not_delay_the_plan_of_another(space: Space, kfext: Kfext) -> None:
    slow = Delay(
        lambda exchange: pod_patch(space.name)(exchange) and "/pods/slow-" in exchange.path
    )
    kfext.proxy.arm(slow)
    space.submit(workers("slow", 4, each=GPU))
    space.until(lambda: slow.seen == 4, "all four pins are on their way at once")
    space.submit(workers("quick", 4, each=GPU))
    check_placed_once(space, "quick", 4)
    slow.go.set()
    check_placed_once(space, "slow", 4)
