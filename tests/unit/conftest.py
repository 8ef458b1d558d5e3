import os
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from kfext.hook.page import Page


@pytest.fixture(autouse=True)
def pages_are_closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close the pages that a test has made, or thousands of tests run out of descriptors."""
    held, init, close = dict[int, weakref.ref[Page]](), Page.__init__, Page.close

    def note(page: Page, *given: Any) -> None:
        init(page, *given)
        held[page.descriptor] = weakref.ref(page)

    def forget(page: Page) -> None:
        held.pop(page.descriptor, None)
        close(page)

    monkeypatch.setattr(Page, "__init__", note)
    monkeypatch.setattr(Page, "close", forget)
    yield
    for descriptor, known in list(held.items()):
        # One that is still used, such as by a thread, must not close that number a second time.
        if (page := known()) is not None:
            close(page)
        else:
            os.close(descriptor)
