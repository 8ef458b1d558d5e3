import os
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from kfext.gpu.hook.page import Page
from kfext.state.mirror.cluster import Cluster
from tests.builders import node


@pytest.fixture(autouse=True)
def pages_are_closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close the pages that a test has created: thousands of tests would run out of descriptors.

    Threads close their own pages. A closed page is not closed again, as its descriptor may be in
    use again.
    """
    opened, init, close = dict[int, weakref.ref[Page]](), Page.__init__, Page.close

    def open_and_record(page: Page, *arguments: Any) -> None:
        init(page, *arguments)
        if threading.current_thread() is threading.main_thread():
            opened[page.descriptor] = weakref.ref(page)

    def forget_and_close(page: Page) -> None:
        opened.pop(page.descriptor, None)
        close(page)

    monkeypatch.setattr(Page, "__init__", open_and_record)
    monkeypatch.setattr(Page, "close", forget_and_close)
    yield
    for descriptor, reference in list(opened.items()):
        if (page := reference()) is not None:
            close(page)
        else:
            os.close(descriptor)


@pytest.fixture
def cluster() -> Cluster:
    """A mirror of two nodes."""
    cluster = Cluster()
    for name in "ab":
        cluster.observe_node(None, node(name, cpu="4"))
    return cluster
