"""What the cluster must have before the controller can work; each lack is one message."""

from kfext.errors import ApiError, NotFound
from kfext.kube import paths
from kfext.kube.client import Client
from kfext.model.kinds import KINDS

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
    for path, name in ((paths.plans(), "trainingplans"), (paths.policies(), "trainingpolicies")):
        if not await _served(client, path):
            missing.append(f"the cluster serves no {name}; apply kfext's crds")
    return missing


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
