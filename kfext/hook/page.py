"""A page of memory that one process writes and others can only read.

It is a memfd whose size is sealed, and which no process can map for writing once its owner has. A
reader that holds its descriptor can neither change the page nor cut it off, which would kill the
owner with SIGBUS at its next write. Needs Linux 5.1.
"""

from __future__ import annotations

import fcntl
import mmap
import os

SIZE = 4096
"""Bytes of a page; it holds words of 8 bytes in the order of the machine."""
_FUTURE_WRITE = 0x10  # F_SEAL_FUTURE_WRITE, which Python's fcntl does not name
_FIXED = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
_SEALS = _FIXED | _FUTURE_WRITE | fcntl.F_SEAL_SEAL


class Page:
    """One page, mapped. `words` are its words; storing one is a single store of 8 bytes."""

    def __init__(self, memory: mmap.mmap, descriptor: int | None = None) -> None:
        self.words = memoryview(memory).cast("Q")
        self.descriptor = descriptor

    @classmethod
    def make(cls) -> Page:
        """Return a page that only this process can write. Raises OSError where none can be made."""
        descriptor = os.memfd_create("kfext", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(descriptor, SIZE)
            memory = mmap.mmap(descriptor, SIZE)
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
        except OSError:
            os.close(descriptor)
            raise
        return cls(memory, descriptor)

    @classmethod
    def of(cls, descriptor: int) -> Page:
        """Return another process's page; its descriptor is closed.

        Raises ValueError if the page could be cut off under this process, or has another size.
        """
        try:
            sealed = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)
            if sealed & _FIXED != _FIXED or os.fstat(descriptor).st_size != SIZE:
                raise ValueError("its size is not sealed, or not that of a page")
            return cls(mmap.mmap(descriptor, SIZE, prot=mmap.PROT_READ))
        except OSError as error:
            raise ValueError(f"it is no page: {error}") from error
        finally:
            os.close(descriptor)
