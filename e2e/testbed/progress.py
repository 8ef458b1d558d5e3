"""Tell the person at the terminal what takes so long, and how far it is."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

_HEARTBEAT_SECONDS = 15.0


def say(message: str) -> None:
    """Print one line of progress on stderr."""
    print(message, file=sys.stderr, flush=True)


@contextmanager
def step(what: str, *, expect: str = "") -> Iterator[None]:
    """Say that `what` begins, that it goes on (every 15 s), and how long it took.

    `expect` names the usual duration of a long step, for instance "3 minutes".
    """
    say(f"  {what} ..." + (f" (about {expect})" if expect else ""))
    began = time.monotonic()
    done = threading.Event()

    def heartbeat() -> None:
        while not done.wait(_HEARTBEAT_SECONDS):
            say(f"  {what}: still at it after {time.monotonic() - began:.0f} s")

    thread = threading.Thread(target=heartbeat, daemon=True)
    thread.start()
    try:
        yield
    except BaseException:
        say(f"  {what}: failed after {time.monotonic() - began:.1f} s")
        raise
    else:
        say(f"  {what}: done in {time.monotonic() - began:.1f} s")
    finally:
        done.set()
        thread.join()
