"""Starts and ends the processes of a testbed.

Every process has the testbed's name in its environment, which its children inherit. So the
processes of a crashed testbed can be found without a list of process ids, which might be reused.
"""

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

MARK = "KFEXT_PROCESS_OF"
# No process here needs an orderly shutdown, which takes the API server a minute.
_GRACE_SECONDS = 2.0
_GIVE_UP_SECONDS = 60.0
_POLL_SECONDS = 0.05
_EXEC_SECONDS = 0.001


def start(
    command: Sequence[str],
    *,
    testbed: str,
    log: Path,
    environment: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a long-running process in its own session; append its output to `log`."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            # A proxy could not reach the cluster's addresses, which are on this machine.
            env={**os.environ, "NO_PROXY": "*", **(environment or {}), MARK: testbed},
            start_new_session=True,  # Ctrl-C reaches only this process, which ends the others
        )
    # During exec, /proc shows no variables for a moment, and `marked` would miss the process.
    environ = Path(f"/proc/{process.pid}/environ")
    with suppress(ProcessLookupError):  # it has ended
        while process.poll() is None and not environ.read_bytes():
            time.sleep(_EXEC_SECONDS)
    return process


def marked(testbed: str) -> Iterator[int]:
    """Yield the ids of the processes with this testbed's mark, except this process."""
    wanted = f"{MARK}={testbed}".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            variables = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue  # ended meanwhile, or not readable
        if wanted in variables:  # a zombie has no variables
            yield int(entry.name)


def kill_marked(testbed: str) -> None:
    """End every process of the testbed: SIGTERM, then SIGKILL until none is left.

    Raises TimeoutError if a process survives even SIGKILL.
    """
    _send_all(testbed, signal.SIGTERM)
    grace_end = time.monotonic() + _GRACE_SECONDS
    while any(marked(testbed)) and time.monotonic() < grace_end:
        time.sleep(_POLL_SECONDS)
    deadline = time.monotonic() + _GIVE_UP_SECONDS
    while any(marked(testbed)):
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes {sorted(marked(testbed))} do not end on SIGKILL")
        # Repeatedly: a process may start another between the listing and its own end.
        _send_all(testbed, signal.SIGKILL)
        time.sleep(_POLL_SECONDS)


def stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def stop_marked(testbed: str, pid: int) -> None:
    """End a process of the testbed that another process started; it may have ended already.

    Raises TimeoutError if it survives SIGKILL.
    """
    for number, seconds in ((signal.SIGTERM, _GRACE_SECONDS), (signal.SIGKILL, _GIVE_UP_SECONDS)):
        deadline = time.monotonic() + seconds
        if pid in marked(testbed):
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        while pid in marked(testbed):
            if time.monotonic() > deadline:
                break
            time.sleep(_POLL_SECONDS)
        else:
            return
    raise TimeoutError(f"process {pid} does not end on SIGKILL")


def _send_all(testbed: str, number: signal.Signals) -> None:
    for pid in list(marked(testbed)):
        with suppress(ProcessLookupError):
            os.kill(pid, number)
