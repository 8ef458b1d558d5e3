"""The benchmark with timed waits in place of compute: every arm at every load; runs are stored.

A change compares an arm and its rival in the same repeat at the same load.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median
from typing import Any

from e2e.bench.bed import Bench
from e2e.bench.cluster.compare import FIGURES, NODES, QUICK_MINUTES, Figure
from e2e.bench.cluster.run import Outcome, Story, run
from e2e.bench.cluster.waiting import (
    FEW_WAITING,
    MILLICORES,
    QUICK_LOADS,
    SLOWED,
    WAITING,
    WaitingJob,
    arrivals_at,
    slowed,
)
from e2e.bench.cluster.workload import GREEDILY, KFEXT, PLAIN, Arm, Arrival
from e2e.bench.companion.arms import DECIDING_PACKAGES
from e2e.bench.companion.tables import percent
from e2e.bench.report import SENDING, Target, spread, table
from e2e.bench.store import Interleaved, Store
from e2e.bench.stream.run import QUICK_PARAMETERS
from e2e.testbed import lifecycle, paths
from e2e.testbed.progress import say, step
from e2e.testbed.realnodes import nodes
from e2e.testbed.realnodes.node import shape, unshape

Object = dict[str, Any]
NAME = "bench-cluster-wait"
LINK = "10gbit"
"""The links of the cluster with accelerators that the waits represent."""
ALONE = replace(KFEXT, title="kfext without the companion", scale={"mode": "off"})
COMPANION = Arm(
    "companion", "kfext with the companion", managed=True, scale={"mode": "act", "parameters": {}}
)
_SPREAD = 1.5
"""The duration of a job with messages between nodes, relative to its waits; a guess."""
_DELETE_SECONDS = 20.0
"""The time to delete a namespace."""
_GAIN = -5.0
"""Percent; the smallest change that is a gain."""
_HERE = Path(__file__).parent
_SOURCES = (
    *(_HERE / f"{name}.py" for name in ("workload", "waiting", "run")),
    paths.REPOSITORY / "e2e/harness/elastic_jobs.py",
    *(
        paths.REPOSITORY / "e2e/jobs" / f"elastic_{name}.py"
        for name in ("ddp", "torch", "ps", "tf")
    ),
)
_NO_CPU = {"CPU utilisation %", "CPU s per job"}
"""Figures that mean nothing if compute is a wait."""
_RESERVED = Figure("CPU reserved %", lambda run: 100 * run.reserved / run.capacity, 1)
_BUSIEST = Figure(
    "CPU of sending, % of a pod's, worst",
    lambda run: 100 * max(story.highest_cpu_fraction() for story in run.stories),
)
_FIGURES = (*(figure for figure in FIGURES if figure.title not in _NO_CPU), _RESERVED, _BUSIEST)
_FUNCTIONS = {figure.title: figure.of for figure in _FIGURES}
Runs = Mapping[float, Mapping[str, Sequence[Outcome]]]
"""The outcomes of the repeats, by load and arm."""
Seconds = Callable[[Story, float], float]


def _change(of: Callable[[Outcome], float]) -> Callable[[Outcome, Outcome], float]:
    return lambda before, after: 100 * (of(after) / of(before) - 1)


def _best_job(before: Outcome, after: Outcome) -> float:
    return min(by_job(before, after, Story.elapsed).values())


def by_job(before: Outcome, after: Outcome, seconds: Seconds) -> dict[str, float]:
    """Return the change of each job's time in percent, by the job's name."""
    before_by_job = {story.job.name: seconds(story, before.until) for story in before.stories}
    now = {story.job.name: seconds(story, after.until) for story in after.stories}
    return {name: 100 * (now[name] / value - 1) for name, value in before_by_job.items()}


@dataclass(frozen=True, slots=True)
class Claim:
    """A gain that a paper reports for its own cluster and jobs, and kfext's change beside it.

    `seconds`: the time of a job that `gain_begins` compares.
    """

    title: str
    change: Callable[[Outcome, Outcome], float]
    published: Target
    arm: Arm = COMPANION
    against: Arm = PLAIN
    seconds: Seconds = Story.elapsed


_TRAINING, _ELAPSED = (
    _change(_FUNCTIONS["training s, mean"]),
    _change(_FUNCTIONS["elapsed s, mean"]),
)
_MAKESPAN = _change(_FUNCTIONS["makespan s"])
CLAIMS = (
    Claim("CMS-DL: training", _TRAINING, Target("<=", -42.3, "%"), ALONE, PLAIN, Story.training),
    Claim("CMS-DL: training", _TRAINING, Target("<=", -12.3, "%"), ALONE, GREEDILY, Story.training),
    Claim("DRAGON: utilisation, as CPU reserved", _change(_RESERVED.of), Target(">=", 20, "%")),
    Claim("DRAGON: elapsed", _ELAPSED, Target("<=", -65, "%")),
    Claim("FlowCon 2: best job", _best_job, Target("<=", -68.8, "%")),
    Claim("FlowCon 2: makespan", _MAKESPAN, Target("<=", -18.0, "%")),
    Claim("SpeCon: best job", _best_job, Target("<=", -41.5, "%")),
    Claim("SpeCon: mean job", _ELAPSED, Target("<=", -14.8, "%")),
    Claim("SpeCon: makespan", _MAKESPAN, Target("<=", -24.7, "%")),
)


def arms_table(by_arm: Mapping[str, Sequence[Outcome]], *, title: str) -> str:
    """Return a table for one load, with a row for each figure and a column for each arm."""
    head = ["", *(outcomes[0].arm.title for outcomes in by_arm.values())]
    rows = [
        [figure.title, *(_cell(figure, outcomes) for outcomes in by_arm.values())]
        for figure in _FIGURES
    ]
    worst = max(_BUSIEST.of(outcome) for outcomes in by_arm.values() for outcome in outcomes)
    judged = f"- CPU of sending: {worst:.0f} % of a pod's at most, {SENDING.judge(worst)}."
    return f"{table(title, head, rows)}\n\n{judged}"


def _cell(figure: Figure, outcomes: Sequence[Outcome]) -> str:
    return spread([figure.of(outcome) for outcome in outcomes], digits=figure.digits)


def claims_table(runs: Runs) -> str:
    """Return a table of the published changes, kfext's at each load, and where the gain begins."""
    head = ["", "of", "against", "published", *(f"load {load:g}" for load in runs), "gain begins"]
    rows = []
    for claim in CLAIMS:
        cells = [claim.title, claim.arm.title, claim.against.title]
        cells.append(f"{claim.published.bound:+g} %")
        reached = False
        for by_arm in runs.values():
            values = [claim.change(*pair) for pair in _pairs(by_arm, claim)]
            verdict = claim.published.judge(median(values)).rpartition(" ")[2]
            reached = reached or verdict == "PASS"
            cells.append(f"{percent(values)}: {verdict}")
        rows.append([*cells, "" if reached else gain_begins(runs, claim)])
    return table("Beside the published gains; compute is a timed wait", head, rows)


