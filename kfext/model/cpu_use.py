"""How much CPU a pod has used: over a window, and from the readings of a counter."""

from dataclasses import dataclass

SHORTEST_WINDOW = 5.0
"""Seconds between two readings below which the kubelet has not measured anew."""
MOST_DRIFT = 20.0
"""Seconds by which the node's clock and ours may differ in how much time has passed: the kubelet
measures every 10 to 15 s. More means that a clock was set, or that the kubelet measures no more."""


@dataclass(frozen=True, slots=True)
class CpuUse:
    """The `cores` that a pod used on average over a window.

    `at`: when the window ended, in seconds since the epoch by the clock of the pod's node.
    `window`: its length in seconds.
    """

    cores: float
    at: float
    window: float


@dataclass(frozen=True, slots=True)
class CpuReading:
    """A counter of CPU time that only grows: the `seconds` used since it began.

    `at`: when the kubelet measured it, in seconds since the epoch by the clock of its node.
    `read`: when we read it, on a clock of ours that is never set.
    """

    seconds: float
    at: float
    read: float


@dataclass(frozen=True, slots=True)
class CpuCounter:
    """The counter of one pod: the last reading, and the use up to it, None while that is not known.

    >>> CpuCounter(CpuReading(1.0, at=100.0, read=0.0)).then(CpuReading(7.0, 130.0, 30.0)).use
    CpuUse(cores=0.2, at=130.0, window=30.0)
    """

    reading: CpuReading
    use: CpuUse | None = None

    def then(self, reading: CpuReading) -> "CpuCounter":
        """Return the counter after one more reading.

        After a counter that began anew, or a clock that was set, the use is unknown until the next.
        """
        used = reading.seconds - self.reading.seconds
        passed = reading.at - self.reading.at
        drift = abs(passed - (reading.read - self.reading.read))
        if used < 0 or drift > MOST_DRIFT:
            return CpuCounter(reading)
        if passed < SHORTEST_WINDOW:
            return self
        return CpuCounter(reading, CpuUse(used / passed, at=reading.at, window=passed))
