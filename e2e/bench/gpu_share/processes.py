"""The jobs as processes, and the agent's part without Kubernetes.

A job starts, begins on request, and its output is read. The agent has one card and the sockets of
its sharers.
"""

import asyncio
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

from e2e.bench.gpu_share.cards import Busy, Card, Python
from e2e.bench.store import SpoiledError
from e2e.testbed import paths
from kfext.gpu.agent.card import SharedCard
from kfext.gpu.agent.hook_files import lay_out
from kfext.gpu.agent.pod_sockets import PodSockets
from kfext.gpu.agent.process import Process
from kfext.gpu.hook import start, words
from kfext.model.gpu import GpuShare

_JOBS = paths.REPOSITORY / "e2e/jobs"
SCRIPTS = ("share.py", "cpu_card.py", "gate_trace.py", "wakes.py")
STEADY = "steady"
_READY_SECONDS = 120.0
_LOOK_SECONDS = 0.05
_LAST_LINES = 3
_SAMPLE_SECONDS = 0.005
"""Far shorter than the busy time of a step of a job of high priority."""
_WORDS = range(words.UNHOOKED + 1)


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a training: the time of its end, and the bits of its loss."""

    at: float
    loss: str


@dataclass(frozen=True, slots=True)
class Hooking:
    """The settings of a hooked job: the folders of the hook and of its socket, and its priority.

    `traced`: whether its gate is traced, see `gate_trace.py`.
    """

    hook: Path
    sockets: Path
    high: bool
    traced: bool = False


class Job:
    """A training that waits for `begin`."""

    def __init__(self, process: subprocess.Popen[bytes], name: str, folder: Path) -> None:
        self.name = name
        self._process = process
        self._folder = folder

    def begin(self) -> None:
        """Let it train."""
        (self._folder / f"{self.name}.go").touch()

    def steps(self) -> list[Step]:
        lines = (line.split() for line in self.said() if line.startswith("step="))
        pairs = (dict(word.partition("=")[::2] for word in words) for words in lines)
        return [Step(float(pair["at"]), pair["loss"]) for pair in pairs if "at" in pair]

    def trace(self) -> list[str]:
        """Return the lines of `gate_trace.py`."""
        path = self._folder / f"{self.name}.trace"
        return path.read_text().splitlines() if path.exists() else []

    async def ready(self) -> None:
        """Wait until it waits for `begin`. Raises SpoiledError if it fails."""
        async with asyncio.timeout(_READY_SECONDS):
            while "ready" not in self.said():
                if self._process.poll() is not None:
                    raise self._spoiled()
                await asyncio.sleep(_LOOK_SECONDS)

    def wait(self) -> None:
        """Wait until it has made all its steps. Raises SpoiledError if it fails."""
        if self._process.wait():
            raise self._spoiled()

    def cpu(self) -> tuple[float, float]:
        """Return the seconds so far that its threads ran, and waited for a CPU."""
        threads = Path(f"/proc/{self._process.pid}/task").glob("*/schedstat")
        times = [thread.read_text().split() for thread in threads]
        ran, waited = (sum(int(time[column]) for time in times) / 1e9 for column in (0, 1))
        return ran, waited

    def kill(self) -> None:
        """Kill it, and wait for its end."""
        self._process.kill()
        self._process.wait()

    def said(self) -> list[str]:
        """Return the complete lines that it has printed."""
        text = (self._folder / f"{self.name}.out").read_text()
        return text[: text.rfind("\n") + 1].splitlines()

    def errors(self) -> list[str]:
        """Return the lines that it has written to stderr."""
        return (self._folder / f"{self.name}.err").read_text().splitlines()

    def _spoiled(self) -> SpoiledError:
        return SpoiledError(f"{self.name} ended: {' / '.join(self.errors()[-_LAST_LINES:])}")


class Bench:
    """A card, and a folder for the jobs on it, for one run. `busy`: see `Busy`."""

    def __init__(self, card: Card, python: Python, folder: Path, busy: Busy) -> None:
        self.folder = folder
        self.busy = busy
        self._card = card
        self._python = python
        self._jobs: list[Job] = []

    def start(
        self,
        name: str,
        *,
        load: float,
        loads: str = STEADY,
        steps: int | None = None,
        hooking: Hooking | None = None,
    ) -> Job:
        """Start a job that waits for `begin`, with a mean of `load` seconds of loading in a step.

        `loads`: the distribution of these times, see `share.py`.
        """
        inside = self._python.inside
        arguments = ["--load-ms", f"{load * 1000:.3f}", "--loads", loads]
        arguments += ["--go", inside(self.folder / f"{name}.go")]
        arguments += [] if steps is None else ["--steps", str(steps)]
        driver = self._card.driver(hooked=hooking is not None)
        return self.run(
            name, [*driver, f"{self.scripts}/share.py", *self._card.model, *arguments], hooking
        )

    def idle(self) -> Mapping[str, float]:
        """Return the idle seconds of the card, see `Card.idle`."""
        return self._card.idle(self.folder)

    @property
    def scripts(self) -> str:
        """The folder of the scripts, as jobs see it."""
        return self._python.inside(self.folder / "jobs")

    def run(self, name: str, arguments: Sequence[str], hooking: Hooking | None = None) -> Job:
        """Start a job with some arguments of Python."""
        with (
            (self.folder / f"{name}.out").open("w") as out,
            (self.folder / f"{name}.err").open("w") as err,
        ):
            process = subprocess.Popen(
                [*self._python.command, *arguments],
                env=self._environment(name, self.scripts, hooking),
                stdout=out,
                stderr=err,
            )
        job = Job(process, name, self.folder)
        self._jobs.append(job)
        return job

    def kill_all(self) -> None:
        """Kill all jobs."""
        for job in self._jobs:
            job.kill()

    def _environment(self, name: str, scripts: str, hooking: Hooking | None) -> Mapping[str, str]:
        inside = self._python.inside
        variables = {**os.environ, "PYTHONPATH": scripts, "OMP_NUM_THREADS": "1"}
        variables |= self._card.environment(name, inside(self.folder))
        if hooking is None:
            return variables
        variables["PYTHONPATH"] = f"{inside(hooking.hook)}:{scripts}"
        variables[start.PRIORITY] = start.HIGH if hooking.high else "low"
        variables[start.SOCKET] = f"{inside(hooking.sockets)}/agent"
        if hooking.traced:
            variables[start.DEVICE] = self._card.traced
            variables["GATE_TRACE"] = inside(self.folder / f"{name}.trace")
        return variables


@contextmanager
def bench(card: Card, python: Python) -> Iterator[Bench]:
    """Provide a card and a folder for one run; neither remains."""
    with TemporaryDirectory(prefix="kfext-", dir=python.temporary) as temporary:
        folder = Path(temporary)
        (folder / "jobs").mkdir()
        for script in SCRIPTS:
            shutil.copy(_JOBS / script, folder / "jobs")
        with card.opened(folder) as busy:
            running = Bench(card, python, folder, busy)
            try:
                yield running
            finally:
                running.kill_all()


class Agent:
    """The agent's part; `admit` and `dismiss` replace kubelet's reports.

    `hook`: the folder of the hook's files. `became_busy`: the times at which the beacon of high
    priority turned busy, in seconds of CLOCK_MONOTONIC. `ended`: by job, the last pages of its
    processes, in the order of their ends.
    """

    def __init__(self, root: Path) -> None:
        self._card = SharedCard(0)
        self._card.reserve("GPU-0")
        self._sockets = PodSockets(root / "sockets", enter=self._enter, leave=self._leave)
        self.hook = lay_out(root / "hook", busybox=Path(__file__))  # no image has a path to record
        self._terms: dict[str, GpuShare] = {}
        self._processes: dict[int, tuple[str, Process]] = {}
        self.became_busy: list[float] = []
        self.ended: dict[str, list[list[int]]] = {}

    def folder(self, job: str) -> Path:
        """Return the folder of the socket of a job."""
        return self._sockets.open(job)

    def admit(self, job: str, terms: GpuShare) -> None:
        """Guarantee a job its share."""
        self._terms[job] = terms
        self._card.promise(job, ("bench", job), terms, now=monotonic())

    def dismiss(self, job: str) -> None:
        """Remove a job that has ended."""
        del self._terms[job]
        self._sockets.close(job)
        self._card.withdraw(job)

    def is_calibrated(self, job: str) -> bool:
        """Return whether a job of low priority has chosen its gates."""
        settled = {words.READY, words.COARSE}
        return any(name == job and page[words.HOOKED] in settled for name, page in self._of_all())

    def has(self, job: str) -> bool:
        """Return whether a job has a process."""
        return any(name == job for name, _ in self._of_all())

    def longest_micro_step(self, job: str) -> float:
        """Return the longest micro-step of a job on its own, in seconds."""
        return max(page.seconds(words.LONGEST_NS) for name, page in self._of_all() if name == job)

    def micro_steps(self, job: str) -> int:
        """Return the number of micro-steps that a job has begun."""
        return sum(page[words.MICRO_STEPS] for name, page in self._of_all() if name == job)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Agent"]:
        """Arbitrate the card during the block. Raises the error that stopped it, if any."""
        parts = [asyncio.create_task(loop) for loop in (self._look(), self._watch())]
        try:
            yield self
        finally:
            for part in parts:
                part.cancel()
            for job in tuple(self._terms):
                self.dismiss(job)
            self._sockets.close_all()
        for ended in await asyncio.gather(*parts, return_exceptions=True):
            if isinstance(ended, Exception):
                raise ended

    async def _look(self) -> None:
        while True:
            pause = self._card.update(monotonic())
            await asyncio.sleep(pause)

    async def _watch(self) -> None:
        changed: dict[int, int] = {}
        while True:
            for name, page in self._of_all():
                terms = self._terms.get(name)
                if terms is None or not terms.high or page[words.BUSY] != 1:
                    continue
                if changed.get(page.number) != (now := page[words.CHANGED]):
                    changed[page.number] = now
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
