"""The controller process: check the cluster, start kopf, controller and probes, and shut down."""

import asyncio
import os
import signal
import socket
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import kopf
import structlog

from kfext.controller.controller import Controller
from kfext.controller.metrics import Metrics
from kfext.controller.progress_reader import MAX_AT_ONCE
from kfext.controller.watch import login_with, operator_settings, registry
from kfext.errors import ApiError, KfextError, LeaseLost, NotFound
from kfext.kube import paths
from kfext.kube.client import Client
from kfext.kube.connection import find_access
from kfext.kube.discovery import outdated_kinds, served_kinds, why_unserved
from kfext.kube.snapshot_file import write_snapshot
from kfext.model.kinds.job_kind import JobKind
from kfext.model.kinds.registered import KINDS
from kfext.model.tolerant import mapping, sequence
from kfext.names import API_GROUP, DECIDE, MARKS_POLICY
from kfext.runtime import serve_probes, stop_signal
from kfext.state.planner.recording import snapshot_of

_log = structlog.get_logger(__name__)

_OLDEST = (1, 32)
_KINDS_SECONDS = 30.0
"""Seconds between two checks of the kinds of jobs that the cluster serves."""


async def run(
    *,
    kubeconfig: Path | None = None,
    probe_port: int = 8080,
    run_folder: Path | None = None,
    job_metrics: bool = True,
    certificates: bool = True,
) -> None:
    """Run the controller until SIGTERM. Raises KfextError if it cannot continue.

    On SIGUSR1 it writes a snapshot into `run_folder`.
    `job_metrics`: whether Prometheus gets the progress of each job. `certificates`: whether kfext
    issues the webhook's certificates.
    """
    access = find_access(kubeconfig=kubeconfig)
    metrics = Metrics(of_jobs=job_metrics)
    identity = f"{socket.gethostname()}_{os.getpid()}"
    observe = metrics.count_request
    async with (
        Client(access, observe=observe) as client,
        Client(access, connections=2, observe=observe) as lease_client,
        Client(access, connections=MAX_AT_ONCE, observe=observe) as log_client,
    ):
        served = await served_kinds(client)
        outdated = await outdated_kinds(client, served)
        for kind in outdated:
            _log.warning("does not handle", kind=kind.name, why=f"it needs {kind.provider}")
        kinds = tuple(kind for kind in served if kind not in outdated)
        if missing := await _missing_requirements(client, kinds):
            raise KfextError("; ".join(missing))
        _log.info("handles", kinds=[kind.name for kind in kinds])
        await _warn_if_unprotected(client)
        controller = Controller(
            client=client,
            lease_client=lease_client,
            log_client=log_client,
            identity=identity,
            kinds=kinds,
            metrics=metrics,
            certificates=certificates,
        )
        handlers = registry(
            planner=controller.planner,
            plan_writer=controller.plan_writer,
            progress_reader=controller.progress_reader,
            login=login_with(access),
            kinds=kinds,
        )
        probes = await serve_probes(
            port=probe_port,
            live=controller.liveness_problem,
            ready=controller.readiness_problem,
            registry=metrics.registry,
        )
        stop = stop_signal()
        asyncio.get_running_loop().add_signal_handler(
            signal.SIGUSR1, _write_snapshot, controller, run_folder
        )
        watching = asyncio.create_task(
            kopf.operator(
                registry=handlers,
                settings=operator_settings(),
                clusterwide=True,
                standalone=True,
                # kopf would look up the name of the user, and a container may have none.
                identity=cast(Any, identity),
                stop_flag=stop,
            )
        )
        placing = asyncio.create_task(controller.run())
        stopping = asyncio.create_task(stop.wait())
        comparing = asyncio.create_task(end_with_other_kinds(client, kinds, outdated))
        running = (placing, watching, stopping, comparing)
        try:
            await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stop.set()
            for task in (placing, stopping, comparing):
                task.cancel()
            outcomes = await asyncio.gather(*running, return_exceptions=True)
            await probes.cleanup()
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise _single_error(outcome)


async def end_with_other_kinds(
    client: Client, kinds: Sequence[JobKind], outdated: Collection[JobKind] = ()
) -> None:
    """Raise KfextError once kfext can handle other kinds of jobs than at the start.

    A new process then watches the right kinds: kopf cannot start or end a single watch. Two checks
    must agree, because an API server that has just started may not know all CRDs yet.

    `outdated`: the kinds with an operator that was too old at the start.
    """
    previous = kinds
    while True:
        await asyncio.sleep(_KINDS_SECONDS)
        with suppress(ApiError):
            served = await served_kinds(client)
            still = await outdated_kinds(client, [kind for kind in served if kind in outdated])
            current = tuple(kind for kind in served if kind not in still)
            if current == previous != kinds:
                raise KfextError(
                    "the cluster serves other kinds of jobs than at the start of this process: "
                    f"now {_names(current)}, then {_names(kinds)}; the next process handles them"
                )
            previous = current


def _names(kinds: Sequence[JobKind]) -> str:
    return " and ".join(kind.plural for kind in kinds) or "none"


async def _warn_if_unprotected(client: Client) -> None:
    try:
        why = await _missing_protection(client)
    except ApiError as error:
        why = str(error)
    if why:
        _log.warning("users may write kfext's marks on their jobs", why=why)


def _write_snapshot(controller: Controller, folder: Path | None) -> None:
    """Write the planner's state to a file, so that a person can repeat its decisions."""
    if folder is None:
        _log.warning("no snapshot", why="the controller has no --run-dir")
        return
    path, now = folder / "snapshot.json", controller.now()
    try:
        size = write_snapshot(path, snapshot_of(controller.planner, now), at=now.wall)
    except OSError as error:
        _log.warning("no snapshot", why=str(error))
    else:
        _log.info("snapshot", path=str(path), bytes=size)


def _single_error(error: Exception) -> Exception:
    """Return the only error of a group, which is easier to read; log the loss of the Lease."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    if isinstance(error, LeaseLost):
        _log.error("the Lease is lost; a successor takes over", error=str(error))
    return error


async def _missing_requirements(client: Client, kinds: Sequence[JobKind]) -> list[str]:
    """Return a message for each missing requirement; one kind of job is enough. Raises ApiError."""
    missing = []
    version = await client.get("/version")
    served = (_number(version.get("major")), _number(version.get("minor")))
    if served < _OLDEST:
        missing.append(
            f"Kubernetes {served[0]}.{served[1]} is too old; kfext needs {_OLDEST[0]}.{_OLDEST[1]}"
        )
    if not kinds:
        missing.append(why_unserved(KINDS.values()))
    kfext_kinds = {
        "trainingplans": paths.plans(),
        "trainingpolicies": paths.policies(),
        "sharedgpus": paths.shared_gpus(),
    }
    for name, path in kfext_kinds.items():
        if not await _served(client, path):
            missing.append(f"the cluster serves no {name}; apply kfext's crds")
    if not await _may_decide(client):
        missing.append(
            f"this account lacks the verb {DECIDE} on trainingplans.{API_GROUP} in the whole "
            "cluster; apply kfext's manifests"
        )
    return missing


async def _missing_protection(client: Client) -> str:
    """Return the reason why users may write kfext's marks on their jobs; empty if they may not.

    kfext works without this protection, since it checks every mark. Raises ApiError.
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
    """Return whether this account may write marks; otherwise every step would be refused."""
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
            return True  # served, but this account may not list it; the watch will report that
        raise
    return True


def _number(value: object) -> int:
    digits = "".join(filter(str.isdigit, str(value)))
    return int(digits or "0")
