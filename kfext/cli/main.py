"""The command line: all commands, and the services that the Deployments and the DaemonSet run.

Exit codes: 0 success, 1 refused or failed, 2 wrong usage, 3 a job would wait (`plan`), or jobs
remain on the node (`drain`).
"""

import asyncio
import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from kfext import __version__
from kfext.cli.drain import drain, uncordon
from kfext.cli.explain import explain
from kfext.cli.gpus import gpus
from kfext.cli.jobs import queue, top
from kfext.cli.nodes import nodes, usage
from kfext.cli.output import plain
from kfext.cli.plan import plan
from kfext.cli.release import release
from kfext.cli.render import render_files
from kfext.cli.simulate import simulate
from kfext.cli.ui import ui
from kfext.errors import KfextError
from kfext.kube.client import accept_deep_json

_SERVICE_OPTIONS = (
    click.option(
        "--kubeconfig", type=click.Path(path_type=Path), help="Needed only outside a cluster."
    ),
    click.option("--probe-port", default=8080, show_default=True, help="Port for probes, metrics."),
    click.option(
        "--log-level",
        default="info",
        show_default=True,
        type=click.Choice(["debug", "info", "warning", "error"]),
    ),
)


def _service(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of every service, and configure the logs before the service starts."""

    @functools.wraps(command)
    def with_logs(*, log_level: str, **options: Any) -> None:
        from kfext.runtime import configure_logs  # noqa: PLC0415 - only services need servers

        configure_logs(log_level)
        command(**options)

    wrapped: Callable[..., None] = with_logs
    for option in reversed(_SERVICE_OPTIONS):
        wrapped = option(wrapped)
    return wrapped


@click.command()
@_service
@click.option("--context", help="Context in the kubeconfig.")
@click.option("--port", default=9443, show_default=True, help="HTTPS port for admission reviews.")
@click.option("--tls-name", multiple=True, help="Additional DNS name for the certificate.")
@click.option("--tls-ip", multiple=True, help="Additional IP address for the certificate.")
@click.option(
    "--tls-dir",
    "tls_folder",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Folder with tls.crt and tls.key, such as cert-manager's; if unset, kfext signs its own.",
)
@click.option(
    "--drain-seconds", default=5.0, show_default=True, help="Time to keep serving after SIGTERM."
)
def webhook(*, tls_name: tuple[str, ...], tls_ip: tuple[str, ...], **options: Any) -> None:
    """Serve the admission webhooks."""
    from kfext.webhook.main import Config, run  # noqa: PLC0415 - render needs no server

    asyncio.run(run(Config(extra_names=(*tls_name, *tls_ip), **options)))


@click.command()
@_service
@click.option(
    "--run-dir",
    "run_folder",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Folder for the snapshot on SIGUSR1. Default: no snapshot.",
)
@click.option(
    "--job-metrics/--no-job-metrics",
    default=True,
    show_default=True,
    help="Export the progress of the newest 1,000 jobs, with their names.",
)
@click.option(
    "--certificates/--no-certificates",
    default=True,
    show_default=True,
    help="Whether kfext issues the webhook's certificates, or e.g. cert-manager does.",
)
def controller(**options: Any) -> None:
    """Run the placement controller."""
    from kfext.controller.main import run  # noqa: PLC0415 - kopf takes half a second to import

    asyncio.run(run(**options))


@click.command()
@_service
@click.option("--node", envvar="NODE_NAME", required=True, help="Name of the agent's Node.")
@click.option("--pod", envvar="POD_NAME", required=True, help="Name of the agent's Pod.")
@click.option(
    "--data-dir",
    "root",
    envvar="KFEXT_DATA_DIR",
    default="/var/lib/kfext",
    show_default=True,
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Folder on the node for the hook and the sockets of jobs.",
)
@click.option(
    "--device-list-strategy",
    "device_list",
    envvar="DEVICE_LIST_STRATEGY",
    default="envvar",
    show_default=True,
    show_envvar=True,
    type=click.Choice(["envvar", "cdi-cri"]),
    help="How containers receive their cards, with the names in NVIDIA's device plugin.",
)
def agent(*, device_list: str, **options: Any) -> None:
    """Share the GPUs of a node between the jobs that were placed on them."""
    from kfext.gpu.agent.main import Config, run  # noqa: PLC0415 - only the agent needs gRPC and NVML

    asyncio.run(run(Config(cdi=device_list == "cdi-cri", **options)))


@click.group(
    commands=(
        webhook,
        controller,
        agent,
        render_files,
        plan,
        explain,
        queue,
        top,
        gpus,
        ui,
        usage,
        nodes,
        release,
        drain,
        uncordon,
        simulate,
    )
)
@click.version_option(__version__, prog_name="kfext")
def cli() -> None:
    """Place the pods of training jobs together, and explain each decision."""


def main() -> None:
    """Run the command line; print every expected failure as one line on stderr."""
    accept_deep_json()
    program = os.path.basename(sys.argv[0])
    try:
        cli(prog_name="kubectl kfext" if program == "kubectl-kfext" else "kfext")
    except (KfextError, OSError) as error:  # OSError: a port in use, a file that cannot be read
        click.echo(plain(f"error: {error}"), err=True)
        sys.exit(1)
