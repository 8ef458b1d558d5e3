import gc
import os
import socket
from contextlib import suppress

import pytest

from kfext.gpu.agent.process import Process
from kfext.gpu.hook import words
from kfext.gpu.hook.page import Page
from tests.unit.gpu.agent.hooked import Hooked


def inode(descriptor: int) -> tuple[int, int]:
    result = os.fstat(descriptor)
    return result.st_dev, result.st_ino


def opened() -> set[tuple[int, int]]:
    """Return the inodes of all open files of this process; threads of other tests continue."""
    result = set()
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            result.add(inode(int(name)))
    return result


def test_a_process_that_is_closed_leaves_nothing_open() -> None:
    hooked = Hooked()
    theirs = {inode(descriptor) for descriptor in hooked.descriptors()}
    assert theirs < opened()
    hooked.process.close()
    hooked.peer.close()
    hooked.own.close()
    del hooked  # and with it its mappings
    gc.collect()
    assert not theirs & opened()


def test_a_descriptor_that_is_no_page_is_refused() -> None:
    with open(__file__, "rb") as file, pytest.raises(ValueError, match="page"):
        Process(1, socket.socket(), socket.dup(file.fileno()))


def test_a_page_of_another_layout_is_refused() -> None:
    page = Page.make()
    page.words[words.LAYOUT] = 99
    with pytest.raises(ValueError, match="layout 99"):
        Process(1, socket.socket(), socket.dup(page.descriptor))
