"""Many seeds with the policy and without it: `python -m tests.unit.sim.report --seeds 10000`.

It prints how much longer or shorter each job takes, and each job that takes much longer, with the
reason. The seeds run on several processes, in any order.
"""

import argparse
import multiprocessing
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from statistics import fmean

from tests.unit.sim.compared import LATE, Compared, Pair, compare

SEEDS = 10_000
_CHUNK = 10


def pairs(seeds: Iterable[int], *, processes: int) -> Iterator[Pair]:
    """Yield each seed with the policy and without it."""
    if processes == 1:
        yield from map(compare, seeds)
        return
    with multiprocessing.Pool(processes) as pool:
        yield from pool.imap(compare, seeds, chunksize=_CHUNK)


def quantile(ordered: Sequence[float], part: float) -> float:
    """Return the smallest value that is not below `part` of all."""
    return ordered[min(int(part * len(ordered)), len(ordered) - 1)]


def report(found: Sequence[Pair]) -> Iterator[str]:
    """Yield the lines of the report."""
    jobs = [job for pair in found for job in pair.jobs]
    ordered = sorted(jobs, key=lambda job: job.ratio)
    ratios = [job.ratio for job in ordered]
    changed = sum(pair.changes > 0 for pair in found)
    yield f"{len(found)} clusters, {len(jobs)} jobs; sizes changed in {changed} clusters"
    for what, names in {
        "with the policy": [(pair.seed, name) for pair in found for name in pair.only_with],
        "without it": [(pair.seed, name) for pair in found for name in pair.only_without],
    }.items():
        seeds = ", ".join(f"seed {seed} {name}" for seed, name in names)
        yield f"{len(names)} jobs end only {what}" + (f": {seeds}" if seeds else "")
    yield "elapsed time of a job / the same without the policy:"
    shown = {"best": 0.0, "p1": 0.01, "p10": 0.1, "p50": 0.5, "p90": 0.9, "p99": 0.99, "worst": 1.0}
    yield "  " + "  ".join(f"{name} {quantile(ratios, at):.3f}" for name, at in shown.items())
    yield f"  the worst is {ordered[-1].name} of seed {ordered[-1].seed}"
    with_, without = fmean(job.elapsed for job in jobs), fmean(job.without for job in jobs)
    yield f"mean elapsed time {with_:.1f} s, without {without:.1f} s: {with_ / without - 1:+.1%}"
    for name, values in {
        "utilisation": [pair.utilisation for pair in found],
        "makespan": [pair.makespan for pair in found],
    }.items():
        with_, without = (fmean(value[side] for value in values) for side in (0, 1))
        yield f"mean {name} {with_:.3g}, without {without:.3g}: {with_ / without - 1:+.1%}"
    yield from _late([job for job in jobs if job.cause is not None], of=len(jobs))
    broken = [sentence for pair in found for sentence in pair.broken]
    yield f"{len(broken)} rules broken"
    yield from broken


def _late(jobs: Sequence[Compared], *, of: int) -> Iterator[str]:
    share = len(jobs) / of
    yield f"{len(jobs)} jobs ({share:.2%}) took over {LATE - 1:.0%} longer, because of each:"
    for cause, count in Counter(job.cause for job in jobs).most_common():
        yield f"  {count:5} {cause}"
    for job in sorted(jobs, key=lambda job: -job.ratio):
        yield (
            f"  seed {job.seed} {job.name}: {job.elapsed:g} s instead of {job.without:g} s "
            f"({job.ratio:.2f}): {job.cause}"
        )


def main() -> None:
    """Print the report of some seeds."""
    parser = argparse.ArgumentParser(description="jobs with the policy and without it")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1)
    asked = parser.parse_args()
    seeds = range(asked.first, asked.first + asked.seeds)
    for line in report(list(pairs(seeds, processes=asked.processes))):
        print(line)  # noqa: T201 - the report


if __name__ == "__main__":
    main()
