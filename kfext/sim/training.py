"""The simulated training of a job: steps, checkpoints, lines of the log, and lost work."""

import math
from collections.abc import Callable
from enum import StrEnum

from kfext.model.log_line import LogLine
from kfext.sim.clock import Clock
from kfext.sim.jobs import JobSpec, Saving, Style

_JOINS = 2.0
"""Seconds from the start of a worker to its first step if there is no rendezvous."""


class Doing(StrEnum):
    """The activity of a job: it idles as too few pods run, its workers rendezvous, or it trains."""

    IDLE = "idle"
    MEETS = "meets"
    TRAINS = "trains"


class Training:
    """The training of a job; its speed depends on the number of workers and their CPU.

    `done`, `saved`: the steps done, and the steps in the last checkpoint. `lost`: the steps lost in
        restarts; `lost_all`: the steps lost before the first checkpoint.
    `workers`: the number of pods that train, Masters included; `largest`: the most so far.
    `spent`: activity -> the seconds spent in it.
    `busy`: the seconds of training, each weighted by `share`.
    `apart`: whether the workers are on several nodes.
    `share`: the fraction of their usable CPU that its pods receive, from 0 to 1.
    `began`: the second of the first step, or None before it. `lines`: the unread lines of the log.
    """

    def __init__(self, spec: JobSpec, clock: Clock, on_end: Callable[[], None]) -> None:
        self.spec = spec
        self.done = 0.0
        self.saved = 0
        self.lost = self.lost_all = 0.0
        self.busy = 0.0
        self.workers = 0
        self.largest = 0
        self.apart = False
        self.share = 1.0
        self.ended = False
        self.began: float | None = None
        self.doing = Doing.IDLE
        self.spent = dict.fromkeys(Doing, 0.0)
        self.lines: list[LogLine] = []
        self._clock = clock
        self._on_end = on_end
        self._since = clock.now
        self._print_at = 0.0
        self._epoch = 0
        self._hangs = False
        self._requested = self._answered = 0

    @property
    def speed(self) -> float:
        """Steps a second now."""
        if self.doing is not Doing.TRAINS:
            return 0.0
        pace, workers = self.spec.pace, self.workers
        return 1 / (
            pace.seconds(workers, apart=self.apart) + pace.work / workers * (1 / self.share - 1)
        )

    # --- changes from outside ---------------------------------------------------------------------

    def set_running_pods(self, workers: int, *, others: bool, all_run: bool, apart: bool) -> None:
        """Set the number of running pods that train; `apart`: whether they are on several nodes.

        `others`: whether all pods that do not train run. `all_run`: whether all pods run.
        """
        style, before = self.spec.style, self.workers
        ready = {
            Style.TORCHRUN: workers >= self.spec.trains_from,
            Style.SERVERS: others and workers > 0,
            Style.GANG: all_run,
        }[style]
        if self.ended or (workers == before and ready == (self.doing is not Doing.IDLE)):
            return
        self.advance()
        self.workers, self.apart = workers, apart
        if style is Style.SERVERS and ready and self.doing is not Doing.IDLE:
            self._record_size()
            self._schedule_end()
            return
        if not (style is Style.SERVERS and others):
            self._restart()
        self._become(Doing.MEETS if ready else Doing.IDLE)
        if ready:
            epoch = self._epoch
            pause = _JOINS if style is Style.SERVERS else self.spec.meets
            self._clock.after(pause, lambda: self._begin(epoch))

    def set_share(self, share: float) -> None:
        """Set the fraction of their usable CPU that its pods receive."""
        if share != self.share:
            self.advance()
            self.share = share
            self._schedule_end()

    def request(self, number: int) -> None:
        """Request checkpoint `number`, as an annotation of its pods does."""
        if self.spec.saving is Saving.ON_REQUEST and number > self._requested:
            self._requested = number
            self._schedule_answer()

    def hang(self) -> None:
        """Make the training hang: it never trains again after the next restart."""
        self._hangs = True

    def lose_log(self) -> None:
        """Drop the unread lines, as the pod that printed them is gone."""
        self.lines.clear()

    def save(self) -> None:
        """Save all whole steps now."""
        self.advance()
        self.saved = int(self.done)

    # --- time -------------------------------------------------------------------------------------

    def advance(self) -> None:
        """Advance the training to the current second, and print the lines until then."""
        now, speed = self._clock.now, self.speed
        passed = now - self._since
        if passed <= 0:
            return
        self.spent[self.doing] += passed
        if speed:
            self.busy += passed * self.share
            before, self.done = self.done, min(self.done + speed * passed, self.spec.steps)
            if self.spec.saving is Saving.PERIODIC:
                self._save_periodically(before, speed)
            while self._print_at <= now:
                step = min(before + speed * (self._print_at - self._since), self.spec.steps)
                self._print(self._print_at, self._progress(step))
                self._print_at += self.spec.prints
            self.lines.sort(key=lambda line: line.at)
        self._since = now

    def _save_periodically(self, before: float, speed: float) -> None:
        every = self.spec.every
        first, last = int(before // every) + 1, int(self.done // every)
        for number in range(max(first, last - 1), last + 1):
            at = self._since + (number * every - before) / speed
            self._print(at, f"saved checkpoint to out/step-{number * every}.pt")
        self.saved = max(self.saved, last * every)

    def _progress(self, step: float) -> str:
        spec = self.spec
        end = f"/{spec.steps}" if spec.shows_end else ""
        loss = math.exp2(-step / (spec.halves or spec.steps / 3))
        return f"step {int(step)}{end} loss={loss:.5f}"

    def _print(self, at: float, text: str) -> None:
        self.lines.append(LogLine(self._clock.wall + at - self._clock.now, text))

    def _become(self, doing: Doing) -> None:
        self.doing = doing
        self._epoch += 1

    def _restart(self) -> None:
        lost = self.done - self.saved
        self.lost += lost
        self.lost_all += 0.0 if self.saved else lost
        self.done = float(self.saved)

    def _begin(self, epoch: int) -> None:
        if epoch != self._epoch or self._hangs:
            return
        self.advance()
        self._become(Doing.TRAINS)
        self._record_size()
        if self.began is None:
            self.began = self._clock.now
        self._print_at = self._clock.now + 1
        if self.spec.saving is Saving.ON_REQUEST:
            self._print(self._clock.now, "kfext.checkpoint 0")
            self._schedule_answer()
        self._schedule_end()

    def _record_size(self) -> None:
        if self.doing is Doing.TRAINS:
            self.largest = max(self.largest, self.workers)

    def _schedule_end(self) -> None:
        speed = self.speed
        if speed:
            self._epoch += 1
            epoch = self._epoch
            self._clock.after((self.spec.steps - self.done) / speed, lambda: self._end(epoch))

    def _end(self, epoch: int) -> None:
        if epoch != self._epoch:
            return
        self.advance()
        self._become(Doing.IDLE)
        self.ended = True
        self._on_end()

    def _schedule_answer(self) -> None:
        if self._requested > self._answered and self.doing is Doing.TRAINS:
            self._clock.after(self.spec.answers, self._answer)

    def _answer(self) -> None:
        if self.doing is not Doing.TRAINS or self._requested == self._answered:
            return  # scheduled again at the next start
        self.save()
        self._answered = self._requested
        self._print(self._clock.now, f"kfext.checkpoint {self._answered}")
