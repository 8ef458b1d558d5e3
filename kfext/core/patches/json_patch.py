"""From wanted changes to the fewest JSON-patch operations (RFC 6902) that make them."""

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

Operation: TypeAlias = dict[str, Any]
"""One JSON-patch operation."""

Changes: TypeAlias = dict[str, Any]
"""The wanted changes as a merge patch (RFC 7386): None removes a member."""


class Unpatchable(ValueError):  # noqa: N818 - an answer more than an error
    """A parent of a wanted field is neither absent nor an object; the message names it."""


def operations(document: Mapping[str, Any], changes: Changes) -> list[Operation]:
    """Return the operations that merge `changes` into `document`; none if it has them already.

    Absent parents (and null ones, which Go writes for empty maps) are created in one operation.
    Raises Unpatchable.
    """
    return list(_merge(document, changes, path=""))


def pointer(*parts: str) -> str:
    """Return a JSON pointer (RFC 6901)."""
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in parts)


def _merge(document: Mapping[str, Any], changes: Changes, *, path: str) -> Iterator[Operation]:
    for key, wanted in changes.items():
        here, current = path + pointer(key), document.get(key)
        if wanted is None:
            if key in document:
                yield {"op": "remove", "path": here}
        elif not isinstance(wanted, dict):
            # 1 == True in Python, but not in JSON.
            if type(current) is not type(wanted) or current != wanted:
                yield write(document, key, here, wanted)
        elif current is None:
            if made := _without_removals(wanted):
                yield write(document, key, here, made)
        elif isinstance(current, Mapping):
            yield from _merge(current, wanted, path=here)
        else:
            raise Unpatchable(f"{here} is no object")


def write(document: Mapping[str, Any], key: str, path: str, value: object) -> Operation:
    """Return the operation that sets the member `key`, at `path`, of a document."""
    return {"op": "replace" if key in document else "add", "path": path, "value": value}


def appended(present: object, value: object, *at: str) -> Operation:
    """Return the operation that appends a value to the list `present`, or creates the list."""
    if present is None:
        return {"op": "add", "path": pointer(*at), "value": [value]}
    return {"op": "add", "path": pointer(*at, "-"), "value": value}


def _without_removals(changes: Changes) -> Changes:
    """Return what to create for an absent object."""
    made = {
        key: _without_removals(value) if isinstance(value, dict) else value
        for key, value in changes.items()
    }
    return {key: value for key, value in made.items() if value not in (None, {})}
