"""The isolation of a node from its machine: namespaces, folders and cgroups.

Two kubelets, or two containerds, cannot share their built-in paths (/run/containerd/s,
/var/lib/kubelet/device-plugins, /var/log/containers). So each node has a mount namespace with its
own folders at these paths; its kubelet and containerd are in it, and see each other's mounts. A
kubelet or containerd of the machine itself sees none of this, and the mounts end with the node.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from e2e.testbed import cgroups
from e2e.testbed.realnodes import network

if TYPE_CHECKING:
    from e2e.testbed.cluster import Testbed

# Built-in path -> the name of its folder below the node's folder.
_OWN_FOLDERS = {
    "/var/lib/kubelet": "kubelet",
    "/var/lib/containerd": "containerd",
    "/var/lib/cni": "cni",
    "/var/log/pods": "pods",
    "/var/log/containers": "containers",
    "/run/containerd": "run",
    "/var/lib/kfext": "kfext",
}
# The folders with content that is lost when a machine is switched off.
_VOLATILE = ("cni", "run")


class Sandbox:
    """The namespaces, folders and cgroups of real node `index`."""

    def __init__(self, testbed: Testbed, index: int) -> None:
        self.testbed = testbed
        self.index = index
        self.name = network.node_name(index)
        self.folder = testbed.folder / "nodes" / self.name
        identity = network.namespace(testbed, index)
        # kubelet and containerd stay outside the budget: a busy pod must not make a node look dead,
        # and the node's pods then have exactly the capacity that it advertises.
        self.pods_cgroup = f"/{identity}"
        self.system_cgroup = f"/{identity}-system"

    def make(self, *, millicores: int) -> None:
        """Make folders and cgroups; the network must exist."""
        for cgroup in (self.pods_cgroup, self.system_cgroup):
            self.testbed.record.add("cgroup", cgroup)
        cgroups.make_group_of_groups(self.pods_cgroup, millicores=millicores)
        cgroups.make_group_of_processes(self.system_cgroup)
        for path in _OWN_FOLDERS.values():
            (self.folder / path).mkdir(parents=True, exist_ok=True)
        (self.folder / "resolv.conf").write_text(f"nameserver {self.testbed.addresses.dns}\n")

    def start(self) -> None:
        """Start the process that keeps the namespaces; as on a new boot, /run is empty."""
        for path in _VOLATILE:
            shutil.rmtree(self.folder / path)
            (self.folder / path).mkdir()
        ready = self.folder / "ready"
        ready.unlink(missing_ok=True)
        for path in _OWN_FOLDERS:
            # The mount point must exist; kubelet on the machine would make the same folder.
            Path(path).mkdir(parents=True, exist_ok=True)
        identity = network.namespace(self.testbed, self.index)
        enter = ["nsenter", f"--net=/run/netns/{identity}"]
        new = ["unshare", "--mount", "--uts", "--propagation=private"]
        keeper = self._run([*enter, *new, "sh", "-ec", self._setup(ready)], name="sandbox")
        (self.folder / "keeper").write_text(str(keeper.pid))
        self.testbed.wait_for(
            ready.exists,
            what=f"the namespaces of {self.name}",
            needs=[self.process("sandbox")],
        )

    def start_process(self, command: Sequence[str], *, name: str) -> None:
        """Start a program as if on this node."""
        self._run(self.inside(command), name=name)

    def inside(self, command: Sequence[str]) -> list[str]:
        """Return the command line that runs a command as if on this node."""
        keeper = (self.folder / "keeper").read_text()
        return ["nsenter", f"--target={keeper}", "--net", "--uts", "--mount", *command]

    def process(self, name: str) -> str:
        """Return the name that the testbed uses for the node's process `name`."""
        return f"{self.name}-{name}"

    def kill(self) -> None:
        """End everything on the node at once: containers, kubelet, containerd, namespaces."""
        for cgroup in (self.system_cgroup, self.pods_cgroup):
            cgroups.kill_members(cgroup)

    def _run(self, command: Sequence[str], *, name: str) -> subprocess.Popen[bytes]:
        procs = " ".join(map(str, cgroups.procs_files(self.system_cgroup)))
        script = f'for file in {procs}; do echo $$ > "$file"; done; exec "$@"'
        return self.testbed.start_process(
            ["sh", "-ec", script, "sh", *command], name=self.process(name)
        )

    def _setup(self, ready: Path) -> str:
        """Return the shell commands that set up the mounts of the new namespace."""
        lines = [
            f"hostname {self.name}",
            # A mount here would make the network namespaces of other testbeds outlive them.
            "for name in /run/netns/*; do umount --lazy $name 2>/dev/null || true; done",
        ]
        for path, name in _OWN_FOLDERS.items():
            lines.append(f"mount --bind {shlex.quote(str(self.folder / name))} {path}")
        lines += [
            # Later mounts propagate: kubelet mounts volumes, and containerd must see them.
            "mount --make-rshared /",
            f"touch {shlex.quote(str(ready))}",
            "exec sleep infinity",
        ]
        return "\n".join(lines)
