from pathlib import Path

import pytest

from e2e.testbed.images.layers import Recipe, files_below, key


def test_a_layer_is_built_once_for_the_same_inputs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KFEXT_CACHE", str(tmp_path))
    filled: list[Path] = []

    def fill(folder: Path) -> None:
        filled.append(folder)
        (folder / "file").write_text("content")

    assert not Recipe("name", ["input"], fill).is_made
    first = Recipe("name", ["input"], fill).layer()
    assert Recipe("name", ["input"], fill).is_made
    assert Recipe("name", ["input"], fill).layer() == first
    assert Recipe("name", ["other"], fill).layer().path != first.path
    assert len(filled) == 2


def test_a_layer_that_could_not_be_filled_leaves_nothing_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KFEXT_CACHE", str(tmp_path))

    def fail(folder: Path) -> None:
        (folder / "half").write_text("")
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        Recipe("name", [], fail).layer()
    assert [path.name for path in (tmp_path / "layers").iterdir()] == [".lock"]
    assert Recipe("name", [], lambda folder: None).layer().path.exists()


def test_the_key_depends_on_where_an_input_ends() -> None:
    assert key(["ab", "c"]) != key(["a", "bc"])


def test_inputs_are_files_by_name_and_content_without_compiled_files(tmp_path: Path) -> None:
    (tmp_path / "code/__pycache__").mkdir(parents=True)
    (tmp_path / "code/__pycache__/a.pyc").write_bytes(b"")
    (tmp_path / "code/a.py").write_text("a")
    (tmp_path / "single").write_text("b")
    result = files_below(tmp_path / "code", tmp_path / "single")
    assert result == ["code/a.py", b"a", "single", b"b"]
