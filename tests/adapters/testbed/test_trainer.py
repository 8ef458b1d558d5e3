"""Trainer and JobSet beside a cluster, without either: the remains of an earlier start."""

import uuid
from pathlib import Path
from types import SimpleNamespace

import pytest

from e2e.testbed import trainer
from e2e.testbed.cluster import Testbed


def test_a_testbed_that_stays_takes_a_second_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KFEXT_STATE", str(tmp_path))
    started: list[str] = []

    def start(self: Testbed, command: list[str], *, name: str, **_: object) -> SimpleNamespace:
        started.append(name)
        return SimpleNamespace(poll=lambda: None)

    monkeypatch.setattr(Testbed, "start_process", start)
    monkeypatch.setattr(Testbed, "wait_for", lambda self, condition, **_: None)
    monkeypatch.setattr(Testbed, "binary", lambda self, name: tmp_path / name)
    hooks = tmp_path / "manifests.yaml"
    hooks.write_text("")
    made = Testbed.create(f"test-{uuid.uuid4().hex[:8]}")
    for _ in range(2):
        trainer._start(made, trainer.JOBSET, hooks)
    assert started == [trainer.JOBSET] * 2
