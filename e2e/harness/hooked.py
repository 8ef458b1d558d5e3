"""Trainings with the hook and the agent's part, without Kubernetes.

`trained` runs `e2e/jobs/hooked*.py`; `waited` counts the kernels of low priority that a job of high
priority waits for on a simulated card.
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
"""Of `share.py` on the simulated card: 1 forward and 2 backward for each of 40 layers, and 1."""
_LOAD_SECONDS = _STEP_KERNELS / 2000
"""The busy time of the card in a step, so that u is 0.5."""
_WARM_UP_STEPS, _STEPS = 10, 60
_LOSS_SECONDS = 600.0
_LOOK_SECONDS = 0.1
Counts = Counter[tuple[str, str]]
"""By job, and by the name of the card's counter."""


@dataclass(frozen=True, slots=True)
class Training:
    """The result of a training. `steps`: the steps of its optimizers, by its own count.

    `page`: its hook's counters when the process ended, see `kfext.gpu.hook.words`.
    """

    found: str
    steps: int
    page: Sequence[int]


@dataclass(frozen=True, slots=True)
class Trainings:
    """The results of all trainings, by name, with a hook or none. `errors`: the lines on stderr."""

    by_name: Mapping[str, Training]
    errors: Sequence[str]


def trained(
    python: Python, script: str = "hooked.py", hooks: Sequence[str] = HOOKS
) -> Mapping[str, Trainings]:
    """Return the results of the trainings of a script with each hook, each alone on a card.

    So the gate of low priority is open. Raises SpoiledError if a training fails.
    """

    async def all_of_them() -> Mapping[str, Trainings]:
        async with asyncio.timeout(_SECONDS):
            results = await asyncio.gather(*(_trained(python, script, hook) for hook in hooks))
        return dict(zip(hooks, results, strict=True))

    return asyncio.run(all_of_them())


async def _trained(python: Python, script: str, hook: str) -> Trainings:
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
    # Each is a process of its own, and no worker of a DataLoader uses the card.
    pages = agent.ended.get(hook, []) if hooking else [[]] * len(lines)
    by_name = {
        line["name"]: Training(line["found"], line["steps"], page)
        for line, page in zip(lines, pages, strict=True)
    }
    return Trainings(by_name, job.errors())


def waited(python: Python, arms: Sequence[Arm]) -> Mapping[Arm, float]:
    """Return by arm low's kernels that began while high had work, per kernel of high.

    High waits for these, however busy the machine is. All arms run at once, each on a card of its
    own, so that a disturbance affects all of them. The u of each is 0.5.
    """

    async def all_of_them() -> Sequence[float]:
        async with asyncio.timeout(_LOSS_SECONDS):
            return await asyncio.gather(*(_waited(python, arm) for arm in arms))

    return dict(zip(arms, asyncio.run(all_of_them()), strict=True))


async def _waited(python: Python, arm: Arm) -> float:
    with bench(CpuCard(), python) as place:
        async with training(place, arm, load=_LOAD_SECONDS) as (agent, _):
            first = await _counted(
                place,
                lambda now: (
                    min(now[job, "kernels"] for job in arm.jobs) >= _WARM_UP_STEPS * _STEP_KERNELS
                    and (agent is None or agent.is_calibrated(LOW))
                ),
            )
            target = first[HIGH, "kernels"] + _STEPS * _STEP_KERNELS
            last = await _counted(place, lambda now: now[HIGH, "kernels"] >= target)
    grown = last - first
    return grown[LOW, "beside"] / grown[HIGH, "kernels"]


async def _counted(place: Bench, done: Callable[[Counts], bool]) -> Counts:
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
        await asyncio.sleep(_LOOK_SECONDS)
