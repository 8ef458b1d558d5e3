import fcntl
import mmap
import os
from collections.abc import Callable
from contextlib import suppress

import pytest

from kfext.gpu.hook.page import SIZE, Page


def map_writable(descriptor: int) -> None:
    mmap.mmap(descriptor, SIZE)


def write(descriptor: int) -> None:
    os.pwrite(descriptor, b"\xff" * 8, 0)


def truncate(descriptor: int) -> None:
    os.ftruncate(descriptor, 0)


def extend(descriptor: int) -> None:
    os.ftruncate(descriptor, 2 * SIZE)


def write_through_another_descriptor(descriptor: int) -> None:
    reopened = os.open(f"/proc/self/fd/{descriptor}", os.O_RDWR)
    try:
        write(reopened)
    finally:
        os.close(reopened)


def add_a_seal(descriptor: int) -> None:
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)


ATTACKS: dict[str, Callable[[int], None]] = {
    "map it for writing": map_writable,
    "write to it": write,
    "truncate it, which would kill its owner": truncate,
    "extend it": extend,
    "open it again and write": write_through_another_descriptor,
    "add a seal that stops its owner": add_a_seal,
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_a_process_with_the_descriptor_of_a_page_cannot(attack: Callable[[int], None]) -> None:
    page = Page.make()
    with pytest.raises(PermissionError):
        attack(page.descriptor)
    page.words[3] = 7
    assert os.fstat(page.descriptor).st_size == SIZE


def test_a_reader_sees_what_the_owner_stores() -> None:
    page = Page.make()
    reader = Page.from_descriptor(os.dup(page.descriptor))
    page.words[5] = 2**64 - 1
    assert reader.words[5] == 2**64 - 1
    with pytest.raises(TypeError):
        reader.words[5] = 0


def test_a_page_of_a_python_with_an_old_glibc_is_sealed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create")
    for name in ("F_ADD_SEALS", "F_GET_SEALS", "F_SEAL_SHRINK", "F_SEAL_GROW", "F_SEAL_SEAL"):
        monkeypatch.delattr(fcntl, name)
    page = Page.make()
    assert not os.get_inheritable(page.descriptor)
    for attack in (map_writable, write, truncate, extend):
        with pytest.raises(PermissionError):
            attack(page.descriptor)
    page.words[3] = 7
    assert Page.from_descriptor(os.dup(page.descriptor)).words[3] == 7


def test_the_error_without_memfd_names_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create")
    other = os.uname_result(("Linux", "node", "5.10", "#1", "s390x"))
    monkeypatch.setattr(os, "uname", lambda: other)
    with pytest.raises(OSError, match="cannot make a memfd on s390x"):
        Page.make()


def pipe() -> int:
    reading, writing = os.pipe()
    os.close(writing)
    return reading


def unsealed() -> int:
    descriptor = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, SIZE)
    return descriptor


def too_long() -> int:
    descriptor = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, 2 * SIZE)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    return descriptor


NO_PAGES: dict[str, Callable[[], int]] = {
    "a pipe": pipe,
    "a file on disk": lambda: os.open(__file__, os.O_RDONLY),
    "a memfd that its owner could truncate": unsealed,
    "a sealed memfd of a wrong size": too_long,
}


@pytest.mark.parametrize("make", NO_PAGES.values(), ids=NO_PAGES)
def test_a_file_that_is_no_page_is_refused_and_closed(make: Callable[[], int]) -> None:
    descriptor = make()
    inode = os.fstat(descriptor).st_ino
    with pytest.raises(ValueError, match="page"):
        Page.from_descriptor(descriptor)
    with suppress(OSError):  # a thread of another test may have its number by now
        assert os.fstat(descriptor).st_ino != inode
