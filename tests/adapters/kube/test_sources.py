"""However many sources there are and whatever ails them, asking ends, and not too often."""

import asyncio

import pytest

from kfext import names
from kfext.errors import ApiError, Forbidden, NotFound, Unauthorized, Unavailable, Unverified
from kfext.kube import sources
from kfext.kube.sources import AT_ONCE, REST_SECONDS, Sources
from kfext.model.verdict import Verdict


class Asked:
    """Answers with the name, or fails as told; counts."""

    def __init__(self) -> None:
        self.faults: dict[str, ApiError] = {}
        self.silent: set[str] = set()
        self.names: list[str] = []
        self.under_way = self.most = 0
        self.now = 0.0

    def sources(self, *, shared: bool = False) -> Sources:
        return Sources("kind", shared=shared, monotonic=lambda: self.now)

    async def __call__(self, name: str) -> str:
        self.names.append(name)
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            if name in self.silent:
                await asyncio.sleep(3600)
            await asyncio.sleep(0)
            if name in self.faults:
                raise self.faults[name]
            return name.upper()
        finally:
            self.under_way -= 1


@pytest.fixture
def asked() -> Asked:
    return Asked()


def fault(kind: type[ApiError], status: int = 0) -> ApiError:
    return kind(status=status, reason="", message="no")


FAULTS: dict[str, tuple[ApiError, str]] = {
    "a missing right": (fault(Forbidden), names.REASON_CPU_USE_FORBIDDEN),
    "a refused token": (fault(Unauthorized), names.REASON_CPU_USE_FORBIDDEN),
    "a certificate of a stranger": (fault(Unverified), names.REASON_KUBELET_UNVERIFIED),
    "no answer": (fault(Unavailable), names.REASON_CPU_USE_UNAVAILABLE),
    "nothing there": (fault(NotFound), names.REASON_CPU_USE_UNAVAILABLE),
}


@pytest.mark.parametrize(("error", "reason"), FAULTS.values(), ids=FAULTS)
async def test_a_fault_has_a_reason_and_costs_the_others_nothing(
    asked: Asked, error: ApiError, reason: str
) -> None:
    asked.faults["b"] = error
    found = await asked.sources().ask(["a", "b", "c"], asked)
    assert found == {"a": "A", "b": Verdict(reason, "kind: no"), "c": "C"}


async def test_a_source_that_failed_is_left_alone_for_a_while(asked: Asked) -> None:
    asked.faults["b"] = fault(Unavailable)
    of = asked.sources()
    first = await of.ask(["a", "b"], asked)
    asked.now += REST_SECONDS - 1
    assert await of.ask(["a", "b"], asked) == first
    assert asked.names.count("b") == 1
    asked.now += 1
    asked.faults.clear()
    assert await of.ask(["a", "b"], asked) == {"a": "A", "b": "B"}


async def test_few_are_asked_at_once(asked: Asked) -> None:
    found = await asked.sources().ask(map(str, range(200)), asked)
    assert len(found) == 200
    assert asked.most == AT_ONCE


async def test_what_does_not_exist_for_one_is_asked_of_few_others(asked: Asked) -> None:
    everywhere = [str(number) for number in range(200)]
    asked.faults = dict.fromkeys(everywhere, fault(NotFound, 404))
    of = asked.sources(shared=True)
    found = await of.ask(everywhere, asked)
    assert {one.reason for one in found.values() if isinstance(one, Verdict)} == {
        names.REASON_CPU_USE_UNAVAILABLE
    }
    assert len(asked.names) <= AT_ONCE
    await of.ask(["another"], asked)
    assert "another" not in asked.names


async def test_what_is_missing_for_one_node_is_asked_of_the_others(asked: Asked) -> None:
    asked.faults["a"] = fault(NotFound, 404)
    of = asked.sources()
    await of.ask(["a"], asked)
    found = await of.ask(["a", "b"], asked)
    assert found["b"] == "B"
    assert asked.names == ["a", "b"]


async def test_those_that_are_silent_do_not_keep_the_rest_from_being_asked(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "ANSWER_SECONDS", 0.5)
    asked.silent = {f"hung-{number}" for number in range(AT_ONCE)}
    found = await asked.sources().ask([*asked.silent, *map(str, range(50))], asked)
    assert [found[str(number)] for number in range(50)] == list(map(str, range(50)))
    reasons = {found[name].reason for name in asked.silent}  # type: ignore[union-attr]
    assert reasons == {names.REASON_CPU_USE_UNAVAILABLE}


async def test_when_too_many_are_silent_the_rest_is_asked_the_next_time(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked.silent = {f"hung-{number}" for number in range(200)}
    of = asked.sources()
    with monkeypatch.context() as patched:
        patched.setattr(sources, "ALL_SECONDS", 0.05)
        found = await of.ask(asked.silent, asked)
    assert found.keys() == asked.silent
    assert (len(asked.names), asked.under_way) == (AT_ONCE, 0)
    asked.silent = set()
    again = await of.ask(found, asked)
    assert again == {name: name.upper() for name in found}


async def test_a_long_message_is_cut(asked: Asked) -> None:
    asked.faults["a"] = Unavailable(status=500, reason="", message="x" * 10_000)
    found = (await asked.sources().ask(["a"], asked))["a"]
    assert isinstance(found, Verdict)
    assert len(found.message) < 250
