"""Invariants of a simulated cluster at every second, whatever a policy decides."""

import math
from dataclasses import dataclass
from itertools import pairwise

from kfext import names
from kfext.model.cpu_state import PodCpu
from kfext.model.job_state import state_of
from kfext.model.kinds.job_kind import WORKER
from kfext.model.policy import Mode
from kfext.model.quantity import CPU
from kfext.sim.cluster import Cluster
from kfext.sim.objects import LiveJob, LivePod
from kfext.state.running.cpu.resize import RESIZE
from kfext.state.running.cpu.shift import SHIFT
from tests.unit.sim.change_rules import ChangeRules

REST = 60.0
"""Seconds between two changes of one job's size; only a revert may follow sooner."""
FREE_CHANGES, SECONDS_PER_CHANGE = 2, 120.0
"""A job may change its size FREE_CHANGES times, and once more in each SECONDS_PER_CHANGE."""
MAX_TURNS = 4
"""How often a job may switch between growing and shrinking."""
HEAD_SECONDS = 45.0
"""How long the head of the queue may wait after another job has started: the pods that free its
capacity have up to 30 s to end."""
UNSEEN = 5.0
"""Seconds after the log line of its first step in which kfext may not know that a job trains; it
continues to train until its new workers have started."""
GIVEN_BACK = 30.0
"""Seconds that a pod may keep a raised request after its job has opted out: two polls of kfext and
a late write."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the number of workers of a job that runs, or ran.

    `undoes`: whether it reverts the previous change, which is no revert itself.
    `head`: the first job of the queue at that time; `behind`: the other jobs of the queue.
    """

    at: float
    before: int
    after: int
    undoes: bool
    head: str
    behind: frozenset[str]

    @property
    def gives(self) -> bool:
        """Whether the change frees capacity for another job."""
        return self.after < self.before and not self.undoes


