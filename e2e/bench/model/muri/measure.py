"""V6: SRTF, SRSF and Tiresias-L on Philly's jobs and 8 nodes of 8 GPUs, beside Muri's results.

Source: figures 9 and 10 of Zhao et al., SIGCOMM 2022, with the values of its repository
(github.com/Rivendile/Muri, simulator/draw_fig9-10.py). All results are simulated, so they do not
depend on the machine.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from e2e.bench.model.beside import rows as rows_beside
from e2e.bench.model.muri import by_kfext
from e2e.bench.model.muri.replay import Figures, Scheduler, figures, replay
from e2e.bench.model.muri.shortest import srsf, srtf
from e2e.bench.model.muri.tiresias import Tiresias
from e2e.bench.model.muri.trace import Cluster, read_cluster, read_jobs
from e2e.bench.report import Target, table
from e2e.testbed.progress import say

SCHEDULERS: dict[str, Callable[[Cluster], Scheduler]] = {
    "SRTF": srtf,
    "SRSF": srsf,
    "Tiresias-L": Tiresias,
}
PUBLISHED = {
    "trace1": {
        "SRTF": Figures(1_370_603, 26_045_466, 16_647_148),
        "SRSF": Figures(980_141, 26_065_759, 15_529_913),
        "Tiresias-L": Figures(3_330_371, 23_556_410, 14_739_852),
    },
    "trace1_pr": {
        "SRTF": Figures(2_303_544, 24_513_544, 19_871_388),
        "SRSF": Figures(1_801_860, 24_272_530, 18_267_308),
        "Tiresias-L": Figures(6_921_683, 21_990_478, 21_765_401),
    },
    "trace3": {
        "SRTF": Figures(193_082, 8_174_135, 4_538_891),
        "SRSF": Figures(185_022, 8_174_135, 4_189_699),
        "Tiresias-L": Figures(347_213, 8_174_226, 4_983_397),
    },
    "trace3_pr": {
        "SRTF": Figures(844_395, 7_261_796, 6_363_100),
        "SRSF": Figures(798_058, 6_907_790, 6_228_161),
        "Tiresias-L": Figures(2_213_110, 6_761_641, 6_739_569),
    },
    "trace4": {
        "SRTF": Figures(581_983, 14_787_991, 7_768_533),
        "SRSF": Figures(487_167, 14_887_909, 7_372_568),
        "Tiresias-L": Figures(1_319_383, 13_073_839, 8_663_312),
    },
    "trace4_pr": {
        "SRTF": Figures(1_430_856, 14_272_665, 9_443_500),
        "SRSF": Figures(1_218_502, 14_426_755, 9_227_908),
        "Tiresias-L": Figures(2_674_023, 12_584_604, 11_219_878),
    },
}
"""Rounded seconds by trace and scheduler. In the traces with `_pr` all jobs arrive at once."""
TOLERANCE = Target("<=", 2.0, "%")
_QUICK = ("trace3",)
_ARMS = ("gang", "gang-shortest", "true-shortest")
_AGAINST = "Tiresias-L"
_MODULES = ("muri/by_kfext", "muri/simulate_csv", "muri/trace")
_TITLES = {"mean": "mean JCT", "makespan": "makespan", "p99": "99th percentile of the JCT"}
_HEAD = ("trace", "scheduler", "published s", "kfext's model s", "difference", "tolerance")


def measure(data: Path, *, quick: bool) -> str:
    """Return a table for each figure of V6, and a table with kfext for each trace.

    `data`: the folder with muri/. Raises UserError.
    """
    cluster = read_cluster(data / "muri" / "n8g8.csv")
    rows: dict[str, list[tuple[str, ...]]] = {name: [] for name in Figures._fields}
    for trace in _QUICK if quick else PUBLISHED:
        say(f"  {trace}")
        jobs = read_jobs(data / "muri" / f"{trace}.csv")
        for scheduler, published in PUBLISHED[trace].items():
            rebuilt = figures(replay(jobs, SCHEDULERS[scheduler](cluster)))
            for name in Figures._fields:
                cells = comparison_cells(getattr(published, name), getattr(rebuilt, name))
                rows[name].append((trace, scheduler, *cells))
    tables = [table(f"V6, {_TITLES[name]}", _HEAD, rows[name]) for name in rows]
    with_kfext = [] if quick else [_with_kfext(data, trace, cluster) for trace in PUBLISHED]
    return "\n\n".join([*tables, *with_kfext])


def _with_kfext(data: Path, trace: str, cluster: Cluster) -> str:
    say(f"  {trace}: kfext")
    jobs, world = read_jobs(data / "muri" / f"{trace}.csv"), by_kfext.world_of(data, trace)

    def published(arm: str, _number: int) -> Mapping[str, float] | None:
        if arm not in SCHEDULERS:
            return None
        ended = replay(jobs, SCHEDULERS[arm](cluster))
        return {f"job-{job.name}": at - job.submitted for job, at in ended}

    with by_kfext.coarsely():
        return rows_beside(
            f"kfext in V6, {trace}",
            lambda _number: world,
            (*SCHEDULERS, *_ARMS),
            numbers=(0,),
            published=published,
            against=_AGAINST,
            modules=_MODULES,
        )


def comparison_cells(published: float, rebuilt: float) -> tuple[str, ...]:
    """Return the cells of a row: both values, their difference, and whether it is tolerable."""
    percent = 100 * (rebuilt / published - 1)
    judged = TOLERANCE.judge(abs(percent))
    return f"{published:.0f}", f"{rebuilt:.0f}", f"{percent:+z.2f} %", judged
