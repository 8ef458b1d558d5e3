"""Jobs of every phase continue when another version is installed, and no job is lost."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from e2e.harness.every_phase import every_phase
from e2e.harness.jobs import gated, on_host, pinned_to, workers
from e2e.harness.kfext_process import Kfext
from e2e.harness.pods import HOST, uids
from e2e.harness.processes import WebhookProcess
from e2e.harness.space import Space
from e2e.harness.stopping import autoscaler_seen, remove_placeholders, stopping
from e2e.harness.under_way import under_way
from e2e.harness.versions import (
    apply_manifests,
    hand_over,
    install,
    replace,
    restore,
    trusted,
    unpack_0_3,
)
from e2e.testbed.paths import REPOSITORY

pytestmark = pytest.mark.long

_MAX_JOBS, _PODS = 20, 2


@pytest.fixture(params=["upgrade", "roll back to 0.3"])
def versions(
    request: pytest.FixtureRequest, kfext: Kfext, tmp_path: Path
) -> Iterator[tuple[Path, Path]]:
    """The folders with the code of the old and of the new version; 0.3 is removed afterwards."""
    earlier = unpack_0_3(tmp_path)
    up = request.param == "upgrade"
    yield (earlier, REPOSITORY) if up else (REPOSITORY, earlier)
    restore(kfext)


def test_jobs_of_every_phase_continue_under_another_version(
    new_space: Callable[..., Space], kfext: Kfext, versions: tuple[Path, Path]
) -> None:
    old, new = versions
    replicas = install(kfext, old)
    with every_phase(new_space, kfext.testbed) as every:
        with kfext.restarting():
            every.reach()
        shared = new_space()
        shared.nodes(2, cpu="32", memory="64Gi")
        shared.policy(placement={"bindTimeout": "10m"})
        ran, authority = uids(every.space, "placed"), trusted(kfext)

        apply_manifests(kfext, new)
        # As with Deployments, each new replica is ready before an old replica ends. For a while
        # both versions answer reviews, under the old and then under the new controller.
        replace(kfext, replicas[0])
        jobs = share(shared, replicas, "under-old")
        hand_over(kfext)
        jobs += share(shared, replicas, "under-new")
        replace(kfext, replicas[1])

        with kfext.restarting():
            every.proceed()
        assert uids(every.space, "placed") == ran
        every.check_writes()
        if new == REPOSITORY:
            every.check_histories()
    for name in jobs:
        shared.phase(name, "Placed")
    shared.check_pins()
    assert shared.starts() == len(jobs)
    assert trusted(kfext) == authority


def share(space: Space, replicas: Sequence[WebhookProcess], name: str) -> list[str]:
    """Submit jobs until every replica has reviewed some of them, and some of their pods.

    Check that all pods are pinned and on the host network, whichever replica answered. Returns the
    names of the jobs.
    """
    names: list[str] = []
    before = answers(replicas)
    while not all(now > then for now, then in zip(answers(replicas), before, strict=True)):
        assert len(names) < _MAX_JOBS, f"a replica has not answered: {before}, {answers(replicas)}"
        # The API server would keep its connections, and so its replicas.
        space.kfext.balancer.cut()
        space.kfext.wait_webhooks()  # a request at that moment may fail
        job = f"{name}-{len(names)}"
        space.submit(workers(job, _PODS, each={"cpu": "100m"}, annotations=HOST))
        space.until(lambda: settled(space, job), f"the pods of {job} are pinned")  # noqa: B023
        names.append(job)
    return names


def settled(space: Space, job: str) -> bool:
    """Return whether all pods of a job are pinned, on the host network and not gated."""
    pods = space.pods(job)
    done = [pod for pod in pods if len(pinned_to(pod)) == 1 and on_host(pod) and not gated(pod)]
    return len(done) == len(pods) == _PODS


def answers(replicas: Sequence[WebhookProcess]) -> list[float]:
    """Return the numbers of job and pod reviews of each replica."""
    return [replica.reviews(kind) for replica in replicas for kind in ("job", "pod")]


def test_changes_of_running_jobs_continue_under_another_version(
    new_space: Callable[..., Space], kfext: Kfext, versions: tuple[Path, Path]
) -> None:
    old, new = versions
    replicas = install(kfext, old)
    with under_way(new_space) as jobs:
        with kfext.restarting():
            jobs.reach()
        apply_manifests(kfext, new)
        replace(kfext, replicas[0])
        hand_over(kfext)
        replace(kfext, replicas[1])
        with kfext.restarting():
            jobs.proceed()
            jobs.check_writes()


@pytest.fixture(params=["roll back to 0.3", "restart this version"])
def later(request: pytest.FixtureRequest, kfext: Kfext, tmp_path: Path) -> Iterator[Path]:
    """The folder with the code of the version that is installed after this version."""
    back = request.param == "roll back to 0.3"
    yield unpack_0_3(tmp_path) if back else REPOSITORY
    restore(kfext)


def test_stopped_jobs_and_a_job_that_asks_for_nodes_continue_under_another_version(
    new_space: Callable[..., Space], kfext: Kfext, later: Path
) -> None:
    with ExitStack() as seen:
        seen.enter_context(autoscaler_seen(kfext.kube))  # before the controller starts
        replicas = install(kfext, REPOSITORY)
        with stopping(new_space) as jobs:
            with kfext.restarting():
                jobs.reach()
            if later != REPOSITORY:
                seen.close()  # with an autoscaler 0.3 would release the job that asks
            apply_manifests(kfext, later)
            replace(kfext, replicas[0])
            hand_over(kfext)
            if later != REPOSITORY:
                remove_placeholders(kfext.kube)
            replace(kfext, replicas[1])
            with kfext.restarting():
                jobs.proceed()
                jobs.check_writes()
