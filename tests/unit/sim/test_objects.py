"""JSON patches as the API server applies them: jsonpatch says what is right."""

from typing import Any

import jsonpatch
import pytest

from kfext.core.patches.json_patch import Operation
from kfext.errors import Conflict
from kfext.sim.objects import patched

RAW: dict[str, Any] = {"a": {"b/c": 1, "list": [1, 2, 3]}, "n": None}
PATCHES: dict[str, Operation] = {
    "a member is added": {"op": "add", "path": "/a/new", "value": {"x": 1}},
    "a member that is there is replaced by add": {"op": "add", "path": "/a/b~1c", "value": 2},
    "an item is inserted": {"op": "add", "path": "/a/list/1", "value": 9},
    "an item is appended": {"op": "add", "path": "/a/list/-", "value": 9},
    "a member is replaced": {"op": "replace", "path": "/a/b~1c", "value": 2},
    "an item is replaced": {"op": "replace", "path": "/a/list/0", "value": 9},
    "a member is removed": {"op": "remove", "path": "/a/b~1c"},
    "an item is removed": {"op": "remove", "path": "/a/list/0"},
    "a test holds": {"op": "test", "path": "/a/b~1c", "value": 1},
    "a test of null holds": {"op": "test", "path": "/n", "value": None},
    "a test fails": {"op": "test", "path": "/a/b~1c", "value": 2},
    "a test of a member that is absent fails": {"op": "test", "path": "/a/x", "value": None},
    "a parent is absent": {"op": "add", "path": "/x/y", "value": 1},
    "what is replaced is absent": {"op": "replace", "path": "/a/x", "value": 1},
    "what is removed is absent": {"op": "remove", "path": "/a/x"},
    "an item is absent": {"op": "remove", "path": "/a/list/3"},
}


@pytest.mark.parametrize("operation", PATCHES.values(), ids=PATCHES)
def test_a_patch_does_what_jsonpatch_does(operation: Operation) -> None:
    before = {"a": {"b/c": 1, "list": [1, 2, 3]}, "n": None}
    try:
        want = jsonpatch.apply_patch(RAW, [operation])
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException):
        with pytest.raises(Conflict):
            patched(RAW, [operation])
    else:
        assert patched(RAW, [operation]) == want
    assert before == RAW
