"""`kfext render`: stdout is for machines, stderr for people, the exit code for scripts."""

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jsonpatch
import pytest
import yaml

from kfext import names
from kfext.cli.main import main
from kfext.core.admission.new_job import mutate_job
from kfext.core.admission.review import ReviewContext
from kfext.model.namespace import Namespace
from tests.setting_samples import MALFORMED
from tests.unit.objects import Raw, job, replica


class Result(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Result]


@pytest.fixture
def kfext(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: str, stdin: str = "") -> Result:
        monkeypatch.setattr(sys, "argv", ["kfext", *arguments])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        with pytest.raises(SystemExit) as end:
            main()
        out, err = capsys.readouterr()
        return Result(int(end.value.code or 0), out, err)

    return run


def write_file(folder: Path, *documents: Any) -> str:
    file = folder / "job.yaml"
    file.write_text(yaml.safe_dump_all(documents))
    return str(file)


CONTEXT = ReviewContext(namespace=Namespace("", {names.MANAGED: "true"}), controller_alive=True)


def test_the_patch_equals_the_patch_of_the_webhook(kfext: Run, tmp_path: Path) -> None:
    result = kfext("render", "-f", write_file(tmp_path, job()), "-o", "patch")
    assert result.code == 0
    assert json.loads(result.out) == list(mutate_job(job(), CONTEXT).ops)


@pytest.mark.parametrize(("output", "read"), [("yaml", yaml.safe_load), ("json", json.loads)])
def test_the_job_is_as_the_api_server_would_store_it(
    kfext: Run, tmp_path: Path, output: str, read: Callable[[str], Any]
) -> None:
    result = kfext("render", "-f", write_file(tmp_path, job()), "-o", output)
    want = jsonpatch.apply_patch(job(), list(mutate_job(job(), CONTEXT).ops))
    assert (result.code, read(result.out)) == (0, want)
    assert "PyTorchJob/train: Held: suspended until 3 pods can be placed together" in result.err


ELASTIC = {names.ELASTIC: "1-8"}
TRAINS: Raw = {
    "containers": [{"name": "pytorch", "image": "i", "command": ["torchrun", "train.py"]}]
}
MADE_ELASTIC = {
    "a Master and Workers": job(
        annotations=ELASTIC, specs={"Master": replica(1, **TRAINS), "Worker": replica(2, **TRAINS)}
    ),
    "a Master alone": job(annotations=ELASTIC, specs={"Master": replica(1, **TRAINS)}),
}


@pytest.mark.parametrize("raw", MADE_ELASTIC.values(), ids=MADE_ELASTIC)
def test_a_job_made_elastic_has_workers_alone(kfext: Run, tmp_path: Path, raw: Raw) -> None:
    result = kfext("render", "-f", write_file(tmp_path, raw))
    shown = yaml.safe_load(result.out)
    assert shown == jsonpatch.apply_patch(raw, list(mutate_job(raw, CONTEXT).ops))
    assert shown["spec"]["pytorchReplicaSpecs"].keys() == {"Worker"}
    assert "PyTorchJob/train: MadeElastic: the job now starts with torchrun" in result.err


def test_a_notice_of_many_clauses_is_a_list(kfext: Run, tmp_path: Path) -> None:
    result = kfext("render", "-f", write_file(tmp_path, job(annotations={names.NETWORK: "host"})))
    lines = result.err.splitlines()
    at = next(at for at, line in enumerate(lines) if "PyTorchJob/train: HostNetwork: " in line)
    edits = [line for line in lines[at + 1 : at + 7] if line.startswith("  - ")]
    assert len(edits) == 6
    assert edits[0].startswith("  - hostNetwork is true, because ")
    assert [line for line in lines if len(line.split()) > 28] == []


def test_rendered_output_needs_no_patch(kfext: Run, tmp_path: Path) -> None:
    once = kfext("render", "-f", write_file(tmp_path, job())).out
    assert kfext("render", "-f", "-", "-o", "patch", stdin=once).out == "[]\n"


