"""The controller process: connect kopf, the controller and the probes, and shut down in order."""

import asyncio
import os
import signal
import socket
from pathlib import Path
from typing import Any, cast

import kopf
import structlog

from kfext.controller.checks import missing_protection, missing_requirements
from kfext.controller.controller import Controller
from kfext.controller.metrics import Metrics
from kfext.controller.progress_reader import MOST_AT_ONCE
from kfext.controller.watches import login_with, operator_settings, registry
from kfext.errors import ApiError, KfextError, LeaseLost
from kfext.kube.client import Client
from kfext.kube.connection import find_access
from kfext.kube.snapshot_file import write_snapshot
from kfext.probes import serve_probes
from kfext.state.recording import snapshot_of

_log = structlog.get_logger(__name__)


async def run(
    *,
    kubeconfig: Path | None = None,
    probe_port: int = 8080,
    run_folder: Path | None = None,
    job_metrics: bool = True,
    certificates: bool = True,
) -> None:
    """Run the controller until SIGTERM. Raises KfextError if it cannot go on.

    SIGUSR1 makes it write a snapshot into `run_folder`. `job_metrics`: whether Prometheus gets the
    progress of each job. `certificates`: whether kfext issues those of its webhook.
    """
    access = find_access(kubeconfig=kubeconfig)
    metrics = Metrics(of_jobs=job_metrics)
    identity = f"{socket.gethostname()}_{os.getpid()}"
    observe = metrics.observe_request
    async with (
        Client(access, observe=observe) as client,
        Client(access, connections=2, observe=observe) as lease_client,
        Client(access, connections=MOST_AT_ONCE, observe=observe) as log_client,
    ):
        if missing := await missing_requirements(client):
            raise KfextError("; ".join(missing))
        await _warn_if_unprotected(client)
        controller = Controller(
            client=client,
            lease_client=lease_client,
            log_client=log_client,
            identity=identity,
            metrics=metrics,
            certificates=certificates,
        )
        handlers = registry(
            planner=controller.planner,
            plan_writer=controller.plan_writer,
            login=login_with(access),
        )
        probes = await serve_probes(
            port=probe_port,
            live=controller.stuck,
            ready=controller.wrong,
            registry=metrics.registry,
        )
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        asyncio.get_running_loop().add_signal_handler(
            signal.SIGUSR1, _write_snapshot, controller, run_folder
        )
        watching = asyncio.create_task(
            kopf.operator(
                registry=handlers,
                settings=operator_settings(),
                clusterwide=True,
                standalone=True,
                # kopf would look up the name of our user, which a container need not have.
                identity=cast(Any, identity),
                stop_flag=stop,
            )
        )
        placing = asyncio.create_task(controller.run())
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait((watching, placing, stopping), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stop.set()
            for task in (placing, stopping):
                task.cancel()
            done = await asyncio.gather(placing, watching, stopping, return_exceptions=True)
            await probes.cleanup()
        for outcome in done:
            if isinstance(outcome, Exception):
                raise _plain(outcome)


async def _warn_if_unprotected(client: Client) -> None:
    try:
        why = await missing_protection(client)
    except ApiError as error:
        why = str(error)
    if why:
        _log.warning("users may write kfext's marks on their jobs", why=why)


def _write_snapshot(controller: Controller, folder: Path | None) -> None:
    """Write what the planner knows, for a person who looks for the cause of a decision."""
    if folder is None:
        _log.warning("no snapshot", why="the controller has no --run-dir")
        return
    path, now = folder / "snapshot.json", controller.now()
    try:
        size = write_snapshot(path, snapshot_of(controller.planner, now), taken=now.wall)
    except OSError as error:
        _log.warning("no snapshot", why=str(error))
    else:
        _log.info("snapshot", path=str(path), bytes=size)


def _plain(error: Exception) -> Exception:
    """Return the one error inside a group, which is easier to read."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    if isinstance(error, LeaseLost):
        _log.error("the Lease is lost; a successor takes over", error=str(error))
    return error
