"""A sweep of small trials on shared cards, with pods changed as Katib changes them."""

import pytest
import yaml

from e2e.harness.gpu import slots, unreserved
from e2e.harness.gpu_jobs import Team, dialled
from e2e.harness.katib import collected
from e2e.harness.kube import Kube, Object
from e2e.harness.stand_in import standing_in
from e2e.harness.training import pods_of
from e2e.harness.wait import until
from e2e.testbed.paths import REPOSITORY
from e2e.testbed.realnodes import Node
from kfext import names

EXAMPLES = REPOSITORY / "examples"
SWEEP = yaml.safe_load((EXAMPLES / "sweep.yaml").read_text())["spec"]
TRIALS = SWEEP["maxTrialCount"]
SHARERS = 4
_PODS = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}


def changed(pod: Object) -> list[Object]:
    """Return the changes that Katib's webhook makes to a pod of a trial."""
    if pod["metadata"].get("labels", {}).get(names.JOB_ROLE) != "master":
        return []
    if any(container["name"] == names.KATIB_COLLECTOR for container in pod["spec"]["containers"]):
        return []
    return [{"op": "replace", "path": "/spec", "value": collected(pod["spec"])}]


def settled(example: Object, name: str, *, steps: int) -> Object:
    """Return a job with the settings of an example, on a card that the CPU simulates."""
    made = dialled(name, {"share": "0"}, steps=steps)  # so that the hook loads the driver
    return {**made, "metadata": {**example["metadata"], "name": name}}


def test_the_example_of_a_shared_gpu_trains_on_its_share(team: Team, gpu_node: Node) -> None:
    example = yaml.safe_load((EXAMPLES / "shared-gpu.yaml").read_text())
    # The simulated cards have less memory than the example requests.
    del example["metadata"]["annotations"][names.GPU_MEMORY]
    team.submit(settled(example, "tuning", steps=60))
    assert team.running("tuning")["spec"]["nodeName"] == gpu_node.name
    team.succeeded("tuning")
    team.delete("tuning")
    unreserved(team.bed)


@pytest.mark.long
def test_twenty_trials_share_two_cards_and_show_their_progress(team: Team, gpu_node: Node) -> None:
    kube, most = Kube(team.bed), 0
    pods = f"/api/v1/namespaces/{team.namespace}/pods"

    def called() -> bool:
        body = {
            "metadata": {"name": "probe", "labels": {names.JOB_ROLE: "master"}},
            "spec": {"containers": [{"name": "pytorch", "image": "none", "command": ["true"]}]},
        }
        answer = kube.ask("POST", f"{pods}?dryRun=All", body)
        return answer.ok and len(answer.body["spec"]["containers"]) == 2

    with standing_in(
        team.bed,
        kube,
        name="katib.kubeflow.org",  # before kfext's, as Katib's own
        namespace=team.namespace,
        rule=_PODS,
        mutate=changed,
        effective=called,
    ):
        for number in range(TRIALS):
            team.submit(settled(SWEEP["trialTemplate"]["trialSpec"], f"trial-{number}", steps=60))

        def shown() -> bool:
            nonlocal most
            sharers = (
                len(slot["status"].get("sharers", ())) for slot in slots(team.bed, gpu_node.name)
            )
            most = max(most, *sharers)
            return all(team.plan(f"trial-{number}").get("progress") for number in range(TRIALS))

        until(shown, what="every trial has shown progress", account=team.said, seconds=900)
        for number in range(TRIALS):
            team.succeeded(f"trial-{number}")

    assert 2 <= most <= SHARERS
    for pod in pods_of(team.bed, team.namespace).values():
        assert pod["spec"]["shareProcessNamespace"]
        assert len(pod["spec"]["containers"]) == 2
    for number in range(TRIALS):
        team.delete(f"trial-{number}")
    unreserved(team.bed)
