"""What a job of high priority waits for low on a played card, without Kubernetes."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from e2e.bench.gpu_share.cards import CpuCard, Python
from e2e.bench.gpu_share.processes import Bench, bench
from e2e.bench.gpu_share.run import HIGH, LOW, Arm, training
from e2e.gpu.cpu_card import report
from e2e.harness.gpu_pair import STEP_KERNELS

_LOAD_SECONDS = STEP_KERNELS / 1000
"""As long as the card is busy in a step, so that u is 0.5."""
_WARM_UP_STEPS, _STEPS = 10, 60
_SECONDS = 600.0
_LOOK_SECONDS = 0.1

Counts = Counter[tuple[str, str]]
"""By job, and by what the card counts of it."""


def waited(python: Python, arms: Sequence[Arm]) -> Mapping[Arm, float]:
    """Return by arm how many kernels of low the card began while high had work, by one of high.

    For these high waits, however busy the machine is. All arms run at a time, each on a card of its
    own, so that what disturbs one disturbs them all. The u of each is 0.5.
    """

    async def all_of_them() -> Sequence[float]:
        async with asyncio.timeout(_SECONDS):
            return await asyncio.gather(*(_waited(python, arm) for arm in arms))

    return dict(zip(arms, asyncio.run(all_of_them()), strict=True))


async def _waited(python: Python, arm: Arm) -> float:
    with bench(CpuCard(), python) as place:
        async with training(place, arm, load=_LOAD_SECONDS) as (agent, _):
            first = await _counted(
                place,
                lambda now: (
                    min(now[job, "kernels"] for job in arm.jobs) >= _WARM_UP_STEPS * STEP_KERNELS
                    and (agent is None or agent.is_calibrated(LOW))
                ),
            )
            wanted = first[HIGH, "kernels"] + _STEPS * STEP_KERNELS
            last = await _counted(place, lambda now: now[HIGH, "kernels"] >= wanted)
    grown = last - first
    return grown[LOW, "beside"] / grown[HIGH, "kernels"]


async def _counted(place: Bench, done: Callable[[Counts], bool]) -> Counts:
    """Return what the card has counted, once that is so."""
    while True:
        clients = (await asyncio.to_thread(report, str(place.folder / "card")))["clients"]
        now = Counter(
            {(one["name"], what): one[what] for one in clients for what in ("kernels", "beside")}
        )
        if done(now):
            return now
        await asyncio.sleep(_LOOK_SECONDS)
