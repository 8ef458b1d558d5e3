"""Errors of ours that are about one job: they are kept for the log, and the other jobs go on."""

from collections.abc import Iterator
from contextlib import contextmanager

from kfext.state.tracked_job import TrackedJob


class Failures:
    """The errors since they were last taken, each with the job that it was about."""

    def __init__(self) -> None:
        self._found: list[tuple[TrackedJob, Exception]] = []

    @contextmanager
    def about(self, tracked: TrackedJob) -> Iterator[None]:
        """Leave what is done for a job in this context when it fails."""
        try:
            yield
        except Exception as error:
            self._found.append((tracked, error))

    def take(self) -> list[tuple[TrackedJob, Exception]]:
        """Return them, and forget them."""
        found, self._found = self._found, []
        return found