def gain_begins(runs: Runs, claim: Claim) -> str:
    """Return the lowest load with a gain, and from what message size on there is one."""
    for load, by_arm in runs.items():
        smallest = None
        for megabytes, change in sorted(by_message(by_arm, claim).items(), reverse=True):
            if change > _GAIN:
                break
            smallest = megabytes
        if smallest is not None:
            return f"at load {load:g} from {smallest:g} MB on"
    return "at no load"


def by_message(by_arm: Mapping[str, Sequence[Outcome]], claim: Claim) -> dict[float, float]:
    """Return the mean change of the time of the jobs with each message size, in percent.

    Keys are sizes in MB; each value is the median of the repeats.
    """
    values: dict[float, list[float]] = {}
    for before, after in _pairs(by_arm, claim):
        changes = by_job(before, after, claim.seconds)
        sizes: dict[float, list[float]] = {}
        for story in before.stories:
            sizes.setdefault(story.job.megabytes, []).append(changes[story.job.name])
        for megabytes, changes_of_size in sizes.items():
            values.setdefault(megabytes, []).append(fmean(changes_of_size))
    return {megabytes: median(changes_of_size) for megabytes, changes_of_size in values.items()}


def messages_table(runs: Runs, jobs: Iterable[WaitingJob]) -> str:
    """Return a table of the change of training time, with a row for each message size."""
    models = {job.megabytes: job.trains for job in jobs}
    arms = [
        Claim("", _TRAINING, Target("<=", 0), arm, PLAIN, Story.training)
        for arm in (GREEDILY, ALONE, COMPANION)
    ]
    head = ["model", "MB a step", "wait of a step, s"]
    head += [f"load {load:g}: {claim.arm.name}" for load in runs for claim in arms]
    rows = []
    for megabytes, model in sorted(models.items()):
        row = [model.name, f"{megabytes:g}", f"{model.step_ms / 1000 * SLOWED:.1f}"]
        for by_arm in runs.values():
            row += [f"{by_message(by_arm, claim)[megabytes]:+.1f} %" for claim in arms]
        rows.append(row)
    return table("Training time against plain, by message; compute is a timed wait", head, rows)


