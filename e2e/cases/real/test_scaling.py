"""Real training scales down for a waiting gang and up again, and loses no saved step.

The manifests have only one annotation for this, `kfext.dev/elastic`.
"""

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from e2e.harness.elastic_jobs import elastic_ddp, elastic_ps, final_loss, half_node, journal
from e2e.harness.install import kubectl
from e2e.harness.journal import answers, resumes, worlds
from e2e.harness.training import pods_of, pytorch_job, submit, wait_trained
from e2e.harness.wait import until
from e2e.testbed.cluster import Testbed
from e2e.testbed.realnodes import Node

pytestmark = pytest.mark.long
Object = dict[str, Any]

FULL, LEAST = 4, 2
"""Pods of the job at full size (the cluster has capacity for no more), and at its minimum."""
PATIENCE = 900.0
"""A change takes a checkpoint, the start of slow pods, and a minute of quiet before growth."""
STEPS = 2000
TOLERANCE = 0.001
"""The difference between sums of the same numbers in different orders."""
ASYNCHRONOUS = 0.02
"""The same for workers that do not wait for each other, relative to the loss: they use slightly old
weights. The measured difference between one worker and three was 0.0013."""


@pytest.fixture
def folder(bed: Testbed, managed: str) -> Iterator[Path]:
    """The folder for the checkpoints of a case's jobs."""
    path = bed.folder / "checkpoints" / managed
    yield path
    shutil.rmtree(path, ignore_errors=True)


def test_a_torchrun_job_scales_down_for_a_gang_and_reaches_the_loss_of_an_undisturbed_job(
    bed: Testbed, managed: str, members: tuple[Node, Node], folder: Path
) -> None:
    cpu, where = half_node(members[0]), folder / "train"
    # It saves only on request: with a fresh checkpoint kfext would not need a request.
    paced = (*_steps(STEPS, least=0.8), "--every", str(STEPS))
    job = elastic_ddp("train", FULL, cpu=cpu, folder=where, sizes="2-4", arguments=paced)
    _gang_trains_first(bed, managed, cpu)
    sdk = submit(bed, job, managed)
    _wait(lambda: _trains(where, FULL), "the job trains on the whole cluster")

    _gang_comes_and_goes(bed, managed, cpu)
    # Its agents may need longer for the rendezvous than the gang needs to train.
    _wait(lambda: LEAST in worlds(journal(where)), "the remaining workers continue")
    assert answers(journal(where))

    _wait(lambda: _trains(where, FULL), "the job has scaled up again")
    wait_trained(sdk, job, managed)
    assert all(start.kept for start in resumes(journal(where)))

    alone = elastic_ddp("alone", 1, cpu=cpu, folder=folder / "alone", arguments=_steps(STEPS))
    wait_trained(submit(bed, alone, managed), alone, managed)
    assert final_loss(where) == pytest.approx(final_loss(folder / "alone"), abs=TOLERANCE)


def test_a_tfjob_with_a_server_and_dynamic_workers_scales_down_for_a_gang_and_up_again(
    bed: Testbed, managed: str, members: tuple[Node, Node], folder: Path
) -> None:
    cpu, where = half_node(members[0]), folder / "train"
    paced = _steps(2 * STEPS, least=0.3)
    job = elastic_ps("train", FULL - 1, cpu=cpu, folder=where, sizes="1-3", arguments=paced)
    _gang_trains_first(bed, managed, cpu)
    sdk = submit(bed, job, managed)
    _wait(lambda: _reached(where), "the job trains")
    _wait(lambda: len(_running(bed, managed)) == FULL, "all of its workers run")
    first = _running(bed, managed)

    _gang_comes_and_goes(bed, managed, cpu)
    _wait(lambda: len(_running(bed, managed)) == FULL, "the job has scaled up again")
    later = _running(bed, managed)
    assert {name for name in first if later[name] == first[name]} == {
        "train-ps-0",
        "train-worker-0",
    }

    wait_trained(sdk, job, managed)
    # Neither the server nor the first worker has restarted, so no step was lost.
    assert [start.step for start in resumes(journal(where))] == [0]

    steps, alone = _steps(2 * STEPS), folder / "alone"
    job = elastic_ps("alone", 1, cpu=cpu, folder=alone, arguments=steps)
    wait_trained(submit(bed, job, managed), job, managed)
    assert final_loss(where) == pytest.approx(final_loss(alone), rel=ASYNCHRONOUS)


def _steps(count: int, *, least: float = 0.0) -> Sequence[str]:
    """Return arguments of a job. `least`: the minimum seconds of a step with one worker."""
    return ("--steps", str(count), "--least", str(least))


def _gang(name: str, cpu: str) -> Object:
    gang: Object = pytorch_job(name, cpu=cpu, arguments=("--model", "cnn", "--steps", "40"))
    return gang


def _gang_trains_first(bed: Testbed, namespace: str, cpu: str) -> None:
    """Train a gang alone, so that kfext can estimate the duration of the next gang.

    A job scales down only for a gang that should take at most half of the job's remaining time.
    """
    gang = _gang("gang-1", cpu)
    wait_trained(submit(bed, gang, namespace), gang, namespace)


def _gang_comes_and_goes(bed: Testbed, namespace: str, cpu: str) -> None:
    """Train a gang that needs all the capacity that the job can free."""
    gang = _gang("gang-2", cpu)
    sdk = submit(bed, gang, namespace)
    _wait(lambda: _is_bound(bed, namespace), "the gang is bound")
    assert 0 < len(_running(bed, namespace)) <= LEAST
    wait_trained(sdk, gang, namespace)
    kubectl(bed, "delete", "pytorchjob", "gang-2", "-n", namespace)


def _is_bound(bed: Testbed, namespace: str) -> bool:
    pods = pods_of(bed, namespace, "gang-2").values()
    return len(pods) == FULL - LEAST and all(pod["spec"].get("nodeName") for pod in pods)


def _running(bed: Testbed, namespace: str) -> dict[str, str]:
    """Return the uids of the job's running pods, by name, without terminating pods."""
    return {
        name: pod["metadata"]["uid"]
        for name, pod in pods_of(bed, namespace, "train").items()
        if "deletionTimestamp" not in pod["metadata"] and pod["status"]["phase"] == "Running"
    }


def _trains(folder: Path, world: int) -> bool:
    """Return whether a job has made steps since its last start, with `world` workers."""
    lines = journal(folder)
    starts = [index for index, line in enumerate(lines) if line.startswith("resumed")]
    stepped = any(line.startswith("step ") for line in lines[starts[-1] :]) if starts else False
    return stepped and worlds(lines)[-1] == world


def _reached(folder: Path) -> bool:
    return any(line.startswith("step ") for line in journal(folder))


def _wait(condition: Callable[[], Any], what: str) -> None:
    until(condition, what=what, seconds=PATIENCE)
