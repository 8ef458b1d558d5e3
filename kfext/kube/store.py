"""The local copy of a collection: what an informer has seen, by uid and by name."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Key:
    """What identifies an object: a name may be used again, a uid never is."""

    uid: str
    namespace: str
    name: str


class Store(Generic[T]):
    """Values by uid, with look-ups by namespace and name (namespace "" for nodes)."""

    def __init__(self) -> None:
        self._values: dict[str, tuple[Key, T]] = {}
        self._uids: dict[tuple[str, str], str] = {}

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[T]:
        return (value for _, value in self._values.values())

    def uids(self) -> list[str]:
        """Return the uids of all objects, as a new list."""
        return list(self._values)

    def by_uid(self, uid: str) -> T | None:
        """Return the object with this uid."""
        found = self._values.get(uid)
        return found[1] if found else None

    def by_name(self, name: str, *, namespace: str = "") -> T | None:
        """Return the object that has this name now."""
        return self.by_uid(self._uids.get((namespace, name), ""))

    def put(self, key: Key, value: T) -> T | None:
        """Store a value; return the value that it replaces."""
        old = self._values.get(key.uid)
        # The key stored first is kept: it is equal, and the tables share its strings.
        kept = old[0] if old else key
        self._values[key.uid] = (kept, value)
        self._uids[kept.namespace, kept.name] = kept.uid
        return old[1] if old else None

    def remove(self, uid: str) -> T | None:
        """Forget an object; return its last value."""
        found = self._values.pop(uid, None)
        if found is None:
            return None
        key, value = found
        # A new object of the same name may have been stored before the old one was removed.
        if self._uids.get((key.namespace, key.name)) == uid:
            del self._uids[key.namespace, key.name]
        return value
