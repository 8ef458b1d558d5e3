"""Runs containerd on each node, and prepares its folder with the unpacked images.

Unpacking 2.5 GB of images takes a minute, and every node needs the result. So the cache has a
template of containerd's folder for each state of the images. A node's folder is quickly made from
it: the two databases are copied; image contents and unpacked layers, which never change, are
symbolic links into the template.

Programs that real nodes need and the machine lacks are installed from Debian.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from e2e.testbed import gpus, paths, progress
from e2e.testbed.cluster import PATIENCE_SECONDS
from e2e.testbed.debian import apt_get
from e2e.testbed.images import PAUSE_IMAGE
from e2e.testbed.images.layers import Image, key, write_archive
from e2e.testbed.preflight import Unavailable
from e2e.testbed.realnodes.sandbox import Sandbox

# Program -> Debian package. Only packages of missing programs are installed: Docker has its own
# containerd, which Debian's package would replace.
_PROGRAMS = {
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "iptables": "iptables",
    "ip": "iproute2",
    "tc": "iproute2",
    "conntrack": "conntrack",
    "ethtool": "ethtool",
    "socat": "socat",
    "busybox": "busybox-static",
    "debootstrap": "debootstrap",
}
_CNI_PACKAGE = "containernetworking-plugins"
PACKAGES = sorted({*_PROGRAMS.values(), _CNI_PACKAGE})
_CNI_FOLDERS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))
_CNI_PLUGINS = ("bridge", "host-local", "loopback")
# Debian asks this script whether a package may start its service; 101 means no.
_POLICY = Path("/usr/sbin/policy-rc.d")
SOCKET = "/run/containerd/containerd.sock"
# containerd logs this line just before it serves; its socket answers earlier, but with errors.
_SERVING = b"Start streaming server"
_KUBERNETES = "k8s.io"  # containerd's namespace for kubelet
_SNAPSHOTS = "io.containerd.snapshotter.v1.overlayfs/snapshots"
_BLOBS = "io.containerd.content.v1.content/blobs/sha256"
_CONFIG = """\
version = 2

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  disable_apparmor = true
  # Without CAP_SYS_RESOURCE, as in many virtual machines, no process may lower its OOM score.
  restrict_oom_score_adj = true
  # Otherwise every pod would leave a file in the machine's /run/netns.
  netns_mounts_under_state_dir = true

