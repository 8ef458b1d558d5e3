"""`kfext anonymize`: a snapshot without the names of a cluster, which decides as the original does.

Every text that is not a term of Kubernetes or of kfext becomes a number. Equal texts get equal
numbers, and their order stays, so that selectors match and ties break as before.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import IO, Any, TypeVar

import click

from kfext import names
from kfext.core.ledger.parts import is_of_card
from kfext.core.settings.values import STDOUT, is_setting
from kfext.kube.snapshot_file import encode_snapshot, read_snapshot_file
from kfext.model.gpu_share import counted
from kfext.model.job_state import decode_state
from kfext.model.kinds import KINDS, Kind
from kfext.model.plan import decode_plan
from kfext.model.snapshot import JobClocks, Snapshot
from kfext.model.tolerant import text

T = TypeVar("T")
Change = Callable[[str], str]

_PUBLIC = re.compile(r"(^|[./])(kubernetes\.io|k8s\.io|kubeflow\.org|kfext\.dev)(/|$)|^[0-9.]*$")
_TERMS = frozenset(
    (
        *("Pending", "Running", "Succeeded", "Failed", "Unknown", "Suspended", "Created"),
        *("NoSchedule", "PreferNoSchedule", "NoExecute", "Restarting"),
        *("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Equal", "metadata.name"),
        *("cpu", "memory", "pods", "ephemeral-storage", "nvidia.com/gpu"),
        *("TCP", "UDP", "SCTP", "true", "false", "default-scheduler"),
        *(type_ for kind in KINDS.values() for type_ in kind.types),
        *(type_.lower() for kind in KINDS.values() for type_ in kind.types),
    )
)

_WITHOUT_NAMES = frozenset(["companion"])
"""Fields with words of kfext and numbers alone."""


@click.command()
@click.argument("snapshot", type=click.File("rb"))
def anonymize(*, snapshot: IO[bytes]) -> None:
    """Print a SNAPSHOT of a controller with numbers in place of names, for a bug report.

    The numbers keep the order of the names, so that it decides as the original does.
    """
    found = read_snapshot_file(snapshot.read(), name=snapshot.name)
    click.echo(encode_snapshot(anonymized(found.snapshot), taken=found.taken))


def anonymized(snapshot: Snapshot) -> Snapshot:
    """Return a snapshot with numbers in place of names."""
    found: set[str] = set()

    def note(text: str) -> str:
        found.add(text)
        return text

    _changed(snapshot, note)
    number = {name: f"n-{at:06}" for at, name in enumerate(sorted(filter(_is_secret, found)))}
    return _changed(snapshot, lambda text: number.get(text, text))


def _changed(value: T, change: Change) -> T:
    """Return a value in which every text is changed, keys of mappings included."""
    changed: Any = value
    if isinstance(value, str):
        changed = change(value)
    elif isinstance(value, JobClocks):
        assumed = _entry(names.PLAN, value.assumed, change)
        changed = replace(
            value,
            assumed=assumed,
            unbound=_changed(value.unbound, change),
            unreserved=_changed(value.unreserved, change),
            refusals=tuple(replace(one, message=change(one.message)) for one in value.refusals),
        )
    elif isinstance(value, Mapping):
        changed = {_changed(key, change): _entry(key, one, change) for key, one in value.items()}
    elif isinstance(value, tuple | frozenset | list):
        changed = type(value)(_changed(one, change) for one in value)
    elif is_dataclass(value) and not isinstance(value, type | Kind):
        of: Any = value
        kept = {
            field.name: getattr(of, field.name)
            for field in fields(of)
            if field.name not in _WITHOUT_NAMES
        }
        changed = replace(of, **{name: _changed(one, change) for name, one in kept.items()})
    return changed  # type: ignore[no-any-return]


def _entry(key: object, value: Any, change: Change) -> Any:
    """Return the changed value of a key: of what kfext writes and reads, only the names in it."""
    if isinstance(key, str) and is_setting(key):
        hidden = isinstance(value, str) and value.strip().lower().startswith(STDOUT)
        return f"{STDOUT}:(?P<value>.)" if hidden else value
    if key == names.STATE:
        state = _changed(decode_state(text(value)), change)
        return state.encode(job_uid=_changed(_uid_in(text(value)), change))
    if key == names.PLAN:
        plan = decode_plan(text(value), job_uid=_uid_in(text(value)))
        return _changed(replace(plan, why=""), change).encode() if plan else ""
    return _changed(value, change)


def _uid_in(written: str) -> str:
    """Return the uid that a plan or state names, empty if it names none."""
    found = re.search(r'"uid":"([^"]*)"', written)
    return found[1] if found else ""


def _is_secret(name: str) -> bool:
    own = counted(name) is not None or is_of_card(name)
    return not (own or name in _TERMS or name in KINDS or _PUBLIC.search(name))
