"""Ask many sources at once, in bounded time; one that fails is left alone for a while."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from kfext.errors import ApiError, Forbidden, NotFound, Unauthorized, Unverified
from kfext.model.verdict import Verdict
from kfext.names import (
    REASON_CPU_USE_FORBIDDEN,
    REASON_CPU_USE_UNAVAILABLE,
    REASON_KUBELET_UNVERIFIED,
)

T = TypeVar("T")

AT_ONCE = 8
"""Requests under way; each may hold an answer of 8 MiB."""
ANSWER_SECONDS = 5.0
ALL_SECONDS = 10.0
REST_SECONDS = 60.0
_LONGEST_MESSAGE = 200
_EVERY = ""
"""Among the names of those that rest: all of them. A source itself always has a name."""


class Sources:
    """Sources of one `kind`, by the name of the namespace or node for which they answer.

    `shared`: all are served by one API, which does not exist if one of them does not.
    """

    def __init__(self, kind: str, *, shared: bool, monotonic: Callable[[], float]) -> None:
        self._kind = kind
        self._shared = shared
        self._monotonic = monotonic
        self._resting: dict[str, tuple[Verdict, float]] = {}

    async def ask(
        self, names: Iterable[str], of: Callable[[str], Awaitable[T]]
    ) -> dict[str, T | Verdict]:
        """Return the answer of each source, or the reason why there is none."""
        now = self._monotonic()
        self._resting = {name: one for name, one in self._resting.items() if now < one[1]}
        order = sorted(set(names))
        random.shuffle(order)  # so that slow ones do not keep the same others waiting each time
        found: dict[str, T | Verdict] = {}
        slots = asyncio.Semaphore(AT_ONCE)

        async def one(name: str) -> None:
            async with slots:
                if resting := self._resting.get(name) or self._resting.get(_EVERY):
                    found[name] = resting[0]
                    return
                try:
                    async with asyncio.timeout(ANSWER_SECONDS):
                        found[name] = await of(name)
                except (ApiError, TimeoutError) as error:
                    found[name] = self._rest(name, error)

        try:
            async with asyncio.timeout(ALL_SECONDS), asyncio.TaskGroup() as group:
                for name in order:
                    group.create_task(one(name))
        except TimeoutError:
            pass
        late = Verdict(REASON_CPU_USE_UNAVAILABLE, f"{self._kind}: other answers took too long")
        return {name: found.get(name, late) for name in order}

    def _rest(self, name: str, error: ApiError | TimeoutError) -> Verdict:
        """Leave a source alone that failed; return the reason."""
        verdict = Verdict(_reason(error), f"{self._kind}: {_words(error)}")
        every = self._shared and isinstance(error, NotFound)
        self._resting[_EVERY if every else name] = (verdict, self._monotonic() + REST_SECONDS)
        return verdict


def _reason(error: ApiError | TimeoutError) -> str:
    if isinstance(error, Forbidden | Unauthorized):
        return REASON_CPU_USE_FORBIDDEN
    if isinstance(error, Unverified):
        return REASON_KUBELET_UNVERIFIED
    return REASON_CPU_USE_UNAVAILABLE


def _words(error: ApiError | TimeoutError) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {ANSWER_SECONDS:.0f} s"
    return error.message[:_LONGEST_MESSAGE]
