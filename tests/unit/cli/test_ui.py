"""`kubectl kfext ui`: its output at the start, and the page of a snapshot."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from kfext.cli.main import cli
from kfext.cli.plan import Forecast
from kfext.cli.ui import _greeting, snapshot_source
from kfext.cli.ui_state import JobView
from kfext.kube.snapshot_file import SnapshotFile
from tests.unit.cli.test_nodes import cluster
from tests.unit.cli.test_plan import NOW

ADDRESS = "http://127.0.0.1:8787/?token=secret"
FORWARD = "ssh -L 8787:127.0.0.1:8787"
OVER: dict[str, tuple[str, str]] = {
    "ssh": ("10.0.0.1 51234 10.0.0.2 22", f"{FORWARD} ada@10.0.0.2"),
    "ssh on another port": ("10.0.0.1 51234 10.0.0.2 2222", f"{FORWARD} -p 2222 ada@10.0.0.2"),
}


@pytest.mark.parametrize(("connection", "want"), OVER.values(), ids=OVER)
def test_over_ssh_the_command_prints_the_forward_to_type(
    monkeypatch: pytest.MonkeyPatch, connection: str, want: str
) -> None:
    monkeypatch.setenv("SSH_CONNECTION", connection)
    monkeypatch.setattr("getpass.getuser", lambda: "ada")
    first, second, _ = _greeting(ADDRESS)
    assert (ADDRESS in first, second.endswith(f": {want}")) == (True, True)


def test_without_ssh_only_the_address_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    assert _greeting(ADDRESS) == [f"kfext is at {ADDRESS}", "Ctrl-C ends it."]


def shown() -> dict[str, JobView]:
    source = snapshot_source(SnapshotFile("0.4", NOW, cluster()))
    return {view.row["name"]: view for view in source.jobs()}


def test_a_snapshot_shows_its_jobs_as_their_training_plans_would() -> None:
    views = shown()
    (answer,) = Forecast(cluster(), now=NOW).queue()
    queued, train = views["queued"].row, views["train"].row
    assert (queued["phase"], queued["reason"], queued["ahead"]) == ("Queued", answer.reason, 0)
    assert "; ".join([*queued["why"], *queued["place"]]) == answer.message
    assert queued["startsShort"]
    assert (train["places"], train["requests"]["cpu"]) == ([["b", 2]], 1)


async def test_a_snapshot_shows_free_capacity_and_that_it_is_a_snapshot() -> None:
    source = snapshot_source(SnapshotFile("0.4", NOW, cluster()))
    await source.ready()
    state = source.state()
    assert {name: row["free"] for name, row in state["nodes"].items()} == {"a": 8, "b": 8}
    ((text, views),) = [(note["text"], note["views"]) for note in state["notes"]]
    assert "a controller of kfext 0.4 knew at" in text
    assert views == ()
    assert "snapshot" in (await source.explain(shown()["train"]))[0]


def test_a_file_that_is_no_snapshot_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("{}")
    done = CliRunner().invoke(cli, ["ui", "--snapshot", str(tmp_path / "file")])
    assert done.exit_code == 1
    assert "is not a snapshot" in str(done.exception)
