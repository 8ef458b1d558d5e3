"""A kind of job may have features that no registered kind has: here a job with a launcher.

The launcher is a single pod without an index, and the operator adds an init container to it. The
pods declare no port. A job that states no number of workers has none.
"""

from collections.abc import Mapping
from typing import Any, cast

import pytest

from kfext import names
from kfext.cli.plan import Forecast
from kfext.core.admission.gpu import with_gpu_share
from kfext.core.patches.host_network import host_network
from kfext.model.job import TrainingJob, parse_job, pod_labels, pod_name
from kfext.model.kinds.job_kind import WORKER, JobKind, Raw
from kfext.model.kinds.registered import KINDS
from kfext.model.namespace import Namespace
from kfext.model.pod import Pod, ReplicaKey, parse_pod
from kfext.model.quantity import CPU, MEMORY
from kfext.model.snapshot import Snapshot
from tests.builders import node
from tests.unit.objects import pod

LAUNCHER, WORKER_1 = ReplicaKey("launcher", 0), ReplicaKey("worker", 1)
INIT_CONTAINER = {"name": "copies", "resources": {"requests": {"cpu": "200m", "memory": "1Gi"}}}


class LaunchedJob(JobKind):
    """A kind of job with a launcher."""

    name = "LaunchedJob"
    plural = "launchedjobs"
    replica_specs = "launchedReplicaSpecs"
    types = ("Launcher", WORKER)
    training_types = (WORKER,)
    rank_zero = ("Launcher",)
    container = "main"
    restart = "Never"
    none_by_default = (WORKER,)
    unnumbered = ("Launcher",)

    def as_created(self, type_: str, pod_spec: Raw, *, specs: Raw) -> Raw:
        return {**pod_spec, "initContainers": [INIT_CONTAINER]} if type_ == "Launcher" else pod_spec


KIND = LaunchedJob()


@pytest.fixture(autouse=True)
def register_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cast(dict[str, JobKind], KINDS), KIND.name, KIND)


def raw_job(*, cpu: str = "1", **workers: Any) -> dict[str, Any]:
    amounts = {"requests": {"cpu": cpu, "memory": "1Mi"}}
    template = {"spec": {"containers": [{"name": "main", "resources": amounts}]}}
    specs = {"Launcher": {"template": template}, WORKER: {"template": template, **workers}}
    metadata = {"namespace": "team", "name": "train", "uid": "u"}
    return {"kind": KIND.name, "metadata": metadata, "spec": {KIND.replica_specs: specs}}


def launched_job(**fields: Any) -> TrainingJob:
    parsed = parse_job(raw_job(**fields))
    assert parsed is not None
    return parsed


def raw_pod(labels: Mapping[str, str], **fields: Any) -> dict[str, Any]:
    owner = {"apiVersion": "kubeflow.org/v1", "kind": KIND.name, "uid": "u", "controller": True}
    return pod(labels=dict(labels), ownerReferences=[owner], **fields)


@pytest.mark.parametrize(
    ("workers", "want"), [({}, 0), ({"replicas": 2}, 2), ({"replicas": -1}, 0)]
)
def test_an_unstated_number_of_pods_is_what_the_operator_assumes(
    workers: dict[str, int], want: int
) -> None:
    assert [group.replicas for group in launched_job(**workers).groups] == [1, want]


def test_the_pod_without_an_index_is_the_replica_of_its_type() -> None:
    for key in (LAUNCHER, WORKER_1):
        assert parse_pod(raw_pod(pod_labels(launched_job(replicas=2), key))).replica == key
    no_index = {
        key: value
        for key, value in pod_labels(launched_job(), WORKER_1).items()
        if "index" not in key
    }
    assert parse_pod(raw_pod(no_index)).replica is None
    other = parse_pod(pod(labels={names.JOB_NAME: "train", names.REPLICA_TYPE: "launcher"}))
    assert other.replica is None, "in other kinds every pod has an index"


def test_labels_and_names_are_the_same_as_the_operators() -> None:
    job = launched_job(replicas=2)
    assert names.REPLICA_INDEX not in pod_labels(job, LAUNCHER)
    assert pod_labels(job, WORKER_1)[names.REPLICA_INDEX] == "1"
    assert [pod_name(job, key) for key in (LAUNCHER, WORKER_1)] == [
        "train-launcher",
        "train-worker-1",
    ]


def test_what_the_operator_adds_to_a_pod_is_requested_and_charged() -> None:
    launcher, worker = launched_job(cpu="100m", replicas=1).groups
    assert (launcher.requests[CPU], launcher.requests[MEMORY]) == (200, 2**30)
    assert (worker.requests[CPU], worker.requests[MEMORY]) == (100, 2**20)
    assert dict(launcher.charge.usage)["requests.cpu"] == 200


def test_a_pod_of_a_kind_without_a_port_gets_no_port() -> None:
    template = {"hostNetwork": True, "containers": [{"name": "main"}]}
    specs = {WORKER: {"template": {"spec": template}, "replicas": 1}}
    metadata = {"namespace": "team", "name": "train", "uid": "u"}
    job = parse_job({"kind": KIND.name, "metadata": metadata, "spec": {KIND.replica_specs: specs}})
    assert job is not None
    assert job.groups[0].constraints.host_ports == ()
    labels = pod_labels(launched_job(replicas=2), WORKER_1)
    raw = raw_pod(
        labels, annotations={names.PORT_BASE: "20000"}, spec={"containers": [{"name": "main"}]}
    )
    paths = {operation["path"] for operation in host_network(KIND, raw["metadata"], raw["spec"])}
    assert "/spec/hostNetwork" in paths
    assert not any("ports" in path for path in paths)


def test_the_pod_without_an_index_gets_its_gpu_share() -> None:
    limits = {"limits": {names.NATIVE_GPU: "1"}}
    slots = {names.GPU_SLOTS: "50@3"}
    spec = {"containers": [{"name": "main", "resources": limits}]}
    raw = raw_pod(pod_labels(launched_job(), LAUNCHER), annotations=slots, spec=spec)
    part = with_gpu_share(KIND, raw["metadata"], raw["spec"])
    assert part.spec["containers"][0]["resources"]["limits"] == {"kfext.dev/gpu-3": "50"}


def test_a_forecast_names_the_pods_as_the_operator_does() -> None:
    team = {"team": Namespace("team", labels={names.MANAGED: "true"})}
    forecast = Forecast(Snapshot(nodes=(node("a"),), namespaces=team), now=1_000.0)
    document = {**raw_job(replicas=1), "metadata": {"name": "train"}}
    assert forecast.submit(document, home="team").nodes == {
        "train-launcher": "a",
        "train-worker-0": "a",
    }


def test_the_trainer_is_the_container_of_the_kind() -> None:
    container = {"name": "main", "resources": {"requests": {"cpu": "1"}}}
    result: Pod = parse_pod(raw_pod({}, spec={"containers": [container, {"name": "pytorch"}]}))
    assert result.trainer is not None
    assert result.trainer.request == 1000
