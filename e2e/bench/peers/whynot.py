"""How long it takes until one can read why a gang does not start.

The gang needs one whole node more than the cluster has, while each of its pods fits. Measured from
before the POST to the first watch line of the driver that holds the reason. Where pods of the gang
are bound meanwhile, they hold their GPUs for nothing: they are counted.
"""

import asyncio
import time
from dataclasses import dataclass

import msgspec

from e2e.bench.peers.arms import Arm
from e2e.bench.peers.jobs import gang
from e2e.bench.peers.runs import clear
from e2e.testbed import fakenodes
from kfext.kube import paths
from kfext.kube.client import Client

_PATIENCE_SECONDS = 60.0
_LOOK_AGAIN_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Answer:
    """Seconds until the reason could be read, the reason, and GPUs held in vain 2 s later."""

    seconds: float
    reason: str
    held: int


async def ask(client: Client, arm: Arm, *, name: str, nodes: int) -> Answer:
    """Submit a gang of one pod more than there are nodes, each of which takes a whole node."""
    gpus = int(fakenodes.CAPACITY["nvidia.com/gpu"])
    body = arm.job(gang(name, nodes + 1, gpus=gpus))
    jobs = paths.jobs("pytorchjobs", arm.namespace)
    version = msgspec.json.decode(await client.read(arm.explains, limit="1"))["metadata"]
    hearing = asyncio.create_task(_hear(client, arm, str(version["resourceVersion"])))
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            submitted = time.monotonic()
            await client.create(jobs, body)
            heard, reason = await hearing
    except TimeoutError:
        raise TimeoutError(
            f"{arm.name} did not say within {_PATIENCE_SECONDS:.0f} s why {name} does not start"
        ) from None
    finally:
        hearing.cancel()
    await asyncio.sleep(_LOOK_AGAIN_SECONDS)
    pods = await client.list_all(paths.pods(arm.namespace))
    await clear(client, arm)
    bound = sum(bool(pod["spec"].get("nodeName")) for pod in pods)
    return Answer(heard - submitted, reason, gpus * bound)


async def _hear(client: Client, arm: Arm, version: str) -> tuple[float, str]:
    """Return when a reason was heard of, in monotonic seconds, and the reason."""
    while True:  # a busy API server may end a watch at any time; nothing is lost by that
        rest = b""
        stream = client.watch(
            arm.explains, resource_version=version, server_seconds=600, silence_seconds=120
        )
        async for chunk in stream:
            *lines, rest = (rest + chunk).split(b"\n")
            now = time.monotonic()
            for line in lines:
                changed = msgspec.json.decode(line)["object"]
                version = changed["metadata"]["resourceVersion"]
                if reason := arm.reason(changed):
                    return now, reason
