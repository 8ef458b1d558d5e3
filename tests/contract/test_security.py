"""What docs/security.md says that a tenant cannot do: each line names the tests that show it."""

import re

import pytest

from kfext import names
from tests.contract.manifests import REPOSITORY, named, of_kind
from tests.contract.tables import quoted, rows_of, table

PAGE = "docs/security.md"
CANNOT = {row["a tenant cannot"]: row for row in rows_of(PAGE, "a tenant cannot")}


@pytest.mark.parametrize("sentence", CANNOT)
def test_what_a_tenant_cannot_do_names_tests_that_exist(sentence: str) -> None:
    tests = quoted(CANNOT[sentence]["shown by"])
    assert tests
    for test in tests:
        path, _, function = test.partition("::")  # without one, all of the file show it
        text = (REPOSITORY / path).read_text()
        assert re.search(rf"^(async )?def {function or 'test_.*'}\(", text, re.MULTILINE), test


def test_each_account_has_a_row() -> None:
    rows = {quoted(row["account"])[0] for row in table(PAGE, "account")}
    assert rows == {thing["metadata"]["name"] for thing in of_kind("ServiceAccount")}


def test_the_page_names_the_policy_and_the_verb() -> None:
    text = (REPOSITORY / PAGE).read_text()
    assert named("ValidatingAdmissionPolicy", names.MARKS_POLICY)
    for word in (names.MARKS_POLICY, names.DECIDE, *names.WRITTEN_BY_KFEXT):
        assert f"`{word}`" in text
