"""In a parallel run, cases that share a cluster or a set-up are run by one process."""

import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from e2e.testbed.paths import REPOSITORY

HOOK = "from e2e.cases.conftest import pytest_xdist_make_scheduler\n"
CASE = """
import os, pathlib, pytest

@pytest.mark.parametrize("number", range(4))
def test_case(number):
    told = f"{os.environ['PYTEST_XDIST_WORKER']} {pathlib.Path(__file__).parent.name}\\n"
    with open(os.environ["TOLD"], "a") as file:
        file.write(told)
"""


def test_each_group_has_one_process_and_both_processes_work(tmp_path: Path) -> None:
    cases, told = tmp_path / "cases", tmp_path / "told"
    for folder in ("real/first", "real/second", "fake"):
        (cases / folder).mkdir(parents=True)
        (cases / folder / f"test_{folder.replace('/', '_')}.py").write_text(CASE)
    (cases / "conftest.py").write_text(HOOK)
    subprocess.run(
        [sys.executable, "-m", "pytest", str(cases), "--numprocesses=2"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(REPOSITORY), "TOLD": str(told)},
        check=True,
        capture_output=True,
    )
    processes = defaultdict(set)
    for line in told.read_text().splitlines():
        process, folder = line.split()
        processes["fake" if folder == "fake" else "real"].add(process)
    assert {group: len(of) for group, of in processes.items()} == {"real": 1, "fake": 1}
    assert processes["real"] != processes["fake"]
