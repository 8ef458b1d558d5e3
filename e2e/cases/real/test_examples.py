"""Each file in examples/ trains to its end as it stands."""

from pathlib import Path

import pytest
import yaml

from e2e.harness.install import kubectl
from e2e.harness.jobs import ended, jobs_path
from e2e.harness.training import TRAINED_SECONDS
from e2e.harness.wait import until
from e2e.testbed.cluster import Testbed
from e2e.testbed.paths import REPOSITORY

FILES = sorted((REPOSITORY / "examples").glob("*.yaml"))


@pytest.mark.long
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_example_trains_to_its_end(bed: Testbed, managed: str, path: Path) -> None:
    kubectl(bed, "apply", "-n", managed, "-f", str(path))

    manifest = yaml.safe_load(path.read_text())
    job = jobs_path(managed, manifest["kind"], manifest["metadata"]["name"])
    how = until(lambda: ended(bed.api.get(job)), what="it has ended", seconds=TRAINED_SECONDS)

    assert how == "Succeeded"
