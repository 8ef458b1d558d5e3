"""The commands that the Deployments and the DaemonSet run."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import click

from kfext import logs

_service_options = [
    click.option(
        "--kubeconfig", type=click.Path(path_type=Path), help="Needed only outside a cluster."
    ),
    click.option("--probe-port", default=8080, show_default=True, help="/healthz /readyz /metrics"),
    click.option(
        "--log-level",
        default="info",
        show_default=True,
        type=click.Choice(["debug", "info", "warning", "error"]),
    ),
]


def _service(command: Callable[..., None]) -> Callable[..., None]:
    for option in reversed(_service_options):
        command = option(command)
    return command


def _run_folder(use: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return the option for the folder that a Deployment mounts; `use`: what it is for."""
    return click.option(
        "--run-dir",
        envvar="KFEXT_RUN_DIR",
        type=click.Path(path_type=Path, exists=True, file_okay=False),
        help=use,
    )


@click.command()
@_service
@click.option("--context", help="Context of the kubeconfig.")
@click.option("--port", default=9443, show_default=True, help="HTTPS port for admission reviews.")
@click.option("--tls-name", multiple=True, help="Additional DNS name for the certificate.")
@click.option("--tls-ip", multiple=True, help="Additional IP address for the certificate.")
@_run_folder("In-memory folder for the serving key; a temporary folder if not given.")
@click.option(
    "--drain-seconds", default=5.0, show_default=True, help="Time to keep serving after SIGTERM."
)
def webhook(
    *,
    kubeconfig: Path | None,
    context: str | None,
    probe_port: int,
    log_level: str,
    port: int,
    tls_name: tuple[str, ...],
    tls_ip: tuple[str, ...],
    run_dir: Path | None,
    drain_seconds: float,
) -> None:
    """Serve the admission webhooks."""
    from kfext.webhook.main import Config, run  # noqa: PLC0415 - render needs no server

    logs.configure(log_level)
    config = Config(
        kubeconfig=kubeconfig,
        context=context,
        port=port,
        probe_port=probe_port,
        extra_names=(*tls_name, *tls_ip),
        run_folder=run_dir,
        drain_seconds=drain_seconds,
    )
    asyncio.run(run(config))


@click.command()
@_service
@_run_folder("Folder for the snapshot that SIGUSR1 asks for; without it there is none.")
@click.option(
    "--job-metrics/--no-job-metrics",
    default=True,
    show_default=True,
    help="Whether /metrics has the progress of jobs, with their names; of the newest 1,000.",
)
def controller(
    *,
    kubeconfig: Path | None,
    probe_port: int,
    log_level: str,
    run_dir: Path | None,
    job_metrics: bool,
) -> None:
    """Run the placement controller."""
    from kfext.controller.main import run  # noqa: PLC0415 - kopf takes half a second to import

    logs.configure(log_level)
    asyncio.run(
        run(
            kubeconfig=kubeconfig,
            probe_port=probe_port,
            run_folder=run_dir,
            job_metrics=job_metrics,
        )
    )


@click.command()
@_service
@click.option("--node", envvar="NODE_NAME", required=True, help="The Node on which it runs.")
@click.option("--pod", envvar="POD_NAME", required=True, help="The Pod in which it runs.")
@click.option(
    "--data-dir",
    envvar="KFEXT_DATA_DIR",
    default="/var/lib/kfext",
    show_default=True,
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Folder of the node's for the sockets of jobs and the hook, which they execute.",
)
@click.option(
    "--device-list-strategy",
    envvar="DEVICE_LIST_STRATEGY",
    default="envvar",
    show_default=True,
    show_envvar=True,
    type=click.Choice(["envvar", "cdi-cri"]),
    help="How containers get their cards, in the words of NVIDIA's device plugin.",
)
def agent(
    *,
    kubeconfig: Path | None,
    probe_port: int,
    log_level: str,
    node: str,
    pod: str,
    data_dir: Path,
    device_list_strategy: str,
) -> None:
    """Share the GPUs of a node between the jobs that were placed on them."""
    from kfext.agent.main import Config, run  # noqa: PLC0415 - only this needs gRPC and NVML

    logs.configure(log_level)
    asyncio.run(
        run(
            Config(
                node,
                pod,
                data_dir,
                cdi=device_list_strategy == "cdi-cri",
                kubeconfig=kubeconfig,
                probe_port=probe_port,
            )
        )
    )
