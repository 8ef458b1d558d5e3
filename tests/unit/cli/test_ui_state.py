"""The state of the page from TrainingPlans, nodes and capacity, and its changes."""

import json
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kfext import names
from kfext.cli.gpus import card_view
from kfext.cli.jobs import top_lines, top_of
from kfext.cli.ui_state import (
    Capacity,
    JobView,
    State,
    change,
    job_view,
    note,
    parse_capacity,
    state_of,
)
from kfext.core.queue.expected import ExpectedStart, encode_expected, sentence
from kfext.model.timestamps import written_time
from tests.builders import node
from tests.unit.cli.test_gpus import HIGH, card

NOW = 1_800_000_000.0
GPU = names.NATIVE_GPU
Raw = dict[str, Any]


def plan(name: str = "train", *, uid: str = "1", **status: Any) -> Raw:
    return {
        "metadata": {
            "namespace": "team",
            "resourceVersion": "7",
            "creationTimestamp": written_time(NOW - 600),
        },
        "spec": {"job": {"kind": "PyTorchJob", "name": name, "uid": uid}},
        "status": {"phase": "Placed", "workers": 2, **status},
    }


def view(**status: Any) -> JobView:
    return job_view(plan(**status), now=NOW)


def shown(*views: JobView, **parts: Any) -> State:
    objects: Raw = {"nodes": [], "capacity": Capacity(), **parts}
    return state_of(views, **objects, notes=[], scope="", at=NOW, heard=NOW)


PROGRESS = {
    "metric": "loss",
    "value": 0.25,
    "step": 40,
    "totalSteps": 100,
    "secondsLeft": 300,
    "stepsPerSecond": 1.5,
    "time": written_time(NOW - 10),
}


def test_a_running_job_has_the_cells_of_top() -> None:
    raw = plan(progress=PROGRESS)
    row = job_view(raw, now=NOW).row
    head, line = top_lines(top_of([raw], sort="left", now=NOW), "")
    cells = row["cells"]
    assert [cell for cell in cells.values() if cell] == [
        *(word for word in line.split()[2:] if word in cells.values())
    ]
    assert set(cells) == {*head.split()} - {"JOB", "REPORTED"}
    assert (row["done"], row["speed"], row["ends"]) == (0.4, "1.5", NOW + 290)


def test_a_waiting_job_has_the_words_of_queue_and_explain() -> None:
    expected = ExpectedStart(NOW + 60, NOW + 30, NOW + 90)
    row = view(
        phase="Queued",
        reason="NoRoom",
        message="it needs 2 cpu; 1 cpu short; 3 jobs are ahead in the queue; its place follows",
        ahead=3,
        minimumWorkers=1,
        expectedStart=encode_expected(expected, now=NOW),
        requests={GPU: "1", "cpu": "500m"},
    ).row
    assert row["why"] == ["it needs 2 cpu", "1 cpu short"]
    assert row["place"] == ["3 jobs are ahead in the queue", "its place follows"]
    assert (row["ahead"], row["least"]) == (3, 1)
    assert row["starts"] == sentence(expected, now=NOW)
    assert row["asks"] == ["1 cpu", f"2 {GPU}"]
    assert row["requests"] == {GPU: 1, "cpu": 0.5}


PLACES: dict[str, tuple[Raw, list[list[Any]]]] = {
    "of this version": ({"places": [{"node": "a", "pods": 2}]}, [["a", 2]]),
    "of kfext 0.3, without numbers": ({"nodes": ["a", "b"]}, [["a", None], ["b", None]]),
    "malformed": ({"places": [{"node": 1, "pods": "x"}, 7]}, [["", None], ["", None]]),
}


@pytest.mark.parametrize(("status", "want"), PLACES.values(), ids=PLACES)
def test_the_nodes_of_a_job(status: Raw, want: list[list[Any]]) -> None:
    assert view(**status).row["places"] == want


