"""`kfext simulate`, run as a user runs it."""

import csv
import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kfext.cli.simulate import simulate
from kfext.errors import UserError
from kfext.sim.compare import Row
from kfext.sim.trace import Trace, trace_of
from kfext.sim.worlds import WORLDS
from tests.builders import job, moment, node
from tests.contract.manifests import REPOSITORY
from tests.contract.tables import quoted, table

JOBS = """name,arrives,kind,workers,servers,min,max,cpu,seconds
long,0,TFJob,3,1,1,6,1000,300
rigid,60,PyTorchJob,2,,,,1000,60
"""
POLICY = """
apiVersion: kfext.dev/v1alpha1
kind: TrainingPolicy
metadata: {name: calm}
spec:
  namespaceSelector: {matchLabels: {team: vision}}
  companion: {scale: {mode: "off"}}
"""


def run(*arguments: str) -> str:
    result = CliRunner().invoke(simulate, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture
def jobs(tmp_path: Path) -> str:
    path = tmp_path / "jobs.csv"
    path.write_text(JOBS)
    return str(path)


def test_a_file_of_jobs_is_compared_and_printed_as_a_table(jobs: str) -> None:
    head, *rows = run(
        jobs, "--nodes", "1x4000m", "--arms", "plain,kfext", "--seeds", "1"
    ).splitlines()
    assert head.split()[:4] == ["ARM", "MEAN", "s", "CHANGE"]
    assert [row.split()[0] for row in rows] == ["gang", "plain", "kfext"]
    assert rows[0].split()[-1] == "0/1"


def test_the_example_of_the_manual_runs_and_has_the_columns_of_the_manual() -> None:
    example = REPOSITORY / "examples/jobs.csv"
    arguments = (str(example), "--nodes", "2x4000m,1x8000m", "--arms", "kfext", "--seeds", "1")
    assert run(*arguments).splitlines()[-1].split()[-1] == "0/1"
    documented = {
        name for row in table("docs/simulate.md", "column") for name in quoted(row["column"])
    }
    assert {*example.read_text().splitlines()[0].split(",")} == documented


def test_csv_has_all_fields_of_a_row(jobs: str) -> None:
    (row,) = csv.DictReader(run(jobs, "--csv", "--arms", "gang", "--seeds", "2").splitlines())
    assert [*row] == [field.name for field in fields(Row)]
    assert (row["arm"], row["seeds"], row["unended"]) == ("gang", "2", "0")


def test_an_arm_that_never_ends_shows_dashes(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("name,workers,seconds\n" + "".join(f"job-{at},4,300\n" for at in range(6)))
    arguments = (str(path), "--nodes", "1x6000m", "--arms", "plain", "--seeds", "1")
    assert run(*arguments).splitlines()[-1].split() == ["plain", *["-"] * 10, "1/1"]


def test_a_training_policy_of_a_file_is_an_arm(jobs: str, tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY)
    arguments = (jobs, "--nodes", "1x8000m", "--policy", str(path), "--arms", "kfext", "--csv")
    rows = {row["arm"]: row for row in csv.DictReader(run(*arguments, "--seeds", "1").splitlines())}
    assert [*rows] == ["gang", "kfext", "calm"]
    assert float(rows["kfext"]["changes"]) > float(rows["calm"]["changes"]) == 0


def test_a_shipped_scenario_is_drawn_from_each_seed() -> None:
    first, second = (run("small", "--arms", "gang", "--seeds", "1", "--first", at) for at in "12")
    assert first != second


def test_the_help_names_all_scenarios() -> None:
    shown = " ".join(run("--help").split())
    assert ", ".join(WORLDS) in shown.replace("- ", "-")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(["nothing"], "'nothing' is no file, and none of small", id="no scenario"),
        pytest.param(["small", "--arms", "fast"], "arm 'fast' is none of plain", id="no arm"),
        pytest.param(["small", "--against", "fast"], "arm 'fast' is none of", id="nothing against"),
        pytest.param(["small", "--nodes", "1x1m"], "small has its own nodes", id="nodes"),
    ],
)
def test_a_wrong_argument_is_named(arguments: list[str], said: str) -> None:
    with pytest.raises(UserError, match=said):
        CliRunner().invoke(simulate, arguments, catch_exceptions=False)