def test_many_documents_keep_their_order_and_other_documents_are_unchanged(
    kfext: Run, tmp_path: Path
) -> None:
    other = {"kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"x": "y"}}
    listed = {"kind": "List", "items": [job("TFJob")]}
    result = kfext("render", "-f", write_file(tmp_path, other, job(), listed))
    documents = list(yaml.safe_load_all(result.out))
    assert [document["kind"] for document in documents] == ["ConfigMap", "PyTorchJob", "TFJob"]
    assert documents[0] == other
    assert "ConfigMap/c: not a training job" in result.err


BAD_INPUT = {
    "broken YAML": ("a: [b\nc: {", "error: standard input is not YAML: ", 1),
    "no document": ("---\n", "error: standard input contains no document", 1),
    "a malformed setting": (
        yaml.safe_dump(job(annotations={names.ELASTIC: MALFORMED[names.ELASTIC]})),
        "refused: annotation kfext.dev/elastic of the job: "
        f"{MALFORMED[names.ELASTIC]!r} is not allowed; allowed: MIN-MAX",
        1,
    ),
    "a bare off, which YAML reads as false": (
        "kind: PyTorchJob\nmetadata: {name: x, annotations: {kfext.dev/colocation: off}}",
        "annotation kfext.dev/colocation is false, not a string: put it in quotes",
        1,
    ),
}


@pytest.mark.parametrize(("text", "words", "code"), BAD_INPUT.values(), ids=BAD_INPUT)
def test_bad_input_is_reported_in_one_line(kfext: Run, text: str, words: str, code: int) -> None:
    result = kfext("render", "-f", "-", stdin=text)
    assert (result.code, result.out) == (code, "")
    assert words in result.err
    assert "Traceback" not in result.err
    assert result.err.count("\n") == 1


def test_if_a_job_is_refused_no_job_is_printed(kfext: Run, tmp_path: Path) -> None:
    refused = job(annotations={names.RESIZE: "x"})
    result = kfext("render", "-f", write_file(tmp_path, job(), refused))
    assert (result.code, result.out) == (1, "")


USAGE = {
    "no file": ["render"],
    "a file that does not exist": ["render", "-f", "/does/not/exist"],
    "an unknown output": ["render", "-f", "-", "-o", "xml"],
    "an unknown command": ["frobnicate"],
    "release without a job": ["release"],
    "release of one job and all": ["release", "x", "--all"],
    "all namespaces for one job": ["release", "x", "-A"],
}


@pytest.mark.parametrize("arguments", USAGE.values(), ids=USAGE)
def test_wrong_usage_ends_with_2(kfext: Run, arguments: list[str]) -> None:
    assert kfext(*arguments).code == 2


POLICY: dict[str, Any] = {
    "kind": "TrainingPolicy",
    "metadata": {"name": "gold"},
    "spec": {"settings": {"colocation": "required"}},
}
NAMESPACE: dict[str, Any] = {
    "kind": "Namespace",
    "metadata": {"name": "team", "labels": {names.MANAGED: "true", "tier": "red"}},
}


def file(folder: Path, name: str, document: Any) -> str:
    (folder / name).write_text(yaml.safe_dump(document))
    return str(folder / name)


def test_a_policy_and_a_namespace_apply(kfext: Run, tmp_path: Path) -> None:
    arguments = ["render", "-f", write_file(tmp_path, job())]
    policy = file(tmp_path, "policy", POLICY)
    assert "colocation required, from TrainingPolicy gold" in (
        kfext(*arguments, "--policy", policy).err
    )
    metadata = {**NAMESPACE["metadata"], "annotations": {names.COLOCATION: "off"}}
    namespace = file(tmp_path, "namespace", {**NAMESPACE, "metadata": metadata})
    result = kfext(*arguments, "--policy", policy, "--namespace-file", namespace)
    assert "NotHeld: colocation is off (from the namespace)" in result.err


def test_a_policy_that_does_not_select_the_namespace_says_so(kfext: Run, tmp_path: Path) -> None:
    selector = {"matchLabels": {"tier": "blue"}}
    policy = {**POLICY, "spec": {**POLICY["spec"], "namespaceSelector": selector}}
    files = ["--policy", file(tmp_path, "policy", policy)]
    files += ["--namespace-file", file(tmp_path, "namespace", NAMESPACE)]
    result = kfext("render", "-f", write_file(tmp_path, job()), *files)
    assert "note: TrainingPolicy gold does not select the namespace" in result.err
    assert "colocation preferred, from the default" in result.err


def test_a_namespace_that_is_not_managed_says_so(kfext: Run, tmp_path: Path) -> None:
    namespace = {"kind": "Namespace", "metadata": {"name": "team"}}
    files = ["--namespace-file", file(tmp_path, "namespace", namespace)]
    result = kfext("render", "-f", write_file(tmp_path, job()), *files)
    assert "not labelled kfext.dev/managed=true" in result.err
    assert yaml.safe_load(result.out) == job()


def test_a_policy_file_with_another_object_is_reported(kfext: Run, tmp_path: Path) -> None:
    policy = file(tmp_path, "policy", NAMESPACE)
    result = kfext("render", "-f", write_file(tmp_path, job()), "--policy", policy)
    assert (result.code, result.out) == (1, "")
    assert "--policy requires a TrainingPolicy, not Namespace/team" in result.err


def test_a_time_stays_a_string_as_for_kubectl(kfext: Run) -> None:
    text = yaml.safe_dump(job()) + "status: {startTime: 2026-11-21T10:00:00Z}\n"
    result = kfext("render", "-f", "-", "-o", "json", stdin=text)
    assert json.loads(result.out)["status"] == {"startTime": "2026-11-21T10:00:00Z"}


def test_a_missing_cluster_is_reported_in_one_line(
    kfext: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    missing = str(tmp_path / "none")
    for command in (["explain", "x"], ["release", "x"]):
        result = kfext(*command, "-n", "team", "--kubeconfig", missing)
        assert (result.code, result.out) == (1, "")
        assert result.err == f"error: no usable kubeconfig ({missing}): no such file\n"
