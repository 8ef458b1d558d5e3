"""The newest lines of a container's log, each of them once.

The kubelet finds the last lines from the end of the file, at a cost that does not grow with it. Of
what it finds it sends the oldest bytes, so of long lines fewer are asked for. `sinceTime` is not
used: it has whole seconds and reads the file from its start. Files that were rotated are not read.
"""

import re
from collections.abc import Sequence

from kfext.kube import paths
from kfext.kube.client import Client
from kfext.model.log_line import LogLine
from kfext.model.timestamps import timestamp

MOST_LINES = 200
MOST_BYTES = 256 * 1024
"""Of one answer; a line of a progress bar has a few hundred bytes."""
_FEWER = 8
_STAMPED = re.compile(
    rb"(?m)^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)) (.*)$"
)
"""A container runtime stamps lines in the time zone of its node."""


class PodLog:
    """Reads the log of one container again and again."""

    def __init__(self, client: Client, namespace: str, pod: str, container: str) -> None:
        self._client = client
        self._path = paths.pods(namespace, pod, "log")
        self._container = container
        self._lines = MOST_LINES
        self._last = ""

    async def read(self) -> list[LogLine]:
        """Return the lines since the last call, of which only the newest if there are many.

        Raises ApiError: BadRequest before the container has started, NotFound, Forbidden.
        """
        while True:
            body = await self._client.read(
                self._path,
                container=self._container,
                timestamps="true",
                tailLines=str(self._lines),
                limitBytes=str(MOST_BYTES),
            )
            if len(body) < MOST_BYTES or self._lines == 1:
                break
            self._lines = max(1, self._lines // _FEWER)  # the newest bytes are missing
        if len(body) < MOST_BYTES // _FEWER:
            self._lines = min(MOST_LINES, self._lines * 2)
        lines = lines_of(body)
        fresh = newer(lines, self._last)
        if lines:
            self._last = lines[-1].stamp
        return fresh


def lines_of(body: bytes) -> list[LogLine]:
    """Return the lines of an answer with timestamps; one that is cut off at its start has none."""
    found = []
    for stamp, text in _STAMPED.findall(body):
        stated = stamp.decode()
        found.append(LogLine(timestamp(stated), text.decode(errors="replace"), stated))
    return found


def newer(lines: Sequence[LogLine], last: str) -> list[LogLine]:
    """Return the lines after the one with a timestamp, which is empty before the first read.

    Without that line, those with a later time; all of them if the node's clock was set back.
    """
    for index in range(len(lines) - 1, -1, -1):
        if lines[index].stamp == last:
            return list(lines[index + 1 :])
    if not last or not lines:
        return list(lines)
    known = timestamp(last)
    if lines[-1].at < known:
        return list(lines)
    return [line for line in lines if line.at > known]
