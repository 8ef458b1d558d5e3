"""One testbed: a Kubernetes cluster on this machine, with everything that belongs to it."""

import json
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

import urllib3

from e2e.testbed import binaries, paths, process
from e2e.testbed.addresses import Addresses, claim, free_ports
from e2e.testbed.api import Api, ApiError
from e2e.testbed.pki import Pki
from e2e.testbed.record import Record

T = TypeVar("T")
PATIENCE_SECONDS = 600.0
"""The default timeout of a wait: far longer than any step takes, even on a busy machine."""
_POLL_SECONDS = 0.1
_LAST_LINES = 15


class NotReadyError(Exception):
    """The cluster did not reach a state in time, or a process it needs has ended."""


class Testbed:
    """A testbed; `create` makes it, and `load` opens a testbed that another process has made.

    Its folder records everything that another process needs. `fast`: whether all components have
    high client limits, and fake nodes renew their leases rarely. `native_gangs`: whether
    kube-scheduler's own gangs are on; they are off by default in Kubernetes 1.37.
    """

    __test__ = False  # pytest must not collect it as a test because of its name

    def __init__(
        self,
        name: str,
        addresses: Addresses,
        *,
        apiserver_port: int,
        real_nodes: int,
        fast: bool,
        native_gangs: bool,
    ) -> None:
        self.name = name
        self.addresses = addresses
        self.apiserver_port = apiserver_port
        self.real_nodes = real_nodes
        self.fast = fast
        self.native_gangs = native_gangs
        self.folder = paths.state(name)
        self.record = Record(self.folder / "record")
        self.pki = Pki(self.folder / "pki")
        self.server = f"https://127.0.0.1:{apiserver_port}"
        self.kubeconfig = self.folder / "kubeconfig"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._used_ports = {apiserver_port}
        admin = self.pki.client("admin", groups=("system:masters",))
        self.api = Api(self.server, authority=self.pki.authority.certificate, user=admin)

    @classmethod
    def create(
        cls, name: str, *, real_nodes: int = 0, fast: bool = False, native_gangs: bool = False
    ) -> Self:
        """Choose the addresses of a new testbed and create its folder; nothing runs yet."""
        folder = paths.state(name)
        with claim(folder.parent) as addresses:
            if folder.exists() or any(process.marked(name)):
                raise FileExistsError(
                    f"there is a testbed {name!r} already: see `python -m e2e.testbed status "
                    f"--name {name}`, or end it with `python -m e2e.testbed down --name {name}`"
                )
            port = free_ports(addresses.ports, 1)[0]
            folder.mkdir(mode=0o700)
            (folder / "slot").write_text(str(addresses.slot))
        facts: dict[str, Any] = {
            "apiserver_port": port,
            "real_nodes": real_nodes,
            "fast": fast,
            "native_gangs": native_gangs,
        }
        (folder / "testbed.json").write_text(json.dumps(facts))
        (folder / "tmp").mkdir()
        testbed = cls(name, addresses, **facts)
        testbed.pki.kubeconfig(
            testbed.kubeconfig, server=testbed.server, user="admin", groups=("system:masters",)
        )
        return testbed

    @classmethod
    def load(cls, name: str) -> Self:
        """Return a testbed that another process has started."""
        folder = paths.state(name)
        try:
            facts = json.loads((folder / "testbed.json").read_text())
            slot = int((folder / "slot").read_text())
        except FileNotFoundError:
            raise FileNotFoundError(
                f"there is no testbed {name!r}: start it with "
                f"`python -m e2e.testbed up --name {name}`"
            ) from None
        return cls(name, Addresses(slot), **facts)

    def binary(self, name: str) -> Path:
        """Return a program of the cluster, built first if it is missing."""
        return binaries.resolve(name)

    def new_port(self) -> int:
        """Return a free TCP port, a different port at each call."""
        candidates = [port for port in self.addresses.ports if port not in self._used_ports]
        port = free_ports(candidates, 1)[0]
        self._used_ports.add(port)
        return port

    def log(self, name: str) -> Path:
        return self.folder / "logs" / f"{name}.log"

    def start_process(
        self, command: Sequence[str], *, name: str, environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a process that ends with the testbed; its output goes to `log(name)`."""
        # The contents of its temporary folder are removed with the testbed.
        variables = {"TMPDIR": str(self.folder / "tmp"), **(environment or {})}
        return self._start(name, command, variables)

    def pid(self, name: str) -> int:
        """Return the id of process `name`, even if another process started it."""
        pid: int = json.loads(self._process_file(name).read_text())["pid"]
        return pid

    def stop_process(self, name: str) -> None:
        """End process `name`, even if another process started it."""
        if name in self._processes:
            process.stop(self._processes.pop(name))
        else:
            process.stop_marked(self.name, self.pid(name))

    def restart_process(self, name: str, *, more: Sequence[str] = ()) -> subprocess.Popen[bytes]:
        """Restart a process with its last command and environment, now with `more` arguments."""
        self.stop_process(name)
        entry = json.loads(self._process_file(name).read_text())
        return self._start(name, entry["command"], entry["environment"], more=more)

    def wait_for(
        self,
        condition: Callable[[], T | None],
        *,
        what: str,
        seconds: float = PATIENCE_SECONDS,
        needs: Sequence[str] = (),
    ) -> T:
        """Wait until `condition` returns a true value, and return that value.

        Refusals of the API server and failed connections count as "not yet". Raises NotReadyError
        after the timeout, or as soon as one of the processes in `needs` has ended.
        """
        deadline = time.monotonic() + seconds
        while True:
            last_error = ""
            try:
                if result := condition():
                    return result
            except (ApiError, urllib3.exceptions.HTTPError) as error:
                last_error = f"; at last: {error}"
            for name in needs:
                self._check(name, what)
            if time.monotonic() > deadline:
                tails = "".join(f"\n{self._tail(name)}" for name in needs)
                raise NotReadyError(f"waited {seconds:.0f} s for {what}{last_error}{tails}")
            time.sleep(_POLL_SECONDS)

    def wait_processes(self) -> None:
        """Reap the testbed's ended processes, so that no zombie stays."""
        for started in self._processes.values():
            started.wait()

    def _start(
        self,
        name: str,
        command: Sequence[str],
        variables: Mapping[str, str],
        *,
        more: Sequence[str] = (),
    ) -> subprocess.Popen[bytes]:
        started = process.start(
            [*command, *more], testbed=self.name, log=self.log(name), environment=variables
        )
        self._processes[name] = started
        entry = {"pid": started.pid, "command": list(command), "environment": dict(variables)}
        self._process_file(name).parent.mkdir(exist_ok=True)
        self._process_file(name).write_text(json.dumps(entry))
        return started

    def _process_file(self, name: str) -> Path:
        """Return the file with the id, command and environment of a process."""
        return self.folder / "processes" / f"{name}.json"

    def _check(self, name: str, what: str) -> None:
        started = self._processes.get(name)
        if started is not None and started.poll() is not None:
            raise NotReadyError(
                f"{name} ended with code {started.returncode} while waiting for {what}"
                f"\n{self._tail(name)}"
            )

    def _tail(self, name: str) -> str:
        lines = self.log(name).read_text(errors="replace").splitlines()[-_LAST_LINES:]
        return "\n".join([f"last lines of {self.log(name)}:", *(f"  {line}" for line in lines)])
