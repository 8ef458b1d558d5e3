"""How what DRAGON does is asked of the API server."""

from typing import Any

import pytest

from e2e.bench.stream.commands import Bind, Delete, Resize, carry_out
from e2e.bench.stream.workload import StreamJob
from e2e.testbed.api import ApiError

Object = dict[str, Any]
JOB = StreamJob("served", "TFJob", 1, 2, 4, steps=1)


class Server:
    """An API server that notes what it is asked for, and stands in for the `Pods` that use it."""

    namespace, path = "any", "/api/v1/namespaces/any/pods"

    def __init__(self, refuses: int = 0) -> None:
        self.bed = self.api = self
        self.refuses, self.asked = refuses, list[tuple[str, Object]]()

    def create(self, path: str, body: Object) -> None:
        self.asked.append((path, body))
        if self.refuses:
            raise ApiError(self.refuses, "refused")

    patch = create

    def delete(self, path: str) -> None:
        self.asked.append((path, {}))


def test_commands_become_requests() -> None:
    server = Server()
    for command in (Resize(JOB, {"spec": {}}), Delete("a"), Bind("b", "node-1")):
        carry_out(command, server)  # type: ignore[arg-type]
    paths = [path for path, _ in server.asked]
    assert paths == [
        "/apis/kubeflow.org/v1/namespaces/any/tfjobs/served",
        f"{Server.path}/a",
        f"{Server.path}/b/binding",
    ]
    assert server.asked[-1][1]["target"] == {"apiVersion": "v1", "kind": "Node", "name": "node-1"}


@pytest.mark.parametrize("status", [404, 409])
def test_what_has_gone_or_changed_meanwhile_is_left(status: int) -> None:
    carry_out(Bind("b", "node-1"), Server(status))  # type: ignore[arg-type]


def test_any_other_refusal_ends_the_look() -> None:
    with pytest.raises(ApiError):
        carry_out(Bind("b", "node-1"), Server(403))  # type: ignore[arg-type]
