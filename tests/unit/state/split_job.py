"""A job whose server idles and whose worker is starved, alone on its node under the companion."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from kfext import names
from kfext.core.lifecycle.steps import Resize, Unsuspend
from kfext.model.cpu_size import CpuSize, TrainerCpu
from kfext.model.cpu_use import CpuUse
from kfext.model.log_line import LogLine
from kfext.model.moment import Moment
from kfext.model.namespace import Namespace
from kfext.model.plan import Plan
from kfext.model.pod import Pod, ReplicaKey
from kfext.model.quantity import CPU
from kfext.state.planner import Planner
from tests.builders import job, node, pod

NODE, UID, LIMIT, SIZE = "a", "uid-1", 400, 1400
TYPES = ("worker", "ps")
_IDLE = 20
"""What the server uses, and what pods request that are not Guaranteed, in millicores."""


class SplitJob:
    """Its worker takes what it may have, and its steps follow that.

    `guaranteed`: whether its pods are. `waits`: a job of which one pod of that many millicores is
        queued, 0 for none.
    `answer`: why the API server refuses the sizes of a step, empty if it does not.
    `dies`: whether the controller does after the next note on the job, before it writes to a pod.
    `steps`: those of the last round. `written`: all limits that were written. `started`: the names
        of the jobs that were, too.
    """

    def __init__(self, *, guaranteed: bool = False, waits: int = 0) -> None:
        self.at = 0.0
        self.guaranteed = guaranteed
        self.waiting = job(uid="uid-w", name="waits").worker(1, cpu=f"{waits}m") if waits else None
        self.answer: Callable[[Resize], str] = lambda step: ""
        self.dies = False
        self.steps: list[Resize] = []
        self.written: list[int] = []
        self.started: list[str] = []
        self._done = 0.0
        self._replaced = 0
        self.made = job("TFJob", uid=UID).worker(1, cpu="20m").ps(1, cpu="20m").resumed()
        self.made.annotated(names.RESIZE, "cpu")
        places = {ReplicaKey(type_, 0): NODE for type_ in TYPES}
        self.made.annotated(names.PLAN, Plan(UID, 1, places).encode())
        self._lead([pod(self.made.build(), of, 0, bound=NODE, phase="Running") for of in TYPES])
        for one in self.cluster.pods(UID):
            self._observe(one, **self._as_written(one))

    def _lead(self, pods: Iterable[Pod]) -> None:
        self.planner = Planner()
        managed = Namespace("team", {names.MANAGED: "true"})
        self.planner.settings.observe_namespace(None, managed)
        self.cluster = self.planner.cluster
        self.cluster.observe_node(None, node(NODE, cpu=f"{SIZE}m", memory="64Gi"))
        self.cluster.take_job(self.made.build(), self.made.raw)
        for one in pods:
            self.cluster.observe_pod(None, one)
        if self.waiting is not None:
            self.waiting.raw["spec"]["runPolicy"] = {"suspend": True}
            self.cluster.observe_job(self.waiting.annotated(names.HELD, "true").raw)

    def _as_written(self, one: Pod) -> dict[str, Any]:
        """What the user wrote of the CPU of a pod."""
        request = LIMIT if self.guaranteed else _IDLE
        return {
            "trainer": TrainerCpu(request, LIMIT, given=LIMIT),
            "guaranteed": self.guaranteed,
            "requests": {**one.requests, CPU: request},
        }

    def restart(self) -> None:
        """Have another controller lead, which knows the objects alone."""
        self._lead(self.cluster.pods(UID))

    def replace_pod(self, type_: str) -> None:
        """Have the operator make a pod anew, as the user wrote it."""
        one = self._pod(type_)
        self.cluster.observe_pod(one, None)
        self._replaced += 1
        uid, written = f"{UID}-again-{self._replaced}", self._as_written(one)
        self.cluster.observe_pod(None, replace(one, uid=uid, resource_version="1", **written))

    def annotate(self, key: str, value: str) -> None:
        self.made.annotated(key, value)
        self.cluster.take_job(self.made.build(), self.made.raw)

    def limits(self) -> dict[str, int | None]:
        pods = self.cluster.pods(UID)
        return {pod.replica.type: pod.trainer.limit for pod in pods if pod.replica and pod.trainer}

    def run(self, rounds: int) -> "SplitJob":
        for _ in range(rounds):
            self.round()
        return self

    def round(self) -> None:
        """Ten seconds, at the end of which kubelets have set what was written before."""
        self.at += 10
        now = Moment(wall=self.at, monotonic=self.at)
        use = {type_: self._use(type_) for type_ in TYPES}
        self._done += 10 * use["worker"] / 100
        for one in self.cluster.pods(UID):
            assert one.trainer is not None
            done = replace(one.trainer, given=one.trainer.limit)
            requests = {**one.requests, CPU: one.trainer.request}
            self._observe(one, trainer=done, requests=requests)
        progress = self.planner.progress
        for read in progress.due(self.at, most=1):
            progress.take(read, [LogLine(self.at - 1, f"step {self._done:.0f}")], now)
        if self.at % 30 == 0:
            found = {
                self._pod(of).uid: CpuUse(one / 1000, at=self.at, window=30.0)
                for of, one in use.items()
            }
            progress.measured(found)
        starts = [one for one, step in self.planner.tick(now).steps if isinstance(step, Unsuspend)]
        self.started += [one.job.name for one in starts]
        begun = self.planner.companion.steps(now)
        self.steps = []
        for tracked, step in begun:
            assert isinstance(step, Resize)
            self.steps.append(step)
            self.annotate(names.STATE, step.state.encode(job_uid=UID))
            if self.dies:
                self.dies = False
                self.restart()
                return
            final = self.answer(step)
            if not final:
                for one, size in step.sizes:
                    self.written.append(size.limit)
                    self._size(one.uid, size)
            self.planner.finish(tracked, now, refused=bool(final), final=final)

    def _use(self, type_: str) -> int:
        """What a pod uses, in millicores."""
        trainer = self._pod(type_).trainer
        assert trainer is not None
        assert trainer.given is not None
        return trainer.given if type_ == "worker" else _IDLE

    def _pod(self, type_: str) -> Pod:
        return next(
            one for one in self.cluster.pods(UID) if one.replica and one.replica.type == type_
        )

    def _size(self, uid: str, size: CpuSize) -> None:
        one = next(pod for pod in self.cluster.pods(UID) if pod.uid == uid)
        assert one.trainer is not None
        request = one.trainer.request if size.request is None else size.request
        self._observe(one, trainer=replace(one.trainer, limit=size.limit, request=request))

    def _observe(self, one: Pod, **fields: object) -> None:
        version = str(int(one.resource_version) + 1)
        newer = replace(one, resource_version=version, **fields)  # type: ignore[arg-type]
        self.cluster.observe_pod(one, newer)
