"""When the processes of a sharer passed their gates, as their pages show."""

from collections.abc import Mapping

from kfext.gpu.agent.process import Process
from kfext.gpu.hook import words
from kfext.gpu.rules.loss import LONGEST_HELD
from kfext.gpu.rules.neighbours import OUTSTANDING

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
        """Forget a process that has gone."""
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
