"""The schema, the sample and the docs of the settings, and the board, against their sources."""

from pathlib import Path

import pytest

from kfext import names
from kfext.core.settings.table import TABLE, parse_setting
from tests.contract.generated import FILES, generated


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_each_generated_file_is_up_to_date(path: Path) -> None:
    assert path.read_text() == generated(path), "run make generate"


@pytest.mark.parametrize("key", TABLE)
def test_the_example_of_a_setting_is_well_formed(key: str) -> None:
    parse_setting(key, TABLE[key].example, place="the table")


def test_every_setting_that_the_code_names_is_in_the_table() -> None:
    named = {name: getattr(names, name) for name in SETTINGS}
    assert set(named.values()) <= TABLE.keys()


SETTINGS = (
    *("COLOCATION", "NETWORK", "ELASTIC", "RESIZE", "MIGRATE", "METRICS"),
    *("GPU_SHARE", "GPU_MEMORY", "GPU_PRIORITY", "GPU_LOSS_BUDGET", "GPU_MIN_SHARE"),
)
"""The names of settings in kfext.names, for messages."""
