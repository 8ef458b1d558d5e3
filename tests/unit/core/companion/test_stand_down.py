"""Why the CPU or the workers of a job are left alone. Tests named test_D… check the statements in
CONTRIBUTING.md."""

import math
from dataclasses import replace

import pytest

from kfext import names
from kfext.core.companion.stand_down import why_no_resize, why_unread
from kfext.core.elastic import why_not_scaled
from kfext.core.progress.reported import GrowthState, Progress, Reported
from kfext.core.settings.values import MetricsSource
from kfext.model.cpu_state import MOST_RESIZED, CpuState
from kfext.model.gpu import GpuShare
from kfext.model.job import TrainingJob
from kfext.model.pod import Pod
from kfext.model.verdict import Verdict
from tests.builders import job
from tests.unit.core.companion.elastic_jobs import dynamic, fixed, led, mirrored, torchrun
from tests.unit.core.companion.pods import OF, running

MANY = [running(index) for index in range(MOST_RESIZED + 1)]
UNLIKE = [running(index, 400 + index) for index in range(18)]
KUEUE = job("TFJob").worker(1).queued_by_kueue().build()
AUTOSCALED = job().elastic(metrics=[{"type": "Resource"}]).build()
WHY: dict[str, tuple[TrainingJob, list[Pod], str]] = {
    "Kueue accounts for its resources": (KUEUE, [running()], "Kueue"),
    "the operator makes an autoscaler for it": (AUTOSCALED, [running()], "HorizontalPodAutoscaler"),
    "it has more pods than are remembered": (OF, MANY, "37 pods"),
    "it is not known what trains": (OF, [replace(running(), trainer=None)], "no container"),
    "a pod is no replica": (OF, [running(), running(1, replica=None)], "no container"),
    "more pods than are remembered have a size of their own": (
        OF,
        [running(index, 400 + index) for index in range(19)],
        "19 pods, 18 of them with CPU of their own",
    ),
    "a resize restarts a container": (OF, [running(), running(1, restarts=True)], "resizePolicy"),
}


@pytest.mark.parametrize(("of", "pods", "why"), WHY.values(), ids=WHY)
def test_a_job_is_left_alone_when(of: TrainingJob, pods: list[Pod], why: str) -> None:
    assert why in why_no_resize(of, pods, CpuState())


@pytest.mark.parametrize("pods", [[], [running()], MANY[:-1], UNLIKE], ids=len)
def test_any_other_is_not(pods: list[Pod]) -> None:
    assert why_no_resize(OF, pods, CpuState()) == ""


METRICS = [{"type": "Resource"}]
QUEUED = job("TFJob").worker(4).queued_by_kueue().build()
CASES: dict[str, tuple[TrainingJob, str]] = {
    "Kueue accounts for its workers": (QUEUED, "Kueue manages it"),
    "its own HorizontalPodAutoscaler scales it": (torchrun(metrics=METRICS), "remove metrics"),
    "it shares GPUs": (
        replace(torchrun(), groups=(replace(torchrun().groups[0], share=GpuShare(50)),)),
        "keeps its slots",
    ),
    "it has no workers": (job("TFJob").group("Chief").ps(1).build(), "no workers"),
    "torchrun may not restart its workers": (torchrun(maxRestarts=0), "maxRestarts"),
    "it is unset how often torchrun may": (torchrun(maxRestarts=None), "maxRestarts"),
}


@pytest.mark.parametrize(("of", "why"), CASES.values(), ids=CASES)
def test_a_job_is_left_alone_if(of: TrainingJob, why: str) -> None:
    assert why in why_not_scaled(of)


ELASTIC = {
    "torchrun": torchrun(),
    "with restarts": torchrun(maxRestarts=3, metrics=[]),
    "dynamic": dynamic(),
    "mirrored": mirrored(),
}


@pytest.mark.parametrize("of", ELASTIC.values(), ids=ELASTIC)
def test_D6_any_other_is_scaled(of: TrainingJob) -> None:
    assert why_not_scaled(of) == ""


NOT_ELASTIC: dict[str, tuple[TrainingJob, str]] = {
    "a PyTorchJob without elasticPolicy": (fixed(), "set an elasticPolicy"),
    "a PyTorchJob with a Master": (led(), "Master"),
    "a PyTorchJob that allows a single number of workers": (
        job().worker(4).elastic(minReplicas=4).build(),
        "maxReplicas",
    ),
}


@pytest.mark.parametrize(("of", "why"), NOT_ELASTIC.values(), ids=NOT_ELASTIC)
def test_D6_a_job_that_is_not_elastic_is_left_alone(of: TrainingJob, why: str) -> None:
    assert why in why_not_scaled(of)


# --- what is not known of its progress ------------------------------------------------------------

LOG, NO_LOG = MetricsSource(), MetricsSource("off")
VAIN = Verdict(names.REASON_NOTHING_RECOGNISED, "nothing in the log looks like progress")
SEEN = Verdict(names.REASON_RECOGNISED, "the log shows speed")
SPEED = Reported(Progress(metric="speed"), known=SEEN)
UNREAD: dict[str, tuple[Reported | None, MetricsSource, float | None, str]] = {
    "its log is not read": (None, NO_LOG, math.inf, "kfext.dev/metrics is off"),
    "its log was not read yet": (None, LOG, None, ""),
    "nothing is recognised": (Reported(known=VAIN), LOG, None, VAIN.message),
    "nothing is recognised, early": (Reported(known=VAIN), LOG, math.inf, ""),
    "it shows how far it is": (SPEED, LOG, 50.0, ""),
    "it has grown before": (Reported(growth=0.1, known=VAIN), LOG, None, ""),
    "which way a measure improves": (SPEED, LOG, None, "not known whether speed improves"),
    "its growth is about to be known": (replace(SPEED, state=GrowthState.NEW), LOG, None, ""),
}


@pytest.mark.parametrize(("reported", "source", "left", "want"), UNREAD.values(), ids=UNREAD)
def test_why_nothing_is_known_of_its_progress(
    reported: Reported | None, source: MetricsSource, left: float | None, want: str
) -> None:
    found = why_unread(reported, source=source, left=left)
    assert want in found
    assert bool(found) is bool(want)
