"""The client against which the gang benchmark measures kfext: it knows the plan and only writes.

It watches one namespace. When the last pod of a gang has appeared, it sends the JSON patches that
kfext would send, 64 in flight, and ends. It has no planning, ledger, checks or retries, and its 64
connections are already open: no client in Python can be faster.
"""

import argparse
import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import orjson

from e2e.testbed import process
from e2e.testbed.cluster import Testbed
from kfext.core.patches.pod import pin
from kfext.kube.connection import find_access
from kfext.model.pod import Pod

_IN_FLIGHT = 64
_HEADERS = {"Content-Type": "application/json-patch+json", "Accept-Encoding": "identity"}


async def main(*, kubeconfig: Path, namespace: str, homes: dict[str, str]) -> None:
    """Pin each pod of `homes` (name -> node) once all of them exist."""
    access = find_access(kubeconfig=kubeconfig)
    url = f"{access.server}/api/v1/namespaces/{namespace}/pods"
    connector = aiohttp.TCPConnector(ssl=access.tls or True, limit=_IN_FLIGHT + 1)
    async with aiohttp.ClientSession(connector=connector, headers=_HEADERS) as session:

        async def write(name: str, patch: bytes) -> None:
            async with session.patch(f"{url}/{name}", data=patch) as response:
                response.raise_for_status()
                await response.read()

        async def read_version() -> str:
            async with session.get(url, params={"limit": "1"}) as response:
                return str((await response.json())["metadata"]["resourceVersion"])

        version = max(await asyncio.gather(*(read_version() for _ in range(_IN_FLIGHT))), key=int)
        patches: dict[str, bytes] = {}
        endless = aiohttp.ClientTimeout(total=None)
        print("ready", flush=True)
        while len(patches) < len(homes):
            query = {"watch": "true", "resourceVersion": version}
            async with session.get(url, params=query, timeout=endless) as stream:
                rest = b""
                async for chunk in stream.content.iter_any():
                    *lines, rest = (rest + chunk).split(b"\n")
                    for metadata in (orjson.loads(line)["object"]["metadata"] for line in lines):
                        name, version = metadata["name"], metadata["resourceVersion"]
                        pod = Pod(namespace, name, metadata["uid"], gates=1, gate=0)
                        patches[name] = orjson.dumps(pin(pod, homes[name]))
                    if len(patches) == len(homes):
                        break
        await asyncio.gather(*(write(name, patch) for name, patch in patches.items()))


@asynccontextmanager
async def running(
    testbed: Testbed, *, namespace: str, homes: Mapping[str, str]
) -> AsyncIterator[None]:
    """Run the client as a process; it is ready when the `with` block begins, and ends after it."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "e2e.bench.bare_client"),
        f"--kubeconfig={testbed.kubeconfig}",
        f"--namespace={namespace}",
        f"--homes={json.dumps(homes)}",
        env={**os.environ, process.MARK: testbed.name},
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        if child.stdout is None or await child.stdout.readline() != b"ready\n":
            raise RuntimeError("the bare client did not start")
        yield
        if await child.wait():
            raise RuntimeError("the bare client failed")
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--namespace", required=True)
    parser.add_argument("--homes", type=json.loads, required=True)
    asyncio.run(main(**vars(parser.parse_args())))
