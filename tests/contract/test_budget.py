"""Lines and terms are a budget: a feature may use it, and more has to replace something.

A change that does not fit raises a number here, and a page of docs/decisions says in the same
commit what it replaces and why the reader needs more.
"""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINES = {"kfext": 56_700, "tests": 85_700, "e2e": 47_850}
"""Of Python, by folder."""
TERMS = 45
"""Rows of the glossary."""


@pytest.mark.parametrize("folder", LINES)
def test_a_folder_has_no_more_lines_than_its_budget(folder: str) -> None:
    files = (ROOT / folder).rglob("*.py")
    assert sum(len(file.read_text().splitlines()) for file in files) <= LINES[folder]


def test_the_glossary_has_no_more_terms_than_its_budget() -> None:
    rows = re.findall(r"^\| (?!term )[^|-]", (ROOT / "docs/glossary.md").read_text(), re.MULTILINE)
    assert len(rows) <= TERMS
