"""A page of memory that one process writes and others can only read.

The page is a memfd with a sealed size, which only its owner has mapped for writing. A reader with
the descriptor can neither change nor truncate the page; to truncate it would kill the owner with
SIGBUS at its next write. Needs Linux 5.1.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module

from . import words

SIZE = 4096
"""Bytes of a page; it holds words of 8 bytes in the order of the machine."""

# Constants of Linux: a Python built with an old glibc, such as conda's, lacks the names.
_CLOEXEC, _ALLOW_SEALING = 1, 2
_ADD_SEALS, _GET_SEALS = 1033, 1034
_SEAL_SEAL, _SEAL_SHRINK, _SEAL_GROW, _SEAL_FUTURE_WRITE = 0x1, 0x2, 0x4, 0x10
_FIXED = _SEAL_SHRINK | _SEAL_GROW
_SEALS = _FIXED | _SEAL_FUTURE_WRITE | _SEAL_SEAL
_MEMFD_CREATE = {"x86_64": 319, "aarch64": 279}
"""The number of the system call, by machine."""


class Page:
    """One page, mapped. `words`: its words; storing a word is a single store of 8 bytes.

    `descriptor`: lets other processes map the page.
    """

    def __init__(self, memory: mmap.mmap, descriptor: int) -> None:
        self.words = memoryview(memory).cast("Q")
        self.descriptor = descriptor

    @classmethod
    def make(cls) -> Page:
        """Return a page that only this process can write. Raises OSError if none can be made."""
        descriptor = _memfd()
        try:
            os.ftruncate(descriptor, SIZE)
            memory = mmap.mmap(descriptor, SIZE)
            fcntl.fcntl(descriptor, _ADD_SEALS, _SEALS)
        except OSError:
            os.close(descriptor)
            raise
        return cls(memory, descriptor)

    @classmethod
    def from_descriptor(cls, descriptor: int) -> Page:
        """Return another process's page by its descriptor.

        Raises ValueError, and closes the descriptor, if the page has another size or could be
        truncated while this process reads it.
        """
        try:
            sealed = fcntl.fcntl(descriptor, _GET_SEALS)
            if sealed & _FIXED != _FIXED or os.fstat(descriptor).st_size != SIZE:
                raise ValueError("its size is not sealed, or is not the size of a page")
            return cls(mmap.mmap(descriptor, SIZE, prot=mmap.PROT_READ), descriptor)
        except (OSError, ValueError) as error:
            os.close(descriptor)
            raise ValueError(f"it is no page: {error}") from error

    def close(self) -> None:
        """Close the descriptor. The words stay mapped while they are in use."""
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def words_of(descriptor: int) -> memoryview:
    """Return the words of another process's page and close its descriptor. Raises ValueError."""
    page = Page.from_descriptor(descriptor)
    page.close()
    return page.words


def _memfd() -> int:
    """Return a new memfd, by the system call if Python lacks the function. Raises OSError."""
    flags = _CLOEXEC | _ALLOW_SEALING
    if hasattr(os, "memfd_create"):
        return os.memfd_create("kfext", flags)
    machine = os.uname().machine
    number = _MEMFD_CREATE.get(machine)
    if number is None:
        raise OSError(errno.ENOSYS, f"this Python cannot make a memfd on {machine}")
    ctypes = import_module("ctypes")  # the import takes milliseconds, and few processes need it
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = int(libc.syscall(ctypes.c_long(number), b"kfext", ctypes.c_uint(flags)))
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), "memfd_create failed")
    return descriptor


HEARTBEAT_SECONDS = 0.2
"""Pause between two heartbeats. A reader regards the process as dead after five pauses."""


def beat(page: memoryview, memory: Callable[[], int], now: int) -> None:
    """Write a heartbeat to the process's page, and the bytes that the process has reserved."""
    page[words.HEARTBEAT] = now
    with suppress(Exception):  # a process with unknown memory must not look dead
        page[words.MEMORY] = memory()
