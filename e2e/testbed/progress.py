"""Tell the person at the terminal what takes so long, and how far it is.

A terminal gets live bars; a file or a CI log gets plain lines.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

_HEARTBEAT_SECONDS = 15.0
_QUARTERS = 4
Advance = Callable[[int, str], None]
"""Sets how many of a bar's parts are done, and says a word about the present one."""


def say(message: str) -> None:
    """Print one line of progress on stderr."""
    _live.console.print(message, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def step(what: str, *, expect: str = "") -> Iterator[None]:
    """Say that `what` begins, that it goes on, and how long it took.

    `expect` names the usual duration of a long step, for instance "3 minutes".
    """
    begins = f"{what} ..." + (f" (about {expect})" if expect else "")
    began = time.monotonic()
    try:
        with _live.task(begins) if _live.console.is_terminal else _heartbeat(what, begins):
            yield
    except BaseException:
        say(f"  {what}: failed after {time.monotonic() - began:.1f} s")
        raise
    say(f"  {what}: done in {time.monotonic() - began:.1f} s")


@contextmanager
def bar(what: str, total: int) -> Iterator[Advance]:
    """Show how many of `total` parts are done: a bar on a terminal, elsewhere a line a quarter."""
    if _live.console.is_terminal:
        with _live.task(what, total=total) as task:
            yield lambda done, word: _live.update(task, what, done, word)
    else:
        yield _Quarters(what, total).advance


@contextmanager
def _heartbeat(what: str, begins: str) -> Iterator[None]:
    """Print a line at the beginning and one each 15 s."""
    say(f"  {begins}")
    began = time.monotonic()
    done = threading.Event()

    def beat() -> None:
        while not done.wait(_HEARTBEAT_SECONDS):
            say(f"  {what}: still at it after {time.monotonic() - began:.0f} s")

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@dataclass(slots=True)
class _Quarters:
    """Prints a bar as lines, one for each quarter of its parts."""

    what: str
    total: int
    _printed: int = 0

    def advance(self, done: int, word: str) -> None:
        """Print a line if another quarter is done."""
        quarter = _QUARTERS * done // max(self.total, 1)
        if quarter > self._printed:
            self._printed = quarter
            say(f"    {self.what}: {done} of {self.total} {word}".rstrip())


@dataclass(slots=True)
class _Live:
    """The live display of a terminal: it is shown while a task is under way."""

    console: Console
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
        """Show a task; without `total` its bar only moves."""
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

    def update(self, task: TaskID, what: str, done: int, word: str) -> None:
        """Move a task's bar."""
        self._progress.update(task, completed=done, description=escape(f"{what} {word}".rstrip()))


_live = _Live(Console(stderr=True))
