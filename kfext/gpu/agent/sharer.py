"""A pod that shares a card, as read from the pages of its processes."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from kfext.gpu.agent.process import Bell, Process
from kfext.gpu.agent.report import Pod, SharerReport
from kfext.gpu.hook import words
from kfext.gpu.rules.loss import LONGEST_HELD
from kfext.gpu.rules.measures import Profile, Reading, Recent, Throughput
from kfext.gpu.rules.neighbours import LONGEST_MICRO_STEP, OUTSTANDING, Effects, Ruling
from kfext.gpu.rules.turns import Activity
from kfext.model.gpu import UNITS, GpuShare
from kfext.model.shared_gpu import (
    CALLBACK_LIST,
    HOOK_FAILED,
    LONGEST_COARSE,
    NO_FRAMEWORK,
    OLD_TENSORFLOW,
)

_REASONS = {
    words.FAILED: HOOK_FAILED,
    words.OLD_TENSORFLOW: OLD_TENSORFLOW,
    words.CALLBACK_LIST: CALLBACK_LIST,
}
PATIENCE = 60.0
"""A pod without a hooked process for this many seconds is shown with NO_FRAMEWORK: most jobs begin
to use their card sooner."""


class Unhooked:
    """Why the activity of a pod is unknown, as its processes report; a report may be wrong.

    A report from a process without a hook says nothing about processes with a hook.
    """

    def __init__(self) -> None:
        self._last_reason = 0
        self._had_hook = False

    def record(self, process: Process) -> bool:
        """Record a new process, which may report that it has no hook; return whether it has one."""
        reason = process[words.UNHOOKED]
        self._last_reason = reason or self._last_reason
        self._had_hook = self._had_hook or not reason
        return not reason

    def why(self, processes: Collection[Process], *, elapsed: float) -> str:
        """Return the reason; empty without a reason.

        `processes`: the live processes that began with a hook. `elapsed`: the seconds since the pod
        got its share.
        """
        failed = [process[words.UNHOOKED] for process in processes if process[words.UNHOOKED]]
        if failed or processes:
            return _REASONS.get(failed[0], "") if failed else ""
        if self._last_reason in _REASONS:
            return _REASONS[self._last_reason]
        return "" if self._had_hook or elapsed < PATIENCE else NO_FRAMEWORK


_IDLE_MICRO_STEPS = 5 * OUTSTANDING
_IDLE_SECONDS = 1.0
"""A process that has not reached its gate for this many of its longest micro-steps, or for this
many seconds, whichever is longer, counts as without work on the card: it may be loading data."""


class Passes:
    """When each process of one sharer last passed its gate; processes are known by their number."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._last: dict[int, float] = {}

    def join(self, process: Process) -> None:
        """Add a process; its earlier passes do not count."""
        self._counts[process.number] = process[words.MICRO_STEPS]

    def leave(self, number: int) -> None:
        """Forget a process that has ended."""
        self._counts.pop(number, None)
        self._last.pop(number, None)

    def update(self, process: Process, now: float) -> bool:
        """Read the page of a process; return whether it has passed its gate since the last call."""
        count = process[words.MICRO_STEPS]
        passed = count != self._counts[process.number]
        if passed:
            self._counts[process.number], self._last[process.number] = count, now
        return passed

    def may_work(self, processes: Mapping[int, Process], now: float) -> bool:
        """Return whether any of the processes may have a micro-step on the card."""
        return any(_may_work(processes[number], now - last) for number, last in self._last.items())


def _may_work(process: Process, since: float) -> bool:
    """Return whether a process that passed its gate `since` seconds ago may have a micro-step."""
    longest = min(process.seconds(words.LONGEST_NS), LONGEST_HELD / _IDLE_MICRO_STEPS)
    return process[words.ASKING] != 1 and since < max(_IDLE_MICRO_STEPS * longest, _IDLE_SECONDS)


_CALIBRATED = (words.READY, words.COARSE)


