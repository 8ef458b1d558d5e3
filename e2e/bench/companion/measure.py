"""The benchmark: two tests of the node, then every schedule under every arm, the arms in turn.

The first test measures the CPU time of a step of each program on this machine; another machine may
be 1.5 times as fast. The number of steps is chosen such that a job uses a given CPU time on any
machine, so that a policy has the same number of intervals.

The second test, the calibration, checks the effect of requests on this node. n pods spin, twice
with equal requests (A/A); then the request of the first is raised as kfext boosts the prioritised
job. The part of the node that a pod uses must be its part of all requests.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from e2e.bench.companion.arms import DEAD, OURS, Arm, killed, plain_and, resizing
from e2e.bench.companion.run import Bench, run
from e2e.bench.companion.site import MILLICORES, REQUEST, Pod, Pods, Site, one_cpu, running
from e2e.bench.companion.tables import arms_table, jobs_table, raised, shift_table
from e2e.bench.companion.workload import StepCpu, few_and_many, one_of_each, split_schedules
from e2e.bench.report import FAVOURED_SHARE, table
from e2e.bench.store import Store
from e2e.harness.wait import until
from e2e.testbed import paths
from e2e.testbed.images import PAUSE_IMAGE
from e2e.testbed.progress import say, step

Object = dict[str, Any]
_HERE = Path(__file__).parent
_FEW_STEPS, _ENOUGH_STEPS = 3, 100
_STEP_CPU = "step-cpu"
_COUNTS = (3, 10)
_SPIN = ("/bin/busybox", "sh", "-c", "while :; do :; done")
_SETTLE_SECONDS = 5.0
_SECONDS, _QUICK_SECONDS = 30.0, 10.0
NAME = "bench-companion"
PARTS = ("three", "ten", "shift")
_QUICK_PART = 0.1
"""The part of the steps of the `Split` jobs in a quick run."""


def known_steps() -> StepCpu | None:
    """Return the stored CPU times of a step, or None."""
    return _step_store().find(_STEP_CPU)


def measure_steps(site: Site) -> StepCpu:
    """Return the stored CPU times of a step, or measure them, after a warm-up of all files."""
    with (
        step("warm up the files of the trainings"),
        site.namespace("warm-up", managed=False) as pods,
    ):
        run(pods, Arm(), one_of_each(_FEW_STEPS))
    if (before := known_steps()) is not None:
        return before
    with step("CPU of a step of each program"), site.namespace("steps", managed=False) as pods:
        outcome = run(pods, Arm(), one_of_each(_ENOUGH_STEPS))
    step_cpu = {name: job.cpu / _ENOUGH_STEPS for name, job in outcome.jobs.items()}
    _step_store().put(_STEP_CPU, step_cpu)
    return step_cpu


def _step_store() -> Store:
    jobs = paths.REPOSITORY / "e2e/jobs"
    scripts = [jobs / f"{name}.py" for name in ("converge", "converge_tf", "converge_torch")]
    return Store(_STEP_CPU, sources=[*scripts, _HERE / "workload.py"])


def is_calibrated(store: Store) -> bool:
    """Return whether the whole calibration is stored."""
    return all(store.find(_calibration_name(count)) for count in _COUNTS)


def calibrate(pods: Pods, store: Store, *, quick: bool) -> None:
    """Run and store the missing calibrations."""
    for count in _COUNTS:
        if store.find(_calibration_name(count)) is None:
            with step(f"calibrate with {count} spinning pods"):
                store.put(_calibration_name(count), _spin_and_raise(pods, count, quick=quick))


def _calibration_name(count: int) -> str:
    return f"spinning-{count}"


def _spin_and_raise(pods: Pods, count: int, *, quick: bool) -> Object:
    """Return the parts of the node that spinning pods use, and their weights in the kernel."""
    seconds = _QUICK_SECONDS if quick else _SECONDS
    for number in range(count):
        pods.bed.api.create(pods.path, _spinning(f"spin-{number}"))
    spinning = until(lambda: _all_running(pods, count), what=f"{count} pods spin")
    try:
        equal = [_shares(pods, spinning, seconds=seconds) for _ in range(2)]
        first, *others = spinning
        before = pods.node.pod_weight(first.uid)
        if not pods.request(first, raised(count)):
            raise RuntimeError(f"the request of {first.name} cannot be raised")
        until(lambda: pods.node.pod_weight(first.uid) > before, what="the kernel has the weight")
        favoured = _shares(pods, spinning, seconds=seconds)
        weights = [pods.node.pod_weight(pod.uid) for pod in (first, others[0])]
        return {
            "equal": equal[0],
            "equal again": equal[1],
            "favoured": favoured,
            "weights": weights,
        }
    finally:
        pods.bed.api.delete(f"{pods.path}?gracePeriodSeconds=0")
        until(lambda: not pods.bodies(), what="no pod is left")


def _spinning(pod: str) -> Object:
    resources = {"requests": {"cpu": REQUEST, "memory": "1Mi"}}
    container = {
        "name": "main",
        "image": PAUSE_IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": list(_SPIN),
        "resources": resources,
    }
    spec = {"containers": [container], "terminationGracePeriodSeconds": 0}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod}, "spec": spec}


def _all_running(pods: Pods, count: int) -> list[Pod] | None:
    spinning = running(pods.bodies())
    return spinning if len(spinning) == count else None


def _shares(pods: Pods, spinning: Sequence[Pod], *, seconds: float) -> list[float]:
    """Return the part of the node that each pod uses, after changes have settled."""
    time.sleep(_SETTLE_SECONDS)
    began, before = time.monotonic(), [pods.cpu_seconds(pod) or 0.0 for pod in spinning]
    time.sleep(seconds)
    after = [pods.cpu_seconds(pod) or 0.0 for pod in spinning]
    whole = (time.monotonic() - began) * pods.node.millicores / 1000
    return [(then - now) / whole for now, then in zip(before, after, strict=True)]


def calibration_table(store: Store) -> str:
    """Return a table of measured and expected parts of the node, with a verdict."""
    rows = []
    for count in _COUNTS:
        stored = store.find(_calibration_name(count))
        if stored is not None:
            rows += _calibration_rows(count, stored)
    head = ("pods", "requests", "pod", "share of the node", "arithmetic", "off by", "")
    return table("Calibration: pods that spin; the request of one is raised", head, rows)


def _calibration_rows(count: int, stored: Mapping[str, Sequence[float]]) -> list[tuple[str, ...]]:
    most, each = raised(count), MILLICORES
    whole = most + (count - 1) * each
    first, *others = stored["favoured"]
    high, low = stored["weights"]
    return [
        _calibration_row(f"{count}", "equal", "each", stored["equal"], 1 / count),
        _calibration_row("", "equal, again (A/A)", "each", stored["equal again"], 1 / count),
        _calibration_row(
            "", f"{most}m and {each}m (weights {high}, {low})", "the favourite", [first],
            most / whole, judged=True,
        ),
        _calibration_row("", "", "each of the others", others, each / whole),
    ]  # fmt: skip


def _calibration_row(
    count: str,
    requests: str,
    who: str,
    shares: Sequence[float],
    expected: float,
    *,
    judged: bool = False,
) -> tuple[str, ...]:
    low, high = min(shares), max(shares)
    seen = f"{median(shares):.3f}" + (f" ({low:.3f}-{high:.3f})" if len(shares) > 1 else "")
    off = 100 * max(abs(share / expected - 1) for share in shares)
    verdict = FAVOURED_SHARE.judge(off) if judged else ""
    return count, requests, who, seen, f"{expected:.3f}", f"{off:.1f} %", verdict


def measure(
    *, quick: bool, repeats: int, only_calibrate: bool, anew: bool, parts: Sequence[str] = PARTS
) -> str:
    """Run the missing runs, and return the tables; `anew` first deletes the stored runs."""
    chosen = () if only_calibrate else parts
    calibration = Store("calibration", [str(quick)], [_HERE / "site.py", Path(__file__)])
    step_cpu = known_steps()

    def of_jobs() -> list[Bench]:
        return _of_jobs(chosen, step_cpu, quick=quick, repeats=repeats) if step_cpu else []

    splits = _of_splits(chosen, quick=quick, repeats=repeats)
    if anew:
        calibration.forget()
        for bench in (*of_jobs(), *splits):
            bench.forget()
    if step_cpu:
        say(estimate([*of_jobs(), *splits]))
    begun = is_calibrated(calibration) and (step_cpu or not chosen)
    if not begun or any(bench.missing() for bench in (*of_jobs(), *splits)):
        with one_cpu(NAME) as site:
            with site.namespace("calibrate", managed=False) as pods:
                calibrate(pods, calibration, quick=quick)
            say(calibration_table(calibration))
            if chosen:
                step_cpu = measure_steps(site)
            for bench in (*of_jobs(), *splits):
                bench.measure(site)
    tables = [calibration_table(calibration)]
    for bench in of_jobs():
        runs = bench.runs()
        tables += [arms_table(bench.schedule, runs), jobs_table(bench.schedule, runs)]
    if splits:
        tables.append(shift_table({bench.schedule.name: bench.runs() for bench in splits}))
    return "\n\n".join(tables)


def _of_jobs(parts: Sequence[str], step_cpu: StepCpu, *, quick: bool, repeats: int) -> list[Bench]:
    """Return the benches of jobs that share a node."""
    few, many = few_and_many(step_cpu, quick=quick)
    arms = plain_and(OURS, resizing)
    benches = {
        "three": Bench(few, {**arms, DEAD: partial(killed, len(few.arrivals))}, repeats=repeats),
        "ten": Bench(many, arms, repeats=repeats),
    }
    return [bench for part, bench in benches.items() if part in parts]


def _of_splits(parts: Sequence[str], *, quick: bool, repeats: int) -> list[Bench]:
    """Return the benches of `Split` jobs."""
    return [
        Bench(schedule, plain_and(OURS, resizing), repeats=repeats)
        for schedule in split_schedules(_QUICK_PART if quick else 1)
        if "shift" in parts
    ]


def estimate(benches: Iterable[Bench]) -> str:
    """Return the number of missing runs and their approximate duration, by schedule."""
    lines = [
        f"{bench.schedule.name}: {len(bench.missing())} runs, about {bench.seconds() / 60:.0f} min"
        for bench in benches
    ]
    return f"to run: {'; '.join(lines) or 'nothing'}"
