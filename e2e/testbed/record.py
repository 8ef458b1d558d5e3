"""The record on disk of all objects that a testbed makes outside its folder.

An entry is written before its object is made, so that `down` also finds the remains of a crash.
Undoing an entry does nothing if its object was never made or is already removed.
"""

import errno
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from e2e.testbed.cgroups import remove_cgroup
from e2e.testbed.mounts import unmount_below


class Record:
    """The objects of one testbed: an append-only file of (kind, arguments), undone in reverse."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, kind: str, *arguments: str) -> None:
        """Record that an object of `kind` (a key of UNDO) is about to be made."""
        if kind not in UNDO:
            raise ValueError(f"cannot undo {kind!r}; known kinds: {', '.join(UNDO)}")
        # If a crash cut off the last line, this entry must not be appended to that line.
        written = self._path.read_bytes() if self._path.exists() else b""
        cut_off = written != b"" and not written.endswith(b"\n")
        with self._path.open("a") as file:
            file.write("\n" * cut_off + json.dumps([kind, *arguments]) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def entries(self) -> list[list[str]]:
        """Return the entries, oldest first; a line that a crash cut off describes no object."""
        if not self._path.exists():
            return []
        entries = []
        for line in self._path.read_text(errors="replace").splitlines():
            try:
                entries.append(json.loads(line))
            except json.JSONDecodeError:
                continue
        return entries

    def undo(self) -> list[str]:
        """Undo every entry, newest first; return a message for each failure."""
        failures = []
        for kind, *arguments in reversed(self.entries()):
            try:
                UNDO[kind](*arguments)
            except (OSError, subprocess.SubprocessError) as error:
                failures.append(f"{kind} {' '.join(arguments)}: {error}")
        if not failures:
            self._path.unlink(missing_ok=True)
        return failures


def remove_empty_file(path: str) -> None:
    """Remove a file if it is empty, then up to two of its parent folders if they are empty.

    Other testbeds may remove or make the same file at the same time: a missing file and a folder
    with new content are no errors.
    """
    file = Path(path)
    with suppress(FileNotFoundError):
        if file.stat().st_size == 0:
            file.unlink()
    for folder in (file.parent, file.parent.parent):
        try:
            folder.rmdir()
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTEMPTY):
                raise


def _remove_netns(name: str) -> None:
    _remove(["ip", "netns", "delete", name], Path("/run/netns") / name)


def _remove_link(name: str) -> None:
    _remove(["ip", "link", "delete", name], Path("/sys/class/net") / name)


def _remove_iptables(*deletion: str) -> None:
    """Run `iptables` with these arguments (`-D ...`) until no such rule is left."""
    while _run("iptables", *deletion).returncode == 0:
        pass


def _remove_folder(path: str) -> None:
    if Path(path).exists():
        shutil.rmtree(path)


def _remove(command: list[str], path: Path) -> None:
    """Run a command that fails if the object is already removed; check that it is removed."""
    ended = _run(*command)
    if path.exists():
        raise OSError(f"`{' '.join(command)}`: {ended.stderr.strip()}")


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, check=False, capture_output=True, text=True)


# Kind of an entry -> the function that removes the object; it gets the entry's arguments.
UNDO: dict[str, Callable[..., None]] = {
    "cgroup": remove_cgroup,
    "empty-file": remove_empty_file,
    "folder": _remove_folder,
    "iptables": _remove_iptables,
    "link": _remove_link,
    "mounts": lambda path: unmount_below(Path(path)),
    "netns": _remove_netns,
}
