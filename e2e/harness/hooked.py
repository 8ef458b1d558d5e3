"""Training processes with the hook and the agent's code, without Kubernetes.

`run_trainings` runs `e2e/jobs/hooked*.py`; `count_waits` counts the low-priority kernels that a
high-priority job waits for on a simulated card.
"""

import asyncio
import json
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from e2e.bench.gpu_share.cards import CpuCard, Python
from e2e.bench.gpu_share.processes import Agent, Bench, Hooking, bench
from e2e.bench.gpu_share.run import DEFAULT, HIGH, LOW, Arm, training
from e2e.gpu.cpu_card import report
from e2e.harness.wait import until
from e2e.testbed import paths

NONE = "none"
HOOKS = (NONE, HIGH, LOW)
_SECONDS = 1200.0
_STEP_KERNELS = 121
"""The kernels of a step of `share.py`: 3 for each of 40 layers, and 1 for the optimizer."""
_LOAD_SECONDS = _STEP_KERNELS / 2000
"""The time per step in which high loads data: as long as its kernels take, 0.5 ms each."""
_WARM_UP_STEPS, _STEPS = 10, 60
_LOSS_SECONDS = 600.0
_POLL_SECONDS = 0.1
Counts = Counter[tuple[str, str]]
"""The card's counters, by job and the name of the counter."""


@dataclass(frozen=True, slots=True)
class Training:
    """The result of a training process.

    `found`: what it computed. `steps`: the steps of its optimizers, by its own count.
    `page`: its hook's counters when the process ended; see `kfext.gpu.hook.words`.
    """

    found: str
    steps: int
    page: Sequence[int]


@dataclass(frozen=True, slots=True)
class Trainings:
    """The results of all trainings of a script, by name. `errors`: the lines on stderr."""

    by_name: Mapping[str, Training]
    errors: Sequence[str]


def run_trainings(
    python: Python, script: str = "hooked.py", hooks: Sequence[str] = HOOKS
) -> Mapping[str, Trainings]:
    """Run the trainings of a script once with each hook; return their results, by hook.

    Each runs alone on a card, so the gate never holds it up. Raises SpoiledError if a training
    fails.
    """

    async def all_of_them() -> Mapping[str, Trainings]:
        async with asyncio.timeout(_SECONDS):
            results = await asyncio.gather(*(_run_all(python, script, hook) for hook in hooks))
        return dict(zip(hooks, results, strict=True))

    return asyncio.run(all_of_them())


async def _run_all(python: Python, script: str, hook: str) -> Trainings:
    with bench(CpuCard(), python) as place:
        for path in (paths.REPOSITORY / "e2e/jobs").glob("hooked*.py"):
            shutil.copy(path, place.folder / "jobs")
        async with Agent(place.folder).running() as agent:
            return await _run(place, agent, script, hook)


async def _run(place: Bench, agent: Agent, script: str, hook: str) -> Trainings:
    hooking = None
    if hook != NONE:
        agent.admit(hook, DEFAULT.terms(high=hook == HIGH))
        hooking = Hooking(agent.hook, agent.folder(hook), hook == HIGH)
    job = place.run(hook, [f"{place.scripts}/{script}"], hooking)
    await asyncio.to_thread(job.wait)
    lines = [json.loads(line) for line in job.said()]
    await asyncio.to_thread(until, lambda: not agent.has(hook), what="its last process is gone")
    # Each training is a process; the workers of its DataLoaders do not use the card.
    pages = agent.ended.get(hook, []) if hooking else [[]] * len(lines)
    by_name = {
        line["name"]: Training(line["found"], line["steps"], page)
        for line, page in zip(lines, pages, strict=True)
    }
    return Trainings(by_name, job.errors())


def count_waits(python: Python, arms: Sequence[Arm]) -> Mapping[Arm, float]:
    """Return, by arm, how many kernels of low started while high had work, per kernel of high.

    High waits for these, however busy the machine is. All arms run at once, each on a card of its
    own, so that a disturbance affects all of them. In each arm high keeps its card half busy.
    """

    async def all_of_them() -> Sequence[float]:
        async with asyncio.timeout(_LOSS_SECONDS):
            return await asyncio.gather(*(_count_waits(python, arm) for arm in arms))

    return dict(zip(arms, asyncio.run(all_of_them()), strict=True))


async def _count_waits(python: Python, arm: Arm) -> float:
    with bench(CpuCard(), python) as place:
        async with training(place, arm, load=_LOAD_SECONDS) as (agent, _):
            first = await _wait_counters(
                place,
                lambda now: (
                    min(now[job, "kernels"] for job in arm.jobs) >= _WARM_UP_STEPS * _STEP_KERNELS
                    and (agent is None or agent.is_calibrated(LOW))
                ),
            )
            target = first[HIGH, "kernels"] + _STEPS * _STEP_KERNELS
            last = await _wait_counters(place, lambda now: now[HIGH, "kernels"] >= target)
    grown = last - first
    return grown[LOW, "beside"] / grown[HIGH, "kernels"]


async def _wait_counters(place: Bench, done: Callable[[Counts], bool]) -> Counts:
    """Return the counters of the card once `done` accepts them."""
    while True:
        clients = (await asyncio.to_thread(report, str(place.folder / "card")))["clients"]
        now = Counter(
            {
                (client["name"], what): client[what]
                for client in clients
                for what in ("kernels", "beside")
            }
        )
        if done(now):
            return now
        await asyncio.sleep(_POLL_SECONDS)