def _pairs(by_arm: Mapping[str, Sequence[Outcome]], claim: Claim) -> list[tuple[Outcome, Outcome]]:
    return list(zip(by_arm[claim.against.name], by_arm[claim.arm.name], strict=True))


def measure(
    *,
    quick: bool,
    minutes: float,
    link: str,
    network: str,
    loads: Sequence[float],
    repeats: int,
    anew: bool,
) -> str:
    """Make the missing runs, and return the tables; `anew` first deletes the stored runs."""
    minutes = QUICK_MINUTES if quick else minutes
    jobs, loads = (FEW_WAITING, QUICK_LOADS) if quick else (WAITING, loads)
    acting = {"mode": "act", "parameters": dict(QUICK_PARAMETERS if quick else {})}
    arms = (PLAIN, GREEDILY, ALONE, replace(COMPANION, scale=acting))
    arrivals = {load: arrivals_at(load, jobs, minutes=minutes) for load in loads}
    turns = {f"{arm.name} at load {load:g}": (load, arm) for load in loads for arm in arms}
    settings = f"{minutes:g} {link} {network} {SLOWED}"
    bench = Interleaved(
        {
            name: Store(
                f"cluster wait {name}", [repr((arrivals[load], arm)), settings], _sources(arm)
            )
            for name, (load, arm) in turns.items()
        },
        repeats=repeats,
    )
    if anew:
        bench.forget()
    missing = [turns[name] for _, name in bench.missing()]
    last = _SPREAD * max(job.seconds(minutes) for job in jobs) + _DELETE_SECONDS
    expected = sum(arrivals[load][-1].seconds + last for load, _ in missing)
    say(f"to run: {len(missing)} runs, about {expected / 60:.0f} minutes")
    if missing:
        with lifecycle.running(NAME, real_nodes=NODES) as bed:
            # kfext runs outside the nodes, like the scheduler and the operator: nodes only train.
            kfext = Bench(bed)
            kfext.install()
            members = nodes(bed)
            with step("warm up the files of the training jobs"):
                warm = [Arrival(0.0, job) for job in FEW_WAITING[2:]]
                run(bed, replace(PLAIN, name="warm"), warm, members, minutes=0.01)
            for node in members:
                unshape(node) if link == "none" else shape(node, slowed(link))

            def run_arm(repeat: int, name: str) -> Object:
                load, arm = turns[name]
                with step(f"{len(jobs)} jobs, {name}, repeat {repeat + 1}"):
                    chosen = network if arm.managed else ""
                    outcome = run(
                        bed, arm, arrivals[load], members, minutes=minutes, network=chosen
                    )
                    scores = kfext.counted("kfext_expected_starts_total", "was")
                    say(f"    scores of the expected starts so far: {scores}")
                    return outcome.stored()

            bench.measure(run_arm)
    stored = bench.runs()
    runs = {
        load: {
            arm.name: [
                Outcome.restore(stored_run, arm, jobs)
                for stored_run in stored[f"{arm.name} at load {load:g}"]
            ]
            for arm in arms
        }
        for load in loads
    }
    settings_shown = (
        f"compute is a timed wait; links {link} and waits, both {SLOWED} times slower; network "
        f"{network}; {NODES} nodes, {MILLICORES}m a pod; repeats: {repeats}"
    )
    tables = [
        arms_table(by_arm, title=f"{len(jobs)} jobs at load {load:g}; {settings_shown}")
        for load, by_arm in runs.items()
    ]
    return "\n\n".join((*tables, claims_table(runs), messages_table(runs, jobs)))


def _sources(arm: Arm) -> list[Path]:
    packages = [paths.REPOSITORY / "kfext" / package for package in DECIDING_PACKAGES]
    return [*_SOURCES, *(packages if arm.managed else [])]
