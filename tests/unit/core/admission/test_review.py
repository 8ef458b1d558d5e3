from collections.abc import Mapping

import pytest

from kfext.model.namespace import Namespace
from kfext.names import MANAGED

LABELS: dict[str, tuple[Mapping[str, str], bool]] = {
    "opted in": ({MANAGED: "true"}, True),
    "opted out": ({MANAGED: "false"}, False),
    "in a different spelling": ({MANAGED: "True"}, False),
    "no label": ({}, False),
}


@pytest.mark.parametrize(("labels", "want"), LABELS.values(), ids=LABELS)
def test_a_namespace_is_managed_once_an_administrator_labels_it(
    labels: Mapping[str, str], want: bool
) -> None:
    assert Namespace("", labels).managed is want
