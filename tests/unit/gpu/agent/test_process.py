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


def open_inodes() -> set[tuple[int, int]]:
    """Return the inodes of all open files; threads of other tests may open and close some."""
    result = set()
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            result.add(inode(int(name)))
    return result


def test_a_closed_process_leaves_no_descriptor_open() -> None:
    hooked = Hooked()
    inodes = {inode(descriptor) for descriptor in hooked.descriptors()}
    assert inodes < open_inodes()
    hooked.process.close()
    hooked.peer.close()
    hooked.page.close()
    del hooked  # this also unmaps its pages
    gc.collect()
    assert not inodes & open_inodes()


def test_a_descriptor_of_another_file_is_refused() -> None:
    with open(__file__, "rb") as file, pytest.raises(ValueError, match="page"):
        Process(1, socket.socket(), socket.dup(file.fileno()))


def test_a_page_with_another_version_of_the_layout_is_refused() -> None:
    page = Page.make()
    page.words[words.LAYOUT] = 99
    with pytest.raises(ValueError, match="layout 99"):
        Process(1, socket.socket(), socket.dup(page.descriptor))