class Rules:
    """Watches a cluster. `broken`: the broken rules as sentences.

    `changes`: job -> the changes of its size. `found`: the number of all changes.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.broken: list[str] = []
        self.changes: dict[str, list[Change]] = {}
        self.cluster = cluster
        self._sizes: dict[str, int] = {}
        self._queue: list[str] = []
        self._promised: Change | None = None
        self._accused: list[tuple[LiveJob, str, float]] = []
        self._of_changes = ChangeRules(cluster)
        self._written: dict[str, PodCpu] = {}
        self._opted_in: dict[str, float] = {}
        cluster.on_second.append(self._check_second)
        cluster.api.on_job.append(self._observe)
        cluster.api.on_pod.append(self._observe_pod)

    @property
    def found(self) -> int:
        return sum(map(len, self.changes.values()))

    def ended(self) -> list[str]:
        """Return all broken rules, after the end of the run."""
        for live in self.cluster.jobs:
            if not live.job.finished:
                self._report(live, "never ended")
            if live.ended is None:
                continue
            changes = self.changes.get(live.spec.name, [])
            lived = live.ended - live.spec.arrives
            if len(changes) > FREE_CHANGES + lived / SECONDS_PER_CHANGE:
                self._report(live, f"changed its size {len(changes)} times in {lived:g} s")
            grows = [change.after > change.before for change in changes]
            turns = sum(earlier != later for earlier, later in pairwise(grows))
            if turns > MAX_TURNS:
                self._report(live, f"turned from growing to shrinking or back {turns} times")
        return self.broken

    # --- jobs -----------------------------------------------------------------------------------

    def _observe(self, live: LiveJob) -> None:
        if live.job.has("Failed"):
            self._report(live, f"failed: {self.cluster.operator.failed}")
        if live.job.finished:
            self._promised = None  # capacity was freed elsewhere
        if live.job.suspend or live.job.finished:
            return
        size, name = live.workers, live.spec.name
        self._check_bounds(live)
        self._check_order(live)
        before = self._sizes.get(name)
        self._sizes[name] = size
        if before is not None and before != size:
            self._change(live, before, size)

    def _check_bounds(self, live: LiveJob) -> None:
        spec, trains = live.spec, live.job.training_pods
        if spec.bounds is None:
            if live.workers != spec.workers:
                self._report(live, f"is not elastic and has {live.workers} workers")
        elif not spec.bounds[0] <= trains <= spec.bounds[1]:
            self._report(live, f"has {trains} workers beyond {spec.bounds}")

    def _change(self, live: LiveJob, before: int, after: int) -> None:
        known = self.changes.setdefault(live.spec.name, [])
        last = known[-1] if known else None
        undoes = last is not None and not last.undoes and last.before == after
        waiting = self._waiting()
        holders = self.cluster.planner.cluster.holds.holders()
        # Capacity is freed for the first waiting job, or the next if the first has a reservation.
        served = [number for number, name in enumerate(waiting) if f"uid-{name}" in holders]
        at = served[0] if served else 0
        head = waiting[at] if waiting else ""
        now = self.cluster.clock.now
        change = Change(now, before, after, undoes, head, frozenset(waiting[at + 1 :]))
        known.append(change)
        # It gives workers beyond its requested size at once.
        gives_more = after < before and after >= live.spec.workers + live.spec.leaders
        if last is not None and now - last.at < REST and not (undoes or gives_more):
            self._report(live, f"went from {before} to {after} {now - last.at:g} s after a change")
        # Before its first step it may get its requested size at once.
        largest = live.training.largest
        requested = 0 if state_of(live.job).scale.largest else live.spec.workers
        most = max(2 * largest, requested)
        if after > before and after > most:
            self._report(live, f"grew to {after}, and {live.training.largest} was the largest seen")
        for what in self._of_changes.broken(
            live, before, last=(last.before, last.after) if last else None
        ):
            self._report(live, what)
        if change.gives and head:
            self._promised = change

    # --- the queue ------------------------------------------------------------------------------

    def _waiting(self) -> list[str]:
        """Return the jobs that wait for capacity, in the order in which they are to start."""
        waiting = [
            live for live in self.cluster.jobs if live.job.in_queue and live.training.began is None
        ]
        planner = self.cluster.planner
        waiting.sort(key=lambda live: planner.queue.key(planner.cluster.jobs[live.uid]))
        return [live.spec.name for live in waiting]

    def _check_order(self, live: LiveJob) -> None:
        """Check that no job behind the head starts in the capacity freed for the head.

        A job may start in the rest of that capacity, or a moment earlier; then the head follows.
        """
        promised, name = self._promised, live.spec.name
        if promised is None or name in self._sizes:
            return
        if name in promised.behind and promised.head in self._waiting():
            self._accused.append((live, promised.head, self.cluster.clock.now))
        if name == promised.head:
            self._promised = None

    # --- pods and nodes -------------------------------------------------------------------------

    def _observe_pod(self, live: LivePod) -> None:
        runs = not (live.job.job.suspend or live.job.training.ended)
        if runs and live.pod.deleting and live.key.type != WORKER.lower():
            self._report(live.job, f"lost its {live.key.type} while it ran")
        written, cpu = self._written.setdefault(live.pod.uid, _cpu_of(live)), _cpu_of(live)
        if cpu.limit != written.limit and not self._shifts(live.job):
            self._report(live.job, f"has a limit of {cpu.limit}m in place of {written.limit}m")

    def _shifts(self, live: LiveJob) -> bool:
        """Return whether its limits have moved between its components."""
        return SHIFT.name in state_of(live.job).cpu.by

    def _check_requests(self, live: LiveJob) -> None:
        """Check that pods have raised requests only while their job lets kfext resize them."""
        now, policy = self.cluster.clock.now, self.cluster.policy
        chosen = policy.companion.get(RESIZE.name) if policy else None
        acts = chosen is None or chosen.mode is Mode.ACT
        if acts and live.job.annotations.get(names.RESIZE) == "cpu":
            self._opted_in[live.uid] = now
        if now - self._opted_in.get(live.uid, -math.inf) <= GIVEN_BACK:
            return
        for pod in live.pods.values():
            request = _cpu_of(pod).request
            if request != self._written.get(pod.pod.uid, _cpu_of(pod)).request:
                self._report(live, f"requests {request}m, and nothing may be resized")

    def _check_second(self) -> None:
        waiting, late = self._waiting(), self.cluster.clock.now - HEAD_SECONDS
        self._accused = [start for start in self._accused if start[1] in waiting]
        for live, head, at in [start for start in self._accused if start[2] <= late]:
            self._accused.remove((live, head, at))
            self._report(live, f"started at {at:g} s in the capacity that was freed for {head}")
        kubelets = self.cluster.kubelets
        for node, size in kubelets.nodes.items():
            if (used := kubelets.used[node][CPU]) > size.cpu:
                self.broken.append(f"{self._at} {node} has {used}m of {size.cpu}m")
        for live in self.cluster.jobs:
            spec = live.spec
            lost = live.training.lost_all * spec.pace.seconds(spec.workers + spec.leaders)
            if lost > UNSEEN + spec.prints + spec.starts:
                self._report(live, f"lost {lost:.0f} s of work before any checkpoint")
            live.training.lost_all = 0.0
            self._check_requests(live)

    @property
    def _at(self) -> str:
        return f"seed {self.cluster.luck}, {self.cluster.clock.now:g} s:"

    def _report(self, live: LiveJob, what: str) -> None:
        self.broken.append(f"{self._at} {live.spec.name} {what}")


def _cpu_of(live: LivePod) -> PodCpu:
    cpu = live.pod.trainer
    return PodCpu(0, None) if cpu is None else PodCpu(cpu.request, cpu.limit)
