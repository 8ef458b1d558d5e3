"""How kopf follows the kinds that people write."""

from dataclasses import fields
from itertools import islice

import pytest

from kfext.controller import watches
from kfext.controller.controller import _STALE_SECONDS
from kfext.controller.watches import login_with, operator_settings
from kfext.kube.connection import Access, Token


def test_a_stream_that_brings_nothing_is_opened_anew_before_a_mirror_counts_as_too_old() -> None:
    watching = operator_settings().watching
    assert "inactivity_timeout" in {one.name for one in fields(watching)}, "kopf knows it"
    assert watching.inactivity_timeout + (watching.connect_timeout or 0.0) < _STALE_SECONDS


def test_a_request_that_fails_is_tried_again_without_end_and_less_and_less_often() -> None:
    pauses = operator_settings().networking.error_backoffs
    for _ in range(2):  # each request begins with the shortest
        tried = list(islice(pauses, 100))  # type: ignore[arg-type]
        assert tried[0] <= 1.0
        assert all(15.0 <= one <= 30.0 for one in tried[10:])


async def test_a_login_that_does_not_help_is_made_again_after_ever_longer_pauses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(f"{watches.__name__}.asyncio.sleep", sleep)
    login = login_with(Access("http://127.0.0.1:1", tls=None, token=Token(lambda: "")))
    for _ in range(9):
        session = await login()
        await session.aiohttp_session.close()
    assert len(slept) == 8, "the first one at once"
    assert slept[-1] > 10 * slept[0]
    monkeypatch.setattr(watches, "_LOGIN_SECONDS", 0.0)
    await (await login()).aiohttp_session.close()
    assert len(slept) == 8
