"""The limits of tenants in the docs: each row names tests that exist."""

import functools
import re

import pytest
import yaml

from kfext import names
from tests.contract.manifests import DEFAULT, MANIFESTS, REPOSITORY, added, named, of_kind
from tests.contract.tables import quoted, rows_of, table
from tests.contract.test_manifests import DECIDED

PAGE = "docs/security.md"
ATTACKS = {
    "a tenant cannot": ("docs/tenants.md", "docs/bounds.md"),
    "another user or site cannot": ("docs/ui.md",),
}
"""The title of a first column -> the pages with such tables."""
TEST = re.compile(r"^(?:async )?def (test_\w+)\(", re.MULTILINE)
CANNOT = {
    row[title]: row
    for title, pages in ATTACKS.items()
    for page in pages
    for row in rows_of(page, title)
}


@pytest.mark.parametrize("sentence", CANNOT)
def test_each_limit_of_a_tenant_names_existing_tests(sentence: str) -> None:
    shown_by = quoted(CANNOT[sentence]["shown by"])
    assert shown_by
    assert set(shown_by) - _tests() == set()


@functools.cache
def _tests() -> frozenset[str]:
    """Return the names of all tests of the repository."""
    files = (
        path for folder in ("tests", "e2e") for path in (REPOSITORY / folder).rglob("test_*.py")
    )
    return frozenset(name for path in files for name in TEST.findall(path.read_text()))


def test_each_account_has_a_row() -> None:
    rows = {quoted(row["account"])[0] for row in table(PAGE, "account")}
    installed = [*of_kind("ServiceAccount"), *added("gpu-sharing")]
    assert rows == {
        thing["metadata"]["name"] for thing in installed if thing["kind"] == "ServiceAccount"
    }


def test_each_right_that_an_administrator_decides_has_a_row() -> None:
    rows = {quoted(row["component"])[0]: row for row in table("docs/rights.md", "component")}
    (overlay,) = yaml.safe_load_all((DEFAULT / "kustomization.yaml").read_text())
    included = {path.rpartition("/")[2] for path in overlay["components"]}
    assert rows.keys() == DECIDED
    assert {name for name, row in rows.items() if row["by default"] == "yes"} == included
    for name, row in rows.items():
        assert quoted(row["permission"]) == [" ".join(rule) for rule in rules_of(name)]


def rules_of(component: str) -> list[tuple[str, str]]:
    """Return verb and resource, with its group if it is not the core API, of a role."""
    (role,) = (
        thing
        for folder in (MANIFESTS / "base", MANIFESTS / "components" / component)
        for path in folder.rglob("rbac.yaml")
        for thing in yaml.safe_load_all(path.read_text())
        if thing["kind"] in {"ClusterRole", "Role"}
        and thing["metadata"]["name"] == f"kfext-{component}"
    )
    return [
        (verb, ".".join(filter(None, (resource, rule["apiGroups"][0]))))
        for rule in role["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]


def test_the_page_names_the_policy_and_the_verb() -> None:
    text = (REPOSITORY / PAGE).read_text()
    assert named("ValidatingAdmissionPolicy", names.MARKS_POLICY)
    for word in (names.MARKS_POLICY, names.DECIDE, *names.WRITTEN_BY_KFEXT):
        assert f"`{word}`" in text
