"""A plain job visits few files, and none of a feature that it does not request."""

from tests import traces
from tests.unit.gpu.test_plain_job import SEAMS

MOST = 76
"""The most files from CREATE to the pins; each placement also asks which nodes are suspect."""


def test_a_plain_job_visits_few_files() -> None:
    files = traces.plain()
    assert len(files) <= MOST, sorted(files)
    assert {"core/admission/new_job.py", "core/patches/pod.py", "state/planner/planner.py"} <= files


def test_a_plain_job_visits_no_file_of_gpu_sharing_and_none_of_the_companion() -> None:
    files = traces.plain()
    assert [file for file in files if file.startswith(("gpu/", "state/running/"))] == []
    assert files.isdisjoint({f"{seam}.py" for seam in SEAMS})


def test_an_elastic_job_shows_where_the_companion_is_visited() -> None:
    assert "state/running/proposal.py" in traces.elastic()
