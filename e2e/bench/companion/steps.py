"""How much CPU a step of each program takes on this machine; another may be 1.5 times as fast.

The jobs have so many steps that they take a given CPU time wherever they run, so that a policy has
as many intervals to act in everywhere.
"""

from pathlib import Path

from e2e.bench.companion.arms import Arm
from e2e.bench.companion.run import run
from e2e.bench.companion.site import Site
from e2e.bench.companion.workload import StepCpu, one_of_each
from e2e.bench.store import Store
from e2e.testbed import paths
from e2e.testbed.progress import step

_FEW, _ENOUGH = 3, 100
_NAME = "step-cpu"


def known() -> StepCpu | None:
    """Return what was measured before, None if nothing was."""
    return _store().find(_NAME)


def measure(site: Site) -> StepCpu:
    """Return what was measured before, or measure it; files are read from disk before that."""
    with (
        step("warm up: what training reads from disk"),
        site.namespace("warm-up", managed=False) as pods,
    ):
        run(pods, Arm(), one_of_each(_FEW))
    if (before := known()) is not None:
        return before
    with step("CPU of a step of each program"), site.namespace("steps", managed=False) as pods:
        outcome = run(pods, Arm(), one_of_each(_ENOUGH))
    found = {name: job.cpu / _ENOUGH for name, job in outcome.jobs.items()}
    _store().put(_NAME, found)
    return found


def _store() -> Store:
    jobs = paths.REPOSITORY / "e2e/jobs"
    scripts = [jobs / f"{name}.py" for name in ("converge", "converge_tf", "converge_torch")]
    return Store(_NAME, sources=[*scripts, Path(__file__).with_name("workload.py")])
