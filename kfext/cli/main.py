"""The command line.

Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 3 planned but would wait.
"""

import os
import sys

import click

from kfext import __version__
from kfext.cli import services
from kfext.cli.explain import explain
from kfext.cli.gpus import gpus
from kfext.cli.metrics import metrics
from kfext.cli.output import plain
from kfext.cli.plan import plan
from kfext.cli.queue import queue
from kfext.cli.release import release
from kfext.cli.render import render_files
from kfext.cli.top import top
from kfext.errors import KfextError
from kfext.kube.client import accept_deep_json

_COMMANDS = (
    services.webhook,
    services.controller,
    services.agent,
    render_files,
    plan,
    explain,
    metrics,
    queue,
    top,
    gpus,
    release,
)


@click.group(commands=_COMMANDS)
@click.version_option(__version__, prog_name="kfext")
def cli() -> None:
    """Place the pods of PyTorchJobs and TFJobs together, and report what was done to them."""


def main() -> None:
    """Run the command line; print every expected failure as one line on stderr."""
    accept_deep_json()
    called = os.path.basename(sys.argv[0])
    try:
        cli(prog_name="kubectl kfext" if called == "kubectl-kfext" else "kfext")
    except (KfextError, OSError) as error:  # OSError: a port in use, a file that cannot be read
        click.echo(plain(f"error: {error}"), err=True)
        sys.exit(1)
