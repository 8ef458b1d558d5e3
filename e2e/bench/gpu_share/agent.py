"""The agent's part without Kubernetes: one card, and the doors through which its sharers come."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic

from kfext.gpu.agent.card import SharedCard
from kfext.gpu.agent.doors import Doors
from kfext.gpu.agent.hook_files import lay_out
from kfext.gpu.agent.process import Process
from kfext.gpu.hook import words
from kfext.gpu.rules.neighbours import LONGEST_MICRO_STEP
from kfext.model.gpu import GpuShare

_SAMPLE_SECONDS = 0.005
"""Far shorter than a job of high priority here is busy in a step."""
_WORDS = range(words.UNHOOKED + 1)


class Agent:
    """What kubelet would report is what `admit` and `dismiss` do. `hook`: the folder of its files.

    `became_busy`: when the beacon of high priority has said so, in seconds of CLOCK_MONOTONIC.
    `ended`: by job, the pages of its processes as they were when these ended, in that order.
    """

    def __init__(self, root: Path, *, longest_micro_step: float = LONGEST_MICRO_STEP) -> None:
        self._card = SharedCard(0, longest_micro_step=longest_micro_step)
        self._card.reserve("GPU-0")
        self._doors = Doors(root / "sockets", enter=self._enter, leave=self._leave)
        self.hook = lay_out(root / "hook", busybox=Path(__file__))  # no image has a path to record
        self._terms: dict[str, GpuShare] = {}
        self._processes: dict[int, tuple[str, Process]] = {}
        self.became_busy: list[float] = []
        self.ended: dict[str, list[list[int]]] = {}

    def door(self, job: str) -> Path:
        """Return the folder through which the processes of a job come."""
        return self._doors.open(job)

    def admit(self, job: str, terms: GpuShare) -> None:
        """Promise a job its part."""
        self._terms[job] = terms
        self._card.promise(job, ("bench", job), terms, now=monotonic())

    def dismiss(self, job: str) -> None:
        """Take in that a job has ended."""
        del self._terms[job]
        self._doors.close(job)
        self._card.withdraw(job)

    def is_calibrated(self, job: str) -> bool:
        """Return whether a job of low priority has chosen the places of its gate."""
        settled = {words.READY, words.COARSE}
        return any(name == job and one[words.HOOKED] in settled for name, one in self._of_all())

    def has(self, job: str) -> bool:
        """Return whether a process of a job is there."""
        return any(name == job for name, _ in self._of_all())

    def longest_micro_step(self, job: str) -> float:
        """Return how long its longest micro-step takes by itself, in seconds."""
        return max(one.seconds(words.LONGEST_NS) for name, one in self._of_all() if name == job)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Agent"]:
        """Rule on the card meanwhile. Raises what stopped that."""
        parts = [asyncio.create_task(one) for one in (self._look(), self._watch())]
        try:
            yield self
        finally:
            for part in parts:
                part.cancel()
            for job in tuple(self._terms):
                self.dismiss(job)
            self._doors.close_all()
        for ended in await asyncio.gather(*parts, return_exceptions=True):
            if isinstance(ended, Exception):
                raise ended

    async def _look(self) -> None:
        while True:
            pause = self._card.look(monotonic())
            await asyncio.sleep(pause)

    async def _watch(self) -> None:
        changed: dict[int, int] = {}
        while True:
            for name, one in self._of_all():
                terms = self._terms.get(name)
                if terms is None or not terms.high or one[words.BUSY] != 1:
                    continue
                if changed.get(one.number) != (now := one[words.CHANGED]):
                    changed[one.number] = now
                    self.became_busy.append(now / 1e9)
            await asyncio.sleep(_SAMPLE_SECONDS)

    def _of_all(self) -> Iterator[tuple[str, Process]]:
        return iter(tuple(self._processes.values()))

    def _enter(self, job: str, process: Process) -> None:
        self._processes[process.number] = (job, process)
        self._card.join(job, process)

    def _leave(self, job: str, number: int) -> None:
        _, process = self._processes.pop(number)
        self.ended.setdefault(job, []).append([process[word] for word in _WORDS])
        self._card.leave(job, number)
