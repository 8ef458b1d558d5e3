"""What an object says, in the words of the tests."""

import json
from collections.abc import Iterable, Iterator

from e2e.harness.kube import Object
from kfext import names


def suspended(job: Object) -> bool:
    """Whether a job as stored is suspended, by whomever."""
    return job["spec"]["runPolicy"].get("suspend") is True


def held(job: Object) -> bool:
    """Whether a job as stored bears the mark that kfext suspended it."""
    return names.HELD in job["metadata"].get("annotations", {})


def marks_of(job: Object) -> dict[str, str]:
    """Return kfext's marks on a job as stored."""
    written = job["metadata"].get("annotations", {})
    return {key: value for key, value in written.items() if key in names.WRITTEN_BY_KFEXT}


def gated(pod: Object) -> bool:
    """Whether our gate holds a pod."""
    return {"name": names.GATE} in pod["spec"].get("schedulingGates", [])


def pinned_to(pod: Object) -> list[str]:
    """Return the nodes that a pod's required affinity names, one per pin."""
    affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {})
    return [
        field["values"][0]
        for term in required.get("nodeSelectorTerms", [])
        for field in term.get("matchFields", [])
    ]


def conditions(job: Object) -> set[str]:
    """Return the conditions that are true of a job."""
    found = job.get("status", {}).get("conditions") or []
    return {one["type"] for one in found if one["status"] == "True"}


def ended(job: Object) -> str:
    """Return how a job has ended, `Succeeded` or `Failed`, empty if it has not."""
    return next(iter(conditions(job) & {"Succeeded", "Failed"}), "")


def told_of_pod(pod: Object) -> str:
    """Return a line about a pod."""
    conditions = pod["status"].get("conditions", [])
    said = [one.get("message", "") for one in conditions if one["status"] == "False"]
    return (
        f"pod {pod['metadata']['name']}: node {pod['spec'].get('nodeName', '-')}, "
        f"gates {[gate['name'] for gate in pod['spec'].get('schedulingGates', [])]}, "
        f"pins {pinned_to(pod)}, deleting {bool(pod['metadata'].get('deletionTimestamp'))} {said}"
    )


def told_of_job(job: Object, *, view: Object, events: Iterable[Object]) -> Iterator[str]:
    """Yield what a person would look at first."""
    metadata = job["metadata"]
    yield f"{job.get('kind', 'job')} {metadata['name']}: runPolicy {job['spec'].get('runPolicy')}"
    yield f"  annotations {json.dumps(metadata.get('annotations', {}))}"
    conditions = job.get("status", {}).get("conditions") or []
    yield f"  conditions {[one['type'] for one in conditions if one['status'] == 'True']}"
    yield f"  plan {json.dumps(view)[:600]}"
    yield from (f"  event {one.get('reason')}: {one.get('note')}" for one in events)


def on_host(pod: Object) -> bool:
    """Whether a pod has the network of its node."""
    return pod["spec"].get("hostNetwork") is True


def variables(pod: Object) -> dict[str, str]:
    """Return the environment of a pod's first container, as far as it is written out."""
    env = pod["spec"]["containers"][0].get("env", [])
    return {one["name"]: one.get("value", "") for one in env}


def ports(pod: Object) -> list[int]:
    """Return the ports of its node that a pod has declared."""
    declared = pod["spec"]["containers"][0].get("ports", [])
    return [port["hostPort"] for port in declared if port.get("hostPort")]
