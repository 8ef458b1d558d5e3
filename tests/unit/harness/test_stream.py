"""What the proxy knows of a watch that passes it."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2e.harness.faults import Exchange
from e2e.harness.proxy import Stream


def event(kind: str, uid: str, version: int) -> bytes:
    metadata = {"uid": uid, "resourceVersion": str(version)}
    return json.dumps({"type": kind, "object": {"metadata": metadata}}).encode() + b"\n"


TOLD = event("ADDED", "one", 11) + event("DELETED", "two", 13) + event("MODIFIED", "one", 12)


def stream(plural: str) -> Stream:
    return Stream(Exchange("GET", f"/api/v1/{plural}", {"watch": "true", "resourceVersion": "10"}))


@given(cuts=st.sets(st.integers(1, len(TOLD) - 1)))
def test_however_the_news_is_cut_all_of_it_is_noted(cuts: set[int]) -> None:
    followed = stream("nodes")
    ends = [0, *sorted(cuts), len(TOLD)]
    for start, end in pairwise(ends):
        followed.note(TOLD[start:end])
    assert (followed.version, followed.gone) == (13, {"two"})


@pytest.mark.parametrize("plural", ["nodes", "pods"])
def test_a_watch_begins_where_its_list_ended(plural: str) -> None:
    assert stream(plural).version == 10


def test_an_error_event_changes_nothing() -> None:
    followed = stream("nodes")
    followed.note(b'{"type": "ERROR", "object": {"kind": "Status", "code": 410}}\n')
    assert (followed.version, followed.gone) == (10, set())


def test_what_is_not_followed_is_not_read() -> None:
    unread = stream("pods")
    unread.note(b"not even JSON\n")
    assert unread.version == 10
