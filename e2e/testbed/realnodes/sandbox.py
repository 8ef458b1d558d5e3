"""What makes a node a machine of its own: its namespaces, its folders, its cgroups.

kubelet and containerd have paths built in that two of them cannot share (/run/containerd/s,
/var/lib/kubelet/device-plugins, /var/log/containers). So each node has a mount namespace in which
these folders are its own; kubelet and containerd share it, and see each other's mounts. Nothing of
it is visible to a kubelet or containerd of the machine itself, and its mounts end with it.
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

# Path that programs have built in -> name below the node's folder.
_OWN_FOLDERS = {
    "/var/lib/kubelet": "kubelet",
    "/var/lib/containerd": "containerd",
    "/var/lib/cni": "cni",
    "/var/log/pods": "pods",
    "/var/log/containers": "containers",
    "/run/containerd": "run",
    "/var/lib/kfext": "kfext",
}
# Lost when a machine is switched off.
_VOLATILE = ("cni", "run")


class Sandbox:
    """The namespaces, folders and cgroups of real node `index`."""

    def __init__(self, testbed: Testbed, index: int) -> None:
        self.testbed = testbed
        self.index = index
        self.name = network.node_name(index)
        self.folder = testbed.folder / "nodes" / self.name
        identity = network.namespace(testbed, index)
        # kubelet and containerd stay outside the budget: a busy pod must not make a node look
        # dead, and what the node advertises is then what its pods really get.
        self.pods_cgroup = f"/{identity}"
        self.system_cgroup = f"/{identity}-system"

    def make(self, *, millicores: int) -> None:
        """Make folders and cgroups; the network is there already."""
        for cgroup in (self.pods_cgroup, self.system_cgroup):
            self.testbed.record.add("cgroup", cgroup)
        cgroups.make_group_of_groups(self.pods_cgroup, millicores=millicores)
        cgroups.make_group_of_processes(self.system_cgroup)
        for path in _OWN_FOLDERS.values():
            (self.folder / path).mkdir(parents=True, exist_ok=True)
        (self.folder / "resolv.conf").write_text(f"nameserver {self.testbed.addresses.dns}\n")

    def start(self) -> None:
        """Start the process that keeps the namespaces, as a machine starts: with /run empty."""
        for path in _VOLATILE:
            shutil.rmtree(self.folder / path)
            (self.folder / path).mkdir()
        ready = self.folder / "ready"
        ready.unlink(missing_ok=True)
        for path in _OWN_FOLDERS:
            # What is mounted over must exist; programs of the machine would make the same folder.
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
        """Return the command that runs another as if on this node."""
        keeper = (self.folder / "keeper").read_text()
        return ["nsenter", f"--target={keeper}", "--net", "--uts", "--mount", *command]

    def process(self, name: str) -> str:
        """Return the testbed's name for the node's process `name`."""
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
        """Return the shell commands that turn a copy of the machine's mounts into the node's."""
        lines = [
            f"hostname {self.name}",
            # Held here, the network namespaces of other testbeds would outlive them.
            "for name in /run/netns/*; do umount --lazy $name 2>/dev/null || true; done",
        ]
        for path, own in _OWN_FOLDERS.items():
            lines.append(f"mount --bind {shlex.quote(str(self.folder / own))} {path}")
        lines += [
            # From here on mounts spread: kubelet makes volumes that containerd gives to containers.
            "mount --make-rshared /",
            f"touch {shlex.quote(str(ready))}",
            "exec sleep infinity",
        ]
        return "\n".join(lines)
