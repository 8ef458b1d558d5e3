"""What the log of a job shows of its checkpoints: the last complete one, and its answers."""

from dataclasses import dataclass, replace
from typing import assert_never

from kfext.core.progress.saving import Begun, Complete, answer_of, saving, tells_failure
from kfext.model.log_line import LogLine


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """The checkpoints of a job, each part None while the log has not shown it.

    `saved`: when the last complete checkpoint was written, in epoch seconds; if the training went
        on meanwhile, when its save began, as later work is not in it.
    `step`: the step of the training then.
    `answered`: the largest number with which the job has answered a request, 0 if it has only
        printed that it listens.
    """

    saved: float | None = None
    step: int | None = None
    answered: int | None = None

    @property
    def shown(self) -> bool:
        """Whether the log has shown anything of checkpoints."""
        return self.saved is not None or self.answered is not None


class CheckpointLog:
    """Follows one job by its lines in the order printed. `seen`: what they have shown so far."""

    def __init__(self) -> None:
        self.seen = Checkpoints()
        self._begun: tuple[Begun, float, int | None] | None = None
        self._last = ""

    def take(self, line: LogLine, *, step: int | None, now: float) -> None:
        """Take in a line; `step` is that of the training by now, `now` the reader's epoch seconds.

        Clocks jump, so no checkpoint is older than the one before it nor newer than the reader.
        """
        at = min(max(line.at, self.seen.saved or line.at), now)
        answer = answer_of(line.text)
        if answer is not None:
            self.seen = replace(self.seen, answered=max(answer, self.seen.answered or 0))
            if answer:
                self.seen = replace(self.seen, saved=at, step=step)
            return
        said = saving(line.text)
        match said:
            case Begun():
                self._begun = said, at, step
            case Complete():
                self._complete(said, at, step)
            case None:
                if self._begun is not None and tells_failure(line.text):
                    self._begun = None
            case _:
                assert_never(said)

    def _complete(self, said: Complete, at: float, step: int | None) -> None:
        """Register a checkpoint that is complete.

        Where the training may have gone on meanwhile, the checkpoint is as old as the begin of its
        save. Without that line it counts only if no step after the one that it names was shown.
        The same message again, of a checkpoint with a number, is a status line about an old one.
        """
        if said.message == self._last and said.is_numbered:
            return
        begun = self._begun
        if begun is not None and begun[0].form is said.form:
            first, at, step = begun
            if said.save and first.save != said.save:
                return
            self._begun = None
        elif said.form.begun and not (
            said.save.isdecimal() and (step is None or int(said.save) >= step)
        ):
            return
        if self.seen.saved is None or at >= self.seen.saved:
            self.seen, self._last = replace(self.seen, saved=at, step=step), said.message

    def restarted(self) -> None:
        """Take in that the job began anew: a checkpoint that was being written may be broken."""
        self._begun, self._last = None, ""
