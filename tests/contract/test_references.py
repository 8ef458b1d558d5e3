"""Each path, module and link that a file of the repository names exists in the repository."""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.manifests import REPOSITORY
from tests.contract.tables import quoted, table

FOLDERS = ("kfext", "tests", "e2e", "docs", "manifests", "crds")
SINGLE = (
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "Makefile",
    "pyproject.toml",
    "Dockerfile",
)
ENDINGS = {".py", ".md", ".yaml", ".toml"}

ABSENT = {
    "a design document": r"\bDESIGN\b",
    "a section of a text by its number": r"§ ?\d",
    "a list of seeds": r"\bseeds? (?:§|section)",
    "a data set": r"\bdata/pollux",
    "notes on related work": r"(?<![\w/.-])reference/(?!(?:commands|crds|figures|metrics)\b)",
    "a numbered list of defects": r"\bdefects? [A-Z]\d",
}
"""Unavailable source -> how it was cited."""

FOREIGN = {
    *("manifests/base/", "manifests/overlays/kubeflow/"),  # of the training operator
    "manifests/overlays/kubeflow-platform/",  # of Trainer
    "manifests/overlays/mine",  # the folder that a reader creates
    "crds/kfext.dev_",  # the beginning of a name
    "docs/s",  # a rate in a log
    "e2e/bench/measured",  # written by benchmarks, and ignored by git
}
PACKAGES = "cli|controller|core|kube|model|state|webhook"
PATH = re.compile(rf"(?<![\w/.-])(?:{'|'.join(FOLDERS)})/[\w./-]*\w")
MODULE = re.compile(rf"(?<![\w/.])kfext\.((?:{PACKAGES})(?:\.[a-z_]+)+|[a-z]+)\b(?![(/])")
CITED = re.compile(r"def test_([A-Z]\d+)_")
LINK = re.compile(r"\]\((?!https?:)([^)\s]+)\)")


def _files(*folders: str) -> Iterator[Path]:
    for folder in folders:
        for path in sorted((REPOSITORY / folder).rglob("*")):
            if path.suffix in ENDINGS and path != Path(__file__):
                yield path
    yield from (REPOSITORY / name for name in SINGLE)


@functools.cache
def _lines(*folders: str) -> tuple[tuple[str, str], ...]:
    """Return each line of the files, with its place."""
    return tuple(
        (f"{path.relative_to(REPOSITORY)}:{number}", line)
        for path in _files(*folders)
        for number, line in enumerate(path.read_text().splitlines(), 1)
    )


@pytest.mark.parametrize("mark", ABSENT.values(), ids=ABSENT)
def test_nothing_refers_to_a_text_that_is_not_in_the_repository(mark: str) -> None:
    assert [where for where, line in _lines(*FOLDERS) if re.search(mark, line)] == []


def test_every_path_that_a_file_names_exists() -> None:
    missing = {
        f"{where} {path}"
        for where, line in _lines(*FOLDERS)
        for path in PATH.findall(line)
        if not _exists(path) and not path.startswith(tuple(FOREIGN))
    }
    assert missing == set()


def _exists(path: str) -> bool:
    """Return whether a path, maybe of a module or page without its ending, is in the repository."""
    return any((REPOSITORY / f"{path}{ending}").exists() for ending in ("", ".py", ".md"))


def test_every_module_that_a_file_names_exists() -> None:
    """Only in `kfext` and in prose: elsewhere `kfext` is also the name of a fixture."""
    missing = {
        f"{where} kfext.{dotted}"
        for where, line in _lines("kfext", "docs")
        for dotted in MODULE.findall(line)
        if not _is_module(dotted)
    }
    assert missing == set()


def _is_module(dotted: str) -> bool:
    """Return whether a name in kfext is a module, or something in one."""
    if dotted in {"dev", "checkpoint"}:  # the API group, and what a job prints
        return True
    parts = dotted.split(".")
    inside = [parts[:-1]] if len(parts) > 2 else []
    return any(_exists("/".join(("kfext", *some))) for some in (parts, *inside))


PATH_OF_A_JOB = re.findall(
    r"^\d+\. .*: `(kfext/\S+\.py)` (`.+`)$",
    (REPOSITORY / "docs/architecture.md").read_text(),
    re.MULTILINE,
)


@pytest.mark.parametrize(("path", "functions"), PATH_OF_A_JOB)
def test_the_path_through_the_code_names_functions_of_its_files(path: str, functions: str) -> None:
    tree = ast.parse((REPOSITORY / path).read_text())
    defined = {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert {*quoted(functions)} <= defined


def test_the_path_through_the_code_is_read() -> None:
    assert len(PATH_OF_A_JOB) > 20


def test_the_list_of_statements_has_every_statement_that_a_test_cites_and_no_other() -> None:
    stated = [
        mark for row in table("tests/statements.md", "system") for mark in quoted(row["statements"])
    ]
    cited = {mark for _, line in _lines("tests", "e2e") for mark in CITED.findall(line)}
    assert sorted(stated) == sorted(cited)


PAGES = {
    str(path.relative_to(REPOSITORY)): path.read_text()
    for path in (
        *(REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
        REPOSITORY / "CHANGELOG.md",
        *sorted(REPOSITORY.glob("docs/**/*.md")),
    )
}


@pytest.mark.parametrize("page", PAGES)
def test_every_link_of_a_page_leads_to_a_page_and_a_heading_of_it(page: str) -> None:
    assert [link for link in LINK.findall(PAGES[page]) if not _leads(page, link)] == []


def _leads(page: str, link: str) -> bool:
    """Return whether a link in a page leads to a file, and to a heading if it names one."""
    path, _, anchor = link.partition("#")
    target = (REPOSITORY / page).parent / path if path else REPOSITORY / page
    return target.exists() and (not anchor or anchor in _anchors(target.read_text()))


def _anchors(text: str) -> set[str]:
    """Return the anchors of the headings of a page, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
