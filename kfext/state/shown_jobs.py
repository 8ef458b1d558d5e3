"""What is to be shown of the jobs that a part of the companion follows, as far as it is news."""

from collections.abc import Collection, Mapping
from typing import Protocol

from kfext.core.companion.policy import Shown
from kfext.state.tracked_job import TrackedJob


class Followed(Protocol):
    """A job that is followed; `shown`: what its TrainingPlan shows."""

    tracked: TrackedJob
    shown: Shown | None


class ShownJobs:
    """The jobs of which something else is to be shown than before."""

    def __init__(self) -> None:
        self._news: dict[str, tuple[TrackedJob, Shown | None]] = {}
        self._left: set[str] = set()

    def show(self, one: Followed, shown: Shown | None) -> None:
        """Set what to show of a job; None: nothing."""
        if shown != one.shown:
            one.shown = shown
            self._news[one.tracked.job.uid] = one.tracked, shown

    def hide(self, tracked: TrackedJob) -> None:
        """Show nothing of a job, of which an earlier controller may have shown something."""
        self._news[tracked.job.uid] = tracked, None

    def follow(self, followed: Collection[str], among: Mapping[str, TrackedJob]) -> None:
        """Take in which jobs of all are followed, by their uids, and hide the others once."""
        left = {uid for uid, one in among.items() if not one.busy}.difference(followed)
        for uid in left - self._left:
            self.hide(among[uid])
        self._left = left

    def news(self) -> list[tuple[TrackedJob, Shown | None]]:
        """Return the jobs of which something else is to be shown since the last call."""
        news, self._news = self._news, {}
        return list(news.values())
