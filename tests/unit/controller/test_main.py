"""What the controller requires of a cluster, and when a change of the cluster ends it."""

from typing import Any, cast

import pytest

from kfext.controller import main
from kfext.controller.main import _missing_requirements, end_with_other_kinds
from kfext.errors import ApiError, KfextError
from kfext.kube.client import Client
from kfext.kube.discovery import served_kinds
from kfext.model.kinds.registered import KINDS
from tests.builders import Raw, discovery

ALL = tuple(KINDS.values())
PLURALS = [kind.plural for kind in ALL]
AWAY = ApiError(status=503, reason="", message="away")


class FakeClient:
    """A cluster with all that kfext requires.

    `answers`: the kinds that it serves at each check, as plurals, or an error. `left`: the answers
    not yet given. `fields`: the fields of the spec of a TrainJob.
    """

    def __init__(self, *answers: list[str] | ApiError, fields: tuple[str, ...] = ()) -> None:
        self.left = list(answers)
        self.fields = fields
        self.now: list[str] | ApiError = []

    async def get(self, path: str) -> Raw:
        if path == "/version":
            return {"major": "1", "minor": "34"}
        if path.startswith("/openapi/"):
            schema = {
                "x-kubernetes-group-version-kind": [{"kind": "TrainJob"}],
                "properties": {"spec": {"properties": {name: {} for name in self.fields}}},
            }
            return {"components": {"schemas": {"x": schema}}}
        if "/kubeflow.org/" in path:  # the first request of a check
            self.now = self.left.pop(0)
        if isinstance(self.now, ApiError):
            raise self.now
        return discovery(*self.now, "jobsets")

    async def read(self, path: str, **_: str) -> bytes:
        return b"{}"

    async def create(self, path: str, body: Any) -> Raw:
        return {"status": {"allowed": True}}


async def missing(*plurals: str) -> list[str]:
    client = cast(Client, FakeClient(list(plurals)))
    return await _missing_requirements(client, await served_kinds(client))


@pytest.mark.parametrize("plural", PLURALS)
async def test_one_kind_of_job_is_enough(plural: str) -> None:
    assert await missing(plural) == []


async def test_without_any_kind_the_training_operator_is_missing() -> None:
    (message,) = await missing("paddlejobs")
    assert message == (
        f"the cluster serves no {' or '.join(PLURALS)}; install the training-operator 1.8 or 1.9 "
        f"or Kubeflow Trainer 2.2.1 or later"
    )


async def run_checks(
    monkeypatch: pytest.MonkeyPatch, *answers: list[str] | ApiError, start: list[str]
) -> tuple[str, int]:
    """Return why the controller ends, empty if it does not, and the number of unused answers."""

    async def sleep(_: float) -> None:
        if not client.left:
            raise TimeoutError

    client = FakeClient(*answers)
    monkeypatch.setattr(f"{main.__name__}.asyncio.sleep", sleep)
    kinds = tuple(kind for kind in ALL if kind.plural in start)
    try:
        await end_with_other_kinds(cast(Client, client), kinds)
    except (KfextError, TimeoutError) as error:
        return str(error), len(client.left)
    raise AssertionError("it ended without an error")


@pytest.mark.parametrize(
    ("start", "later"), [(PLURALS[:1], PLURALS), (PLURALS, PLURALS[1:]), (PLURALS, [])]
)
async def test_a_kind_that_is_installed_or_removed_ends_the_process(
    monkeypatch: pytest.MonkeyPatch, start: list[str], later: list[str]
) -> None:
    why, left = await run_checks(monkeypatch, start, later, AWAY, later, later, start=start)
    assert f"now {' and '.join(later) or 'none'}, then {' and '.join(start)}; the next" in why
    assert left == 1, "a check without an answer is ignored"


async def no_sleep(_: float) -> None:
    pass


async def test_an_upgrade_of_an_operator_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{main.__name__}.asyncio.sleep", no_sleep)
    outdated = (KINDS["TrainJob"],)
    kinds = tuple(kind for kind in ALL if kind not in outdated)
    client: Any = FakeClient(PLURALS, PLURALS, fields=("runtimePatches",))
    with pytest.raises(KfextError, match="now pytorchjobs and tfjobs and trainjobs, then"):
        await end_with_other_kinds(client, kinds, outdated)
    client = FakeClient(PLURALS, PLURALS, PLURALS)
    with pytest.raises(IndexError):  # after the last answer: it continues to check
        await end_with_other_kinds(client, kinds, outdated)


async def test_one_check_without_a_kind_ends_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [PLURALS, [], PLURALS, PLURALS[:1], PLURALS[1:], PLURALS]
    assert await run_checks(monkeypatch, *answers, start=PLURALS) == ("", 0)
