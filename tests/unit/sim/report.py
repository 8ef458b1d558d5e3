"""Many small worlds under kfext and gang: `python -m tests.unit.sim.report --seeds 10000`.

It prints the values of `kfext simulate small`, each job that takes much longer, with the reason,
and each broken rule. The seeds run on several processes, in any order.
"""

import argparse
import multiprocessing
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from kfext.sim.arms import ARMS, GANG, KFEXT
from kfext.sim.cluster import Cluster, Ended, World
from kfext.sim.compare import LATE, Run, row, run
from kfext.sim.worlds import random_world
from tests.unit.sim.causes import Cause, why_later, why_waited
from tests.unit.sim.rules import Change, Rules

SEEDS = 10_000
_CHUNK = 10


@dataclass(frozen=True, slots=True)
class Seed:
    """The runs of a small world; `late`: each job that took much longer, as a sentence, and why."""

    kfext: Run
    gang: Run
    late: tuple[tuple[str, Cause], ...]
    broken: tuple[str, ...]


def run_seed(seed: int) -> Seed:
    """Run a seed under both arms, and check the rules."""
    world = random_world(seed)
    watched: list[Rules] = []

    def arm(world: World, luck: int) -> Cluster:
        watched.append(Rules(ARMS[KFEXT](world, luck)))
        return watched[-1].cluster

    kfext, gang = run(arm, world, luck=seed), run(ARMS[GANG], world, luck=seed)
    (rules,) = watched
    both = kfext.jobs.keys() & gang.jobs.keys()
    late = [name for name in sorted(both) if _ratio(kfext, gang, name) > LATE]
    return Seed(
        kfext,
        gang,
        tuple(
            (
                f"seed {seed} {name}: {kfext.jobs[name].elapsed:g} s instead of "
                f"{gang.jobs[name].elapsed:g} s ({_ratio(kfext, gang, name):.2f})",
                _cause(world, kfext.jobs[name], gang.jobs[name], rules.changes),
            )
            for name in late
        ),
        tuple(rules.ended()),
    )


def _ratio(kfext: Run, gang: Run, name: str) -> float:
    return kfext.jobs[name].elapsed / gang.jobs[name].elapsed


def _cause(
    world: World, ended: Ended, without: Ended, changes: Mapping[str, Sequence[Change]]
) -> Cause:
    specs = {spec.name: spec for spec in world.jobs}
    arrived = specs[ended.name].arrives
    waited = why_waited(
        ended.name,
        changes,
        requested={name: spec.workers for name, spec in specs.items()},
        due=arrived + without.began,
        until=arrived + ended.began,
    )
    return why_later(ended, without, changes.get(ended.name, ()), waited=waited)


def run_seeds(seeds: Iterable[int], *, processes: int) -> Iterator[Seed]:
    """Yield the runs of each seed, in order."""
    if processes == 1:
        yield from map(run_seed, seeds)
        return
    with multiprocessing.Pool(processes) as pool:
        yield from pool.imap(run_seed, seeds, chunksize=_CHUNK)


def report(result: Sequence[Seed]) -> Iterator[str]:
    """Yield the lines of the report."""
    figures = row(KFEXT, [seed.kfext for seed in result], [seed.gang for seed in result])
    yield from (f"{name}: {value}" for name, value in asdict(figures).items())
    late = [job for seed in result for job in seed.late]
    yield f"{len(late)} jobs took over {LATE - 1:.0%} longer, because of each:"
    for cause, count in Counter(cause for _, cause in late).most_common():
        yield f"  {count:5} {cause}"
    yield from (f"  {sentence}: {cause}" for sentence, cause in late)
    broken = [sentence for seed in result for sentence in seed.broken]
    yield f"{len(broken)} rules broken"
    yield from broken


def main() -> None:
    """Print the report of some seeds."""
    parser = argparse.ArgumentParser(description="small worlds under kfext and gang")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1)
    requested = parser.parse_args()
    seeds = range(requested.first, requested.first + requested.seeds)
    for line in report(list(run_seeds(seeds, processes=requested.processes))):
        print(line)  # noqa: T201 - the report


if __name__ == "__main__":
    main()
