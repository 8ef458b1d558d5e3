"""JSON patches, compared with the library jsonpatch."""

import copy
from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.core.patches.json_patch import Operation, Unpatchable, operations, patched, pointer
from kfext.errors import Conflict
from tests.unit.objects import json_values

members = st.sampled_from(["a", "b", "x/y", "m~n", ""])
documents = st.dictionaries(members, json_values | st.dictionaries(members, json_values))
changes = st.recursive(
    st.none() | st.booleans() | st.integers(0, 1) | st.sampled_from(["s", "t"]),
    lambda inner: st.dictionaries(members, inner, max_size=3),
    max_leaves=6,
)


def merged(document: Any, wanted: Any) -> Any:
    """A merge patch as in RFC 7386, except that an empty object creates no member."""
    if not isinstance(wanted, dict):
        return wanted
    result = dict(document) if isinstance(document, dict) else {}
    for key, value in wanted.items():
        if value is None:
            result.pop(key, None)
        elif (new := merged(result.get(key), value)) != {} or isinstance(result.get(key), dict):
            result[key] = new
    return result


@given(document=documents, wanted=st.dictionaries(members, changes))
def test_a_patch_makes_the_wanted_changes_and_no_more(
    document: dict[str, Any], wanted: dict[str, Any]
) -> None:
    before = copy.deepcopy(document)
    try:
        ops = operations(document, wanted)
    except Unpatchable:
        return
    assert document == before
    after = jsonpatch.apply_patch(document, ops)
    assert after == merged(document, wanted)
    assert operations(after, wanted) == []
    assert len({op["path"] for op in ops}) == len(ops)


POINTERS = {
    "plain": (("metadata", "name"), "/metadata/name"),
    "a slash": (("a", "kfext.dev/held"), "/a/kfext.dev~1held"),
    "a tilde": (("a~b",), "/a~0b"),
    "both, in this order": (("~1",), "/~01"),
    "an empty member": (("",), "/"),
}


@pytest.mark.parametrize(("parts", "want"), POINTERS.values(), ids=POINTERS)
def test_pointers_are_escaped(parts: tuple[str, ...], want: str) -> None:
    assert pointer(*parts) == want


def test_absent_parents_are_created_in_one_operation() -> None:
    assert operations({"a": None}, {"a": {"b": {"c": "d", "e": None}}}) == [
        {"op": "replace", "path": "/a", "value": {"b": {"c": "d"}}}
    ]


def test_true_is_not_one() -> None:
    assert operations({"suspend": 1}, {"suspend": True}) == [
        {"op": "replace", "path": "/suspend", "value": True}
    ]


@pytest.mark.parametrize("parent", [[], "text", 3, False])
def test_a_parent_of_another_type_is_not_overwritten(parent: object) -> None:
    with pytest.raises(Unpatchable, match="/a is no object"):
        operations({"a": parent}, {"a": {"b": "c"}})


# --- the effect of a patch --------------------------------------------------------------------

RAW: dict[str, Any] = {"a": {"b/c": 1, "list": [1, 2, 3]}, "n": None}
PATCHES: dict[str, Operation] = {
    "a member is added": {"op": "add", "path": "/a/new", "value": {"x": 1}},
    "an existing member is replaced by add": {"op": "add", "path": "/a/b~1c", "value": 2},
    "an item is inserted": {"op": "add", "path": "/a/list/1", "value": 9},
    "an item is appended": {"op": "add", "path": "/a/list/-", "value": 9},
    "a member is replaced": {"op": "replace", "path": "/a/b~1c", "value": 2},
    "an item is replaced": {"op": "replace", "path": "/a/list/0", "value": 9},
    "a member is removed": {"op": "remove", "path": "/a/b~1c"},
    "an item is removed": {"op": "remove", "path": "/a/list/0"},
    "a member is moved": {"op": "move", "from": "/a/b~1c", "path": "/a/moved"},
    "the source of a move is absent": {"op": "move", "from": "/a/x", "path": "/a/moved"},
    "a test holds": {"op": "test", "path": "/a/b~1c", "value": 1},
    "a test of null holds": {"op": "test", "path": "/n", "value": None},
    "a test fails": {"op": "test", "path": "/a/b~1c", "value": 2},
    "a test of an absent member fails": {"op": "test", "path": "/a/x", "value": None},
    "a parent is absent": {"op": "add", "path": "/x/y", "value": 1},
    "the target of a replace is absent": {"op": "replace", "path": "/a/x", "value": 1},
    "the target of a remove is absent": {"op": "remove", "path": "/a/x"},
    "an item is absent": {"op": "remove", "path": "/a/list/3"},
}


@pytest.mark.parametrize("operation", PATCHES.values(), ids=PATCHES)
def test_a_patch_has_the_result_of_jsonpatch(operation: Operation) -> None:
    before = {"a": {"b/c": 1, "list": [1, 2, 3]}, "n": None}
    try:
        want = jsonpatch.apply_patch(RAW, [operation])
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException):
        with pytest.raises(Conflict):
            patched(RAW, [operation])
    else:
        assert patched(RAW, [operation]) == want
    assert before == RAW
