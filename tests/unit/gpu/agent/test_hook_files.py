import os
from pathlib import Path

import kfext.gpu.hook
from kfext.gpu.agent.hook_files import lay_out

BUSYBOX = Path(__file__)
"""Any file suffices: nothing runs it here."""


def test_all_files_are_copied_and_any_user_can_read_them(tmp_path: Path) -> None:
    os.umask(0o077)
    folder = lay_out(tmp_path, busybox=BUSYBOX)
    os.umask(0o022)
    (source,) = map(Path, kfext.gpu.hook.__path__)
    result = {path.name: path for path in folder.rglob("*.py")}
    assert result.keys() == {path.name for path in source.glob("*.py")}
    assert result["sitecustomize.py"].parent == folder
    assert result["gate.py"].parent == folder / "kfext_hook"
    assert all(path.stat().st_mode & 0o444 == 0o444 for path in result.values())
    assert (folder / "busybox").stat().st_mode & 0o555 == 0o555
    assert all(path.stat().st_mode & 0o555 == 0o555 for path in (folder, folder / "kfext_hook"))


def test_an_existing_version_stays_unchanged(tmp_path: Path) -> None:
    folder = lay_out(tmp_path, busybox=BUSYBOX)
    before = folder.stat().st_ino
    assert lay_out(tmp_path, busybox=BUSYBOX) == folder
    assert folder.stat().st_ino == before


def test_another_binary_gets_a_folder_of_its_own(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"other")
    first, second = (lay_out(tmp_path / "hook", busybox=binary) for binary in (BUSYBOX, other))
    assert first != second
    assert (second / "busybox").read_bytes() == b"other"


def test_an_interrupted_copy_is_started_again(tmp_path: Path) -> None:
    folder = lay_out(tmp_path, busybox=BUSYBOX)
    folder.rename(tmp_path / f".{folder.name}")
    (tmp_path / f".{folder.name}" / "sitecustomize.py").unlink()
    assert (lay_out(tmp_path, busybox=BUSYBOX) / "sitecustomize.py").exists()