def test_a_history_has_the_phase_after_each_entry_and_counts_changes() -> None:
    entry = {"time": written_time(NOW), "workers": 2, "nodes": ["a", "b"], "moreNodes": 3}
    history = [
        {**entry, "what": "Queued", "why": "1 cpu short"},
        {**entry, "what": "Scaled", "why": "", "times": 3},
        {**entry, "what": "Finished", "why": ""},
    ]
    result = view(history=history, curve="100,1,0.5;200,,0.25;300,7,")
    assert [entry["does"] for entry in result.history] == ["waits", "", "ended"]
    assert result.history[0]["nodes"] == "a, b and 3 more nodes"
    assert result.row["changes"] == 3
    assert result.details["curve"] == [[100, 1, 0.5], [200, None, 0.25], [300, 7, None]]


def test_conditions_are_shown_as_by_explain() -> None:
    condition = {"type": "Scaled", "status": "False", "reason": "StandsDown", "message": "no room"}
    result = view(
        message="as it is",
        conditions=[{**condition, "type": "Placed"} | {"message": "as it is"}, condition],
    )
    assert result.details["conditions"] == [["Scaled False", "StandsDown: no room"]]


HOSTILE = "<img src=x onerror=alert(1)>\x1b[2J\u202e\x00"


def test_texts_of_users_reach_the_page_without_characters_that_hide_text() -> None:
    raw = plan(HOSTILE, message=HOSTILE, progress={**PROGRESS, "metric": HOSTILE}, reason=HOSTILE)
    raw["status"]["history"] = [{"what": HOSTILE, "why": HOSTILE, "nodes": [HOSTILE]}]
    result = job_view(raw, now=NOW)
    written = json.dumps([result.row, result.details, result.history], ensure_ascii=False)
    assert "onerror" in written  # as text
    assert all(char.isprintable() for char in written)
    assert "\\u" not in written


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda item: (
        st.lists(item, max_size=3) | st.dictionaries(st.text(max_size=8), item, max_size=3)
    ),
    max_leaves=8,
)
FIELDS = st.sampled_from(
    [
        *("phase", "nodes", "places", "requests", "workers", "message", "ahead", "minimumWorkers"),
        *("progress", "history", "curve", "conditions", "expectedStart", "reason"),
    ]
)


@example(status={"workers": -(2**63) - 1, "places": [{"node": "a", "pods": 2**64}], "ahead": 2**65})
@given(status=st.dictionaries(FIELDS, JSON, max_size=6))
def test_no_malformed_status_hides_the_other_jobs(status: Raw) -> None:
    raw = plan()
    raw["status"] = status
    assert orjson.dumps(shown(job_view(raw, now=NOW)))


# --- nodes and capacity -------------------------------------------------------------------------


def test_a_node_shows_its_capacity_and_its_free_capacity_of_the_scarce_resource() -> None:
    nodes = [node("a", cpu="4", gpus=8, cordoned=True), node("b", cpu="4")]
    capacity = Capacity(free={"a": {"cpu": 1500, GPU: 3}, "b": {"cpu": 1500}})
    state = shown(view(requests={GPU: "1"}), nodes=nodes, capacity=capacity)
    assert state["unit"] == GPU
    a, b = state["nodes"].values()
    assert (a["resource"], a["has"], a["free"], a["state"]) == (GPU, 8, 3, "cordoned")
    assert (b["resource"], b["has"], b["free"], b["state"]) == ("cpu", 4, 1.5, "")


def test_nodes_that_may_not_be_listed_are_shown_without_capacity() -> None:
    state = shown(view(places=[{"node": "a", "pods": 2}], requests={GPU: "1", "cpu": "8"}))
    assert state["unit"] == GPU
    assert {name: (row["has"], row["free"]) for name, row in state["nodes"].items()} == {
        "a": (None, None)
    }


