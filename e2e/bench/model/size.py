"""Benchmark: the cost of `kfext simulate` by the number of jobs, and a profile.

Each world has eight jobs for each node, at a load of 0.8. A world runs in a process of its own: the
table has its CPU seconds and its largest memory.
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
_PROFILED = 500
_MOST = 12
"""Rows of the profile."""


class Cost(NamedTuple):
    """The cost of a run: CPU seconds, and the most MiB. `ended`: the number of jobs that ended."""

    seconds: float
    memory: int
    ended: int


def measure(*, quick: bool) -> str:
    """Return the costs by size, and the profile of a size."""
    rows = []
    for jobs in _QUICK_JOBS if quick else _JOBS:
        for arm in _ARMS:
            say(f"  {jobs} jobs, {arm}")
            cost = _in_a_process(arm, jobs)
            each = 1000 * cost.seconds / jobs
            figures = f"{cost.seconds:.1f}", f"{each:.1f}", f"{cost.memory}", f"{cost.ended}"
            rows.append((f"{jobs}", f"{jobs // _PER_NODE}", arm, *figures))
    head = ("jobs", "nodes", "arm", "CPU s", "ms a job", "MiB", "ended")
    jobs = _QUICK_JOBS[0] if quick else _PROFILED
    profiled = table(
        f"Where the time goes: {jobs} jobs, {KFEXT}", ("module", "time"), _profile(jobs)
    )
    return f"{table('Cost of a run by its size', head, rows)}\n\n{profiled}"


def _in_a_process(arm: str, jobs: int) -> Cost:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(cost_of, arm, jobs).result()


def cost_of(arm: str, jobs: int) -> Cost:
    """Return the costs of a run in this process."""
    world = cluster(_SEED, load=_LOAD, jobs=jobs, nodes=jobs // _PER_NODE)
    before = time.process_time()
    simulated = run(ARMS[arm], world, luck=1)
    seconds = time.process_time() - before
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return Cost(seconds, memory, len(simulated.jobs))


def _profile(jobs: int) -> Iterator[tuple[str, str]]:
    """Yield the modules that use most of the time of a run, and their parts of it."""
    profile = cProfile.Profile()
    profile.runcall(cost_of, KFEXT, jobs)
    times: dict[str, float] = defaultdict(float)
    for entry in profile.getstats():
        times[_module(entry.code)] += entry.inlinetime
    whole = sum(times.values())
    for module, seconds in sorted(times.items(), key=lambda item: -item[1])[:_MOST]:
        yield module, f"{seconds / whole:.0%}"


def _module(code: CodeType | str) -> str:
    """Return the file of a function of this repository. `code`: a name for functions in C."""
    root = Path(kfext.__file__).parents[1]
    if isinstance(code, CodeType) and (file := Path(code.co_filename)).is_relative_to(root):
        return f"{file.relative_to(root)}"
    return "Python and its libraries"
