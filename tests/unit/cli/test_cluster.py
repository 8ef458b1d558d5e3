"""What the commands read from a cluster that does not serve all kinds of jobs."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from kfext.cli.cluster import all_jobs, find_job, kinds_in, read_snapshot
from kfext.cli.plan import plan_jobs
from kfext.errors import NotFound, NotServed, UserError
from kfext.kube import paths
from kfext.kube.client import Client
from kfext.model.kinds.registered import KINDS
from tests.builders import Raw, discovery, job

HERE, ABSENT, *_ = KINDS.values()
"""A kind that the cluster serves, and a kind that it does not serve."""
NOT_SERVED = NotServed(status=404, reason="", message="404 page not found")


class FakeCluster:
    """A cluster of one namespace; it serves one kind of job, and refuses paths of the other."""

    def __init__(self, *served: str) -> None:
        self.served = served

    def in_namespace(self) -> str:
        return "team"

    namespace = None

    @asynccontextmanager
    async def connect(self) -> AsyncIterator["FakeCluster"]:
        yield self

    async def get(self, path: str) -> Raw:
        if path == "/apis/kubeflow.org/v1":
            return discovery(*self.served)
        if ABSENT.plural in path:
            raise NOT_SERVED
        if path == paths.jobs(HERE, "team", "train"):
            return job(HERE.name).worker(1).raw
        raise NotFound(status=404, reason="NotFound", message="")

    async def list_all(self, path: str, **_: str) -> list[Raw]:
        if ABSENT.plural in path:
            raise NOT_SERVED
        if path == paths.namespaces():
            return [{"metadata": {"name": "team"}}]
        return [job(HERE.name).worker(1).raw] if HERE.plural in path else []


CLUSTER = cast(Client, FakeCluster(HERE.plural))
EMPTY = cast(Client, FakeCluster("paddlejobs"))


async def test_all_jobs_are_those_of_the_served_kinds() -> None:
    result = await all_jobs(CLUSTER, namespace="", kind=None)
    assert [(found.kind, found.name) for found, _ in result] == [(HERE, "train")]


async def test_a_job_is_found_among_the_served_kinds() -> None:
    result, _ = await find_job(CLUSTER, name="train", namespace="team", kind=None)
    assert result.kind is HERE
    with pytest.raises(UserError, match=f"^there is no {HERE.name} 'other' in namespace 'team'"):
        await find_job(CLUSTER, name="other", namespace="team", kind=None)


async def test_a_snapshot_has_the_jobs_of_the_served_kinds() -> None:
    snapshot = await read_snapshot(CLUSTER, await kinds_in(CLUSTER))
    assert [found.kind for found in snapshot.jobs] == [HERE]


async def test_the_kind_of_the_option_must_be_served() -> None:
    with pytest.raises(UserError, match=f"^the cluster serves no {ABSENT.plural}; install the"):
        await all_jobs(CLUSTER, namespace="", kind=ABSENT.name)


async def test_at_least_one_kind_must_be_served() -> None:
    plurals = " or ".join(kind.plural for kind in KINDS.values())
    with pytest.raises(UserError, match=f"^the cluster serves no {plurals}; install the"):
        await find_job(EMPTY, name="train", namespace="team", kind=None)


async def test_a_job_of_a_kind_that_is_not_served_is_refused() -> None:
    cluster: Any = FakeCluster(HERE.plural)
    documents = [{"kind": kind.name, "metadata": {"name": "new"}} for kind in (HERE, ABSENT)]
    with pytest.raises(UserError, match=f"^{ABSENT.name}/new: .* it serves {HERE.name}$"):
        await plan_jobs(documents, cluster=cluster)
    answers, _ = await plan_jobs(documents[:1], cluster=cluster)
    assert [answer.job for answer in answers] == [f"{HERE.name} team/new"]
