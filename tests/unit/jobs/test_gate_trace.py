"""The trace of a gate: when a job was let through, and when its work was done."""

import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from e2e.bench.gpu_share.run import work
from e2e.harness.wait import until
from e2e.jobs import gate_trace


class Marker:
    def __init__(self) -> None:
        self.reached = threading.Event()

    def wait(self) -> None:
        assert self.reached.wait(10)


class Card:
    """Gives out markers; `torch` is a list that gets them."""

    def __init__(self, torch: Any) -> None:
        self.given = torch

    def mark(self) -> Marker:
        self.given.append(Marker())
        return self.given[-1]  # type: ignore[no-any-return]


def test_it_writes_when_the_gate_is_passed_and_when_what_came_before_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered: list[str] = []

    class Gate:
        def enter(self) -> None:
            entered.append("gate")

    trace = tmp_path / "trace"
    monkeypatch.setenv("GATE_TRACE", str(trace))
    monkeypatch.setitem(sys.modules, "kfext_hook.gate", SimpleNamespace(Gate=Gate))
    monkeypatch.setitem(sys.modules, "cpu_card", SimpleNamespace(Card=Card))
    markers: list[Marker] = []
    assert isinstance(gate_trace.on_cpu_card(markers), Card)
    Gate().enter()
    Gate().enter()
    assert entered == ["gate", "gate"]
    assert [line.split()[0] for line in trace.read_text().splitlines()] == ["pass", "pass"]
    for count, marker in enumerate(markers, start=1):
        marker.reached.set()
        until(lambda count=count: trace.read_text().count("done") == count, what="it is done")  # type: ignore[misc]
    ((begin, end),) = work(trace.read_text().splitlines())
    assert begin <= end
