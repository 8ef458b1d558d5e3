"""Jobs that wait for something of which there is little: their namespaces take turns."""

from collections import deque


class Turns:
    """The uids of jobs that wait, first come first served within a namespace."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[str]] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, namespace: str, uid: str) -> None:
        """Have a job wait behind the others of its namespace."""
        self._waiting.setdefault(namespace, deque()).append(uid)

    def add_first(self, namespace: str, uid: str) -> None:
        """Have a job wait before the others of its namespace."""
        self._waiting.setdefault(namespace, deque()).appendleft(uid)

    def next(self) -> str:
        """Remove and return the first job of the namespace whose turn it is."""
        namespace, uids = next(iter(self._waiting.items()))
        del self._waiting[namespace]
        uid = uids.popleft()
        if uids:
            self._waiting[namespace] = uids  # behind all other namespaces
        return uid
