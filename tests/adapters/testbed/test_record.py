import json
from pathlib import Path

import pytest

from e2e.testbed import record as module
from e2e.testbed.record import Record, remove_empty_file


@pytest.fixture
def undone(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The undone entries, in order; an entry named "stuck" cannot be undone."""
    seen: list[tuple[str, ...]] = []

    def undo(*arguments: str) -> None:
        if arguments == ("stuck",):
            raise OSError("busy")
        seen.append(arguments)

    monkeypatch.setitem(module.UNDO, "link", undo)
    return seen


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("", []),
        ('["link", "a"]\n["link", "b"]\n', ["b", "a"]),
        ('["link", "a"]\n["link", "b', ["a"]),  # the machine stopped in the middle of a line
        ('["link", "a"]\n\n["link", "b"]\n', ["b", "a"]),
        ('["link", "a', []),
    ],
)
def test_undo_is_newest_first_and_passes_over_a_line_cut_off(
    tmp_path: Path, undone: list[tuple[str, ...]], written: str, expected: list[str]
) -> None:
    path = tmp_path / "record"
    path.write_text(written)
    assert Record(path).undo() == []
    assert undone == [(name,) for name in expected]
    assert not path.exists()


def test_entry_is_on_disk_before_its_resource_is_created(tmp_path: Path) -> None:
    path = tmp_path / "record"
    Record(path).add("link", "a")
    assert json.loads(path.read_text()) == ["link", "a"]


def test_a_resisting_entry_is_named_and_stays_on_record(
    tmp_path: Path, undone: list[tuple[str, ...]]
) -> None:
    record = Record(tmp_path / "record")
    for name in ("a", "stuck", "b"):
        record.add("link", name)
    assert record.undo() == ["link stuck: busy"]
    assert undone == [("b",), ("a",)]
    assert ["link", "stuck"] in record.entries()


@pytest.mark.parametrize(
    ("content", "neighbour", "left"),
    [
        ("", False, []),
        ("key", False, ["a", "a/b", "a/b/file"]),  # another program's
        ("", True, ["a", "a/b", "a/b/other"]),
        (None, False, []),  # deleted already
        (None, True, ["a", "a/b", "a/b/other"]),
    ],
)
def test_empty_file_goes_with_its_empty_folders_only(
    tmp_path: Path, content: str | None, neighbour: bool, left: list[str]
) -> None:
    file = tmp_path / "a" / "b" / "file"
    file.parent.mkdir(parents=True)
    if content is not None:
        file.write_text(content)
    if neighbour:
        file.with_name("other").touch()
    remove_empty_file(str(file))
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == left
