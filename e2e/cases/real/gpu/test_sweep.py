"""A sweep of small trials on shared cards, with pods changed as Katib changes them."""

import pytest
import yaml

from e2e.harness.gpu import shared_gpus, sharers_of, wait_unreserved
from e2e.harness.gpu_jobs import Team, dial_job
from e2e.harness.katib import with_collector
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
MAX_SHARERS = 4
"""The most sharers that the shares of the example allow on a card."""
_PODS = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}


def katib_patch(pod: Object) -> list[Object]:
    """Return the JSON patch that Katib's webhook makes to the pod of a trial."""
    if pod["metadata"].get("labels", {}).get(names.JOB_ROLE) != "master":
        return []
    if any(container["name"] == names.KATIB_COLLECTOR for container in pod["spec"]["containers"]):
        return []
    return [{"op": "replace", "path": "/spec", "value": with_collector(pod["spec"])}]


def trial_job(example: Object, name: str, *, steps: int) -> Object:
    """Return a job with the annotations of an example, for a card that the CPU simulates."""
    job = dial_job(name, {"share": "0"}, steps=steps)  # with a share, the hook loads the driver
    return {**job, "metadata": {**example["metadata"], "name": name}}


def test_the_example_of_a_shared_gpu_trains_on_its_share(team: Team, gpu_node: Node) -> None:
    example = yaml.safe_load((EXAMPLES / "shared-gpu.yaml").read_text())
    # The simulated cards have less memory than the example requests.
    del example["metadata"]["annotations"][names.GPU_MEMORY]
    team.submit(trial_job(example, "tuning", steps=60))
    assert team.wait_running("tuning")["spec"]["nodeName"] == gpu_node.name
    team.wait_succeeded("tuning")
    team.delete("tuning")
    wait_unreserved(team.bed)


@pytest.mark.long
def test_twenty_trials_share_two_cards_and_show_their_progress(team: Team, gpu_node: Node) -> None:
    kube, most_sharers = Kube(team.bed), 0
    pods = f"/api/v1/namespaces/{team.namespace}/pods"

    def katib_answers() -> bool:
        body = {
            "metadata": {"name": "probe", "labels": {names.JOB_ROLE: "master"}},
            "spec": {"containers": [{"name": "pytorch", "image": "none", "command": ["true"]}]},
        }
        answer = kube.ask("POST", f"{pods}?dryRun=All", body)
        return answer.ok and len(answer.body["spec"]["containers"]) == 2

    with standing_in(
        team.bed,
        kube,
        name="katib.kubeflow.org",  # sorts before kfext's name, like Katib's own
        namespace=team.namespace,
        rule=_PODS,
        mutate=katib_patch,
        effective=katib_answers,
    ):
        for number in range(TRIALS):
            team.submit(trial_job(SWEEP["trialTemplate"]["trialSpec"], f"trial-{number}", steps=60))

        def all_shown() -> bool:
            nonlocal most_sharers
            gpus = shared_gpus(team.bed, gpu_node.name)
            most_sharers = max(most_sharers, *(len(sharers_of(gpu)) for gpu in gpus))
            return all(team.plan(f"trial-{number}").get("progress") for number in range(TRIALS))

        until(all_shown, what="every trial has shown progress", account=team.messages, seconds=900)
        for number in range(TRIALS):
            team.wait_succeeded(f"trial-{number}")

    assert 2 <= most_sharers <= MAX_SHARERS
    for pod in pods_of(team.bed, team.namespace).values():
        assert pod["spec"]["shareProcessNamespace"]
        assert len(pod["spec"]["containers"]) == 2
    for number in range(TRIALS):
        team.delete(f"trial-{number}")
    wait_unreserved(team.bed)
