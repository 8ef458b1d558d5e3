"""The planner keeps nothing about deleted namespaces, jobs, pods, nodes and volume claims."""

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
    "_known",  # requests that did not fit, until capacity is freed
    "_no_place",  # requests without a reservation, until capacity is freed
    "_basis",  # what the reservation was computed from
}
"""Attributes that may keep names for a while, because their size is bounded."""


def strings(root: object, path: str = "planner", seen: set[int] | None = None) -> Iterator[str]:
    """Yield every string that can be reached from an object, each with the path to it."""
    seen = set() if seen is None else seen
    if isinstance(root, str):
        yield f"{path} = {root}"
    if isinstance(root, str | bytes | int | float | None) or id(root) in seen or callable(root):
        return
    seen.add(id(root))
    attributes: Mapping[str, Any] = {}
    if isinstance(root, Mapping):
        for key, value in root.items():
            yield from strings(key, f"{path}{{}}", seen)
            yield from strings(value, f"{path}[]", seen)
    elif isinstance(root, list | tuple | set | frozenset) or hasattr(root, "popleft"):
        for item in root:  # type: ignore[attr-defined]
            yield from strings(item, f"{path}[]", seen)
    elif is_dataclass(root):
        attributes = {field.name: getattr(root, field.name) for field in fields(root)}
    elif type(root).__module__.startswith("kfext"):
        attributes = vars(root)
    for name, value in attributes.items():
        if name not in BOUNDED:
            yield from strings(value, f"{path}.{name}", seen)


class Objects:
    """Objects of every kind, with names that begin alike, for a planner to observe."""

    def __init__(self, planner: Planner, name: str) -> None:
        cluster, queue, settings = planner.cluster, planner.queue, planner.settings
        runs = job_of(name=f"{name}-runs", uid=f"{name}-runs").worker(1, cpu="1").resumed()
        waits = job_of(name=f"{name}-waits", uid=f"{name}-waits")
        waits.worker(2, cpu="3", spec=using(f"{name}-claim")).held()
        ended = job_of(name=f"{name}-ended", uid=f"{name}-ended").worker(1, cpu="1")
        ended.condition("Succeeded")
        for builder in (runs, waits, ended):
            builder.raw["metadata"]["namespace"] = name
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

    def create(self, number: int) -> None:
        observe_job, _ = self._job_events
        if number < len(self.objects):
            observe, item = self.objects[number]
            observe(None, item)
        else:
            observe_job(self.jobs[number - len(self.objects)].raw)

    def delete(self, number: int) -> None:
        _, forget = self._job_events
        if number < len(self.objects):
            observe, item = self.objects[number]
            observe(item, None)
        else:
            forget(self.jobs[number - len(self.objects)].raw["metadata"]["uid"])

    def __len__(self) -> int:
        return len(self.objects) + len(self.jobs)


def tick(planner: Planner, at: float) -> None:
    """Run a tick of the planner, and all that the controller asks of it beside ticks."""
    now = Moment(wall=at, monotonic=at)
    result = planner.tick(now)
    planner.companion.steps(now)
    planner.companion.news()
    for read in planner.progress.due(now.monotonic, most=100):
        planner.progress.fail(read, None, now)
    for step in tuple(planner.card_steps(now.monotonic)):
        planner.cards.finish(step, now.monotonic)
    for tracked, _ in result.steps:
        planner.finish(tracked, now)


SIZE = len(Objects(Planner(), "gone"))


@given(
    created=st.permutations(range(SIZE)),
    deleted=st.permutations(range(SIZE)),
    ticks=st.sets(st.integers(0, 2 * SIZE)),
)
def test_nothing_is_left_of_objects_that_were_created_and_deleted_in_any_order(
    created: list[int], deleted: list[int], ticks: set[int]
) -> None:
    planner = Planner()
    objects, at = Objects(planner, "gone"), 1000.0
    acts = [(objects.create, number) for number in created]
    acts += [(objects.delete, number) for number in deleted]
    for count, (act, number) in enumerate(acts):
        act(number)
        if count in ticks:
            at += 400.0
            tick(planner, at)
    for _ in range(3):
        at += 400.0
        tick(planner, at)
    assert [text for text in strings(planner) if " = gone" in text] == []


def test_the_strings_of_existing_objects_are_found() -> None:
    planner = Planner()
    objects = Objects(planner, "kept")
    for number in range(len(objects)):
        objects.create(number)
    results = [text for text in strings(planner) if " = kept" in text]
    fields = ("_quotas", "_ranges", "_network_policies", "namespaces", "jobs", "_row", "_claims")
    missing = [name for name in fields if not any(name in text for text in results)]
    assert missing == []


def test_a_namespace_without_jobs_is_forgotten_before_the_next_tick() -> None:
    planner = Planner()
    objects = Objects(planner, "gone")
    for act in (objects.create, objects.delete):
        for number, (_, item) in enumerate(objects.objects):
            if not isinstance(item, Pod | Node):
                act(number)
    assert [text for text in strings(planner) if " = gone" in text] == []


@pytest.mark.parametrize("times", [1, 40])
def test_a_namespace_that_is_often_created_and_deleted_leaves_nothing(times: int) -> None:
    planner = Planner()
    for count in range(times):
        objects = Objects(planner, f"gone-{count}")
        for number in range(len(objects)):
            objects.create(number)
        tick(planner, 1000.0 + count)
        for number in reversed(range(len(objects))):
            objects.delete(number)
    for later in (1, 2, 3):
        tick(planner, 5000.0 + 400 * later)
    assert [text for text in strings(planner) if " = gone" in text] == []
