"""The newest lines of a container's log, each line once.

The kubelet searches the last lines from the end of the file, at a cost that does not grow with the
file. It sends the oldest bytes of these lines, so kfext requests fewer lines if they are long.
`sinceTime` is not used: it has whole seconds and reads the file from its start. Rotated files are
not read.
"""

import re
from collections.abc import Sequence

from kfext.kube import paths
from kfext.kube.client import Client
from kfext.model.log_line import LogLine
from kfext.model.timestamps import timestamp

MAX_LINES = 200
MAX_BYTES = 256 * 1024
"""The most bytes of a response; a line of a progress bar has a few hundred bytes."""
_SHRINK = 8
"""The next request after a body that was too long asks for an eighth of the lines."""
_STAMPED = re.compile(
    rb"(?m)^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)) (.*)$"
)
"""A line with its timestamp, which a container runtime writes in the time zone of its node."""


class PodLog:
    """Reads the new lines of the log of one container at each call."""

    def __init__(self, client: Client, namespace: str, pod: str, container: str) -> None:
        self._client = client
        self._path = paths.pods(namespace, pod, "log")
        self._container = container
        self._lines = MAX_LINES
        self._last = ""

    async def read(self) -> list[LogLine]:
        """Return the lines since the last call; only the newest lines if there are many.

        Raises ApiError: BadRequest before the container has started, NotFound, Forbidden.
        """
        while True:
            body = await self._client.read(
                self._path,
                container=self._container,
                timestamps="true",
                tailLines=str(self._lines),
                limitBytes=str(MAX_BYTES),
            )
            if len(body) < MAX_BYTES or self._lines == 1:
                break
            self._lines = max(1, self._lines // _SHRINK)  # the newest bytes are missing
        if len(body) < MAX_BYTES // _SHRINK:
            self._lines = min(MAX_LINES, self._lines * 2)
        lines = lines_of(body)
        new = newer(lines, self._last)
        if lines:
            self._last = lines[-1].stamp
        return new


def lines_of(body: bytes) -> list[LogLine]:
    """Return the lines of a response that have timestamps: a line cut at its start has none."""
    lines = []
    for stamp, text in _STAMPED.findall(body):
        written = stamp.decode()
        lines.append(LogLine(timestamp(written), text.decode(errors="replace"), written))
    return lines


def newer(lines: Sequence[LogLine], last: str) -> list[LogLine]:
    """Return the lines after the line with the timestamp `last`; all lines for an empty `last`.

    If that line is gone, return the later lines; all lines if the node's clock was set back.
    """
    for index in range(len(lines) - 1, -1, -1):
        if lines[index].stamp == last:
            return list(lines[index + 1 :])
    if not last or not lines:
        return list(lines)
    last_at = timestamp(last)
    if lines[-1].at < last_at:
        return list(lines)
    return [line for line in lines if line.at > last_at]
