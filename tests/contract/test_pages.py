"""The pages are short, and the glossary has the words of the pages and the code."""

import re
from pathlib import Path

import pytest

from tests.contract.manifests import REPOSITORY

MAX_WORDS, MAX_ALTOGETHER = 800, 28_000
GENERATED = re.compile(r"<!-- generated from .*?<!-- end of what is generated -->", re.DOTALL)
REPORTS = REPOSITORY / "docs" / "reports"
"""Pages that may be longer, like generated tables and CHANGELOG.md: their figures are kept."""
PAGES = [
    REPOSITORY / "README.md",
    REPOSITORY / "CONTRIBUTING.md",
    *(page for page in sorted((REPOSITORY / "docs").rglob("*.md")) if page.parent != REPORTS),
]


def _words(page: Path) -> int:
    """Return the number of words that people write on a page; the bars of a table are none."""
    return sum(bool(re.search(r"\w", word)) for word in GENERATED.sub("", page.read_text()).split())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_a_page_is_short(page: Path) -> None:
    assert _words(page) <= MAX_WORDS


def test_the_pages_together_are_short() -> None:
    assert sum(map(_words, PAGES)) <= MAX_ALTOGETHER


def test_each_term_of_the_glossary_is_used() -> None:
    glossary = REPOSITORY / "docs" / "glossary.md"
    terms = re.findall(r"^\| (?!term )([^|-][^|]*) \|", glossary.read_text(), re.MULTILINE)
    texts = " ".join(page.read_text() for page in PAGES if page != glossary).lower()
    assert terms
    assert [term for term in terms if term.lower() not in texts] == []
