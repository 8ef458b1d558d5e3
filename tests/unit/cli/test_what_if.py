"""`kubectl kfext plan --with/--without/--policy`: when jobs would start before and after."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kfext.cli.main import cli
from kfext.cli.what_if import Change, what_if, what_if_lines
from kfext.core.progress.reported import Progress, Reported
from kfext.core.queue.expected import ExpectedStart, decode_expected
from kfext.errors import UserError
from kfext.kube.snapshot_file import write_snapshot
from kfext.model.node import Taint
from kfext.model.policy import parse_policy
from kfext.model.snapshot import Snapshot
from kfext.names import DRAIN, HOSTNAME
from tests.builders import node
from tests.unit.cli.test_plan import runs, snapshot, waits

NOW = 10_000.0
PROGRESS = {"first": Reported(Progress(step=1, remaining=7200.0))}


def busy(*, cpu: str = "4") -> Snapshot:
    """A full node, and two jobs that wait for it."""
    jobs = (
        runs("first", "a", workers=4),
        waits("head", workers=4),
        waits("next", workers=1, created=1),
    )
    return snapshot(node("a", cpu=cpu), node("b", cpu="1", cordoned=True), jobs=jobs)


def starts(change: Change) -> dict[str, list[ExpectedStart | None]]:
    """When jobs would start, now and after a change."""
    rows = what_if(busy(), change, progress=PROGRESS, now=NOW)
    return {
        row["job"].rpartition("/")[2]: [decode_expected(row["now"]), decode_expected(row["then"])]
        for row in rows
    }


def seconds_to_start(change: Change) -> dict[str, list[float | None]]:
    """Seconds until jobs would start, now and after a change; None stands for unknown."""
    return {
        name: [start.time - NOW if start and start.time else None for start in result]
        for name, result in starts(change).items()
    }


def test_a_new_node_copies_a_node_by_its_name() -> None:
    """It is not cordoned, even if that node is."""
    assert seconds_to_start(Change(new=["1xa"]))["head"] == [pytest.approx(7200), 0]
    assert seconds_to_start(Change(new=["2xb"]))["next"] == [None, 0]


def test_a_new_node_has_labels_and_taints_but_its_own_name_and_state() -> None:
    taint = Taint("pool", "gpu")
    state = Taint("node.kubernetes.io/unschedulable"), Taint(DRAIN, "now", "PreferNoSchedule")
    snapshot = Snapshot(nodes=(replace(node("g", gpus=8, cordoned=True), taints=(taint, *state)),))
    _, *new = Change(new=["2x8gpu", "1x8gpu"]).applied_to(snapshot).nodes
    assert len({copy.name for copy in new}) == 3
    assert [copy.labels[HOSTNAME] for copy in new] == [copy.name for copy in new]
    assert {(copy.taints, copy.unschedulable) for copy in new} == {((taint,), False)}


def test_without_a_node_nothing_more_starts_there() -> None:
    assert seconds_to_start(Change(without=["a"]))["head"] == [pytest.approx(7200), None]


def test_a_policy_replaces_the_policy_of_its_name() -> None:
    released = {"metadata": {"name": "p"}, "spec": {"placement": {"releaseAfter": "0s"}}}
    change = Change(policies=[parse_policy(released)])
    assert change.applied_to(busy()).policies == (parse_policy(released),)
    assert starts(change)["head"][1] == ExpectedStart(unknown="it does not wait for capacity")


WRONG = {
    "no number": (Change(new=["gpu"]), "'gpu' is not NUMBERxNODE, e.g. 4x8gpu"),
    "no such node": (Change(new=["2x7gpu"]), "'2x7gpu': no node is of that kind"),
    "too many": (Change(new=["1000xa"]), "'1000xa' is not NUMBERxNODE"),
    "not a node": (Change(without=["c"]), "'c' is no node, e.g. a"),
}


@pytest.mark.parametrize(("change", "said"), WRONG.values(), ids=WRONG)
def test_a_wrong_change_is_named(change: Change, said: str) -> None:
    with pytest.raises(UserError, match=said):
        change.applied_to(busy())


def test_the_output_for_a_person() -> None:
    rows = what_if(busy(), Change(new=["1xa"]), progress=PROGRESS, now=NOW)
    head, *lines = what_if_lines(rows)
    assert head.split() == ["JOB", "NOW", "THEN", "WHY"]
    assert [line.split()[1] for line in lines] == ["team/head", "team/next"]
    assert lines[0].split()[-2:] == ["02:46-02:47", "UTC"]
    assert [*what_if_lines([])] == ["no job waits"]


def run(tmp_path: Path, *arguments: str) -> Any:
    path = tmp_path / "snapshot.json"
    write_snapshot(path, busy(), at=NOW)
    return CliRunner().invoke(cli, ["plan", "--snapshot", str(path), *arguments])


def test_the_command_accepts_a_snapshot(tmp_path: Path) -> None:
    result = run(tmp_path, "--with", "1xa", "-o", "json")
    assert result.exit_code == 0
    rows = {row["job"]: row["then"] for row in json.loads(result.stdout)}
    assert rows["PyTorchJob team/head"]["time"] == "1970-01-01T02:46:40Z"


def test_jobs_and_a_change_do_not_go_together(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("kind: PyTorchJob")
    result = run(tmp_path, "--with", "1xa", "-f", str(tmp_path / "job.yaml"))
    assert result.exit_code == 2
    assert "-f, or a change with --with" in result.stderr
