"""A run of a schedule under one arm."""

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from e2e.bench.companion.arms import Arm, Makers
from e2e.bench.companion.site import Pods, Site, running
from e2e.bench.companion.workload import Schedule, ScheduledJob
from e2e.bench.store import Interleaved, SpoiledError, Store, unspoiled
from e2e.harness.jobs import jobs_path
from e2e.testbed import paths
from e2e.testbed.progress import say, step

Object = dict[str, Any]
_POLL_SECONDS = 1.0
_PATIENCE_SECONDS = 3600.0
_TICKS = os.sysconf("SC_CLK_TCK")
_HERE = Path(__file__).parent
_JOBS = ("converge", "converge_tf", "converge_torch", "train_tf")
_FRAME = (
    *(_HERE / f"{name}.py" for name in ("run", "arms", "site")),
    *(paths.REPOSITORY / "e2e/jobs" / f"{name}.py" for name in _JOBS),
)
"""The files on which the runs of every arm depend."""
_START_AND_END_SECONDS = 25.0
"""The time in a run to start the first pod and to delete the namespace."""


@dataclass(frozen=True, slots=True)
class Job:
    """The result of a job: times in seconds since the start of the run, and its printed totals.

    `began`, `ended`: the times of its first and last printed line. `cpu`: CPU seconds of its steps.
    """

    submitted: float
    began: float
    ended: float
    startup_cpu: float
    cpu: float
    loss: float

    @property
    def seconds(self) -> float:
        return self.ended - self.submitted

    @property
    def training(self) -> float:
        return self.ended - self.began


@dataclass(frozen=True, slots=True)
class Outcome:
    """The results of a run: all jobs by name, and the number of resizes.

    `beside`: the mean number of cores that the machine used for everything but the node.
    """

    jobs: dict[str, Job]
    resizes: int
    beside: float

    @property
    def makespan(self) -> float:
        return max(job.ended for job in self.jobs.values())

    def stored(self) -> Object:
        return asdict(self)

    @classmethod
    def restore(cls, stored: Object) -> Self:
        jobs = {name: Job(**job) for name, job in stored["jobs"].items()}
        return cls(**{**stored, "jobs": jobs})


def run(pods: Pods, arm: Arm, schedule: Schedule) -> Outcome:
    """Submit the jobs at their times, let the arm act, and wait for the end of the last job."""
    return _Run(pods, arm, schedule).follow()


class _Run:
    """A run in progress; times are wall-clock times, as in the logs of pods."""

    def __init__(self, pods: Pods, arm: Arm, schedule: Schedule) -> None:
        self._pods, self._arm = pods, arm
        self._coming = list(schedule.arrivals)
        self._unfinished: dict[str, ScheduledJob] = {}
        self._submitted: dict[str, float] = {}
        self._jobs: dict[str, Job] = {}
        self._began = time.time()

    def follow(self) -> Outcome:
        machine_cpu, node_cpu = _busy_seconds(), self._pods.node.cpu_seconds()
        self._arm.start(self._pods, now=self._began)
        try:
            while self._coming or self._unfinished:
                now = time.time()
                if now - self._began > _PATIENCE_SECONDS:
                    raise SpoiledError(f"not ended: {sorted(self._unfinished)}")
                self._submit_due(now - self._began)
                bodies = self._pods.bodies()
                for body in bodies:
                    self._record(body)
                self._arm.poll(running(bodies), now=now)
                time.sleep(max(0.0, _POLL_SECONDS - (time.time() - now)))
        finally:
            self._arm.stop()
        elapsed = time.time() - self._began
        others = _busy_seconds() - machine_cpu - (self._pods.node.cpu_seconds() - node_cpu)
        return Outcome(self._jobs, self._arm.resizes, others / elapsed)

    def _submit_due(self, elapsed: float) -> None:
        while self._coming and self._coming[0].seconds <= elapsed:
            arrival = self._coming.pop(0)
            path = jobs_path(self._pods.namespace, arrival.kind)
            body = arrival.manifest()
            body["metadata"]["annotations"] |= self._arm.annotations
            self._submitted[arrival.name] = time.time() - self._began
            self._pods.bed.api.create(path, body)
            self._unfinished[arrival.pod] = arrival

    def _record(self, body: Object) -> None:
        """Record the result of a pod that has ended. Raises SpoiledError after a failure."""
        name, status = body["metadata"]["name"], body["status"]
        if any(status["restartCount"] for status in status.get("containerStatuses", [])):
            raise SpoiledError(f"{name} was restarted")
        if status.get("phase") == "Failed":
            raise SpoiledError(f"{name} failed")
        if status.get("phase") == "Succeeded" and name in self._unfinished:
            arrival = self._unfinished.pop(name)
            self._jobs[arrival.name] = job = self._result(arrival)
            say(f"    {job.ended:4.0f} s: {arrival.name} ended after {job.seconds:.0f} s")

    def _result(self, arrival: ScheduledJob) -> Job:
        first, *_, last = self._pods.log(arrival.pod)
        totals = json.loads(last.text)
        return Job(
            submitted=self._submitted[arrival.name],
            began=first.at - self._began,
            ended=last.at - self._began,
            startup_cpu=totals.get("startup_cpu_seconds", 0.0),
            cpu=totals["cpu_seconds"],
            loss=totals["loss"],
        )


def _busy_seconds() -> float:
    """Return the CPU seconds that the whole machine has used so far."""
    user, nice, system, _idle, _wait, irq, soft = map(
        int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:8]
    )
    return (user + nice + system + irq + soft) / _TICKS


Runs = Mapping[str, Sequence[Outcome]]
"""The outcomes of each arm, by repeat."""


class Bench:
    """A schedule under `arms`, each of them `repeats` times."""

    def __init__(self, schedule: Schedule, arms: Makers, *, repeats: int) -> None:
        self.schedule = schedule
        self._makers = dict(arms)
        stores = {
            name: Store(f"{schedule.name} {name}", [repr(schedule)], [*_FRAME, *make().sources])
            for name, make in self._makers.items()
        }
        self._runs = Interleaved(stores, repeats=repeats)

    def missing(self) -> list[tuple[int, str]]:
        """Return the repeat and the arm of each missing run, in the order of their execution."""
        return self._runs.missing()

    def seconds(self) -> float:
        return len(self.missing()) * (self.schedule.lasts + _START_AND_END_SECONDS)

    def measure(self, site: Site) -> None:

        def run_arm(repeat: int, arm: str) -> Object:
            title = f"{self.schedule.name}, repeat {repeat + 1} of {self._runs.repeats}, {arm}"
            with step(f"{title}; {len(self.missing())} runs to go"):
                return self._run(site, arm).stored()

        self._runs.measure(run_arm)

    def keep(self, repeat: int, arm: str, outcome: Outcome) -> None:
        self._runs.keep(repeat, arm, outcome.stored())

    def forget(self) -> None:
        self._runs.forget()

    def runs(self) -> Runs:
        stored = self._runs.runs()
        return {arm: list(map(Outcome.restore, stored.get(arm, []))) for arm in self._makers}

    def _run(self, site: Site, name: str) -> Outcome:
        def run_once() -> Outcome:
            arm = self._makers[name]()
            with site.namespace(self.schedule.name, managed=arm.managed) as pods:
                return run(pods, arm, self.schedule)

        return unspoiled(name, run_once)
