"""Read the fields of foreign objects: use the valid values, and never raise."""

import json
from collections.abc import Mapping, Sequence
from typing import Any


def mapping(value: object) -> Mapping[str, Any]:
    """Return `value` if it is a mapping, else an empty mapping."""
    return value if isinstance(value, Mapping) else {}


def json_object(written: str) -> Mapping[str, Any]:
    """Return the JSON object in a text, else an empty object."""
    try:
        return mapping(json.loads(written))
    except (ValueError, RecursionError):
        return {}


def member(value: object, path: Sequence[str]) -> object:
    """Return the value at a path of keys in nested mappings, or None."""
    for key in path:
        value = mapping(value).get(key)
    return value


def controller_in(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the owner reference of an object's controller; empty if it has none."""
    owners = map(mapping, sequence(metadata.get("ownerReferences")))
    return next((owner for owner in owners if owner.get("controller") is True), {})


def sequence(value: object) -> Sequence[Any]:
    """Return `value` if it is a list or tuple, else an empty tuple."""
    return value if isinstance(value, list | tuple) else ()


def text(value: object) -> str:
    """Return `value` if it is a string, else an empty string."""
    return value if isinstance(value, str) else ""


def index_in(value: str) -> int | None:
    """Return the index of a replica in a label or a name, or None for any other text.

    Anyone can write these, so an index has at most six digits: it decides what is allocated.
    """
    return int(value) if value.isascii() and value.isdigit() and len(value) <= 6 else None


def strings(value: object) -> dict[str, str]:
    """Return the entries of a mapping with a string as key and as value, such as labels."""
    return {k: v for k, v in mapping(value).items() if isinstance(k, str) and isinstance(v, str)}
