"""The jobs in the docs equal the jobs in examples/, which an end-to-end case trains."""

import re
from pathlib import Path

import pytest
import yaml

from kfext.core.settings.table import TABLE
from tests.contract.manifests import REPOSITORY

FILES = sorted((REPOSITORY / "examples").glob("*.yaml"))
PROGRAMS = sorted((REPOSITORY / "examples").glob("*.py"))
TABLES = sorted((REPOSITORY / "examples").glob("*.csv"))
NAMED = re.compile(r"\bexamples/([\w.]*\w)")
BLOCKS = [
    (page.name, block)
    for page in sorted((REPOSITORY / "docs").glob("*.md"))
    for block in re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    if block.startswith("apiVersion: kubeflow.org/v1\n") and "nvidia.com/gpu" not in block
]


def test_a_job_in_the_docs_is_a_file_in_examples() -> None:
    examples = {path.read_text() for path in FILES}
    assert [page for page, block in BLOCKS if block not in examples] == []


def test_an_example_that_a_page_names_exists() -> None:
    pages = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
    named = {name for page in pages for name in NAMED.findall(page.read_text())}
    assert named <= {path.name for path in (*FILES, *PROGRAMS, *TABLES)}
    assert named >= {path.name for path in PROGRAMS}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_example_has_known_settings_on_the_metadata_of_the_job(path: Path) -> None:
    job = yaml.safe_load(path.read_text())
    assert set(job["metadata"]["annotations"]) <= TABLE.keys()


def test_every_example_is_in_the_table_of_its_page() -> None:
    page = (REPOSITORY / "examples" / "README.md").read_text()
    assert set(re.findall(r"^\| `(.+?)`", page, re.MULTILINE)) == {
        path.name for path in (*FILES, *PROGRAMS, *TABLES)
    }
