"""Real training on the host network: a pod is replaced, suspended, or missed by the webhook."""

from typing import Any

import pytest

from e2e.harness.install import kubectl
from e2e.harness.pods import occupying_pod
from e2e.harness.training import (
    TRAINED_SECONDS,
    ddp,
    dynamic,
    on_host,
    pods_of,
    policy,
    set_suspend,
    submit,
    wait_trained,
    with_network,
)
from e2e.harness.wait import until
from e2e.testbed.cluster import Testbed


def wait_training(bed: Testbed, namespace: str, pod: str) -> None:
    """Wait until a pod has printed a step."""

    def stepped() -> bool:
        pod_now = pods_of(bed, namespace).get(pod, {"status": {}})
        if pod_now["status"].get("phase") != "Running":
            return False
        return "step=" in kubectl(bed, "logs", "-n", namespace, pod)

    until(stepped, what=f"{pod} trains", seconds=TRAINED_SECONDS)


REPLACED = {
    "PyTorchJob": (ddp("replaced", workers=2, steps=400), "replaced-master-0"),
    "TFJob": (dynamic("replaced", steps=1000), "replaced-worker-1"),
}


@pytest.mark.long
@pytest.mark.parametrize("kind", REPLACED)
def test_a_job_continues_with_a_replaced_worker(bed: Testbed, managed: str, kind: str) -> None:
    job, observed = REPLACED[kind]
    sdk = submit(bed, with_network(job), managed)
    wait_training(bed, managed, observed)
    old = pods_of(bed, managed)["replaced-worker-1"]
    kubectl(bed, "delete", "pod", "-n", managed, "replaced-worker-1", "--wait=false")

    def replaced() -> Any:
        pod = pods_of(bed, managed).get("replaced-worker-1", old)
        running = pod["status"]["phase"] in {"Running", "Succeeded"}
        return pod if pod["metadata"]["uid"] != old["metadata"]["uid"] and running else None

    new = until(replaced, what="a new worker 1 runs", seconds=TRAINED_SECONDS)
    assert on_host(new)
    assert new["spec"]["nodeName"] == old["spec"]["nodeName"]
    wait_trained(sdk, job, managed)


@pytest.mark.long
def test_a_job_suspended_by_hand_and_resumed_trains_on_the_host_network(
    bed: Testbed, managed: str
) -> None:
    # So many steps that it still trains when it is suspended.
    job = with_network(ddp("paused", steps=2000))
    sdk = submit(bed, job, managed)
    wait_training(bed, managed, "paused-master-0")
    set_suspend(bed, job, managed, value=True)
    until(lambda: not pods_of(bed, managed), what="no pods", seconds=TRAINED_SECONDS)
    set_suspend(bed, job, managed, value=False)
    wait_trained(sdk, job, managed)
    pods = pods_of(bed, managed)
    assert len(pods) == 2
    assert all(map(on_host, pods.values()))


@pytest.mark.long
def test_a_pytorchjob_with_a_pod_that_the_webhook_missed_trains_across_both_networks(
    bed: Testbed, managed: str
) -> None:
    webhook = ("deployment", "kfext-webhook", "-n", "kfext-system")
    webhook_pods = ("-l", "app.kubernetes.io/component=webhook", "-n", "kfext-system")
    job = with_network(ddp("missed", workers=2))
    bed.api.create(f"/api/v1/namespaces/{managed}/pods", occupying_pod("missed-worker-1"))
    with policy(bed, managed, placement={"createTimeout": "10m"}):
        sdk = submit(bed, job, managed)
        until(
            lambda: len(pods_of(bed, managed, "missed")) == 2,
            what="two of its pods exist",
            seconds=TRAINED_SECONDS,
        )
        kubectl(bed, "scale", *webhook, "--replicas=0")
        try:
            kubectl(bed, "rollout", "status", *webhook, "--timeout=300s")
            kubectl(bed, "wait", "pod", *webhook_pods, "--for=delete", "--timeout=300s")
            kubectl(bed, "delete", "pod", "-n", managed, "missed-worker-1")
            # The operator backs off while the name is taken; a change of the job wakes it.
            kubectl(bed, "label", "pytorchjob", "-n", managed, "missed", "seen=again")
            until(
                lambda: len(pods_of(bed, managed, "missed")) == 3,
                what="all of its pods exist",
                seconds=TRAINED_SECONDS,
            )
        finally:
            kubectl(bed, "scale", *webhook, "--replicas=2")
            kubectl(bed, "rollout", "status", *webhook, "--timeout=300s")
    wait_trained(sdk, job, managed)
    pods = pods_of(bed, managed, "missed")
    assert {name for name, pod in pods.items() if not on_host(pod)} == {"missed-worker-1"}
