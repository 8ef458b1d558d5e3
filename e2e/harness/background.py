"""Something that goes on in a thread of its own for the time of a `with` block."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def in_background(run: Callable[[threading.Event], None], *, name: str) -> Iterator[None]:
    """Run a function that returns soon after the event it is given is set."""
    ending = threading.Event()
    running = threading.Thread(target=run, args=(ending,), name=name)
    running.start()
    try:
        yield
    finally:
        ending.set()
        running.join()
