"""Jobs with terms that kfext does not model, and jobs with volumes, which it models."""

from collections.abc import Iterator

import pytest

from e2e.harness import odd_world
from e2e.harness.jobs import gated, held, pinned_to, suspended, workers
from e2e.harness.kfext_process import Kfext
from e2e.harness.kube import Object
from e2e.harness.odd_world import World
from e2e.harness.space import Space
from e2e.harness.stand_in import standing_in
from kfext.names import GATE, JOB_NAME, RELEASED

CPU = {"cpu": "1"}
PODS = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}


def even(job: str) -> Object:
    """Return a topology spread constraint that spreads the pods of a job evenly over nodes."""
    return {
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {JOB_NAME: job}},
            }
        ]
    }


def spread(pod: Object) -> list[Object]:
    """Act as a webhook that adds a spread constraint to pods that kfext's webhook has gated."""
    if {"name": GATE} not in pod["spec"].get("schedulingGates", []):
        return []
    constraint = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"training.kubeflow.org/replica-type": "worker"}},
    }
    return [{"op": "add", "path": "/spec/topologySpreadConstraints", "value": [constraint]}]


@pytest.fixture
def nodes(space: Space) -> list[str]:
    """Three nodes; each has capacity for a whole job."""
    return space.nodes(3, cpu="16", memory="64Gi")


@pytest.mark.usefixtures("nodes")
def test_a_job_with_a_spread_constraint_is_not_held_and_its_plan_shows_the_reason(
    space: Space,
) -> None:
    answer = space.try_submit(workers("even", 3, each=CPU, pod=even("even")))
    assert not suspended(answer.body)
    assert not held(answer.body)
    assert any("topologySpreadConstraints" in warning for warning in answer.warnings)
    assert len(set(space.bound("even", 3).values())) == 3
    view = space.phase("even", "Released")
    assert view["reason"] == "Unmodelled"
    assert "topologySpreadConstraints" in view["message"]
    assert not [pod for pod in space.pods("even") if gated(pod) or pinned_to(pod)]
    assert space.starts() == 0


@pytest.mark.usefixtures("nodes")
def test_a_required_job_with_a_spread_constraint_stays_suspended(space: Space) -> None:
    annotations = {"kfext.dev/colocation": "required"}
    space.submit(workers("never", 3, each=CPU, pod=even("never"), annotations=annotations))
    view = space.phase("never", "Queued")
    assert view["reason"] == "Unmodelled"
    assert "it stays suspended" in view["message"]
    space.submit(workers("other", 2, each=CPU))  # kfext places it, and not the spread job
    space.phase("other", "Placed")
    assert suspended(space.job("never"))
    assert space.pods("never") == []


@pytest.mark.usefixtures("nodes")
def test_a_gang_that_gets_a_spread_constraint_at_admission_is_ungated_without_pins(
    space: Space, kfext: Kfext
) -> None:
    probe = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "probe"},
        "spec": {
            "schedulingGates": [{"name": GATE}],
            "containers": [{"name": "probe", "image": "none"}],
        },
    }

    def called() -> bool:
        answer = kfext.kube.ask("POST", space.path("pods") + "?dryRun=All", probe)
        return "topologySpreadConstraints" in answer.body["spec"]

    with standing_in(
        kfext.testbed,
        kfext.kube,
        name="zz-spread",
        namespace=space.name,
        rule=PODS,
        mutate=spread,
        effective=called,
    ):
        assert suspended(space.submit(workers("torch", 4, each=CPU)))
        nodes_by_pod = space.bound("torch", 4)
    assert len(set(nodes_by_pod.values())) > 1
    view = space.phase("torch", "Released")
    assert "topologySpreadConstraints" in view["message"]
    assert not [pod for pod in space.pods("torch") if pinned_to(pod)]
    assert space.job("torch")["metadata"]["annotations"][RELEASED] == "Unmodelled"


@pytest.fixture
def world(space: Space) -> Iterator[Space]:
    """A namespace with nodes in zones, and with volumes."""
    world = World(storage=True)
    world.make(space)
    yield space
    world.remove(space)


def using(claim: str) -> Object:
    """Return the fields of a pod that uses a volume claim."""
    return {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]}


def test_a_job_is_placed_in_the_zone_of_its_volume(world: Space) -> None:
    world.submit(workers("zonal", 3, each=CPU, pod=using(odd_world.ZONAL)))
    (home,) = set(world.bound("zonal", 3).values())
    assert world.kube.get(f"/api/v1/nodes/{home}")["metadata"]["labels"]["zone"] == "a"
    world.phase("zonal", "Placed")
    assert set(world.pins().values()) == {1}


def test_a_job_waits_until_its_claim_is_bound(world: Space) -> None:
    world.submit(workers("late", 3, each=CPU, pod=using(odd_world.LATE)))
    assert world.phase("late", "Queued")["reason"] == "WaitingForVolume"
    odd_world.make_late_claim(world)
    assert len(set(world.bound("late", 3).values())) == 1
    world.phase("late", "Placed")
    assert set(world.pins().values()) == {1}


def test_a_job_with_a_claim_that_waits_for_its_first_pod_is_released_at_once(world: Space) -> None:
    world.submit(workers("local", 3, each=CPU, pod=using(odd_world.LOCAL)))
    world.bound("local", 3)
    view = world.phase("local", "Released")
    assert "waits for its first consumer" in view["message"]
    assert not [pod for pod in world.pods("local") if pinned_to(pod)]
