"""The benchmark: two tests of the node, then every schedule under every arm, the arms in turn.

The first test measures the CPU time of a step of each program on this machine; a different machine
may be 1.5 times as fast. From it follows a number of steps such that a job uses the same CPU time
on any machine, and a policy has the same number of intervals.

The second test, the calibration, checks the effect of requests on this node. n pods spin, twice
with equal requests (A/A); then the request of the first is raised, as kfext boosts the prioritised
job. The fraction of the node that a pod uses must be its fraction of all requests.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from e2e.bench.companion.arms import KFEXT, KFEXT_KILLED, Arm, killed, plain_and, resizing
from e2e.bench.companion.run import Bench, run
from e2e.bench.companion.site import MILLICORES, REQUEST, Pod, Pods, Site, one_cpu, running
from e2e.bench.companion.tables import arms_table, jobs_table, raised_request, shift_table
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
_QUICK_FRACTION = 0.1
"""The fraction of the steps of the `Split` jobs that a quick run makes."""


def known_steps() -> StepCpu | None:
    """Return the stored CPU time of a step of each program, or None before it is measured."""
    return _step_store().find(_STEP_CPU)


def measure_steps(site: Site) -> StepCpu:
    """Warm up all files; return the stored CPU time of a step of each program, or measure it."""
    with (
        step("warm up the files of the training jobs"),
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
    return all(store.find(_calibration_name(count)) for count in _COUNTS)


def calibrate(pods: Pods, store: Store, *, quick: bool) -> None:
    for count in _COUNTS:
        if store.find(_calibration_name(count)) is None:
            with step(f"calibrate with {count} spinning pods"):
                store.put(_calibration_name(count), _spin_and_raise(pods, count, quick=quick))


def _calibration_name(count: int) -> str:
    return f"spinning-{count}"


def _spin_and_raise(pods: Pods, count: int, *, quick: bool) -> Object:
    """Return the fractions of the node that spinning pods use, and their weights in the kernel."""
    seconds = _QUICK_SECONDS if quick else _SECONDS
    for number in range(count):
        pods.bed.api.create(pods.path, _spinning(f"spin-{number}"))
    spinning_pods = until(lambda: _all_running(pods, count), what=f"{count} pods spin")
    try:
        equal = [_cpu_fractions(pods, spinning_pods, seconds=seconds) for _ in range(2)]
        first, *others = spinning_pods
        before = pods.node.pod_weight(first.uid)
        if not pods.request(first, raised_request(count)):
            raise RuntimeError(f"the request of {first.name} cannot be raised")
        until(lambda: pods.node.pod_weight(first.uid) > before, what="the kernel has the weight")
        favoured = _cpu_fractions(pods, spinning_pods, seconds=seconds)
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
    spinning_pods = running(pods.bodies())
    return spinning_pods if len(spinning_pods) == count else None


def _cpu_fractions(pods: Pods, spinning_pods: Sequence[Pod], *, seconds: float) -> list[float]:
    """Return the fraction of the node that each pod uses, measured after changes have settled."""
    time.sleep(_SETTLE_SECONDS)
    began, before = time.monotonic(), [pods.cpu_seconds(pod) or 0.0 for pod in spinning_pods]
    time.sleep(seconds)
    after = [pods.cpu_seconds(pod) or 0.0 for pod in spinning_pods]
    total = (time.monotonic() - began) * pods.node.millicores / 1000
    return [(used - start) / total for start, used in zip(before, after, strict=True)]


def calibration_table(store: Store) -> str:
    """Return a table of the measured and expected fractions of the node, with a verdict."""
    rows = []
    for count in _COUNTS:
        stored = store.find(_calibration_name(count))
        if stored is not None:
            rows += _calibration_rows(count, stored)
    head = ("pods", "requests", "pod", "share of the node", "arithmetic", "off by", "")
    return table("Calibration: pods that spin; the request of one is raised", head, rows)


def _calibration_rows(count: int, stored: Mapping[str, Sequence[float]]) -> list[tuple[str, ...]]:
    high_request, request = raised_request(count), MILLICORES
    total = high_request + (count - 1) * request
    first, *others = stored["favoured"]
    high, low = stored["weights"]
    return [
        _calibration_row(f"{count}", "equal", "each", stored["equal"], 1 / count),
        _calibration_row("", "equal, again (A/A)", "each", stored["equal again"], 1 / count),
        _calibration_row(
            "", f"{high_request}m and {request}m (weights {high}, {low})", "the favourite", [first],
            high_request / total, judged=True,
        ),
        _calibration_row("", "", "each of the others", others, request / total),
    ]  # fmt: skip


def _calibration_row(
    count: str,
    requests: str,
    which_pods: str,
    shares: Sequence[float],
    expected: float,
    *,
    judged: bool = False,
) -> tuple[str, ...]:
    low, high = min(shares), max(shares)
    measured = f"{median(shares):.3f}" + (f" ({low:.3f}-{high:.3f})" if len(shares) > 1 else "")
    error = 100 * max(abs(share / expected - 1) for share in shares)
    verdict = FAVOURED_SHARE.judge(error) if judged else ""
    return count, requests, which_pods, measured, f"{expected:.3f}", f"{error:.1f} %", verdict


def measure(
    *, quick: bool, repeats: int, only_calibrate: bool, anew: bool, parts: Sequence[str] = PARTS
) -> str:
    """Make the missing runs, and return the tables; `anew` first deletes the stored runs."""
    chosen = () if only_calibrate else parts
    calibration = Store("calibration", [str(quick)], [_HERE / "site.py", Path(__file__)])
    step_cpu = known_steps()

    def job_benches() -> list[Bench]:
        return _job_benches(chosen, step_cpu, quick=quick, repeats=repeats) if step_cpu else []

    splits = _split_benches(chosen, quick=quick, repeats=repeats)
    if anew:
        calibration.forget()
        for bench in (*job_benches(), *splits):
            bench.forget()
    if step_cpu:
        say(estimate([*job_benches(), *splits]))
    prepared = is_calibrated(calibration) and (step_cpu or not chosen)
    if not prepared or any(bench.missing() for bench in (*job_benches(), *splits)):
        with one_cpu(NAME) as site:
            with site.namespace("calibrate", managed=False) as pods:
                calibrate(pods, calibration, quick=quick)
            say(calibration_table(calibration))
            if chosen:
                step_cpu = measure_steps(site)
            for bench in (*job_benches(), *splits):
                bench.measure(site)
    tables = [calibration_table(calibration)]
    for bench in job_benches():
        runs = bench.runs()
        tables += [arms_table(bench.schedule, runs), jobs_table(bench.schedule, runs)]
    if splits:
        tables.append(shift_table({bench.schedule.name: bench.runs() for bench in splits}))
    return "\n\n".join(tables)


def _job_benches(
    parts: Sequence[str], step_cpu: StepCpu, *, quick: bool, repeats: int
) -> list[Bench]:
    few, many = few_and_many(step_cpu, quick=quick)
    arms = plain_and(KFEXT, resizing)
    benches = {
        "three": Bench(
            few, {**arms, KFEXT_KILLED: partial(killed, len(few.arrivals))}, repeats=repeats
        ),
        "ten": Bench(many, arms, repeats=repeats),
    }
    return [bench for part, bench in benches.items() if part in parts]


def _split_benches(parts: Sequence[str], *, quick: bool, repeats: int) -> list[Bench]:
    return [
        Bench(schedule, plain_and(KFEXT, resizing), repeats=repeats)
        for schedule in split_schedules(_QUICK_FRACTION if quick else 1)
        if "shift" in parts
    ]


def estimate(benches: Iterable[Bench]) -> str:
    """Return the number of missing runs and their approximate duration, by schedule."""
    lines = [
        f"{bench.schedule.name}: {len(bench.missing())} runs, about {bench.seconds() / 60:.0f} min"
        for bench in benches
    ]
    return f"to run: {'; '.join(lines) or 'nothing'}"
