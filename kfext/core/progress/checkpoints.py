"""What the log of a job shows of its checkpoints: the last complete one, and its answers."""

from dataclasses import dataclass, replace
from typing import assert_never

from kfext.core.progress.saving import Saving, answer_of, saving
from kfext.model.log_line import LogLine


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """The checkpoints of a job, each part None while the log has not shown it.

    `saved`: the time of the line that announced or confirmed the last complete one, in epoch
        seconds.
    `step`: the step of the training at that line.
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
        self._begun: Checkpoints | None = None

    def take(self, line: LogLine, *, step: int | None, now: float) -> None:
        """Take in a line; `step` is that of the training by now, `now` the reader's epoch seconds.

        Clocks jump, so no checkpoint is older than the one before it nor newer than the reader.
        """
        answer = answer_of(line.text)
        said = Saving.COMPLETE if answer else saving(line.text)
        if answer is not None:
            self.seen = replace(self.seen, answered=max(answer, self.seen.answered or 0))
        if said is None:
            return
        at = min(max(line.at, self.seen.saved or line.at), now)
        found = replace(self.seen, saved=at, step=step)
        match said:
            case Saving.BEGUN:
                self._begun = found
            case Saving.COMPLETE:
                self.seen, self._begun = found, None
            case _:
                assert_never(said)

    def goes_on(self) -> None:
        """Take in that the training goes on: a checkpoint that was begun before is complete.

        It has the time at which it was begun, since later work is not in it.
        """
        if self._begun is not None:
            self.seen = replace(self._begun, answered=self.seen.answered)
            self._begun = None

    def restarted(self) -> None:
        """Take in that the job began anew: a checkpoint that was being written may be broken."""
        self._begun = None
