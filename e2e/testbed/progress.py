"""Shows which long step runs, and the remaining time.

A terminal shows live bars; a file or a CI log gets plain lines.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import NamedTuple

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

_HEARTBEAT_SECONDS, _REDRAW_SECONDS = 60.0, 0.5
_HALVES = 2
_MINUTES_FROM = 100
_TRUSTED_SECONDS = 60.0
"""The pace is averaged with this time at the usual pace, so that one slow step counts little."""
Advance = Callable[[int, str], None]
"""Sets the number of finished parts of a bar, and a word about the current part."""


class Planned(NamedTuple):
    """A planned step: its name, and its usual duration on two idle cores, in seconds."""

    what: str
    seconds: float


@dataclass(slots=True)
class Agenda:
    """The planned steps in order; it counts finished steps, and estimates the remaining time.

    A step that another process has already done never begins; it counts as done when a later step
    begins. `now`: the time in seconds, of any clock.
    """

    planned: Sequence[Planned]
    done: int = 0
    _current: Planned | None = None
    _began: float = 0.0
    _spent: float = _TRUSTED_SECONDS
    _usual: float = _TRUSTED_SECONDS

    def begin(self, entry: Planned, now: float) -> str:
        """Record the start of a step; return a text such as "[2/5] "; empty if not planned."""
        others = self.planned[self.done :]
        if self._current or entry not in others:
            return ""
        self.done += others.index(entry)
        self._current, self._began = entry, now
        return f"[{self.done + 1}/{len(self.planned)}] "

    def end(self, now: float) -> None:
        """Record the end of the current step."""
        assert self._current
        self._spent += now - self._began
        self._usual += self._current.seconds
        self._current, self.done = None, self.done + 1

    def remaining(self, now: float) -> float:
        """Return the remaining seconds, from the pace of the steps so far."""
        coming = sum(entry.seconds for entry in self.planned[self.done :])
        pace = self._spent / self._usual
        if not self._current:
            return coming * pace
        elapsed = now - self._began
        # A step that takes longer than usual shows already before its end that the machine is busy.
        late = max(0.0, elapsed - self._current.seconds * pace)
        pace = (self._spent + late) / self._usual
        return max(coming * pace - elapsed, (coming - self._current.seconds) * pace)

    def fraction_done(self, now: float) -> float:
        """Return the finished fraction of all work; it is 1 only at the end."""
        total = sum(entry.seconds for entry in self.planned)
        done = sum(entry.seconds for entry in self.planned[: self.done])
        if self._current:
            usual = self._current.seconds * self._spent / self._usual
            done += self._current.seconds * min((now - self._began) / max(usual, 1.0), 0.95)
        return done / max(total, 1.0)


def spell(seconds: float) -> str:
    """Return a duration in words: "40 s" or "12 min"."""
    return f"{seconds:.0f} s" if seconds < _MINUTES_FROM else f"{seconds / 60:.0f} min"


def say(message: str) -> None:
    """Print one line of progress on stderr."""
    _live.console.print(message, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def agenda(planned: Sequence[Planned]) -> Iterator[None]:
    """List all planned steps, and show their progress during a `with` block.

    A `step` with the name of a planned step counts as that step. Nothing is shown for an empty
    list, or within an agenda, which already has the same steps.
    """
    if _live.agenda or not planned:
        yield
        return
    steps = "1 step" if len(planned) == 1 else f"{len(planned)} steps"
    say(f"{steps}, about {spell(sum(entry.seconds for entry in planned))} in total:")
    for number, entry in enumerate(planned, 1):
        say(f"  {number:3}. {spell(entry.seconds):>6}  {entry.what}")
    _live.agenda, began = Agenda(planned), time.monotonic()
    try:
        with _overall(_live.agenda) if _live.console.is_terminal else nullcontext():
            yield
        say(f"all steps took {spell(time.monotonic() - began)}")
    finally:
        _live.agenda = None


@contextmanager
def step(what: str | Planned, *, expect: str = "") -> Iterator[None]:
    """Print when a step begins, while it runs, and how long it took.

    `expect`: the usual duration of a long step that is not planned, for instance "3 minutes".
    """
    began = time.monotonic()
    current, place = _live.agenda, ""
    if isinstance(what, Planned):
        place = current.begin(what, began) if current else ""
        expect = spell(what.seconds)
        what = what.what
    title = f"{place}{what}"
    begins = f"{title} ..." + (f" (about {expect})" if expect else "")
    try:
        with _live.task(begins) if _live.console.is_terminal else _heartbeat(title, begins):
            yield
    except BaseException:
        say(f"  {title}: failed after {time.monotonic() - began:.1f} s")
        raise
    finally:
        if current and place:
            current.end(time.monotonic())
    say(f"  {title}: done in {time.monotonic() - began:.1f} s{_remaining() if place else ''}")


@contextmanager
def bar(what: str, total: int) -> Iterator[Advance]:
    """Show the finished parts of `total`: a bar on a terminal, two lines elsewhere."""
    if _live.console.is_terminal:
        with _live.task(what, total=total) as task:
            yield lambda done, word: _live.update(task, f"{what} {word}".rstrip(), done)
    else:
        yield _Halves(what, total).advance


def _remaining() -> str:
    """Return a text with the remaining time; empty without an agenda or at its end."""
    remaining = _live.agenda.remaining(time.monotonic()) if _live.agenda else 0.0
    return f"; about {spell(remaining)} left" if remaining >= 1 else ""


@contextmanager
def _every(seconds: float, act: Callable[[], None]) -> Iterator[None]:
    done = threading.Event()

    def beat() -> None:
        while not done.wait(seconds):
            act()

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@contextmanager
def _heartbeat(what: str, begins: str) -> Iterator[None]:
    """Print a line at the beginning, and then every minute."""
    say(f"  {begins}")
    began = time.monotonic()

    def beat() -> None:
        say(f"  {what}: still running after {spell(time.monotonic() - began)}{_remaining()}")

    with _every(_HEARTBEAT_SECONDS, beat):
        yield


@contextmanager
def _overall(steps: Agenda) -> Iterator[None]:
    """Show a bar over all steps."""
    with _live.task("", total=len(steps.planned)) as task:

        def draw() -> None:
            now = time.monotonic()
            left = spell(steps.remaining(now))
            shown = f"{steps.done} of {len(steps.planned)} steps done, about {left} left"
            _live.update(task, shown, len(steps.planned) * steps.fraction_done(now))

        draw()
        with _every(_REDRAW_SECONDS, draw):
            yield


@dataclass(slots=True)
class _Halves:
    """Stands in for a bar where there is no terminal: prints a line after each half."""

    what: str
    total: int
    _printed: int = 0

    def advance(self, done: int, word: str) -> None:
        """Print a line if a half has been finished."""
        half = _HALVES * done // max(self.total, 1)
        if half > self._printed:
            self._printed = half
            say(f"    {self.what}: {done} of {self.total} {word}".rstrip())


@dataclass(slots=True)
class _Live:
    """The live display of a terminal: it is shown while a task runs."""

    console: Console
    agenda: Agenda | None = None
    _progress: Progress = field(init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TimeElapsedColumn(),
        )
        self._progress = Progress(*columns, console=self.console, transient=True)

    @contextmanager
    def task(self, what: str, *, total: int | None = None) -> Iterator[TaskID]:
        """Show a task during a `with` block; without `total` its bar only pulses."""
        with self._lock:
            task = self._progress.add_task(escape(what), total=total)
            self._progress.start()
        try:
            yield task
        finally:
            with self._lock:
                self._progress.remove_task(task)
                if not self._progress.task_ids:
                    self._progress.stop()

    def update(self, task: TaskID, what: str, done: float) -> None:
        """Set the finished parts and the title of a task."""
        self._progress.update(task, completed=done, description=escape(what))


_live = _Live(Console(stderr=True))
