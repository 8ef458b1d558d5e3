"""The pods that reserve GPUs, as the API server gets them."""

from typing import Any

import pytest

from kfext import names
from kfext.controller.card_writer import CardWriter
from kfext.errors import ApiError, Conflict, Forbidden, NotFound, Unavailable
from kfext.model.constraints import Toleration
from kfext.model.gpu_slots import reservation_of
from kfext.model.pod import parse_pod
from kfext.state.card_steps import Reserve, Unreserve
from tests.builders import affinity_to
from tests.gpu_builders import reservation

PODS = "/api/v1/namespaces/kfext-gpu/pods"
TEMPLATE = "/api/v1/namespaces/kfext-gpu/podtemplates/kfext-reservation"
NAME = reservation_of("n", 2)
OURS = {"operator": "Exists", "effect": "NoExecute"}
SPEC = {
    "priorityClassName": "kfext-reservation",
    "containers": [{"name": "pause", "resources": {"limits": {names.NATIVE_GPU: "1"}}}],
    "tolerations": [OURS],
}
GONE = reservation("n", 2)


class FakeClient:
    """Has the PodTemplate, notes what is written, and fails at a verb."""

    def __init__(self, *, fails_at: str = "", error: type[ApiError] = Conflict) -> None:
        self.created: list[dict[str, Any]] = []
        self.deleted: list[tuple[str, str]] = []
        self._fails_at, self._error = fails_at, error

    def _fail(self, verb: str) -> None:
        if verb == self._fails_at:
            raise self._error(status=0, reason=self._error.__name__, message="refused")

    async def get(self, path: str) -> dict[str, Any]:
        assert path == TEMPLATE
        self._fail("get")
        metadata = {"labels": {"app": "kfext"}, "annotations": {"a": "b"}}
        return {"template": {"metadata": metadata, "spec": SPEC}}

    async def create(self, path: str, body: dict[str, Any]) -> None:
        assert path == PODS
        self._fail("create")
        self.created.append(body)

    async def delete(self, path: str, *, uid: str) -> None:
        self._fail("delete")
        self.deleted.append((path, uid))


async def write(client: FakeClient, step: Reserve | Unreserve) -> None:
    await CardWriter(client=client).write(step)  # type: ignore[arg-type]


async def test_a_gpu_is_reserved_on_one_node_where_the_sharers_may_be() -> None:
    client = FakeClient()
    theirs = (
        Toleration(key="gpu", operator="Equal", value="a", effect="NoSchedule"),
        Toleration(operator="Exists"),
    )
    await write(client, Reserve(("n", 2), theirs))
    (body,) = client.created
    assert body == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": NAME,
            "labels": {"app": "kfext", names.GPU_SLOT: "2"},
            "annotations": {"a": "b"},
        },
        "spec": {
            **SPEC,
            "affinity": affinity_to("n"),
            "tolerations": [
                OURS,
                {"key": "gpu", "operator": "Equal", "value": "a", "effect": "NoSchedule"},
                {"operator": "Exists"},
            ],
        },
    }


async def test_the_pod_is_recognised_as_what_it_is_for() -> None:
    client = FakeClient()
    await write(client, Reserve(("n", 2), ()))
    (body,) = client.created
    body["metadata"]["namespace"] = names.GPU_NAMESPACE
    found = parse_pod(body)
    assert (found.home, found.reserves, found.requests[names.NATIVE_GPU]) == ("n", 2, 1)


async def test_a_gpu_is_given_back_by_the_uid_of_its_pod() -> None:
    client = FakeClient()
    await write(client, Unreserve(("n", 2), GONE))
    assert client.deleted == [(f"{PODS}/{NAME}", GONE.uid)]


RESERVE, UNRESERVE = Reserve(("n", 2), ()), Unreserve(("n", 2), GONE)
DONE: dict[str, tuple[Reserve | Unreserve, FakeClient]] = {
    "the pod exists": (RESERVE, FakeClient(fails_at="create")),
    "the pod is gone": (UNRESERVE, FakeClient(fails_at="delete", error=NotFound)),
    "another pod has its name": (UNRESERVE, FakeClient(fails_at="delete")),
}


@pytest.mark.parametrize(("step", "client"), DONE.values(), ids=DONE)
async def test_what_is_done_already_is_no_error(
    step: Reserve | Unreserve, client: FakeClient
) -> None:
    await write(client, step)
    assert (client.created, client.deleted) == ([], [])


FAILS: dict[str, tuple[Reserve | Unreserve, str, type[ApiError]]] = {
    "the template is missing": (RESERVE, "get", NotFound),
    "the namespace is missing": (RESERVE, "create", NotFound),
    "it may not create pods": (RESERVE, "create", Forbidden),
    "it may not delete pods": (UNRESERVE, "delete", Forbidden),
    "the API server is away": (UNRESERVE, "delete", Unavailable),
}


@pytest.mark.parametrize(("step", "verb", "error"), FAILS.values(), ids=FAILS)
async def test_other_errors_are_raised_so_that_it_is_tried_again(
    step: Reserve | Unreserve, verb: str, error: type[ApiError]
) -> None:
    with pytest.raises(error):
        await write(FakeClient(fails_at=verb, error=error), step)
