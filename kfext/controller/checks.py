"""What the cluster must and should have before the controller works; each lack is one message."""

from kfext.errors import ApiError, NotFound
from kfext.kube import paths
from kfext.kube.client import Client
from kfext.model.kinds.registered import KINDS
from kfext.model.tolerant import mapping, sequence
from kfext.names import API_GROUP, DECIDE, MARKS_POLICY

OLDEST = (1, 32)


async def missing_requirements(client: Client) -> list[str]:
    """Return a message for each missing requirement. Raises ApiError."""
    missing = []
    version = await client.get("/version")
    found = (_number(version.get("major")), _number(version.get("minor")))
    if found < OLDEST:
        missing.append(
            f"Kubernetes {found[0]}.{found[1]} is too old; kfext needs {OLDEST[0]}.{OLDEST[1]}"
        )
    for kind in KINDS.values():
        if not await _served(client, paths.jobs(kind.plural)):
            missing.append(
                f"the cluster serves no {kind.plural}; install the training-operator 1.8 or 1.9"
            )
    kinds = {
        "trainingplans": paths.plans(),
        "trainingpolicies": paths.policies(),
        "sharedgpus": paths.shared_gpus(),
    }
    for name, path in kinds.items():
        if not await _served(client, path):
            missing.append(f"the cluster serves no {name}; apply kfext's crds")
    if not await _may_decide(client):
        missing.append(
            f"this account lacks the verb {DECIDE} on trainingplans.{API_GROUP} in the whole "
            "cluster; apply kfext's manifests"
        )
    return missing


async def missing_protection(client: Client) -> str:
    """Return why users may write kfext's marks on their jobs, empty if they may not.

    kfext works without that protection, as it checks what it reads. Raises ApiError.
    """
    try:
        await client.get(paths.admission_policies(MARKS_POLICY))
    except NotFound:
        return f"there is no ValidatingAdmissionPolicy {MARKS_POLICY}; apply kfext's manifests"
    try:
        binding = await client.get(paths.admission_policy_bindings(MARKS_POLICY))
    except NotFound:
        return f"ValidatingAdmissionPolicy {MARKS_POLICY} has no binding; apply kfext's manifests"
    if "Deny" not in sequence(mapping(binding.get("spec")).get("validationActions")):
        return f"the binding of ValidatingAdmissionPolicy {MARKS_POLICY} does not deny"
    return ""


async def _may_decide(client: Client) -> bool:
    """Return whether the policy lets us write marks; without it each of our steps is refused."""
    wanted = {"group": API_GROUP, "resource": "trainingplans", "verb": DECIDE}
    review = {"spec": {"resourceAttributes": wanted}}
    answer = await client.create(paths.access_reviews(), review)
    return mapping(answer.get("status")).get("allowed") is True


async def _served(client: Client, path: str) -> bool:
    try:
        await client.read(path, limit="1")
    except NotFound:
        return False
    except ApiError as error:
        if error.status == 403:
            return True  # served, but our rights are insufficient: the watch will report that
        raise
    return True


def _number(value: object) -> int:
    digits = "".join(filter(str.isdigit, str(value)))
    return int(digits or "0")
