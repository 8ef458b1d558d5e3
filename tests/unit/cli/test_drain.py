"""`kubectl kfext drain` marks a node, lists the remaining jobs with reasons, and undoes that."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kfext import names
from kfext.cli import drain as module
from kfext.cli.drain import Drain, mark, mark_patch
from kfext.errors import Conflict, NotFound, UserError
from kfext.model.plan import Plan
from tests.builders import Raw, discovery, job, raw_pod

BUSY = {"key": "team", "value": "vision", "effect": "NoSchedule"}
DRAINED = {"key": names.DRAIN, "effect": "PreferNoSchedule"}
FORCED = {**DRAINED, "value": "force"}


def node(*taints: Raw, version: str = "7") -> Raw:
    spec: Raw = {"taints": list(taints)} if taints else {}
    return {"metadata": {"name": "a", "resourceVersion": version}, "spec": spec}


MARKS: dict[str, tuple[Raw, bool | None, Raw]] = {
    "a drain": (node(), False, {"unschedulable": True, "taints": [DRAINED]}),
    "by force": (node(DRAINED), True, {"unschedulable": True, "taints": [FORCED]}),
    "beside other taints": (node(BUSY), False, {"unschedulable": True, "taints": [BUSY, DRAINED]}),
    "undone": (node(BUSY, FORCED), None, {"unschedulable": None, "taints": [BUSY]}),
    "undone with the last taint": (node(DRAINED), None, {"unschedulable": None, "taints": None}),
}


@pytest.mark.parametrize(("before", "by_force", "spec"), MARKS.values(), ids=MARKS)
def test_the_patch_that_marks_or_unmarks_a_node(
    before: Raw, by_force: bool | None, spec: Raw
) -> None:
    patch = mark_patch(before, by_force=by_force)
    assert patch == {"metadata": {"resourceVersion": "7"}, "spec": spec}


class FakeCluster:
    """A node with jobs that are deleted after `stay` polls."""

    def __init__(self, *jobs: Any, stay: int = 99, conflicts: int = 0) -> None:
        self.jobs = list(jobs)
        self.stay = stay
        self.polls = 0
        self.conflicts = conflicts
        self.patches: list[Raw] = []

    @asynccontextmanager
    async def connect(self) -> AsyncIterator["FakeCluster"]:
        yield self

    async def get(self, path: str) -> Raw:
        if path.endswith("/nodes/a"):
            return node()
        if "/nodes/" in path:
            raise NotFound(status=404, reason="NotFound", message="no node")
        return discovery("pytorchjobs", "tfjobs")

    async def merge_patch(self, _: str, patch: Raw) -> None:
        if self.conflicts:
            self.conflicts -= 1
            raise Conflict(status=409, reason="Conflict", message="it has changed")
        self.patches.append(patch)

    async def list_all(self, path: str, **_: str) -> list[Raw]:
        if path.endswith("/pods"):
            pods = [raw_pod(builder.build(), "worker", 0, bound="a") for builder in self.jobs]
            self.polls += 1
            return pods if self.polls <= self.stay else []
        return [builder.raw for builder in self.jobs] if path.endswith("/pytorchjobs") else []


def placed_job(name: str, **settings: str) -> Any:
    builder = job(name=name, uid=name).worker(1)
    plan = Plan(name, 1, dict.fromkeys((key for key, _ in builder.build().replicas()), "a"))
    builder = builder.annotated(names.PLAN, plan.encode())
    for key, value in settings.items():
        builder = builder.annotated(f"{names.DOMAIN}/{key}", value)
    return builder


async def lines(cluster: FakeCluster, **options: Any) -> list[tuple[int, str]]:
    arguments = {"timeout": 0.0, "dry_run": False, **options}
    force = arguments.pop("force", False)
    watch = Drain(cluster, "a", force=force).watch(**arguments)  # type: ignore[arg-type]
    return [line async for line in watch]


INELIGIBLE = (
    "ineligible: it set neither kfext.dev/migrate nor kfext.dev/preempt: set either, "
    "or drain with --force"
)
MESSAGES: dict[str, tuple[dict[str, str], dict[str, Any], str]] = {
    "a job that opted in": ({"migrate": "checkpointed"}, {}, "it saves its work and leaves"),
    "a job that did not opt in": ({}, {}, INELIGIBLE),
    "a job that did not opt in, by force": ({}, {"force": True}, "it saves its work and leaves"),
    "a dry run": ({"preempt": "always"}, {"dry_run": True}, "it would save its work and leave"),
}


@pytest.mark.parametrize(("settings", "options", "message"), MESSAGES.values(), ids=MESSAGES)
async def test_the_output_tells_whether_a_job_leaves_the_node(
    settings: dict[str, str], options: dict[str, Any], message: str
) -> None:
    cluster = FakeCluster(placed_job("train", **settings))
    assert await lines(cluster, **options) == [
        (1, f"PyTorchJob team/train: {message}"),
        (1, "a: 1 job of kfext remains"),
    ]
    assert len(cluster.patches) == (not options.get("dry_run", False))


async def test_a_job_without_a_plan_remains_while_its_pods_end() -> None:
    cluster = FakeCluster(job(name="train", uid="train").worker(1).held())
    assert await lines(cluster, force=True) == [
        (1, "PyTorchJob team/train: its pods are terminating"),
        (1, "a: 1 job of kfext remains"),
    ]


async def test_the_command_ends_once_no_job_remains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "POLL_SECONDS", 0.0)
    cluster = FakeCluster(placed_job("train", migrate="checkpointed"), stay=1)
    assert (await lines(cluster, timeout=60.0))[-1] == (0, "a: no jobs of kfext remain")


async def test_a_node_that_changes_meanwhile_is_marked_again() -> None:
    cluster = FakeCluster(conflicts=2)
    await mark(cluster, "a", by_force=False)  # type: ignore[arg-type]
    assert len(cluster.patches) == 1


@pytest.mark.parametrize(("name", "conflicts"), [("b", 0), ("a", 99)])
async def test_a_node_that_cannot_be_marked_is_named(name: str, conflicts: int) -> None:
    with pytest.raises(UserError, match=f"node '{name}'"):
        await mark(FakeCluster(conflicts=conflicts), name, by_force=False)  # type: ignore[arg-type]
