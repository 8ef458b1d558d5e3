"""The pages on installation, as the end-to-end tests run them: one command a line."""

import subprocess

import pytest

from e2e.harness.manual import commands

SECTIONS = ("Install", "Upgrade", "Roll back to 0.3", "Renew the certificates by hand", "Remove")


@pytest.mark.parametrize("section", SECTIONS)
def test_every_line_of_the_manual_is_a_whole_command(section: str) -> None:
    typed = commands(section)
    assert typed
    for command in typed:
        subprocess.run(["bash", "-n", "-c", command], check=True)
