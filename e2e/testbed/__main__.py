"""The command line: `python -m e2e.testbed up`, `down`, `status` and other commands."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click
import urllib3

from e2e.testbed import (
    browser,
    doctor,
    karpenter,
    lifecycle,
    metrics_server,
    offline,
    paths,
    preflight,
    process,
    trainer,
)
from e2e.testbed.api import ApiError, is_ready
from e2e.testbed.cluster import NotReadyError, Testbed
from e2e.testbed.fakenodes import LABEL
from e2e.testbed.progress import say

_LOG_LINES = 40
_TEST_PROGRAMS = ("kubectl", *trainer.BINARIES)
_LONG_TEST_PROGRAMS = (metrics_server.NAME, karpenter.NAME)


def lines(testbed: Testbed) -> Iterator[str]:
    """Describe a testbed: its address, its processes and their memory, and its nodes."""
    yield f"testbed {testbed.name}: {testbed.server}, network {testbed.addresses.network}"
    yield f"kubeconfig {testbed.kubeconfig}"
    total = 0
    for pid in sorted(process.marked(testbed.name)):
        name, resident = _describe(pid)
        total += resident
        yield f"  {pid:>8}  {resident / 2**20:6.0f} MiB  {name}"
    yield f"  memory in total: {total / 2**20:.0f} MiB"
    yield from _nodes(testbed)


def _nodes(testbed: Testbed) -> Iterator[str]:
    try:
        nodes = testbed.api.get("/api/v1/nodes")["items"]
    except (ApiError, urllib3.exceptions.HTTPError) as error:
        yield f"the API server does not answer: {error}"
        return
    fake = [node for node in nodes if node["metadata"].get("labels", {}).get(LABEL) == "fake"]
    real = [node for node in nodes if node not in fake]
    for kind, some in (("real", real), ("fake", fake)):
        yield f"{kind} nodes: {sum(is_ready(node) for node in some)} of {len(some)} ready"


def _describe(pid: int) -> tuple[str, int]:
    """Return the program and the resident bytes of a process, or ("(ended)", 0)."""
    folder = Path("/proc") / str(pid)
    try:
        command = (folder / "cmdline").read_bytes().split(b"\0")[0].decode(errors="replace")
        facts = (folder / "status").read_text().splitlines()
    except OSError:
        return "(ended)", 0
    kilobytes = [int(line.split()[1]) for line in facts if line.startswith("VmRSS:")]
    return Path(command).name, sum(kilobytes) * 1024


def _valid_name(_context: click.Context, _option: click.Parameter, name: str) -> str:
    try:
        paths.state(name)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return name


_NAME = click.option(
    "--name",
    default="testbed",
    show_default=True,
    callback=_valid_name,
    help="The testbed's name; several may run at once.",
)


@click.group(help=__doc__)
def main() -> None: ...


@main.command(help="Start a cluster that runs until `down`.")
@_NAME
@click.option("--real-nodes", default=0, type=click.IntRange(0, 20), help="Kubelets, with pods.")
@click.option("--fake-nodes", default=0, type=click.IntRange(0, 5000), help="Nodes run by kwok.")
@click.option("--fast", is_flag=True, help="Raise the request limits of all components.")
@click.option("--autoscaler", is_flag=True, help="Run Karpenter, which adds fake nodes.")
def up(name: str, real_nodes: int, fake_nodes: int, fast: bool, autoscaler: bool) -> None:
    if autoscaler and not fake_nodes:
        raise click.UsageError("--autoscaler adds fake nodes: it needs --fake-nodes 1 or more")
    began = time.monotonic()
    if real_nodes:
        try:
            lifecycle.prepare(real_nodes=True, fake_nodes=fake_nodes > 0)
        except preflight.Unavailable as error:
            say(f"no real nodes, continuing without: {error}")
            real_nodes = 0
    testbed = lifecycle.up(name, real_nodes=real_nodes, fake_nodes=fake_nodes, fast=fast)
    if autoscaler:
        karpenter.start(testbed)
        karpenter.add(testbed, karpenter.Pool())
    say(f"testbed {name!r} is ready after {time.monotonic() - began:.0f} s")
    print(f"export KUBECONFIG={testbed.kubeconfig}")


@main.command(help="Build the programs and images that the tests need.")
@click.option("--long", "long_ones", is_flag=True, help="Also for tests marked `long`.")
def build(long_ones: bool) -> None:
    programs = [*_TEST_PROGRAMS, *(_LONG_TEST_PROGRAMS if long_ones else ())]
    for real_nodes in (True, False):
        try:
            lifecycle.prepare(real_nodes=real_nodes, fake_nodes=True, programs=programs)
        except preflight.Unavailable as error:
            say(f"tests that need this will be skipped: {error}")
        else:
            break


@main.command(name="browser", help="Install the programs that the browser tests need.")
def install_browser() -> None:
    try:
        browser.prepare()
    except preflight.Unavailable as error:
        say(f"tests that need this will be skipped: {error}")


@main.command(help="Pack a testbed for a machine with GPUs and without a network into files.")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--most", default=60, show_default=True, help="Maximum MiB of a file.")
@click.option("--python", default="3.12", show_default=True, help="Version on the other machine.")
def pack(folder: Path, most: int, python: str) -> None:
    for path in offline.pack(folder, most=most, python=python):
        print(f"{path}: {path.stat().st_size / 2**20:.0f} MiB")


@main.command(help="Remove a cluster and everything that belongs to it.")
@_NAME
def down(name: str) -> None:
    say(f"testbed {name!r} is removed" if lifecycle.down(name) else f"there is no testbed {name!r}")


@main.command(name="status", help="Show processes, memory and nodes.")
@_NAME
def show_status(name: str) -> None:
    for line in lines(Testbed.load(name)):
        print(line)


@main.command(name="list", help="List all testbeds, including the remains of killed ones.")
def list_all() -> None:
    for folder in sorted(paths.states().glob("*/")):
        count = len(list(process.marked(folder.name)))
        print(f"{folder.name}: {count} processes; end it with `down --name {folder.name}`")


@main.command(help="Print the path of the administrator's kubeconfig.")
@_NAME
def kubeconfig(name: str) -> None:
    print(Testbed.load(name).kubeconfig)


@main.command(help="Print the end of the output of one component, or of all.")
@_NAME
@click.option("--lines", default=_LOG_LINES, show_default=True)
@click.argument("component", required=False)
def logs(name: str, lines: int, component: str | None) -> None:
    files = sorted(Testbed.load(name).log("any").parent.glob("*.log"))
    wanted = [path for path in files if component in (None, path.stem)]
    if not wanted:
        names = ", ".join(path.stem for path in files)
        raise click.ClickException(f"no component {component!r} in {name!r}; there are: {names}")
    for path in wanted:
        print(f"==> {path} <==")
        print("\n".join(path.read_text(errors="replace").splitlines()[-lines:]))


@main.command(name="doctor", help="Check whether this machine can run a testbed.")
def check() -> None:
    if not doctor.report():
        sys.exit(1)


if __name__ == "__main__":
    try:
        main()
    except (FileExistsError, FileNotFoundError, NotReadyError, preflight.Unavailable) as error:
        say(f"error: {error}")
        sys.exit(1)
