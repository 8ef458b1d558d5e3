import json
from typing import Any

from kfext import names
from kfext.cli.gpus import render_gpus

HIGH = {"namespace": "team", "pod": "train-worker-0", "priority": "high", "sharePercent": 50}
LOW = {"namespace": "team", "pod": "tune-worker-0", "priority": "low", "sharePercent": 30}


def card(node: str, slot: int, **status: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": f"{node}-{slot}"},
        "spec": {"node": node, "slot": slot},
        "status": status,
    }


CARDS = [
    card("b", 0, memoryMiB=16384, healthy=False, trouble="it is split by MIG"),
    card(
        "a",
        1,
        card="GPU-1",
        memoryMiB=81920,
        sharers=[
            {**HIGH, "busyPermille": 512, "lossPermille": 12, "unhooked": "OldTensorFlow"},
            {
                **LOW,
                "harvestPermille": 431,
                "waitedSeconds": 7,
                "guaranteeInfeasible": True,
                "strikes": 2,
                "coarseMillis": 42,
            },
        ],
    ),
    card("a", 0, memoryMiB=81920),
    {"spec": {"slot": "none"}},
]


def test_cards_are_shown_with_their_sharers() -> None:
    lines = render_gpus(CARDS, output="text").splitlines()
    assert [line.split() for line in lines] == [
        ["NODE", "SLOT", "CARD", "MEMORY", "STATE"],
        ["a", "0", "-", "80", "Gi", "free"],
        ["a", "1", "GPU-1", "80", "Gi", "shared"],
        [
            "PRIORITY",
            "SHARE",
            "GPU",
            "TIME",
            "ALONE",
            "SLOWDOWN",
            "GPU",
            "TIME",
            "AT",
            "GATE",
            "POD",
        ],
        [
            "high",
            "50",
            "%",
            "51.2",
            "%",
            "1.2",
            "%",
            "-",
            "-",
            "team/train-worker-0",
            "(not",
            "hooked:",
            "TensorFlow",
            "is",
            "older",
            "than",
            "2.6)",
        ],
        [
            *("low", "30", "%", "-", "-", "43.1", "%", "7", "s", "team/tune-worker-0"),
            *("(its", "minimum", "cannot", "be", "met", "within", "the", "loss", "budget"),
            *("of", "the", "job", "beside", "it;"),
            *("it", "yields", "only", "after"),
            *("micro-steps", "of", "up", "to", "42", "ms;"),
            *("shut", "out", "2", "of", "3", "times", "for", "losses)"),
        ],
        ["b", "0", "-", "16", "Gi", "unhealthy:", "it", "is", "split", "by", "MIG"],
    ]


def test_cards_are_json_for_programs() -> None:
    first, second, third = json.loads(render_gpus(CARDS, output="json"))
    assert (first["node"], first["slot"]) == ("a", 0)
    assert second["sharers"][1]["harvestPermille"] == 431
    assert third["healthy"] is False


def test_a_cluster_without_sharing_shows_what_is_missing() -> None:
    assert f"label nodes {names.GPU_SHARING}=true" in render_gpus([], output="text")
