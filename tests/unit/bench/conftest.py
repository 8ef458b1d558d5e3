"""Tests of benchmarks store their runs in a folder of their own."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("e2e.bench.store.RUNS", tmp_path / "runs")
    return tmp_path / "runs"
