import json
from pathlib import Path

import pytest

from e2e.testbed import record as module
from e2e.testbed.record import Record, remove_empty_file


@pytest.fixture
def undone(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Return a list of the undone entries; an entry with the name `stuck` cannot be undone."""
    entries: list[tuple[str, ...]] = []

    def undo(*arguments: str) -> None:
        if arguments == ("stuck",):
            raise OSError("busy")
        entries.append(arguments)

    monkeypatch.setitem(module.UNDO, "link", undo)
    return entries


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
def test_the_newest_entry_is_undone_first_and_a_cut_line_is_skipped(
    tmp_path: Path, undone: list[tuple[str, ...]], written: str, expected: list[str]
) -> None:
    path = tmp_path / "record"
    path.write_text(written)
    assert Record(path).undo() == []
    assert undone == [(name,) for name in expected]
    assert not path.exists()


def test_an_entry_is_on_disk_before_its_resource_is_created(tmp_path: Path) -> None:
    path = tmp_path / "record"
    Record(path).add("link", "a")
    assert json.loads(path.read_text()) == ["link", "a"]


def test_an_entry_that_cannot_be_undone_is_named_and_stays_in_the_record(
    tmp_path: Path, undone: list[tuple[str, ...]]
) -> None:
    record = Record(tmp_path / "record")
    for name in ("a", "stuck", "b"):
        record.add("link", name)
    assert record.undo() == ["link stuck: busy"]
    assert undone == [("b",), ("a",)]
    assert ["link", "stuck"] in record.entries()


@pytest.mark.parametrize(
    ("content", "has_neighbour", "remaining"),
    [
        ("", False, []),
        ("key", False, ["a", "a/b", "a/b/file"]),  # another program wrote it
        ("", True, ["a", "a/b", "a/b/other"]),
        (None, False, []),  # deleted already
        (None, True, ["a", "a/b", "a/b/other"]),
    ],
)
def test_an_empty_file_is_removed_with_its_empty_folders(
    tmp_path: Path, content: str | None, has_neighbour: bool, remaining: list[str]
) -> None:
    file = tmp_path / "a" / "b" / "file"
    file.parent.mkdir(parents=True)
    if content is not None:
        file.write_text(content)
    if has_neighbour:
        file.with_name("other").touch()
    remove_empty_file(str(file))
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == remaining
