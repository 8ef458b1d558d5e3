"""JSON patches (RFC 6902): the fewest operations that make wanted changes, and their effect."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from kfext.errors import Conflict
from kfext.model.kinds.job_kind import Items
from kfext.model.tolerant import mapping, text

Operation: TypeAlias = dict[str, Any]
"""One JSON-patch operation."""

Changes: TypeAlias = dict[str, Any]
"""The wanted changes as a merge patch (RFC 7386): None removes a member.

`Items` as a value change single objects of a list."""


class Unpatchable(ValueError):  # noqa: N818 - an answer more than an error
    """A parent of a wanted field is present, but no object or list; the message names it."""


def operations(document: Mapping[str, Any], changes: Changes) -> list[Operation]:
    """Return the operations that merge `changes` into `document`, as few as possible.

    Absent parents (and null parents, which Go writes for empty maps) are created in one operation.
    Raises Unpatchable.
    """
    return list(_merge(document, changes, path=""))


def _merge_items(
    document: Mapping[str, Any], key: str, wanted: Items, *, path: str
) -> Iterator[Operation]:
    """Yield the operations that change or add objects of a list; each position is tested first."""
    current = document.get(key)
    if current is None:
        yield write(document, key, path, _created_items(wanted))
        return
    if not isinstance(current, list | tuple):
        raise Unpatchable(f"{path} is no list")
    positions = {text(mapping(item).get(wanted.key)): i for i, item in enumerate(current)}
    for name, changes in wanted.changes.items():
        position = positions.get(name)
        if position is None:
            (created,) = _created_items(Items(wanted.key, {name: changes}))
            yield {"op": "add", "path": f"{path}/-", "value": created}
            continue
        item = f"{path}/{position}"
        if edits := list(_merge(current[position], changes, path=item)):
            yield {"op": "test", "path": item + pointer(wanted.key), "value": name}
            yield from edits


def pointer(*parts: str) -> str:
    """Return a JSON pointer (RFC 6901)."""
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in parts)


def _merge(document: Mapping[str, Any], changes: Changes, *, path: str) -> Iterator[Operation]:
    for key, wanted in changes.items():
        target, current = path + pointer(key), document.get(key)
        if wanted is None:
            if key in document:
                yield {"op": "remove", "path": target}
        elif isinstance(wanted, Items):
            yield from _merge_items(document, key, wanted, path=target)
        elif not isinstance(wanted, dict):
            # 1 == True in Python, but not in JSON.
            if type(current) is not type(wanted) or current != wanted:
                yield write(document, key, target, wanted)
        elif current is None:
            if created := _without_removals(wanted):
                yield write(document, key, target, created)
        elif isinstance(current, Mapping):
            yield from _merge(current, wanted, path=target)
        else:
            raise Unpatchable(f"{target} is no object")


def write(document: Mapping[str, Any], key: str, path: str, value: object) -> Operation:
    """Return the operation that sets the member `key` of an object; `path`: its JSON pointer."""
    return {"op": "replace" if key in document else "add", "path": path, "value": value}


def appended(present: object, value: object, *at: str) -> Operation:
    """Return the operation that appends a value to the list at a path, now `present` or None."""
    if present is None:
        return {"op": "add", "path": pointer(*at), "value": [value]}
    return {"op": "add", "path": pointer(*at, "-"), "value": value}


def _without_removals(changes: Changes) -> Changes:
    """Return the members to create for an absent object."""
    created = {key: _created_value(value) for key, value in changes.items()}
    return {key: value for key, value in created.items() if value not in (None, {})}


def _created_value(value: object) -> object:
    if isinstance(value, Items):
        return _created_items(value)
    return _without_removals(value) if isinstance(value, dict) else value


def _created_items(items: Items) -> list[Changes]:
    """Return the objects to create for an absent list."""
    return [
        {items.key: name, **_without_removals(changes)} for name, changes in items.changes.items()
    ]


def patched(document: Any, patch: Iterable[Operation]) -> Any:
    """Return a copy of a JSON value after a patch.

    Raises Conflict if a test fails or a path does not exist.
    """
    changed = json.loads(json.dumps(document))  # much faster than copy.deepcopy
    for operation in patch:
        try:
            _apply(changed, operation)
        except (LookupError, ValueError) as error:
            message = f"{operation} fails: {error!r}"
            raise Conflict(status=409, reason="Conflict", message=message) from None
    return changed


def _apply(document: Any, operation: Operation) -> None:
    op, value = operation["op"], operation.get("value")
    if op == "move":
        source, moved = _parent(document, operation["from"])
        op, value = "add", source.pop(moved)
    holder, last = _parent(document, operation["path"])
    in_list = isinstance(holder, list)
    if op == "add" and in_list:
        holder.insert(len(holder) if last == "-" else int(last), value)
        return
    key = int(last) if in_list else last
    if op == "add":
        holder[key] = value
        return
    current = holder[key]
    if op == "remove":
        del holder[key]
    elif op == "replace":
        holder[key] = value
    elif op != "test" or current != value:
        raise ValueError(current)


def _parent(document: Any, path: str) -> tuple[Any, str]:
    """Return the object or list with the member at a JSON pointer, and the name of the member."""
    *parents, last = (part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:])
    for part in parents:
        document = document[int(part)] if isinstance(document, list) else document[part]
    return document, last
