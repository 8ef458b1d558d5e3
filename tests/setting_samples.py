"""A well-formed and a malformed value of every setting, for tests of all settings."""

from kfext.core.settings.table import TABLE

WELL_FORMED = {key: row.example for key, row in TABLE.items()}
"""Key -> a value that is not the default."""
MALFORMED = dict.fromkeys(TABLE, "no such value")
