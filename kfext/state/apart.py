"""Which jobs are not placed on one GPU again, as they lost too much to each other.

The job that had to leave has that in its state. It holds for both of them: which one comes back to
the other does not matter. A job that had to leave as many as its state can hold shares no GPU.
"""

from collections.abc import Set as AbstractSet

from kfext.model.job_state import MOST_APART


class Apart:
    """By uid, the jobs that must not share a GPU again; looked up, not searched for."""

    def __init__(self) -> None:
        self._left: dict[str, tuple[str, ...]] = {}
        self._leavers: dict[str, set[str]] = {}
        self._alone: set[str] = set()

    def note(self, job_uid: str, left: tuple[str, ...]) -> None:
        """Take in beside which jobs a job had to leave a GPU; it replaces what was known of it."""
        before = self._left.pop(job_uid, ())
        self._alone.discard(job_uid)
        if left:
            self._left[job_uid] = left
        if len(left) >= MOST_APART:
            self._alone.add(job_uid)
        for other in {*before}.difference(left):
            self._drop(other, job_uid)
        for other in {*left}.difference(before):
            self._leavers.setdefault(other, set()).add(job_uid)

    def forget(self, job_uid: str) -> None:
        """Take in that a job is gone."""
        self.note(job_uid, ())
        self._leavers.pop(job_uid, None)

    def of(self, job_uid: str) -> AbstractSet[str]:
        """Return the jobs beside which a job is not placed again: some of them may be gone."""
        alone = self._alone - {job_uid}
        return {*self._left.get(job_uid, ()), *self._leavers.get(job_uid, ()), *alone}

    def alone(self, job_uid: str) -> bool:
        """Return whether a job is placed beside no other job any more."""
        return job_uid in self._alone

    def _drop(self, other: str, leaver: str) -> None:
        leavers = self._leavers.get(other, set())
        leavers.discard(leaver)
        if not leavers:
            self._leavers.pop(other, None)
