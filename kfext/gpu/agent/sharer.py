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

_WORDS = {
    words.FAILED: HOOK_FAILED,
    words.OLD_TENSORFLOW: OLD_TENSORFLOW,
    words.CALLBACK_LIST: CALLBACK_LIST,
}
PATIENCE = 60.0
"""Most jobs begin to use their card within this many seconds; after that the pod is shown as
idle."""


class Unhooked:
    """Collects the reports of a pod's processes on themselves, which may be wrong.

    A report from a process without a hook says nothing about processes with a hook.
    """

    def __init__(self) -> None:
        self._stated = 0
        self._came = False

    def hooked(self, process: Process) -> bool:
        """Return whether a new process has a hook; a process without it reports why, and ends."""
        reason = process[words.UNHOOKED]
        self._stated = reason or self._stated
        self._came = self._came or not reason
        return not reason

    def why(self, processes: Collection[Process], *, promised: float) -> str:
        """Return the reason; empty without a reason.

        `processes`: the live processes with a hook. `promised`: the seconds since the pod has its
        part.
        """
        failed = [process[words.UNHOOKED] for process in processes if process[words.UNHOOKED]]
        if failed or processes:
            return _WORDS.get(failed[0], "") if failed else ""
        if self._stated in _WORDS:
            return _WORDS[self._stated]
        return "" if self._came or promised < PATIENCE else NO_FRAMEWORK


_MICRO_STEPS = 5 * OUTSTANDING
_SECONDS = 1.0
"""A process that has not reached its gate for this many of its longest micro-steps, or for this
many seconds, whichever is longer, counts as without work on the card: it may be loading data."""


class Passes:
    """The passes of one sharer's processes, by their numbers."""

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

    def look(self, process: Process, now: float) -> bool:
        """Read the page of a process; return whether it has passed its gate since the last look."""
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
    longest = min(process.seconds(words.LONGEST_NS), LONGEST_HELD / _MICRO_STEPS)
    return process[words.ASKING] != 1 and since < max(_MICRO_STEPS * longest, _SECONDS)


_CALIBRATED = (words.READY, words.COARSE)


class Sharer:
    """A pod on a card. `terms`: None before they are known.

    `ruling`: None without a high-priority job. `times_shut`, `times_evicted`: the times that losses
    shut its gate, and evicted it, since the start of this agent.

    `activity` covers the time between the last two calls of `look`.
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
        self._looked = 0.0
        self._intruded, self._intruded_now = 0.0, 0.0
        self._waited = 0.0
        self._asks = False
        self._worked = Recent()
        self._passes = Passes()
        self.bell = Bell()
        self._unhooked = Unhooked()
        self._promised = 0.0

    @property
    def high(self) -> bool:
        """Whether it is known to have high priority."""
        return self.terms is not None and self.terms.high

    @property
    def shut(self) -> bool:
        """Whether its gate is shut, so that a turn is useless to it."""
        return self.ruling is not None and self.ruling.shut

    def take(self, ruling: Ruling | None) -> None:
        """Set its ruling from now on."""
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
            self._promised = now
        self.pod, self.terms = pod, terms

    def join(self, process: Process) -> bool:
        """Add a process; return whether it has a hook, so that the agent leads it."""
        if not self._unhooked.hooked(process):
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

    def look(self, now: float) -> None:
        """Read the pages of its processes."""
        begun = False
        used = rested = self._intruded_now = 0.0
        for process in self.processes.values():
            used += process.grown(words.BUSY_NS if self.high else words.WORKED_NS, now=now)
            self._intruded_now += process.grown(words.INTRUDED_NS, now=now)
            self._waited += process.grown(words.WAITED_NS, now=now)
            rested += process.grown(words.RESTED_NS, now=now)
            begun = self._passes.look(process, now) or begun
        self._asks = any(process[words.ASKING] == 1 for process in self.processes.values())
        self.activity = Activity(wants=begun or self._asks, begun=begun, used=used)
        self._intruded += self._intruded_now
        self._worked.add(used, now=now)
        read, passed, self._looked = reading(self.processes.values(), now), now - self._looked, now
        if read is None:
            self._profile.restart()
        else:  # a low-priority pod can use the card only between its gates
            could = passed if self.high else used
            self._profile.note(read.steps, used=used - rested, could=could)

    def time(self, *, alone: bool, now: float) -> None:
        """Time its steps; `alone`: only this pod has used the card since the last look."""
        read = reading(self.processes.values(), now)
        if read is None or self.shut:
            self._throughput.restart()
        else:
            self._throughput.note(read, alone=alone)

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
            works=self._passes.may_work(self.processes, self._looked),
        )

    def order(self, *, turn: bool, alone: bool, reserved: bool, now: float) -> None:
        """Write the orders of its processes; `alone`: no other pod has a part of the card."""
        ruling = self.ruling or Ruling(False, LONGEST_MICRO_STEP)
        mode = words.FREE if alone else words.OPEN if self.ruling is None else words.GATED
        if ruling.shut or not reserved:
            mode = words.SHUT
        allowance = ruling.allowance / max(len(self.processes), 1)
        for process in self.processes.values():
            process.order(mode, ruling, allowance=allowance, turn=turn, now=now)

    def report(self, now: float) -> SharerReport:
        """Return its report."""
        assert self.terms is not None
        processes, ruling = self.processes.values(), self.ruling
        heard = [process for process in processes if not process[words.UNHOOKED]]
        heartbeats = [process.seconds(words.HEARTBEAT) for process in heard if self.high]
        why = self._unhooked.why(processes, promised=now - self._promised)
        gated = [
            process
            for process in processes
            if not self.high and process[words.HOOKED] in _CALIBRATED
        ]
        longest = max((process.seconds(words.LONGEST_NS) for process in gated), default=None)
        return SharerReport(
            *self.pod,
            high=self.high,
            share=self.terms.units / UNITS,
            memory=sum(process[words.MEMORY] for process in heard) or None,
            promised=self.terms.memory,
            harvest=min(self._worked.share, 1.0) if heard else None,
            busy=self._profile.busy if heard else None,
            waited=self._waited,
            intruded=self._intruded,
            micro_step=ruling.micro_step if ruling else None,
            longest=None if longest is None else min(longest, LONGEST_COARSE),
            coarse=any(process[words.HOOKED] == words.COARSE for process in gated),
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
            process.send_highs(pages, self.bell.heard)


def reading(processes: Iterable[Process], now: float) -> Reading | None:
    """Return the progress of a job: the reading of its process with the most steps."""
    leader = max(
        processes, key=lambda process: (process[words.STEPS], -process.number), default=None
    )
    if leader is None:
        return None
    return Reading(now, leader[words.STEPS], min(leader.seconds(words.STEPPED), now))
