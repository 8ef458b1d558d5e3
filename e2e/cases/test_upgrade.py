"""Another version is installed: jobs of every phase continue, and none is lost in between."""

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

_MOST_JOBS, _PODS = 20, 2


@pytest.fixture(params=["upgrade", "roll back to 0.3"])
def versions(
    request: pytest.FixtureRequest, kfext: Kfext, tmp_path: Path
) -> Iterator[tuple[Path, Path]]:
    """The code of the old and of the new version; 0.3 is removed afterwards."""
    earlier = unpack_0_3(tmp_path)
    up = request.param == "upgrade"
    yield (earlier, REPOSITORY) if up else (REPOSITORY, earlier)
    restore(kfext)


def test_jobs_of_every_phase_go_on_under_another_version(
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
        # As with Deployments: each new replica is ready before an old replica ends. For a while
        # both versions answer reviews, first under the old controller and then under the new.
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
    """Submit jobs until every replica has answered for some, and for some of their pods.

    All pods of a job are pinned, on the host network, whichever replica answered. Return the jobs.
    """
    made: list[str] = []
    before = answers(replicas)
    while not all(now > then for now, then in zip(answers(replicas), before, strict=True)):
        assert len(made) < _MOST_JOBS, f"a replica has not answered: {before}, {answers(replicas)}"
        # The API server asks only the replicas that it is connected to.
        space.kfext.balancer.cut()
        space.kfext.wait_hooks()  # a request at that very moment may fail
        job = f"{name}-{len(made)}"
        space.submit(workers(job, _PODS, each={"cpu": "100m"}, annotations=HOST))
        space.until(lambda: settled(space, job), f"the pods of {job} are pinned")  # noqa: B023
        made.append(job)
    return made


def settled(space: Space, job: str) -> bool:
    """Say whether all pods of a job are pinned, on the host network, and none gated."""
    pods = space.pods(job)
    done = [pod for pod in pods if len(pinned_to(pod)) == 1 and on_host(pod) and not gated(pod)]
    return len(done) == len(pods) == _PODS


def answers(replicas: Sequence[WebhookProcess]) -> list[float]:
    """Return the number of reviews of jobs, and of pods, that each replica has answered."""
    return [replica.reviews(kind) for replica in replicas for kind in ("job", "pod")]


def test_changes_of_running_jobs_go_on_under_another_version(
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
    """The code of a version that is installed after this version."""
    back = request.param == "roll back to 0.3"
    yield unpack_0_3(tmp_path) if back else REPOSITORY
    restore(kfext)


def test_jobs_that_0_3_would_neither_stop_nor_ask_nodes_for_continue_under_it(
    new_space: Callable[..., Space], kfext: Kfext, later: Path
) -> None:
    with ExitStack() as seen:
        seen.enter_context(autoscaler_seen(kfext.kube))  # before the controller starts
        replicas = install(kfext, REPOSITORY)
        with stopping(new_space) as jobs:
            with kfext.restarting():
                jobs.reach()
            if later != REPOSITORY:
                seen.close()  # beside an autoscaler 0.3 would release the job that asks
            apply_manifests(kfext, later)
            replace(kfext, replicas[0])
            hand_over(kfext)
            if later != REPOSITORY:
                remove_placeholders(kfext.kube)
            replace(kfext, replicas[1])
            with kfext.restarting():
                jobs.proceed()
                jobs.check_writes()
