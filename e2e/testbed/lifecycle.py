"""Starts a testbed, and removes it without a trace."""

import shutil
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from e2e.testbed import (
    binaries,
    controlplane,
    fakenodes,
    paths,
    preflight,
    process,
    realnodes,
    training_operator,
)
from e2e.testbed.cluster import NotReadyError, Testbed
from e2e.testbed.mounts import mount_points
from e2e.testbed.progress import Planned, agenda, step
from e2e.testbed.record import Record

STARTS = (Planned("control plane", 8), Planned("training-operator and real nodes", 10))
"""The steps of `up` for a testbed with real nodes, after the steps of `planned`."""


def up(
    name: str,
    *,
    real_nodes: int = 0,
    fake_nodes: int = 0,
    fast: bool = False,
    native_gangs: bool = False,
) -> Testbed:
    """Start a testbed that runs until `down`; if that fails, nothing of it remains.

    Raises Unavailable if this machine cannot run it, FileExistsError if the name is in use.
    """
    with terminable():
        return _up(name, real_nodes, fake_nodes, fast=fast, native_gangs=native_gangs)


def planned(
    *, real_nodes: bool = False, fake_nodes: bool = False, programs: Sequence[str] = ()
) -> list[Planned]:
    """Return the steps that `prepare` will take. Raises Unavailable under the same conditions."""
    preflight.require_linux()
    if real_nodes:
        preflight.require_root()
    steps = realnodes.planned() if real_nodes else []
    return [*steps, *binaries.planned(_programs(real_nodes, fake_nodes, programs))]


def prepare(
    *, real_nodes: bool = False, fake_nodes: bool = False, programs: Sequence[str] = ()
) -> None:
    """Install what a testbed with these nodes needs, and `programs`. Raises Unavailable."""
    with agenda(planned(real_nodes=real_nodes, fake_nodes=fake_nodes, programs=programs)):
        if real_nodes:
            realnodes.prepare()
        for program in _programs(real_nodes, fake_nodes, programs):
            binaries.resolve(program)


def _programs(real_nodes: bool, fake_nodes: bool, more: Sequence[str]) -> list[str]:
    wanted = [
        *controlplane.BINARIES,
        *training_operator.BINARIES,
        *(fakenodes.BINARIES if fake_nodes else ()),
        *(realnodes.BINARIES if real_nodes else ()),
        *more,
    ]
    return list(dict.fromkeys(wanted))


def _up(name: str, real_nodes: int, fake_nodes: int, *, fast: bool, native_gangs: bool) -> Testbed:
    # Long builds are done before any process is started.
    prepare(real_nodes=bool(real_nodes), fake_nodes=bool(fake_nodes))
    testbed = Testbed.create(name, real_nodes=real_nodes, fast=fast, native_gangs=native_gangs)
    try:
        _start(testbed, real_nodes, fake_nodes)
    except BaseException:
        _end(testbed)
        raise
    return testbed


def down(name: str) -> bool:
    """Remove everything of a testbed, in any state; return False if there is no such testbed.

    It needs only the files on disk. Raises NotReadyError if something cannot be removed; it then
    stays on record for the next attempt.
    """
    folder = paths.state(name)
    running = any(process.marked(name))
    process.kill_marked(name)
    if not folder.exists():
        return running
    failures = Record(folder / "record").undo()
    # Deleting a folder through a mount would delete the mounted files.
    mounted = mount_points(Path("/proc/self/mountinfo").read_text(), folder.resolve())
    failures += [f"mount {point}" for point in mounted]
    if failures:
        raise NotReadyError(
            f"not everything of testbed {name!r} could be removed; try `down` again:\n  "
            + "\n  ".join(failures)
        )
    shutil.rmtree(folder)
    return True


@contextmanager
def running(name: str, **settings: Any) -> Iterator[Testbed]:
    """Run a testbed, made by `up`, in a `with` block; Ctrl-C and SIGTERM also end it cleanly."""
    with terminable():
        testbed = up(name, **settings)
        try:
            yield testbed
        finally:
            _end(testbed)


def _start(testbed: Testbed, real_nodes: int, fake_nodes: int) -> None:
    """Start all processes; some start while others become ready."""
    control_plane, with_real = STARTS
    with step(control_plane):
        controlplane.start(testbed)
    with step(with_real if real_nodes else Planned("training-operator and fake nodes", 10)):
        training_operator.start(testbed)
        if fake_nodes:
            fakenodes.start(testbed, fake_nodes)
        if real_nodes:
            realnodes.start_nodes(testbed, real_nodes)
        training_operator.wait_ready(testbed)
        if fake_nodes:
            fakenodes.wait_ready(testbed, fake_nodes)
        # Without this account the API server refuses every pod in the namespace.
        testbed.wait_for(
            lambda: testbed.api.get("/api/v1/namespaces/default/serviceaccounts/default"),
            what="the default service account",
            needs=("kube-controller-manager",),
        )


def _end(testbed: Testbed) -> None:
    down(testbed.name)
    testbed.wait_processes()


@contextmanager
def terminable() -> Iterator[None]:
    """Make SIGTERM raise SystemExit during a `with` block, so that `finally` blocks run."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread receives signals
        return

    def stop(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
