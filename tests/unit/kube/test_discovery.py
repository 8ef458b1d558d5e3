"""Which kinds of jobs a cluster serves, from the answers of its API server."""

from typing import cast

import pytest

from kfext.errors import ApiError, NotServed
from kfext.kube.client import Client
from kfext.kube.discovery import outdated_kinds, served_kinds
from kfext.model.kinds.registered import KINDS
from tests.builders import Raw, discovery

PLURALS = [kind.plural for kind in KINDS.values()]


class FakeClient:
    """A client that gives the same answer to each request."""

    def __init__(self, answer: Raw | ApiError) -> None:
        self._answer = answer
        self.requested: list[str] = []

    async def get(self, path: str) -> Raw:
        self.requested.append(path)
        if isinstance(self._answer, ApiError):
            raise self._answer
        return self._answer


async def plurals_of(answer: Raw | ApiError) -> list[str]:
    return [kind.plural for kind in await served_kinds(cast(Client, FakeClient(answer)))]


@pytest.mark.parametrize(
    ("answer", "want"),
    [
        (discovery(*PLURALS, "paddlejobs", "jobsets"), PLURALS),
        (discovery(*PLURALS), [plural for plural in PLURALS if plural != "trainjobs"]),
        (discovery(PLURALS[0], f"{PLURALS[0]}/status"), PLURALS[:1]),
        (discovery(f"{PLURALS[0]}/status", PLURALS[1]), PLURALS[1:2]),
        (discovery(), []),
        (NotServed(status=404, reason="", message="404 page not found"), []),
        ({"resources": None}, []),
    ],
)
async def test_the_kinds_with_a_crd_are_served(answer: Raw | ApiError, want: list[str]) -> None:
    assert await plurals_of(answer) == want


async def test_one_request_for_each_api_group_discovers_all_kinds() -> None:
    client = FakeClient(discovery(*PLURALS, "jobsets"))
    await served_kinds(cast(Client, client))
    assert client.requested == [
        "/apis/kubeflow.org/v1",
        "/apis/trainer.kubeflow.org/v1alpha1",
        "/apis/jobset.x-k8s.io/v1alpha2",
    ]


async def test_an_api_server_that_does_not_answer_raises_an_error() -> None:
    with pytest.raises(ApiError):
        await plurals_of(ApiError(status=503, reason="", message="away"))


def schemas(**fields: Raw) -> Raw:
    """Return the API server's schema of a TrainJob with these fields in its spec."""
    kind = {"group": "trainer.kubeflow.org", "version": "v1alpha1", "kind": "TrainJob"}
    schema = {
        "x-kubernetes-group-version-kind": [kind],
        "properties": {"spec": {"properties": fields}},
    }
    other = {"x-kubernetes-group-version-kind": [{"kind": "TrainJobList"}]}
    return {"components": {"schemas": {"io.List": other, "io.TrainJob": schema, "io.Meta": {}}}}


@pytest.mark.parametrize(
    ("answer", "want"),
    [
        (schemas(runtimePatches={}, suspend={}), []),
        (schemas(podTemplateOverrides={}, suspend={}), ["TrainJob"]),
        ({}, ["TrainJob"]),
    ],
    ids=["2.2 or later", "2.1", "an answer that says nothing"],
)
async def test_a_kind_without_the_field_that_changes_templates_is_outdated(
    answer: Raw, want: list[str]
) -> None:
    client = cast(Client, FakeClient(answer))
    assert [kind.name for kind in await outdated_kinds(client, tuple(KINDS.values()))] == want