def test_a_file_of_another_kind_is_no_policy(jobs: str, tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("kind: PyTorchJob\nmetadata: {name: a}\n")
    with pytest.raises(UserError, match="PyTorchJob/a is no TrainingPolicy"):
        CliRunner().invoke(simulate, [jobs, "--policy", str(path)], catch_exceptions=False)


WRONG_POLICIES = {
    "no name": ({"metadata": {}}, "metadata.name '' of a TrainingPolicy is empty"),
    "the name of an arm": ({"metadata": {"name": "gang"}}, "'gang' .* is the name of another arm"),
    "a field": ({"spec": {"compnion": {}}}, "mine: spec has no field 'compnion': it has"),
    "a policy": ({"spec": {"companion": {"scael": {}}}}, "spec.companion has no field 'scael'"),
    "a mode": (
        {"spec": {"companion": {"scale": {"mode": False}}}},
        'spec.companion.scale.mode False is none of "off", "observe", "act"',
    ),
    "a parameter": (
        {"spec": {"companion": {"scale": {"parameters": {"wiat": 5}}}}},
        "spec.companion.scale.parameters has no field 'wiat': it has .*wait",
    ),
    "a number": (
        {"spec": {"companion": {"scale": {"parameters": {"ceiling": 7}}}}},
        "parameters.ceiling 7 is not a number from 0 to 1, e.g. 0.97",
    ),
    "a text for a number": (
        {"spec": {"companion": {"scale": {"parameters": {"wait": "5"}}}}},
        "parameters.wait '5' is not a number from",
    ),
    "an order": (
        {"spec": {"queue": {"order": "shortst"}}},
        'spec.queue.order \'shortst\' is none of "arrival", "shortest"',
    ),
    "an order of the cluster for some namespaces": (
        {
            "spec": {
                "queue": {"fairness": "usage"},
                "namespaceSelector": {"matchLabels": {"a": "b"}},
            }
        },
        "mine: spec.queue.fairness usage orders the whole cluster: leave out namespaceSelector",
    ),
    "a setting": ({"spec": {"settings": {"elastic": "banana"}}}, "elastic.* 'banana'"),
    "a setting that is no text": (
        {"spec": {"settings": {"metrics": False}}},
        "spec.settings.metrics False is not text: quote it",
    ),
    "a setting of jobs alone": (
        {"spec": {"settings": {"gpu-share": "0.5"}}},
        "spec.settings has no field 'gpu-share'",
    ),
}


@pytest.mark.parametrize(("fields_", "said"), WRONG_POLICIES.values(), ids=WRONG_POLICIES)
def test_a_policy_that_the_cluster_would_refuse_is_refused(
    jobs: str, tmp_path: Path, fields_: dict[str, Any], said: str
) -> None:
    path = tmp_path / "policy.yaml"
    written = {"kind": "TrainingPolicy", "metadata": {"name": "mine"}, **fields_}
    path.write_text(json.dumps(written))
    with pytest.raises(UserError, match=said):
        CliRunner().invoke(simulate, [jobs, "--policy", str(path)], catch_exceptions=False)


def test_two_policies_of_one_name_are_refused(jobs: str, tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(f"{POLICY}---{POLICY}")
    with pytest.raises(UserError, match=r"'calm' .* is the name of another arm"):
        CliRunner().invoke(simulate, [jobs, "--policy", str(path)], catch_exceptions=False)


def test_a_large_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_bytes(b"a" * (16 * 2**20 + 1))
    with pytest.raises(UserError, match="is larger than"):
        CliRunner().invoke(simulate, [str(path)], catch_exceptions=False)


def serve_jobs(monkeypatch: pytest.MonkeyPatch, *jobs: Any) -> None:
    """Let the command read these jobs, and a node of four cores."""

    async def read_trace(_cluster: object) -> Trace:
        return trace_of(jobs, [node("a", cpu="4")])

    monkeypatch.setattr("kfext.cli.simulate._read_trace", read_trace)


def ended(number: int) -> Any:
    builder = job(name=f"train-{number}", uid=f"uid-{number}").created(100.0 * number)
    builder.raw["status"] = {"startTime": moment(100.0 * number + 10)}
    return builder.worker(2, cpu="1").condition("Succeeded", since=100.0 * number + 70).build()


def test_the_jobs_of_a_cluster_are_simulated_and_saved(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    serve_jobs(
        monkeypatch, ended(1), ended(2), job(name="other", uid="uid-other").worker(1).build()
    )
    saved = tmp_path / "jobs.csv"
    arguments = ["--from-cluster", "--save", str(saved), "--arms", "kfext", "--seeds", "1"]
    result = CliRunner().invoke(simulate, arguments, catch_exceptions=False)
    assert "2 ended, 0 more of the same series; 1 of unknown duration omitted" in result.stderr
    nodes = result.stderr.partition("with --nodes ")[2].split()[0]
    again = run(str(saved), "--nodes", nodes, "--arms", "kfext", "--seeds", "1")
    assert result.stdout == again


def test_a_file_that_cannot_be_written_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    serve_jobs(monkeypatch, ended(1))
    arguments = ["--from-cluster", "--save", str(tmp_path / "none" / "jobs.csv")]
    with pytest.raises(UserError, match=r"--save '.*none/jobs.csv': No such file or directory"):
        CliRunner().invoke(simulate, arguments, catch_exceptions=False)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "specify a CSV file, one of small, stream"),
        (("small", "--from-cluster"), "specify SCENARIO 'small' or --from-cluster, not both"),
        (("small", "--save", "jobs.csv"), "--save requires --from-cluster"),
        (("small", "-n", "team-a"), "-n requires --from-cluster"),
    ],
)
def test_jobs_come_from_a_file_or_from_a_cluster(arguments: tuple[str, ...], said: str) -> None:
    result = CliRunner().invoke(simulate, arguments)
    assert result.exit_code == 2
    assert said in result.stderr
