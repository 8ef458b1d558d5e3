"""The command line on the real cluster: its answers match the later decisions."""

import csv
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from e2e.harness.jobs import Object, ended, job, template, workers
from e2e.harness.kfext_process import COMMAND
from e2e.harness.pods import limit_pods, succeed
from e2e.harness.space import Space

GPU = {"nvidia.com/gpu": "1", "cpu": "1"}
REQUIRED = {"kfext.dev/colocation": "required"}
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


def kfext(
    space: Space, *arguments: str, sent: str = "", user: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a command in the namespace as the administrator, or as `user`, who has no permissions.

    `sent`: its standard input.
    """
    bed = space.kfext.testbed
    config = bed.kubeconfig
    if user:
        path = bed.folder / "kubeconfigs" / f"{user}.yaml"
        config = bed.pki.kubeconfig(path, server=bed.server, user=user)
    return subprocess.run(
        [str(COMMAND), *arguments, "-n", space.name],
        input=sent,
        env={**os.environ, "KUBECONFIG": str(config), "NO_PROXY": "*"},
        capture_output=True,
        text=True,
        check=False,
    )


def planned(space: Space, *manifests: Object) -> list[dict[str, Any]]:
    """Return the answers of `kfext plan -f -` for these jobs, sent as one stream."""
    steered = [space.steer(manifest) for manifest in manifests]
    sent = "\n---\n".join(map(json.dumps, steered))
    done = kfext(space, "plan", "-f", "-", "-o", "json", sent=sent)
    assert done.returncode in {0, 3}, done.stderr
    answers: list[dict[str, Any]] = json.loads(done.stdout)
    assert done.returncode == (3 if any(answer["outcome"] == "waits" for answer in answers) else 0)
    return answers


def test_plan_names_the_nodes_where_the_pods_are_then_placed(space: Space) -> None:
    space.nodes(3, cpu="32", memory="64Gi", gpu="8")
    elastic = job(
        "elastic",
        {"PS": 1, "Worker": 5},
        kind="TFJob",
        each=GPU,
        annotations={"kfext.dev/elastic": "2-6"},
    )
    elastic["spec"]["enableDynamicWorker"] = True
    for manifest in (
        workers("one-node", 4, each=GPU),
        workers("two-nodes", 12, each=GPU),
        workers("required", 4, each=GPU, annotations=REQUIRED),
        elastic,
    ):
        name, kind = manifest["metadata"]["name"], manifest["kind"]
        (answer,) = planned(space, manifest)
        assert answer["outcome"] == "starts"
        space.submit(manifest)
        space.phase(name, "Placed", kind=kind)
        assert space.nodes_by_pod(name) == answer["nodes"]
    assert "2 fewer workers than requested" in answer["message"]


def test_jobs_of_one_file_are_planned_one_after_the_other(space: Space) -> None:
    space.nodes(2, cpu="32", memory="64Gi", gpu="8")
    manifests = [workers(name, 6, each=GPU) for name in ("first", "second", "third")]
    answers = planned(space, *manifests)
    assert [answer["outcome"] for answer in answers] == ["starts", "starts", "waits"]
    for manifest, answer in zip(manifests[:2], answers, strict=False):
        space.submit(manifest)
        space.phase(manifest["metadata"]["name"], "Placed")
        assert space.nodes_by_pod(manifest["metadata"]["name"]) == answer["nodes"]


def no_room(space: Space) -> Object:
    space.submit(workers("before", 4, each=GPU))
    space.phase("before", "Placed")
    return workers("asked", 6, each=GPU)


def one_node(_space: Space) -> Object:
    return workers("asked", 9, each=GPU, annotations=REQUIRED)


def no_node(_space: Space) -> Object:
    manifest = workers("asked", 1, each=GPU)
    template(manifest, "Master")["spec"]["nodeSelector"] = {"zone": "moon"}
    return manifest


def over_quota(space: Space) -> Object:
    limit_pods(space, 2)
    return workers("asked", 3, each=GPU)


def reserved(space: Space) -> Object:
    space.policy(placement={"reserveAfter": "1s"})
    space.submit(workers("before", 4, each=GPU))
    space.phase("before", "Placed")
    space.submit(workers("head", 8, each=GPU))
    space.until(
        lambda: "is reserved for it" in space.view("head").get("message", ""), "it is reserved"
    )
    return workers("asked", 1, each=GPU)


WAITS: dict[str, Callable[[Space], Object]] = {
    "NoRoom": no_room,
    "TooBig": one_node,
    "NoEligibleNode": no_node,
    "QuotaExceeded": over_quota,
    "Reserved": reserved,
}


@pytest.mark.parametrize(("reason", "scene"), WAITS.items(), ids=WAITS)
def test_plan_gives_the_same_reason_and_message_as_the_trainingplan(
    space: Space, reason: str, scene: Callable[[Space], Object]
) -> None:
    space.nodes(1, cpu="32", memory="64Gi", gpu="8")
    manifest = scene(space)
    (answer,) = planned(space, manifest)
    assert (answer["outcome"], answer["reason"], answer["nodes"]) == ("waits", reason, {})
    space.submit(manifest)
    space.until(
        lambda: space.view("asked").get("message") == answer["message"],
        f"the TrainingPlan shows: {answer['message']}",
    )
    assert space.view("asked")["reason"] == reason


def test_plan_refuses_the_same_jobs_as_the_api_server(space: Space) -> None:
    wrong = workers("wrong", 1, each=GPU, annotations={"kfext.dev/colocation": "always"})
    done = kfext(space, "plan", "-f", "-", sent=json.dumps(wrong))
    assert done.returncode == 1
    refusal = space.try_submit(wrong).message
    assert done.stderr.strip().split("refused: ")[1] in refusal


def test_plan_names_no_nodes_in_a_namespace_that_is_not_managed(new_space: Any) -> None:
    plain = new_space(managed=False)
    (answer,) = planned(plain, workers("plain", 1, each=GPU))
    assert (answer["outcome"], answer["nodes"]) == ("not-held", {})


def test_the_queue_is_listed_in_the_order_in_which_jobs_are_placed(space: Space) -> None:
    space.nodes(1, cpu="32", memory="64Gi", gpu="8")
    name = f"{space.name}-high"
    space.kube.create(
        CLASSES, {"metadata": {"name": name}, "value": 1000, "preemptionPolicy": "Never"}
    )
    space.submit(workers("runs", 8, each=GPU))
    space.phase("runs", "Placed")
    for waits in ("older", "younger"):
        space.submit(workers(waits, 8, each=GPU))
        space.phase(waits, "Queued")
    urgent = workers("urgent", 8, each=GPU, pod={"priorityClassName": name})
    space.submit(urgent)
    space.phase("urgent", "Queued")
    listed = json.loads(kfext(space, "queue", "-o", "json").stdout)
    order = [line["name"] for line in listed]
    assert order[0] == "urgent"
    assert (listed[0]["priority"], listed[0]["priorityClass"]) == (1000, name)
    assert {line["reason"] for line in listed} == {"NoRoom"}
    for job_name in ("runs", *order[:-1]):
        space.kube.delete(space.path("pytorchjobs", job_name))
        following = order[0] if job_name == "runs" else order[order.index(job_name) + 1]
        space.phase(following, "Placed")
    space.kube.delete(f"{CLASSES}/{name}")
    assert kfext(space, "queue").stdout == f"no job waits in namespace {space.name}\n"


def test_a_user_without_permissions_is_told_the_missing_permissions(space: Space) -> None:
    sent = json.dumps(workers("mine", 1, each=GPU))
    plan = kfext(space, "plan", "-f", "-", sent=sent, user="ann")
    assert plan.returncode == 1
    assert "you need the right to list in the whole cluster: pytorchjobs, tfjobs" in plan.stderr
    assert "nodes, persistentvolumeclaims, persistentvolumes, pods, priorityclasses" in plan.stderr
    assert "resourcequotas, sharedgpus, storageclasses, trainingpolicies" in plan.stderr
    queue = kfext(space, "queue", user="ann")
    assert queue.stderr.startswith("error: you may not list pytorchjobs in namespace")
    assert plan.stdout == queue.stdout == ""


def test_simulate_replays_the_jobs_of_a_namespace_under_a_policy(
    space: Space, tmp_path: Path
) -> None:
    space.nodes(2, cpu="8", memory="16Gi")
    names = ("ends-1", "ends-2")
    for name in names:
        space.submit(job(name, {"Master": 1}, each={"cpu": "2", "memory": "1Gi"}))
        space.bound(name, 1)
        succeed(space, f"{name}-master-0")
    space.until(lambda: all(ended(space.job(name)) for name in names), "both jobs end")
    saved = tmp_path / "jobs.csv"
    options = ("--from-cluster", "--save", str(saved), "--arms", "kfext", "--seeds", "1")
    done = kfext(space, "simulate", *options)
    assert done.stderr.startswith("jobs: 2 ended, 0 more of the same series; 0 of unknown"), done
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["ARM", "gang", "kfext"]
    assert {row["cpu"] for row in csv.DictReader(saved.read_text().splitlines())} == {"2000"}
    space.submit(job("other", {"Master": 1}, each={"cpu": "2"}))
    space.submit(job("another", {"Master": 1, "Worker": 1}, each={"cpu": "2"}))
    space.submit(job("third", {"Master": 1}, each={"cpu": "2"}, kind="TFJob"))
    few = kfext(space, "simulate", "--from-cluster")
    assert "the durations of 2 of 5 jobs are known, and a trace needs half" in few.stderr
    assert few.returncode == 1
