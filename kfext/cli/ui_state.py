"""The data of the page of `kubectl kfext ui`: its state, made of objects, and changes of it.

A state is JSON, with the words of `top`, `queue` and `explain`. The page draws it and decides
nothing. All texts are cleaned as for a terminal: users write names, metrics and messages.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kfext import names
from kfext.cli.explain import condition_words
from kfext.cli.jobs import amounts, top_cells, top_line
from kfext.cli.nodes import state_words
from kfext.cli.output import integer, plain, short
from kfext.core.job_history import Entry, decode_curve, decode_history
from kfext.core.queue.expected import decode_expected, sentence
from kfext.core.queue.priority import IN_QUEUE
from kfext.core.words import CLAUSE, listed
from kfext.model.job import planned_uid
from kfext.model.node import Node
from kfext.model.quantity import CPU, ON_EVERY_NODE, Resources, parse_resources, times
from kfext.model.timestamps import timestamp
from kfext.model.tolerant import json_object, mapping, sequence, text

State = dict[str, Any]
_MAX_NODES = 5000
"""The most nodes in a TrainingPlan."""
_AGEING = {"JOB", "REPORTED"}
"""Columns of `top` that the page draws itself; an age changes although the job does not."""
_DOES = {
    **dict.fromkeys((names.QUEUED, names.SUSPENDED), "waits"),
    **dict.fromkeys((names.PLANNED, names.GATED, names.BINDING), "starts"),
    **dict.fromkeys((names.PLACED, names.PHASE_RELEASED), "trains"),
    names.FINISHED: "ended",
}
"""Phase in a history -> state of the job. All other entries are changes of running jobs."""


@dataclass(frozen=True, slots=True)
class JobView:
    """A job as its TrainingPlan shows it.

    `row`: fields for all views. `details`: more fields for the job's own view. `history`: entries.
    """

    uid: str
    row: Mapping[str, Any]
    details: Mapping[str, Any]
    history: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Source:
    """The source of the page's data.

    `ready`: waits for the first state. `jobs`, `state`: return the current data.
    `explain`: returns the lines of `kubectl kfext explain` for a job; raises KfextError.
    """

    ready: Callable[[], Awaitable[None]]
    jobs: Callable[[], Iterable[JobView]]
    state: Callable[[], State]
    explain: Callable[[JobView], Awaitable[list[str]]]


@dataclass(frozen=True, slots=True)
class Capacity:
    """The controller's record: node -> `allocatable`, node -> `free`, and the `reservation`.

    Amounts are in the units of kfext.model.quantity.
    """

    allocatable: Mapping[str, Resources] = field(default_factory=dict)
    free: Mapping[str, Resources] = field(default_factory=dict)
    reservation: Mapping[str, Any] | None = None


def job_view(plan: dict[str, Any], *, now: float) -> JobView:
    """Return the job of a TrainingPlan. `now` is in epoch seconds. Never raises."""
    metadata, status = mapping(plan.get("metadata")), mapping(plan.get("status"))
    line, written = top_line(plan, now=now), mapping(status.get("progress"))
    progress, expected = line["progress"] or {}, decode_expected(status.get("expectedStart"))
    step, total = progress.get("step"), progress.get("totalSteps")
    at, left = timestamp(written.get("time")) or None, progress.get("secondsLeft")
    requests = parse_resources(status.get("requests"))
    workers, ahead, least = line["workers"], status.get("ahead"), status.get("minimumWorkers")
    history = decode_history(status.get("history"), status.get("curve"))
    entries = [_entry(entry) for entry in history.entries]
    clauses = [clause for clause in text(status.get("message")).split(CLAUSE) if clause]
    about_queue = (at for at, clause in enumerate(clauses) if clause.endswith(IN_QUEUE))
    first = next(about_queue, len(clauses))
    row = {
        **{key: line[key] for key in ("kind", "namespace", "name", "phase", "workers")},
        "version": text(metadata.get("resourceVersion")),
        "cells": {name: cell for name, cell in top_cells(line).items() if name not in _AGEING},
        "speed": short(progress.get("stepsPerSecond")),
        "created": timestamp(metadata.get("creationTimestamp")),
        "reason": text(status.get("reason")),
        "why": clauses[:first],
        "place": clauses[first:],
        "ahead": integer(ahead),
        "least": integer(least),
        "starts": sentence(expected, now=now) if expected else "",
        "startsIn": [expected.earliest, expected.latest] if expected and expected.latest else None,
        "startsShort": text(mapping(status.get("expectedStart")).get("summary")),
        "asks": amounts(times(requests, workers)) if workers else [],
        "requests": _page_amounts(requests),
        "places": _places(status),
        "changes": sum(entry["times"] for entry in entries if not entry["does"]),
        "done": min(step / total, 1.0) if step is not None and total else None,
        "at": at,
        "ends": at + left if at is not None and left is not None else None,
    }
    details = {
        "conditions": [[label, words] for label, words in condition_words(status)],
        "curve": decode_curve(history.curve),
    }
    return JobView(planned_uid(plan), *map(_plain, (row, details, entries)))


def _page_amounts(requests: Resources) -> dict[str, float]:
    """Return amounts in the units of the page: CPU in cores."""
    return {name: _page_amount(name, number) for name, number in requests.items()}


def _page_amount(name: str, number: int) -> float:
    return number / 1000 if name == CPU else number


def _places(status: Mapping[str, Any]) -> list[tuple[str, int | None]]:
    """Return the nodes of a job, each with the number of its pods; kfext 0.3 wrote no numbers."""
    raw = sequence(status.get("places"))[:_MAX_NODES]
    places = [(text(place.get("node")), place.get("pods")) for place in map(mapping, raw)]
    if places:
        return [(node, integer(pods)) for node, pods in places]
    return [(text(node), None) for node in sequence(status.get("nodes"))[:_MAX_NODES]]


def _entry(entry: Entry) -> dict[str, Any]:
    others = [""] * min(entry.more_nodes, _MAX_NODES)
    return {
        "t": entry.at,
        "what": entry.event,
        "does": _DOES.get(entry.event, ""),
        "workers": entry.workers,
        "nodes": listed([*entry.nodes, *others], noun="nodes"),
        "why": entry.why,
        "times": entry.count,
    }


def _plain(value: Any) -> Any:
    """Return a JSON value with each text cleaned as for a terminal."""
    if isinstance(value, str):
        return value if value.isprintable() else plain(value)
    if isinstance(value, Mapping):
        return {plain(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def parse_capacity(data: Mapping[str, Any]) -> Capacity:
    """Return the capacity in the data of ConfigMap kfext-capacity. Never raises."""
    written = json_object(text(data.get("capacity")))
    nodes = {str(name): mapping(node) for name, node in mapping(written.get("nodes")).items()}
    held = mapping(written.get("reservation"))
    return Capacity(
        {name: _integers(node.get("allocatable")) for name, node in nodes.items()},
        {name: _integers(node.get("free")) for name, node in nodes.items()},
        {"nodes": [text(node) for node in sequence(held.get("nodes"))], "until": held.get("until")}
        if held
        else None,
    )


def _integers(raw: object) -> dict[str, int]:
    return {name: value for name, value in mapping(raw).items() if integer(value) is not None}


# --- the state ----------------------------------------------------------------------------------


def state_of(
    jobs: Iterable[JobView],
    *,
    nodes: Iterable[Node],
    capacity: Capacity,
    cards: Iterable[Mapping[str, Any]] = (),
    **common: Any,
) -> State:
    """Return the state of the page.

    `cards`: shared GPUs, as `card_view` returns them. `common`: `at`, the time of the state, and
        `heard`, the time of the last news from the cluster, in epoch seconds; the `scope`, a
        namespace, or empty for the whole cluster; and the `notes`.
    """
    rows = {view.uid: view.row for view in jobs}
    known = {node.name: node for node in nodes}
    allocatable = {**capacity.allocatable, **{n.name: n.allocatable for n in known.values()}}
    unit = _unit(rows.values(), allocatable.values())
    used = {node for row in rows.values() for node, _ in row["places"]}
    shown: dict[str, dict[str, Any]] = {}
    for name in sorted({*allocatable, *used}):
        has = allocatable.get(name, {})
        resource = unit if unit in has or not has else CPU
        free = capacity.free.get(name)
        shown[name] = {
            "resource": resource,
            "has": _page_amount(resource, has[resource]) if resource in has else None,
            "free": None if free is None else _page_amount(resource, free.get(resource, 0)),
            "state": ", ".join(state_words(known[name])) if name in known else "",
            "cards": [],
        }
    by_name = {(row["namespace"], row["name"]): uid for uid, row in rows.items()}
    for card in sorted(cards, key=lambda card: (card["node"], card["slot"])):
        if card["sharers"] and card["node"] in shown:
            sharers = [{**sharer, "job": _job_of(sharer, by_name)} for sharer in card["sharers"]]
            shown[card["node"]]["cards"].append(_plain({**card, "sharers": sharers}))
    return {**common, "unit": unit, "jobs": rows, "nodes": shown, "reserved": capacity.reservation}


def _unit(rows: Iterable[Mapping[str, Any]], nodes: Iterable[Resources]) -> str:
    """Return the resource that the page counts: the scarce resource of most jobs, else GPUs or CPU.

    `rows`: the jobs. `nodes`: the allocatable resources of each node; if no node is visible, they
        are assumed to have the resources that the jobs request.
    """
    wanted = Counter[str](name for row in rows for name in row["requests"])
    offered = {name for node in nodes for name in node} or wanted.keys()
    scarce = {name for name in offered - ON_EVERY_NODE if not name.startswith(names.DOMAIN)}
    if candidates := scarce & wanted.keys():
        return min(sorted(candidates), key=lambda name: -wanted[name])
    return names.NATIVE_GPU if names.NATIVE_GPU in scarce else CPU


def _job_of(sharer: Mapping[str, Any], jobs: Mapping[tuple[str, str], str]) -> str:
    """Return the uid of the job of a pod that shares a GPU; empty for a job that is not shown.

    `jobs`: the uids by namespace and name; the name of a pod begins with the name of its job.
    """
    name: str = sharer["pod"]
    while name and (sharer["namespace"], name) not in jobs:
        name = name.rpartition("-")[0]
    return jobs.get((sharer["namespace"], name), "")


def change(old: State, new: State) -> State:
    """Return the fields that differ between two states; of jobs and nodes, only changed entries.

    None stands for a deleted job or node.
    """
    changes: State = {}
    for name, value in new.items():
        if name not in ("jobs", "nodes"):
            if old.get(name) != value:
                changes[name] = value
            continue
        entries = {key: item for key, item in value.items() if old[name].get(key) != item}
        if gone := dict.fromkeys(old[name].keys() - value.keys()):
            entries |= gone
        if entries:
            changes[name] = entries
    return changes


def note(words: str, *views: str) -> State:
    """Return a note that the page shows above these views, or above all if none is named."""
    return {"text": plain(f"{words[0].upper()}{words[1:]}"), "views": views}
