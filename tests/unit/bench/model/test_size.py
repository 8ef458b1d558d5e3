"""The cost of a run of the simulator, by its size."""

import pytest

from e2e.bench.model import size


def test_the_table_has_a_row_for_each_size_and_arm_and_a_profile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(size, "_QUICK_JOBS", (16,))
    lines = size.measure(quick=True).splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if "|" in line]
    assert [(row[0], row[1], row[2], row[6]) for row in rows if row[-1] == "16"] == [
        ("16", "2", "gang", "16"),
        ("16", "2", "kfext", "16"),
    ]
    assert any(row[0].startswith("kfext/sim/") for row in rows)
    assert all(float(row[3]) > 0 and int(row[5]) > 20 for row in rows if row[-1] == "16")
