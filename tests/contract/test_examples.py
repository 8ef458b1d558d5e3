"""The jobs in the docs equal the jobs in examples/, and admission accepts all of them.

End-to-end cases train them.
"""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.playground import STORY, Scene
from kfext import names
from kfext.core.admission.new_job import mutate_job
from kfext.core.admission.review import ReviewContext
from kfext.core.settings.table import TABLE
from kfext.model.kinds.registered import KINDS
from kfext.model.namespace import Namespace
from tests.contract.manifests import REPOSITORY

FILES = sorted((REPOSITORY / "examples").glob("*.yaml"))
PROGRAMS = sorted((REPOSITORY / "examples").glob("*.py"))
TABLES = sorted((REPOSITORY / "examples").glob("*.csv"))
NAMED = re.compile(r"\bexamples/([\w.]*\w)")
BLOCKS = [
    (page.name, block)
    for page in sorted((REPOSITORY / "docs").glob("*.md"))
    for block in re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    if block.startswith("apiVersion: kubeflow.org/v1\n")
]


def test_a_job_in_the_docs_is_a_file_in_examples() -> None:
    examples = {path.read_text() for path in FILES}
    assert [page for page, block in BLOCKS if block not in examples] == []


def test_an_example_that_a_page_names_exists() -> None:
    pages = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
    named = {name for page in pages for name in NAMED.findall(page.read_text())}
    assert named <= {path.name for path in (*FILES, *PROGRAMS, *TABLES)}
    assert named >= {path.name for path in PROGRAMS}


def jobs_of(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the jobs of a file, or the trials that Katib would create for an Experiment."""
    first, *more = yaml.safe_load_all(path.read_text())
    if first["kind"] != "Experiment":
        yield from (first, *more)
        return
    template = first["spec"]["trialTemplate"]
    for number in range(first["spec"]["maxTrialCount"]):
        written = yaml.safe_dump(template["trialSpec"])
        for parameter in template["trialParameters"]:
            written = written.replace(f"${{trialParameters.{parameter['name']}}}", "0.01")
        trial = yaml.safe_load(written)
        metadata = {**trial["metadata"], "name": f"{first['metadata']['name']}-{number}"}
        yield {**trial, "metadata": metadata}


JOBS = [
    pytest.param(job, id=f"{path.stem}-{job['metadata']['name']}")
    for path in FILES
    for job in jobs_of(path)
]
MANAGED = ReviewContext(namespace=Namespace("", {names.MANAGED: "true"}), controller_alive=True)


@pytest.mark.parametrize("job", JOBS)
def test_an_example_has_known_settings_on_the_metadata_of_the_job(job: dict[str, Any]) -> None:
    assert set(job["metadata"]["annotations"]) <= TABLE.keys()
    assert "${" not in yaml.safe_dump(job)


@pytest.mark.parametrize("job", [job for job in JOBS if job.values[0]["kind"] in KINDS])  # type: ignore[index]
def test_an_example_is_held_at_its_creation(job: dict[str, Any]) -> None:
    decided = mutate_job(job, MANAGED)
    assert decided.refusal == ""
    assert decided.verdicts[0].reason == names.REASON_HELD


def test_the_page_on_the_first_day_has_the_commands_of_the_playground_in_order() -> None:
    page = (REPOSITORY / "docs" / "first-day.md").read_text()
    typed = [line.partition("  #")[0] for line in page.splitlines() if line.startswith("kubectl")]
    played = [scene.command for scene in STORY]
    assert [line for line in typed if line in played] == played


@pytest.mark.parametrize("scene", STORY, ids=lambda scene: scene.shows)
def test_a_command_of_the_playground_is_a_whole_command_about_jobs_that_exist(scene: Scene) -> None:
    subprocess.run(["bash", "-n", "-c", scene.command], check=True)
    assert set(NAMED.findall(scene.command)) <= {path.name for path in FILES}
    names_ = {job.values[0]["metadata"]["name"] for job in JOBS}  # type: ignore[index]
    assert set(re.findall(r"explain (\w+)", scene.command)) <= names_


def test_every_example_is_in_the_table_of_its_page() -> None:
    page = (REPOSITORY / "examples" / "README.md").read_text()
    assert set(re.findall(r"^\| `(.+?)`", page, re.MULTILINE)) == {
        path.name for path in (*FILES, *PROGRAMS, *TABLES)
    }