[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "{plugins}"
  conf_dir = "{networks}"
"""
_NETWORK = """\
{{
  "cniVersion": "1.0.0",
  "name": "pods",
  "plugins": [
    {{
      "type": "bridge",
      "bridge": "cni0",
      "isGateway": true,
      "mtu": 1450,
      "ipam": {{
        "type": "host-local",
        "ranges": [[{{"subnet": "{subnet}"}}]],
        "routes": [{{"dst": "0.0.0.0/0"}}]
      }}
    }}
  ]
}}
"""


def cni_folder() -> Path | None:
    """Return the folder of the CNI plugins; None means that some are missing."""
    for folder in _CNI_FOLDERS:
        if all((folder / plugin).exists() for plugin in _CNI_PLUGINS):
            return folder
    return None


def missing_packages() -> list[str]:
    """Return the Debian packages of the programs that this machine lacks."""
    packages = {package for name, package in _PROGRAMS.items() if shutil.which(name) is None}
    if cni_folder() is None:
        packages.add(_CNI_PACKAGE)
    return sorted(packages)


def planned_packages() -> list[progress.Planned]:
    """Return the step of `install_packages`; an empty list if nothing is missing."""
    packages = missing_packages()
    return [_packages_step(packages)] if packages else []


def _packages_step(packages: Sequence[str]) -> progress.Planned:
    return progress.Planned(f"installing Debian packages: {' '.join(packages)}", 40)


def install_packages() -> None:
    """Install the missing programs, without starting a service or removing a package."""
    packages = missing_packages()
    if not packages:
        return
    if shutil.which("apt-get") is None:
        raise Unavailable(
            "real nodes need programs that this machine lacks, and there is no apt-get to install "
            f"them with; in Debian they are called {' '.join(packages)}"
        )
    with progress.step(_packages_step(packages)), _no_services():
        apt_get("update")
        apt_get("install", "--yes", "--no-install-recommends", "--no-remove", *packages)
    if still := missing_packages():
        raise Unavailable(f"installed, but their programs are still missing: {' '.join(still)}")


@contextmanager
def _no_services() -> Iterator[None]:
    """Prevent Debian from starting services during a `with` block."""
    if _POLICY.exists():
        yield  # the machine has its own policy, which must not change
        return
    _POLICY.write_text("#!/bin/sh\nexit 101\n")
    _POLICY.chmod(0o755)
    try:
        yield
    finally:
        _POLICY.unlink()


def start(sandbox: Sandbox) -> None:
    """Start a node's containerd; return once it serves, because kubelet would exit without it."""
    networks = sandbox.folder / "networks"
    networks.mkdir(exist_ok=True)
    subnet = sandbox.testbed.addresses.pod_cidr(sandbox.index)
    (networks / "10-pods.conflist").write_text(_NETWORK.format(subnet=subnet))
    config = sandbox.folder / "containerd.toml"
    plugins = cni_folder()
    config.write_text(
        _CONFIG.format(pause=PAUSE_IMAGE, plugins=plugins, networks=networks)
        + gpus.containerd_config(sandbox.folder)
    )
    log = sandbox.testbed.log(sandbox.process("containerd"))
    offset = log.stat().st_size if log.exists() else 0  # skips earlier starts
    sandbox.start_process(["containerd", f"--config={config}"], name="containerd")
    sandbox.testbed.wait_for(
        lambda: _SERVING in log.read_bytes()[offset:],
        what=f"containerd of {sandbox.name} to serve kubelet",
        needs=[sandbox.process("containerd")],
    )


def fill_from_template(template: Path, root: Path) -> None:
    """Make `root` a containerd folder with the template's images."""
    for folder, folders, files in os.walk(template):
        relative = Path(folder).relative_to(template)
        target = root / relative
        target.mkdir(parents=True, exist_ok=True)
        if str(relative) in (_SNAPSHOTS, _BLOBS):
            for name in (*folders, *files):
                (target / name).symlink_to((Path(folder) / name).resolve())
            folders.clear()
        else:
            for name in files:
                shutil.copyfile(Path(folder) / name, target / name)


def template(images: Sequence[Image]) -> Path:
    """Return the template with these images; make it first if the cache lacks it.

    It is made from the template of all images except the last. So after a change of an image, only
    this image and the following images are imported again, and only their missing layers.
    """
    with paths.exclusively(_templates()):
        path = _template_path(images)
        if not path.exists():
            with progress.step(_unpack_step()):
                _make_template(images)
        return path


def planned_template(images: Sequence[Image] | None) -> list[progress.Planned]:
    """Return the step of `template`; an empty list if the cache has the template of `images`."""
    return [] if images and _template_path(images).exists() else [_unpack_step()]


def _unpack_step() -> progress.Planned:
    has_some = any(path.is_dir() for path in _templates().glob("*"))
    return progress.Planned("unpacking the images, once for all nodes", 5 if has_some else 60)


def _templates() -> Path:
    return paths.cache() / "containerd"


def _template_path(images: Sequence[Image]) -> Path:
    return _templates() / key(image.digest for image in images)


def _make_template(images: Sequence[Image]) -> Path:
    path = _template_path(images)
    if path.exists():
        return path
    base = _make_template(images[:-1]) if len(images) > 1 else None
    unfinished = path.with_suffix(".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)  # left by an interrupted attempt
    unfinished.mkdir()
    if base:
        fill_from_template(base, unfinished)
    with _containerd(unfinished) as socket:
        blobs = unfinished / _BLOBS
        known = {blob.name for blob in blobs.iterdir()} if base else set()
        _import(images[-1], _ctr(socket), known)
    unfinished.rename(path)
    return path


def renew(sandbox: Sandbox, images: Sequence[Image]) -> None:
    """Import images into a running node, without the layers that it already has."""
    known = {blob.name for blob in (sandbox.folder / "containerd" / _BLOBS).iterdir()}
    for image in images:
        _import(image, sandbox.inside(_ctr(Path(SOCKET))), known)


def _ctr(socket: Path) -> list[str]:
    return ["ctr", "--address", str(socket), "--namespace", _KUBERNETES]


def _import(image: Image, command: Sequence[str], known: set[str]) -> None:
    with subprocess.Popen(
        [*command, "images", "import", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as importer:
        assert importer.stdin is not None
        assert importer.stderr is not None
        try:
            write_archive(image, importer.stdin, known=known)
            importer.stdin.close()
        except BrokenPipeError:
            pass  # the reason is on stderr
        output = importer.stderr.read().decode().strip()
    if importer.returncode != 0:
        raise Unavailable(f"containerd cannot import {image.name}: {output}")


@contextmanager
def _containerd(root: Path) -> Iterator[Path]:
    """Run a containerd that only stores images in `root`; yield its socket."""
    state = root.with_name(f"{root.name}.state")
    socket = state / "containerd.sock"
    shutil.rmtree(state, ignore_errors=True)
    state.mkdir()
    (state / "config.toml").write_text(
        'version = 2\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n'
    )
    command = ["containerd", f"--config={state / 'config.toml'}", f"--root={root}"]
    with (state / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, f"--state={state}", f"--address={socket}"], stdout=log, stderr=log
        )
    try:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not socket.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                output = "\n".join((state / "log").read_text().splitlines()[-5:])
                raise Unavailable(f"containerd does not start:\n{output}")
            time.sleep(0.05)
        yield socket
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(state)
