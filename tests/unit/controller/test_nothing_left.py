"""The planner keeps nothing about deleted namespaces, jobs, pods, nodes and claims."""

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext import names
from kfext.model.moment import Moment
from kfext.model.namespace import Namespace
from kfext.model.network_policy import NetworkPolicy
from kfext.model.node import Node
from kfext.model.pod import Pod
from kfext.model.quota import LimitRange, Quota
from kfext.model.volume import Volume, VolumeClaim
from kfext.state.planner.planner import Planner
from tests.builders import job as job_of
from tests.builders import node, using
from tests.builders import pod as pod_of

BOUNDED = {
    "_deleted_jobs",  # 10,000 uids, for answers that come late
    "_known",  # what did not fit, until capacity comes free
    "_no_place",
    "_masks",
    "_basis",  # of one reservation
}


def strings(of: object, path: str = "planner", seen: set[int] | None = None) -> Iterator[str]:
    """Yield every string that an object reaches, each with the path to it."""
    seen = set() if seen is None else seen
    if isinstance(of, str):
        yield f"{path} = {of}"
    if isinstance(of, str | bytes | int | float | None) or id(of) in seen or callable(of):
        return
    seen.add(id(of))
    within: Mapping[str, Any] = {}
    if isinstance(of, Mapping):
        for key, value in of.items():
            yield from strings(key, f"{path}{{}}", seen)
            yield from strings(value, f"{path}[]", seen)
    elif isinstance(of, list | tuple | set | frozenset) or hasattr(of, "popleft"):
        for item in of:  # type: ignore[attr-defined]
            yield from strings(item, f"{path}[]", seen)
    elif is_dataclass(of):
        within = {field.name: getattr(of, field.name) for field in fields(of)}
    elif type(of).__module__.startswith("kfext"):
        within = vars(of)
    for name, value in within.items():
        if name not in BOUNDED:
            yield from strings(value, f"{path}.{name}", seen)


class Life:
    """Objects of every kind with one name that a planner sees created and deleted."""

    def __init__(self, planner: Planner, name: str) -> None:
        cluster, queue, settings = planner.cluster, planner.queue, planner.settings
        runs = job_of(name=f"{name}-runs", uid=f"{name}-runs").worker(1, cpu="1").resumed()
        waits = job_of(name=f"{name}-waits", uid=f"{name}-waits")
        waits.worker(2, cpu="3", spec=using(f"{name}-claim")).held()
        ended = job_of(name=f"{name}-ended", uid=f"{name}-ended").worker(1, cpu="1")
        ended.condition("Succeeded")
        for made in (runs, waits, ended):
            made.raw["metadata"]["namespace"] = name
        pod = pod_of(runs.build(), "worker", 0, bound=f"{name}-node")
        pinned = pod_of(runs.build(), "worker", 1, pinned=f"{name}-node")
        self.jobs = (runs, waits, ended)
        self._job_events = (cluster.observe_job, cluster.forget_job)
        self.objects: list[tuple[Any, Any]] = [
            (settings.observe_namespace, Namespace(name, {names.MANAGED: "true"})),
            (settings.observe_network_policy, NetworkPolicy(name, f"{name}-policy")),
            (queue.quotas.observe_quota, Quota(name, f"{name}-quota", {"pods": 9})),
            (queue.quotas.observe_limit_range, LimitRange(name)),
            (cluster.volumes.observe_claim, VolumeClaim(name, f"{name}-claim", f"{name}-disk")),
            (cluster.volumes.observe_volume, Volume(f"{name}-disk", name)),
            (cluster.observe_node, node(f"{name}-node", cpu="4")),
            *((cluster.observe_pod, worker) for worker in (pod, pinned)),
        ]

    def come(self, number: int) -> None:
        observe, _ = self._job_events
        if number < len(self.objects):
            seen, what = self.objects[number]
            seen(None, what)
        else:
            observe(self.jobs[number - len(self.objects)].raw)

    def go(self, number: int) -> None:
        _, forget = self._job_events
        if number < len(self.objects):
            seen, what = self.objects[number]
            seen(what, None)
        else:
            forget(self.jobs[number - len(self.objects)].raw["metadata"]["uid"])

    def __len__(self) -> int:
        return len(self.objects) + len(self.jobs)


def turn(planner: Planner, at: float) -> None:
    """One turn of the loop, with the other questions that the planner gets in it."""
    now = Moment(wall=at, monotonic=at)
    tick = planner.tick(now)
    planner.companion.steps(now)
    planner.companion.news()
    for read in planner.progress.due(now.monotonic, most=100):
        planner.progress.fail(read, None, now)
    for step in tuple(planner.card_steps(now.monotonic)):
        planner.cards.finish(step, now.monotonic)
    for tracked, _ in tick.steps:
        planner.finish(tracked, now)


SIZE = len(Life(Planner(), "gone"))


@given(
    comes=st.permutations(range(SIZE)),
    goes=st.permutations(range(SIZE)),
    ticks=st.sets(st.integers(0, 2 * SIZE)),
)
def test_nothing_is_left_of_objects_that_were_created_and_deleted_in_any_order(
    comes: list[int], goes: list[int], ticks: set[int]
) -> None:
    planner = Planner()
    life, at = Life(planner, "gone"), 1000.0
    acts = [*((life.come, number) for number in comes), *((life.go, number) for number in goes)]
    for count, (act, number) in enumerate(acts):
        act(number)
        if count in ticks:
            at += 400.0
            turn(planner, at)
    for _ in range(3):
        at += 400.0
        turn(planner, at)
    assert [text for text in strings(planner) if " = gone" in text] == []


def test_existing_objects_are_found() -> None:
    planner = Planner()
    life = Life(planner, "kept")
    for number in range(len(life)):
        life.come(number)
    results = [text for text in strings(planner) if " = kept" in text]
    kept = ("_quotas", "_ranges", "_network_policies", "namespaces", "jobs", "_row", "_claims")
    missing = [name for name in kept if not any(name in text for text in results)]
    assert missing == []


def test_a_namespace_without_jobs_is_forgotten_before_the_next_tick() -> None:
    planner = Planner()
    life = Life(planner, "gone")
    for act in (life.come, life.go):
        for number, (_, what) in enumerate(life.objects):
            if not isinstance(what, Pod | Node):
                act(number)
    assert [text for text in strings(planner) if " = gone" in text] == []


@pytest.mark.parametrize("times", [1, 40])
def test_a_namespace_that_is_often_created_and_deleted_leaves_nothing(times: int) -> None:
    planner = Planner()
    for count in range(times):
        life = Life(planner, f"gone-{count}")
        for number in range(len(life)):
            life.come(number)
        turn(planner, 1000.0 + count)
        for number in reversed(range(len(life))):
            life.go(number)
    for later in (1, 2, 3):
        turn(planner, 5000.0 + 400 * later)
    assert [text for text in strings(planner) if " = gone" in text] == []
