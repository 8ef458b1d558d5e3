"""Sends dry runs of jobs continuously, and counts the outcomes of their reviews."""

import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from e2e.harness.kfext_process import Kfext
from e2e.harness.wait import until

_THREADS = 4
_FAILED_OPEN = re.compile(r"^apiserver_admission_webhook_fail_open_count\{(.*)\} (\d+)", re.M)


class Reviews:
    """The outcomes of dry runs of jobs, sent by several threads at once."""

    def __init__(self, kfext: Kfext) -> None:
        self._kfext = kfext
        self._outcomes: list[str] = []
        self._ending = threading.Event()
        self._failed_before = failed_open(kfext)

    @property
    def outcomes(self) -> Counter[str]:
        return Counter(self._outcomes)

    @property
    def failed_open(self) -> int:
        """The number of jobs that the API server admitted without a review."""
        return failed_open(self._kfext) - self._failed_before

    def wait_more(self, count: int = 20) -> None:
        """Wait for `count` more outcomes, which show the effects of earlier events."""
        target = len(self._outcomes) + count
        until(lambda: len(self._outcomes) >= target, what=f"{count} more reviews")

    def _send(self) -> None:
        while not self._ending.wait(0.02):
            self._outcomes.append(self._kfext.trial.job())


@contextmanager
def running_reviews(kfext: Kfext) -> Iterator[Reviews]:
    """Send dry runs of jobs until the block ends."""
    reviews = Reviews(kfext)
    threads = [threading.Thread(target=reviews._send) for _ in range(_THREADS)]
    for thread in threads:
        thread.start()
    try:
        reviews.wait_more()
        yield reviews
    finally:
        reviews._ending.set()
        for thread in threads:
            thread.join()


def failed_open(kfext: Kfext) -> int:
    """Return the API server's count of jobs that it admitted because their review failed."""
    text = kfext.kube.ask("GET", "/metrics").body
    return sum(int(n) for labels, n in _FAILED_OPEN.findall(text) if "jobs.kfext.dev" in labels)