UNITS: dict[str, tuple[Raw, Raw, str]] = {
    "CPU in a cluster without GPUs": ({"cpu": "1"}, {"cpu": 8}, "cpu"),
    "GPUs where there are GPUs, though no job asks": ({"cpu": "1"}, {"cpu": 8, GPU: 1}, GPU),
    "the requested resource": ({"amd.com/gpu": "1"}, {GPU: 1, "amd.com/gpu": 1}, "amd.com/gpu"),
    "not a resource that no node has": ({"made.up/gpu": "9"}, {"cpu": 8}, "cpu"),
    "not the slots of shared GPUs": ({"kfext.dev/gpu-0": "50"}, {"kfext.dev/gpu-0": 100}, "cpu"),
}


@pytest.mark.parametrize(("requests", "has", "want"), UNITS.values(), ids=UNITS)
def test_the_resource_that_the_page_counts(requests: Raw, has: Raw, want: str) -> None:
    assert shown(view(requests=requests), capacity=Capacity({"a": has}))["unit"] == want


def test_a_shared_gpu_names_the_jobs_of_its_sharers() -> None:
    raw = card("a", 1, sharers=[{**HIGH, "pod": "train-2-worker-0"}, {**HIGH, "namespace": "x"}])
    views = [job_view(plan(name, uid=name), now=NOW) for name in ("train", "train-2")]
    state = shown(*views, cards=[card_view(raw)], nodes=[node("a", cpu="4", gpus=8)])
    ((first, second),) = [result["sharers"] for result in state["nodes"]["a"]["cards"]]
    assert (first["job"], first["percent"], second["job"]) == ("train-2", 50, "")
    assert first["cells"]["share"] == "50 %"


RECORDS: dict[str, tuple[str, Capacity]] = {
    "whole": (
        '{"nodes": {"a": {"allocatable": {"cpu": 4}, "free": {"cpu": 1}}},'
        ' "reservation": {"nodes": ["a"], "until": 12.5}}',
        Capacity({"a": {"cpu": 4}}, {"a": {"cpu": 1}}, {"nodes": ["a"], "until": 12.5}),
    ),
    "without a reservation": ('{"nodes": {}, "reservation": null}', Capacity()),
    "malformed": ("[1", Capacity()),
}


@pytest.mark.parametrize(("written", "want"), RECORDS.values(), ids=RECORDS)
def test_the_capacity_that_the_controller_writes(written: str, want: Capacity) -> None:
    assert parse_capacity({"capacity": written}) == want


# --- changes ------------------------------------------------------------------------------------


def apply_change(state: State, news: State) -> State:
    """The state after a change, as base.js computes it."""
    new = {**state, **news}
    for part in ("jobs", "nodes"):
        entries = {**state[part], **news.get(part, {})}
        new[part] = {key: value for key, value in entries.items() if value is not None}
    return new


ENTRIES = st.dictionaries(st.sampled_from("abcde"), st.fixed_dictionaries({"x": st.integers(0, 2)}))
STATES = st.fixed_dictionaries(
    {
        "jobs": ENTRIES,
        "nodes": ENTRIES,
        "at": st.integers(0, 2),
        "notes": st.lists(st.integers(0, 1), max_size=2),
        "reserved": st.none() | st.just({"nodes": ["a"]}),
    }
)


@given(old=STATES, new=STATES)
def test_a_change_turns_the_old_state_into_the_new_state(old: State, new: State) -> None:
    assert apply_change(old, change(old, new)) == new


def test_a_change_has_only_the_changed_fields() -> None:
    first, two = view(), job_view(plan("two", uid="2"), now=NOW)
    moved = job_view(plan("two", uid="2", phase="Queued"), now=NOW)
    news = change(shown(first, two), {**shown(first, moved), "at": NOW + 2})
    assert news == {"jobs": {"2": moved.row}, "at": NOW + 2}
    assert change(shown(first, two), shown(first)) == {"jobs": {"2": None}}


def test_a_note_is_a_sentence_for_some_views() -> None:
    assert note("you may not\x1b", "queue") == {"text": "You may not ", "views": ("queue",)}
