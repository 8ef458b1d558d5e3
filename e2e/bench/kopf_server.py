"""kopf's own webhook server, doing the edit that kfext does to the objects of the benchmark.

As an author who uses kopf would write it: a handler per kind that changes `patch`. It decides
nothing, validates nothing and looks nothing up, so it has less to do than kfext. Log lines of
single requests are off, as are all watches; TLS with the given certificate.
"""

import argparse
import asyncio
import logging
import signal
from pathlib import Path
from typing import Any

import kopf

from kfext import names
from kfext.controller.watch import login_with
from kfext.kube.connection import find_access

_ANNOTATIONS = {
    names.COLOCATION: "preferred",
    names.NETWORK: "pod",
    names.ISTIO_INJECT: "false",
}


def handlers(kubeconfig: Path) -> kopf.OperatorRegistry:
    """Return the two handlers, served at /job and /pod."""
    registry = kopf.OperatorRegistry()

    @kopf.on.mutate("kubeflow.org", "v1", "pytorchjobs", id="job", registry=registry)
    async def job(spec: Any, patch: Any, **_: Any) -> None:
        patch.metadata.annotations[names.HELD] = "true"
        patch.spec["runPolicy"] = {"suspend": True}
        metadata = {"annotations": _ANNOTATIONS, "labels": {names.ISTIO_INJECT: "false"}}
        patch.spec["pytorchReplicaSpecs"] = {
            type_: {"template": {"metadata": metadata}} for type_ in spec["pytorchReplicaSpecs"]
        }

    @kopf.on.mutate("", "v1", "pods", id="pod", registry=registry)
    async def pod(patch: Any, **_: Any) -> None:
        patch.spec["schedulingGates"] = [{"name": names.GATE}]

    kopf.on.login(registry=registry)(login_with(find_access(kubeconfig=kubeconfig)))
    return registry


async def main(*, kubeconfig: Path, port: int, certificate: Path, key: Path) -> None:
    """Serve until SIGTERM."""
    logging.getLogger("kopf").setLevel(logging.WARNING)
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.admission.server = kopf.WebhookServer(
        addr="127.0.0.1", port=port, certfile=str(certificate), pkeyfile=str(key)
    )
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await kopf.operator(
        registry=handlers(kubeconfig),
        settings=settings,
        clusterwide=True,
        standalone=True,
        stop_flag=stop,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("kubeconfig", "certificate", "key"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    asyncio.run(main(**vars(parser.parse_args())))
