"""kfext on Muri's traces, in the simulation of `kfext simulate`.

Jobs take weeks, so kfext's loop runs only at events and every ten minutes, and measures no CPU. No
job is elastic, and the trace has no series of jobs: kfext learns the length of a job from its log,
once it trains.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

from e2e.bench.model.muri.simulate_csv import jobs_csv
from kfext.sim import driver
from kfext.sim.cluster import World
from kfext.sim.job_table import read_world

_NODES = "8x8000m/8xV100"
_CPU = 1000
"""Millicores of a worker per GPU, so that CPU and GPUs are used to the same extent."""
_TURN_SECONDS = 600.0
_LOG_LINES = 50
"""The number of lines in the log of a job."""


def world_of(data: Path, trace: str) -> World:
    world = read_world(jobs_csv(data, trace), name=trace, nodes=_NODES)
    jobs = [
        replace(
            spec,
            cpu=_CPU * spec.gpus,
            uses=_CPU * spec.gpus,
            prints=max(5.0, spec.steps / _LOG_LINES),
        )
        for spec in world.jobs
    ]
    return World(world.nodes, tuple(jobs))


@contextmanager
def coarsely() -> Iterator[None]:
    """Run kfext's loop rarely during a `with` block, for jobs that take weeks."""
    unmeasured = patch.object(driver.Driver, "begin", lambda _driver: None)
    with patch.object(driver, "TURN_SECONDS", _TURN_SECONDS), unmeasured:
        yield
