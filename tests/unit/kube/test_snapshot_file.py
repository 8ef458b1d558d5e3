"""The file of a snapshot: written and read back, and planned on by `kfext plan --snapshot`."""

from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kfext.cli.main import cli
from kfext.errors import UserError
from kfext.kube.snapshot_file import encode_snapshot, read_snapshot_file, write_snapshot
from kfext.model.kinds.registered import KINDS
from kfext.model.namespace import Namespace
from kfext.model.snapshot import Snapshot
from kfext.names import MANAGED
from kfext.state.planner.recording import snapshot_of
from tests.builders import job, node
from tests.unit.state.history import ACTS, CROWDED, History

TEAM = {"team": Namespace("team", labels={MANAGED: "true"})}
JOB = """
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: train, namespace: team}
spec:
  pytorchReplicaSpecs:
    Worker:
      replicas: 3
      template:
        spec:
          containers: [{name: pytorch, resources: {requests: {cpu: "1"}}}]
"""


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_a_written_snapshot_is_read_back(tmp_path: Path, data: st.DataObject) -> None:
    history = History(data)
    for act in (*CROWDED, *data.draw(st.lists(st.sampled_from(ACTS), max_size=20))):
        act(history)
    snapshot = snapshot_of(history.planner, history.moment)
    path = tmp_path / "snapshot.json"
    assert write_snapshot(path, snapshot, at=7.0) == path.stat().st_size
    result = read_snapshot_file(path.read_bytes(), name="snapshot.json")
    assert (result.snapshot, result.taken) == (snapshot, 7.0)
    assert all(job.kind is KINDS[job.kind.name] for job in result.snapshot.jobs)
    assert [file.name for file in tmp_path.iterdir()] == ["snapshot.json"]


@pytest.mark.parametrize("content", [b"", b"{}", b"[1", b'{"kfext": 1}'], ids=repr)
def test_a_file_that_is_not_a_snapshot_is_refused_by_name(content: bytes) -> None:
    with pytest.raises(UserError, match=r"case\.json is not a snapshot of kfext"):
        read_snapshot_file(content, name="case.json")


@pytest.fixture
def snapshot_file(tmp_path: Path) -> Path:
    """Return the file of a snapshot: a cluster of four CPUs where a job of six waits."""
    waits = job(name="big", uid="big").worker(6, cpu="1").held().build()
    path = tmp_path / "snapshot.json"
    write_snapshot(
        path, Snapshot(nodes=(node("a", cpu="4"),), jobs=(waits,), namespaces=TEAM), at=100.0
    )
    return path


def test_a_job_is_planned_on_a_file_without_a_cluster(snapshot_file: Path, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(JOB)
    result = CliRunner().invoke(
        cli, ["plan", "-f", str(tmp_path / "job.yaml"), "--snapshot", str(snapshot_file)]
    )
    assert result.exit_code == 0, result.output
    assert "PyTorchJob team/train: would start now" in result.output
    assert "  train-worker-2  a\n" in result.output


def test_without_a_job_file_the_queue_of_the_snapshot_is_shown(snapshot_file: Path) -> None:
    result = CliRunner().invoke(cli, ["plan", "--snapshot", str(snapshot_file)])
    assert result.exit_code == 3  # no job would start
    assert "PyTorchJob team/big: would wait" in result.output
    assert "TooBig" in result.output


def test_without_a_job_file_and_a_snapshot_the_usage_is_shown() -> None:
    result = CliRunner().invoke(cli, ["plan"])
    assert result.exit_code == 2
    assert "--snapshot" in result.output


@pytest.mark.parametrize("taken", [-1.0, 1e13, 1e300])
def test_a_snapshot_with_an_impossible_time_is_refused(taken: float) -> None:
    content = encode_snapshot(Snapshot(), at=taken)
    with pytest.raises(UserError, match=r"case\.json: taken is .*: it must be epoch seconds"):
        read_snapshot_file(content, name="case.json")
