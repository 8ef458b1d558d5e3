"""Pollux's workload on 64 GPUs: step times by the number and the location of the GPUs.

Source of the jobs and of the fitted times: Qiao et al., Pollux, OSDI 2021, and its
artifact (petuum/adaptdl, branch osdi21-artifact, simulator/, Apache-2.0): measured on nodes of four
T4. The global batch of a job is fixed. A GPU is simulated as 1000m of CPU; each pod has one GPU.
"""

from dataclasses import dataclass
from random import Random

from kfext.sim.cluster import World
from kfext.sim.jobs import PYTORCH, JobSpec, Saving, Style
from kfext.sim.nodes import NodeSize

_NODES, _PER_NODE = 8, 8
_SHORTER = 4
"""Jobs have a quarter of their steps and arrive in a quarter of eight hours, for short runs."""
_SECONDS = 8 * 3600.0 / _SHORTER
_JOBS = 160
"""Jobs in `_SECONDS` at load 1."""
_MOST = 32
"""The most GPUs that a job requests."""
_ELASTIC = 0.7  # of the jobs
_NEVER_ELASTIC = "ncf"
"""The model of jobs that need one GPU for a minute."""


@dataclass(frozen=True, slots=True)
class _Fit:
    """The coefficients a, b of the seconds of a step: of its computation and its synchronisation.

    `computes`: computation takes a + b x samples per GPU. `near`, `apart`: synchronisation takes
    a + b x (GPUs - 2) on one node and on several. Both overlap: the step takes
    (computation ^ gamma + synchronisation ^ gamma) ^ (1 / gamma).
    """

    computes: tuple[float, float]
    apart: tuple[float, float]
    near: tuple[float, float]
    gamma: float


_FITS = {
    "bert": _Fit((0.1717, 0.05865), (1.409, 0.009403), (0.3125, 0.0001215), 2.02),
    "cifar10": _Fit((0.01735, 0.0007021), (0.1236, 0.002645), (0.02937, 0.005237), 2.15),
    "deepspeech2": _Fit((0.309, 0.02395), (0.5117, 0.009893), (0.0, 0.1051), 1.47),
    "imagenet": _Fit((0.06381, 0.004491), (0.3073, 0.006656), (0.06433, 0.01781), 2.67),
    "ncf": _Fit((0.006957, 6.347e-07), (0.0146, 0.000541), (0.003157, 0.001159), 1.0),
    "yolov3": _Fit((0.1879, 0.02536), (0.7425, 0.01072), (0.0, 0.1184), 1.1),
}
"""Fitted to the measured steps of each model; the mean error is 7 to 9 %."""
_KINDS = {
    ("bert", 384, 6, 480): 23,
    ("bert", 384, 8, 480): 18,
    ("bert", 384, 12, 480): 20,
    ("bert", 384, 16, 480): 25,
    ("cifar10", 2048, 6, 3178): 134,
    ("cifar10", 2048, 8, 3178): 119,
    ("cifar10", 4096, 12, 2011): 133,
    ("cifar10", 4096, 16, 2011): 109,
    ("deepspeech2", 320, 6, 2264): 34,
    ("deepspeech2", 320, 8, 2264): 34,
    ("deepspeech2", 640, 12, 1423): 43,
    ("imagenet", 3200, 24, 42123): 9,
    ("imagenet", 6400, 32, 23972): 9,
    ("imagenet", 6400, 48, 23972): 8,
    ("ncf", 32768, 1, 1548): 503,
    ("yolov3", 64, 4, 14577): 59,
}
"""Model, global batch, GPUs and steps of a job -> number of such jobs among 1,280."""


@dataclass(frozen=True, slots=True)
class GpuPace:
    """The seconds of a step of a model with a global batch. No part of it depends on the CPU."""

    model: str
    batch: int
    work: float = 0.0

    def seconds(self, workers: int, *, apart: bool = False) -> float:
        """Return the seconds of a step; more GPUs than a node has are always `apart`."""
        fit = _FITS[self.model]
        base, each = fit.apart if apart or workers > _PER_NODE else fit.near
        computes = fit.computes[0] + fit.computes[1] * self.batch / workers
        syncs = base + each * (workers - 2) if workers > 1 else 0.0
        return float((computes**fit.gamma + syncs**fit.gamma) ** (1 / fit.gamma))


def gpus(seed: int, *, load: float) -> World:
    """Return jobs that arrive within two hours, with the mix of jobs in Pollux's workloads."""
    random = Random(seed)
    chosen = random.choices([*_KINDS], [*_KINDS.values()], k=round(_JOBS * load))
    times = sorted(random.uniform(0, _SECONDS) for _ in chosen)
    nodes = {f"node-{number}": NodeSize(1000 * _PER_NODE) for number in range(_NODES)}
    jobs = [
        _job(f"job-{number}", kind, elastic=random.random() < _ELASTIC, arrives=float(round(at)))
        for number, (kind, at) in enumerate(zip(chosen, times, strict=True))
    ]
    return World(nodes, tuple(jobs))


def _job(name: str, kind: tuple[str, int, int, int], *, elastic: bool, arrives: float) -> JobSpec:
    model, batch, requested, steps = kind
    requested, pace = min(requested, _MOST), GpuPace(model, batch)
    bounds = None
    if elastic and model != _NEVER_ELASTIC:
        fastest = min(range(1, _NODES * _PER_NODE + 1), key=pace.seconds)
        bounds = (max(1, requested // 4), min(2 * requested, max(fastest, requested)))
    leaders = int(bounds is None)
    return JobSpec(
        name,
        PYTORCH,
        Style.TORCHRUN if bounds else Style.GANG,
        arrives,
        requested - leaders,
        pace,
        steps // _SHORTER,
        leaders=leaders,
        bounds=bounds,
        trains=f"{model}-{batch}-{requested}",
        starts=20.0,
        meets=10.0,
        saving=Saving.ON_REQUEST if bounds else Saving.NEVER,
    )
