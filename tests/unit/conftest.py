import os
from collections.abc import Iterator
from typing import Any

import pytest

from kfext.hook.page import Page


@pytest.fixture(autouse=True)
def pages_are_closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close the pages that a test has made, or thousands of tests run out of descriptors."""
    held, init, close = set[int](), Page.__init__, Page.close

    def note(page: Page, *given: Any) -> None:
        init(page, *given)
        held.add(page.descriptor)

    def forget(page: Page) -> None:
        held.discard(page.descriptor)
        close(page)

    monkeypatch.setattr(Page, "__init__", note)
    monkeypatch.setattr(Page, "close", forget)
    yield
    for descriptor in held:
        os.close(descriptor)
