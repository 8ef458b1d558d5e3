"""Another version comes: jobs of every phase go on, and none is lost between the two."""

import base64
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from os import environ
from pathlib import Path

import pytest

from e2e.harness.every_phase import EveryPhase
from e2e.harness.install import protection
from e2e.harness.jobs import gated, job, on_host, pinned_to
from e2e.harness.kfext_process import Kfext
from e2e.harness.kube import Object
from e2e.harness.manual import Shell, apply_manifests_of, commands, running, unpack_0_1
from e2e.harness.pods import uids
from e2e.harness.processes import WebhookProcess
from e2e.harness.reviews import running_reviews
from e2e.harness.space import Space
from e2e.testbed.paths import REPOSITORY
from kfext import names

CPU = {"cpu": "100m"}
HOST = {names.NETWORK: "host"}
_SECRET = f"/api/v1/namespaces/{names.NAMESPACE}/secrets/{names.CA_SECRET}"
_HOOKS = (
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
    f"/{names.WEBHOOK_CONFIGURATION}"
)
_WAVE = 2 * (("PyTorchJob", {"Master": 1, "Worker": 1}), ("TFJob", {"Worker": 2}))
_PODS = 2
_MOST_JOBS = 40


@dataclass
class Change:
    """From one version to another; `manual` is the section of docs/install.md that says how."""

    old: Path
    new: Path
    manual: str


@pytest.fixture
def version_0_1(kfext: Kfext, tmp_path: Path) -> Iterator[Path]:
    """The folder of version 0.1; what it changes is as it was afterwards."""
    try:
        folder = unpack_0_1(tmp_path)
    except LookupError as error:
        pytest.skip(str(error))
    done = subprocess.run(
        [sys.executable, "-P", "-c", "import kfext; print(kfext.__file__)"],
        env={**environ, **running(folder)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith(str(folder)), "it would be the code under test"
    yield folder
    install(kfext, REPOSITORY)


@pytest.fixture(params=["Upgrade", "Roll back to 0.1"])
def change(request: pytest.FixtureRequest, version_0_1: Path) -> Change:
    """Each direction."""
    up = request.param == "Upgrade"
    old, new = (version_0_1, REPOSITORY) if up else (REPOSITORY, version_0_1)
    return Change(old, new, request.param)


def install(kfext: Kfext, version: Path) -> None:
    """Have all processes run the code in a folder, on a cluster that had no kfext before."""
    kfext.remove_everything()
    kfext.kube.delete(_SECRET)
    for guard in protection():
        kfext.testbed.api.delete(kfext.testbed.api.path(guard))
    apply_manifests_of(kfext, version)
    kfext.environment = running(version)
    kfext.ensure()


def follow(change: Change, kfext: Kfext, shell: Shell) -> None:
    """Do what the manual says; the processes are changed after it."""
    applied = False
    for command in commands(change.manual):
        if "apply --server-side -k" in command:
            apply_manifests_of(kfext, change.new)
            applied = True
        else:
            shell.run(command)
    assert applied
    kfext.environment = running(change.new)


def replace(kfext: Kfext, replica: WebhookProcess) -> None:
    """Have a replica of the webhook follow by one of another version, as a Deployment does."""
    with running_reviews(kfext) as reviews:
        assert replica.stop() == 0
        reviews.wait_more()
        replica.start(drain_seconds=3, environment=kfext.environment)
        reviews.wait_more()
    assert reviews.outcomes.keys() == {"held"}
    assert reviews.failed_open == 0


def share(space: Space, replicas: Sequence[WebhookProcess], name: str) -> list[Object]:
    """Submit jobs until every replica has answered for some, and for some of their pods.

    Whichever it was, all pods of a job are pinned, on the host network.
    """
    made: list[Object] = []
    silent = {(replica.name, kind) for replica in replicas for kind in ("job", "pod")}
    while silent:
        assert len(made) < _MOST_JOBS, f"not asked: {silent}"
        spread_reviews(space.kfext)
        before = asked(replicas)
        wave = [
            job(f"{name}-{number}", types, kind=kind, each=CPU, annotations=HOST)
            for number, (kind, types) in enumerate(_WAVE, len(made))
        ]
        with ThreadPoolExecutor() as pool:
            list(pool.map(space.submit, wave))
        for manifest in wave:
            space.until(lambda: settled(space, manifest), "its pods are pinned")  # noqa: B023
        made += wave
        silent -= {which for which, count in asked(replicas).items() if count > before[which]}
    return made


def spread_reviews(kfext: Kfext) -> None:
    """Have the API server connect anew, lest it ask only the replicas that it is connected to."""
    kfext.balancer.cut()
    kfext.wait_hooks()  # what is sent at that very moment may fail


def asked(replicas: Sequence[WebhookProcess]) -> dict[tuple[str, str], float]:
    """Return how many reviews of jobs and of pods each replica has answered."""
    return {
        (replica.name, kind): replica.reviews(kind)
        for replica in replicas
        for kind in ("job", "pod")
    }


def settled(space: Space, manifest: Object) -> bool:
    """Say whether all pods of a job are pinned, on the host network, and none gated."""
    pods = space.pods(manifest["metadata"]["name"])
    done = [pod for pod in pods if len(pinned_to(pod)) == 1 and on_host(pod) and not gated(pod)]
    return len(done) == len(pods) == _PODS


def trusted(kfext: Kfext) -> tuple[bytes, set[str]]:
    """Return the authority that signs, and what the API server trusts in the webhooks."""
    authority = base64.b64decode(kfext.kube.get(_SECRET)["data"]["tls.crt"])
    hooks = kfext.kube.get(_HOOKS)["webhooks"]
    return authority, {hook["clientConfig"]["caBundle"] for hook in hooks}


@pytest.fixture
def every(new_space: Callable[..., Space], kfext: Kfext) -> Iterator[EveryPhase]:
    """Jobs of every phase."""
    made = EveryPhase(new_space, kfext.testbed)
    yield made
    made.admit()


@pytest.mark.long
def test_jobs_of_every_phase_go_on_under_another_version(
    new_space: Callable[..., Space],
    kfext: Kfext,
    change: Change,
    every: EveryPhase,
    tmp_path: Path,
) -> None:
    install(kfext, change.old)
    replicas = kfext.start_webhooks(drain_seconds=3)
    every.reach()
    shared = new_space()
    shared.nodes(2, cpu="32", memory="64Gi")
    shared.policy(placement={"bindTimeout": "10m"})
    ran = uids(every.space, "placed")
    authority = trusted(kfext)

    follow(change, kfext, Shell(kfext.testbed, tmp_path / "shell"))
    # As Deployments do it: each new one is ready before an old one ends. For a while both versions
    # answer reviews, first under the old controller and then under the new one.
    replace(kfext, replicas[0])
    standby = kfext.start_standby()
    made = share(shared, replicas, "under-old")
    kfext.stop_controller()
    kfext.wait_leading(standby)
    made += share(shared, replicas, "under-new")
    replace(kfext, replicas[1])

    every.go_on()
    assert uids(every.space, "placed") == ran
    every.check_writes()
    for manifest in made:
        shared.phase(manifest["metadata"]["name"], "Placed", manifest["kind"])
    shared.check_pins()
    assert shared.starts() == len(made)
    assert trusted(kfext) == authority
    # And what comes after.
    every.space.submit(job("after", {"Master": 1, "Worker": 1}, each=CPU))
    every.space.phase("after", "Placed")
