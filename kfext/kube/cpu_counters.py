"""The counters of CPU time of pods or nodes, as far as they were read lately."""

from collections.abc import Callable

from kfext.model.cpu_use import CpuCounter, CpuReading, CpuUse

_KEPT_SECONDS = 900.0


class CpuCounters:
    """Counters by a key of the caller's. `monotonic` is the clock of their readings."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._counters: dict[str, CpuCounter] = {}

    def __len__(self) -> int:
        return len(self._counters)

    def take(self, key: str, reading: CpuReading) -> CpuUse | None:
        """Take in a reading; return the use up to it, None while that is not known."""
        before = self._counters.get(key)
        counter = before.then(reading) if before else CpuCounter(reading)
        self._counters[key] = counter
        return counter.use

    def forget_old(self) -> None:
        """Forget the counters that were not read in a long time."""
        oldest = self._monotonic() - _KEPT_SECONDS
        old = [key for key, counter in self._counters.items() if counter.reading.read < oldest]
        for key in old:
            del self._counters[key]