class Sharer:
    """A pod on a card. `terms`: None before they are known.

    `ruling`: None without a high-priority job on the card. `times_shut`, `times_evicted`: how
    often losses of that job shut the gate, and evicted the pod, since the start of this agent.
    `activity`: the pod's activity between the last two calls of `update`.
    """

    def __init__(self) -> None:
        self.pod = ("", "")
        self.terms: GpuShare | None = None
        self.ruling: Ruling | None = None
        self.times_shut = self.times_evicted = 0
        self.processes: dict[int, Process] = {}
        self.activity = Activity(wants=False, begun=False, used=0.0)
        self._throughput = Throughput()
        self._profile = Profile()
        self._updated_at = 0.0
        self._intruded, self._intruded_now = 0.0, 0.0
        self._waited = 0.0
        self._asks = False
        self._worked = Recent()
        self._passes = Passes()
        self.bell = Bell()
        self._unhooked = Unhooked()
        self._promised_at = 0.0

    @property
    def high(self) -> bool:
        """Whether it is known to have high priority."""
        return self.terms is not None and self.terms.high

    @property
    def shut(self) -> bool:
        """Whether its gate is shut, so that a turn is useless to it."""
        return self.ruling is not None and self.ruling.shut

    def set_ruling(self, ruling: Ruling | None) -> None:
        """Set its ruling, and count what is new in it."""
        before, self.ruling = self.ruling, ruling
        if ruling is not None:
            # The counts of a ruling start at 0 with each new high-priority job.
            more = max(ruling.times_shut - (before.times_shut if before is not None else 0), 0)
            self.times_shut += more
            evicted = before is not None and before.evict
            self.times_evicted += more > 0 and ruling.evict and not evicted

    def promise(self, pod: Pod, terms: GpuShare, *, now: float) -> None:
        """Record the pod, or its new terms."""
        if self.terms is None:
            self._promised_at = now
        self.pod, self.terms = pod, terms

    def join(self, process: Process) -> bool:
        """Add a process with a hook; return whether it has one."""
        if not self._unhooked.record(process):
            return False
        self.processes[process.number] = process
        self._passes.join(process)
        self._throughput.restart()
        return True

    def leave(self, number: int) -> None:
        """Forget a process that has ended."""
        if self.processes.pop(number, None) is None:
            return
        self._passes.leave(number)
        self._throughput.restart()

    def end(self) -> None:
        """End the connections of its processes, and forget them."""
        for process in self.processes.values():
            process.end()
        self.bell.close()

    def update(self, now: float) -> None:
        """Read the pages of its processes."""
        begun = False
        used = rested = self._intruded_now = 0.0
        for process in self.processes.values():
            used += process.growth(words.BUSY_NS if self.high else words.WORKED_NS, now=now)
            self._intruded_now += process.growth(words.INTRUDED_NS, now=now)
            self._waited += process.growth(words.WAITED_NS, now=now)
            rested += process.growth(words.RESTED_NS, now=now)
            begun = self._passes.update(process, now) or begun
        self._asks = any(process[words.ASKING] == 1 for process in self.processes.values())
        self.activity = Activity(wants=begun or self._asks, begun=begun, used=used)
        self._intruded += self._intruded_now
        self._worked.add(used, now=now)
        current, elapsed = reading(self.processes.values(), now), now - self._updated_at
        self._updated_at = now
        if current is None:
            self._profile.restart()
        else:  # a low-priority pod can use the card only between its gates
            usable = elapsed if self.high else used
            self._profile.record(current.steps, used=used - rested, usable=usable)

    def time(self, *, alone: bool, now: float) -> None:
        """Time its steps; `alone`: only this pod has used the card since the last update."""
        current = reading(self.processes.values(), now)
        if current is None or self.shut:
            self._throughput.restart()
        else:
            self._throughput.record(current, alone=alone)

    def effects(self) -> Effects:
        """Return its effects on the high-priority job."""
        assert self.terms is not None
        return Effects(
            self.terms.min_share,
            self.activity.used,
            self._intruded_now,
            self._asks,
            self._throughput.normalised,
            gives_way=any(not process[words.UNHOOKED] for process in self.processes.values()),
            may_work=self._passes.may_work(self.processes, self._updated_at),
        )

    def order(self, *, turn: bool, alone: bool, reserved: bool, now: float) -> None:
        """Write the orders of its processes.

        `turn`: whether it has the turn. `alone`: whether no other pod has a share of the card.
        `reserved`: whether the card is still reserved for kfext.
        """
        ruling = self.ruling or Ruling(False, LONGEST_MICRO_STEP)
        mode = words.FREE if alone else words.OPEN if self.ruling is None else words.GATED
        if ruling.shut or not reserved:
            mode = words.SHUT
        allowance = ruling.allowance / max(len(self.processes), 1)
        for process in self.processes.values():
            process.order(mode, ruling, allowance=allowance, turn=turn, now=now)

    def report(self, now: float) -> SharerReport:
        """Return its report; its terms must be known."""
        assert self.terms is not None
        processes, ruling = self.processes.values(), self.ruling
        hooked = [process for process in processes if not process[words.UNHOOKED]]
        heartbeats = [process.seconds(words.HEARTBEAT) for process in hooked if self.high]
        why = self._unhooked.why(processes, elapsed=now - self._promised_at)
        calibrated = [
            process
            for process in processes
            if not self.high and process[words.HOOKED] in _CALIBRATED
        ]
        longest = max((process.seconds(words.LONGEST_NS) for process in calibrated), default=None)
        return SharerReport(
            *self.pod,
            high=self.high,
            share=self.terms.units / UNITS,
            memory=sum(process[words.MEMORY] for process in hooked) or None,
            planned=self.terms.memory,
            used=min(self._worked.share, 1.0) if hooked else None,
            busy=self._profile.busy if hooked else None,
            waited=self._waited,
            intruded=self._intruded,
            micro_step=ruling.micro_step if ruling else None,
            longest=None if longest is None else min(longest, LONGEST_COARSE),
            coarse=any(process[words.HOOKED] == words.COARSE for process in calibrated),
            beacon_age=max(now - min(heartbeats), 0.0) if heartbeats else None,
            infeasible=ruling is not None and ruling.infeasible,
            times_shut=self.times_shut,
            times_evicted=self.times_evicted,
            strikes=ruling.strikes if ruling else 0,
            evict=ruling is not None and ruling.evict,
            unhooked=why,
        )

    def give_way(self, pages: Sequence[int], processes: Iterable[Process]) -> None:
        """Make some of its processes give way to the processes with these pages."""
        for process in processes:
            process.send_highs(pages, self.bell.receiver)


def reading(processes: Iterable[Process], now: float) -> Reading | None:
    """Return the progress of a job: the reading of its process with the most steps."""
    leader = max(
        processes, key=lambda process: (process[words.STEPS], -process.number), default=None
    )
    if leader is None:
        return None
    return Reading(now, leader[words.STEPS], min(leader.seconds(words.STEPPED), now))
