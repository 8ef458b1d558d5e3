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
    """Close the pages that a test has created, or thousands of tests run out of descriptors.

    Threads close their own pages. A used page must not close its number a second time.
    """
    held, init, close = dict[int, weakref.ref[Page]](), Page.__init__, Page.close

    def note(page: Page, *given: Any) -> None:
        init(page, *given)
        if threading.current_thread() is threading.main_thread():
            held[page.descriptor] = weakref.ref(page)

    def forget(page: Page) -> None:
        held.pop(page.descriptor, None)
        close(page)

    monkeypatch.setattr(Page, "__init__", note)
    monkeypatch.setattr(Page, "close", forget)
    yield
    for descriptor, known in list(held.items()):
        if (page := known()) is not None:
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
