"""Benchmark: the cost of `kfext simulate` by number of jobs, and a profile.

Each world has eight jobs per node, at a load of 0.8. Each run has a process of its own; the table
shows its CPU seconds and its peak memory.
"""

import cProfile
import resource
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from types import CodeType
from typing import NamedTuple

import kfext
from e2e.bench.report import table
from e2e.testbed.progress import say
from kfext.sim.arms import ARMS, GANG, KFEXT
from kfext.sim.compare import run
from kfext.sim.worlds import cluster

_SEED, _LOAD, _PER_NODE = 20_000, 0.8, 8
_ARMS = (GANG, KFEXT)
_JOBS, _QUICK_JOBS = (64, 500, 2_000, 10_000), (64,)
_PROFILED_JOBS = 500
_PROFILE_ROWS = 12
"""The number of rows of the profile."""


class Cost(NamedTuple):
    """The cost of a run: CPU seconds, and peak memory in MiB. `ended`: how many jobs ended."""

    seconds: float
    memory: int
    ended: int


def measure(*, quick: bool) -> str:
    """Return the table of costs by number of jobs, and the profile of a run."""
    rows = []
    for jobs in _QUICK_JOBS if quick else _JOBS:
        for arm in _ARMS:
            say(f"  {jobs} jobs, {arm}")
            cost = _in_a_process(arm, jobs)
            milliseconds_per_job = 1000 * cost.seconds / jobs
            figures = (
                f"{cost.seconds:.1f}",
                f"{milliseconds_per_job:.1f}",
                f"{cost.memory}",
                f"{cost.ended}",
            )
            rows.append((f"{jobs}", f"{jobs // _PER_NODE}", arm, *figures))
    head = ("jobs", "nodes", "arm", "CPU s", "ms a job", "MiB", "ended")
    jobs = _QUICK_JOBS[0] if quick else _PROFILED_JOBS
    profiled = table(
        f"Where the time goes: {jobs} jobs, {KFEXT}", ("module", "time"), _profile(jobs)
    )
    return f"{table('Cost of a run by its size', head, rows)}\n\n{profiled}"


def _in_a_process(arm: str, jobs: int) -> Cost:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(cost_of, arm, jobs).result()


def cost_of(arm: str, jobs: int) -> Cost:
    world = cluster(_SEED, load=_LOAD, jobs=jobs, nodes=jobs // _PER_NODE)
    before = time.process_time()
    simulated = run(ARMS[arm], world, luck=1)
    seconds = time.process_time() - before
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return Cost(seconds, memory, len(simulated.jobs))


def _profile(jobs: int) -> Iterator[tuple[str, str]]:
    """Yield the modules that use most of a run's time, and their fractions of it."""
    profile = cProfile.Profile()
    profile.runcall(cost_of, KFEXT, jobs)
    times: dict[str, float] = defaultdict(float)
    for entry in profile.getstats():
        times[_module(entry.code)] += entry.inlinetime
    total = sum(times.values())
    for module, seconds in sorted(times.items(), key=lambda item: -item[1])[:_PROFILE_ROWS]:
        yield module, f"{seconds / total:.0%}"


def _module(code: CodeType | str) -> str:
    """Return the file of a function of this repository. `code`: a string for a C function."""
    root = Path(kfext.__file__).parents[1]
    if isinstance(code, CodeType) and (file := Path(code.co_filename)).is_relative_to(root):
        return f"{file.relative_to(root)}"
    return "Python and its libraries"
