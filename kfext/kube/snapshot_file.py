"""The file of a controller's snapshot: for bug reports, `kfext plan --snapshot` and tests."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from kfext import __version__
from kfext.errors import UserError
from kfext.model.kinds.job_kind import JobKind
from kfext.model.kinds.registered import KINDS
from kfext.model.snapshot import Snapshot
from kfext.model.timestamps import LAST


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    """The content of a snapshot file.

    `kfext`: the version of kfext that wrote the file.
    `taken`: when the snapshot was taken, in epoch seconds.
    """

    kfext: str
    taken: float
    snapshot: Snapshot


def encode_snapshot(snapshot: Snapshot, *, at: float) -> bytes:
    """Return the content of a snapshot file; `at`: when it was taken, in epoch seconds."""
    return msgspec.json.encode(SnapshotFile(__version__, at, snapshot), enc_hook=_encode_kind)


def write_snapshot(path: Path, snapshot: Snapshot, *, at: float) -> int:
    """Write a snapshot as JSON, in place of an earlier file; return its size. Raises OSError."""
    content = encode_snapshot(snapshot, at=at)
    unfinished = path.with_suffix(".part")
    unfinished.write_bytes(content)
    os.replace(unfinished, path)  # a reader never sees an unfinished file
    return len(content)


def read_snapshot_file(content: bytes, *, name: str) -> SnapshotFile:
    """Return the snapshot in a file; `name` is for messages. Raises UserError."""
    try:
        file = msgspec.json.decode(content, type=SnapshotFile, dec_hook=_decode_kind)
    except msgspec.DecodeError as error:
        raise UserError(f"{name} is not a snapshot of kfext {__version__}: {error}") from error
    if not 0 <= file.taken <= LAST:
        raise UserError(f"{name}: taken is {file.taken:g}: it must be epoch seconds, e.g. 1.7e9")
    return file


def _encode_kind(value: object) -> str:
    """Return the name that stands for a kind of job in the file."""
    if isinstance(value, JobKind):
        return value.name
    raise NotImplementedError(type(value))  # msgspec then names the type that it cannot encode


def _decode_kind(type_: type, value: Any) -> JobKind:
    """Return the kind of job with a name. Raises ValueError for an unknown name, for msgspec."""
    if type_ is JobKind and value in KINDS:
        return KINDS[value]
    raise ValueError(f"the kind of a job is {value!r}; allowed: {', '.join(KINDS)}")
