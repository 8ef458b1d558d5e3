"""How deep JSON may be nested: as deep as the API server takes and returns it.

Whoever may create an object decides on its `managedFields`, which are JSON of any depth. Decoders
count in Python's limit of recursion, and its default of 1,000 would make such an object, and each
list that it is in, unreadable.
"""

import sys

API_SERVER_DEPTH = 10_000
"""The limit of Go's encoding/json, with which the API server decodes."""
_FRAMES = 2_000
"""For all else that is on the stack."""


def accept_deep_json() -> None:
    """Have this process decode whatever the API server returns."""
    sys.setrecursionlimit(API_SERVER_DEPTH + _FRAMES)
