"""When a job on several nodes moves to fewer; tests/unit/sim/test_moves.py carries moves out.

Names with S5 or another code check the statements of tests/statements.md.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from kfext import names
from kfext.core.eligibility import why_not_moved
from kfext.core.settings.table import Settings
from kfext.core.settings.values import MetricsSource
from kfext.model.constraints import Constraints, Requirement, Term, VolumeConstraints
from kfext.model.job import TrainingJob
from kfext.model.policy import Mode
from kfext.model.verdict import Verdict
from kfext.state.running.move.migrate import MARGIN, MIGRATE, SPREAD_SPEED, move_or_stay
from kfext.state.running.proposal import Move, Proposal, Rank
from tests.builders import job


def decision(
    better: Sequence[str] = ("c",),
    remaining: float | None = 1000.0,
    cost: float = 50.0,
    speed: float = 0.85,
) -> Proposal | Verdict:
    """Return the decision on a job with pods on a and b; times are in seconds."""
    return move_or_stay(
        "uid", now=["a", "b"], better=better, remaining=remaining, cost=cost, speed=speed
    )


STAYS: dict[str, tuple[Proposal | Verdict, str]] = {
    "no better nodes have capacity": (decision(better=()), "no better nodes have capacity"),
    "it does not show its progress": (decision(remaining=None), "its remaining time is unknown"),
    "it ends too soon": (decision(remaining=600.0), "saves about 90 s and costs about 50 s"),
    "it saves too little": (decision(remaining=1000.0, cost=75.1), "must save 2 times"),
    "it is only 5 % slower on two nodes": (decision(speed=0.95), "saves about 50 s"),
}


@pytest.mark.parametrize(("decided", "why"), STAYS.values(), ids=STAYS)
def test_a_job_stays_if(decided: Proposal | Verdict, why: str) -> None:
    assert isinstance(decided, Verdict)
    assert decided.reason == names.REASON_STAYS
    assert why in decided.message


def test_S5_a_job_moves_only_if_it_saves_more_than_twice_its_cost() -> None:
    result = decision(remaining=1000.0, cost=74.9)
    assert isinstance(result, Proposal)
    assert (result.rank, result.change) == (Rank.MOVE, Move())
    assert "a and b" in result.reason
    assert "saves about 150 s and costs about 75 s" in result.reason
    assert 1000.0 * (1 - SPREAD_SPEED) > MARGIN * 74.9


def test_moves_come_after_changes_of_size_and_before_moves_of_cpu() -> None:
    assert Rank.SCALE < Rank.MOVE < Rank.RESIZE


@pytest.mark.parametrize(
    ("settings", "mode"),
    [
        pytest.param(Settings(managed=True, migrate="checkpointed"), Mode.ACT, id="it opts in"),
        pytest.param(Settings(managed=True), Mode.OFF, id="it does not opt in"),
        pytest.param(
            Settings(managed=False, migrate="checkpointed"), Mode.OFF, id="it is not managed"
        ),
    ],
)
def test_the_mode_of_migrate_for_a_job_if(settings: Settings, mode: Mode) -> None:
    assert MIGRATE.effective(settings).mode is mode


def with_volume(*sources: Mapping[str, object], **mount: object) -> TrainingJob:
    """Return a job that mounts volumes in its training container; `mount`: fields of the mounts."""
    names = [f"v{index}" for index in range(len(sources))]
    volumes = [{"name": name, **source} for name, source in zip(names, sources, strict=True)]
    mounts = [{"name": name, "mountPath": f"/{name}", **mount} for name in names]
    container = {"name": "pytorch", "volumeMounts": mounts}
    return job().worker(2, spec={"containers": [container], "volumes": volumes}).build()


def with_claim(key: str) -> TrainingJob:
    """Return a job with a claim of a volume that only nodes with the value x of a label reach."""
    training = job().worker(2).build()
    terms = (Term(expressions=(Requirement(key, "In", ("x",)),)),)
    volumes = VolumeConstraints(terms=(terms,))
    constraints = Constraints(claims=("data",), volumes=volumes)
    groups = tuple(replace(group, constraints=constraints) for group in training.groups)
    return replace(training, groups=groups)


PLAIN, HOST, CLAIM = job().worker(2).build(), {"hostPath": {"path": "/d"}}, {
    "persistentVolumeClaim": {"claimName": "data"}
}  # fmt: skip
VOLUMES: dict[str, tuple[TrainingJob, str]] = {
    "no volume": (PLAIN, ""),
    "a claim": (with_volume(CLAIM), ""),
    "a directory of the node": (with_volume(HOST), "the hostPath volume v0"),
    "a directory of the pod": (with_volume({"emptyDir": {}}), "the emptyDir volume v0"),
    "shared memory": (with_volume({"emptyDir": {"medium": "Memory"}}), ""),
    "a directory of the node, mounted read-only": (with_volume(HOST, readOnly=True), ""),
    "a directory of the node beside a claim": (with_volume(HOST, CLAIM), ""),
    "a directory of the node beside a secret": (
        with_volume({"secret": {"secretName": "s"}}, HOST),
        "the hostPath volume v1",
    ),
    "a claim of a volume on one node": (with_claim(names.HOSTNAME), "the volume of a claim"),
    "a claim of a volume in one zone": (with_claim("topology.kubernetes.io/zone"), ""),
}


@pytest.mark.parametrize(("training", "volume"), VOLUMES.values(), ids=VOLUMES)
def test_the_volume_that_prevents_a_move(training: TrainingJob, volume: str) -> None:
    why = why_not_moved(training, Settings())
    assert (why is None) is (volume == "")
    if why is not None:
        assert why.reason == names.REASON_NO_SHARED_VOLUME
        assert why.message.startswith(volume)


METRICS = [{"type": "Resource"}]
OTHERS: dict[str, tuple[TrainingJob, Settings, str]] = {
    "Kueue manages it": (job().worker(2).queued_by_kueue().build(), Settings(), "Kueue"),
    "an autoscaler scales it": (
        job().worker(2).elastic(metrics=METRICS).build(),
        Settings(),
        "HorizontalPodAutoscaler",
    ),
    "its log is not read": (PLAIN, Settings(metrics=MetricsSource("off")), "sees no checkpoint"),
}


@pytest.mark.parametrize(("training", "settings", "why"), OTHERS.values(), ids=OTHERS)
def test_a_job_is_not_moved_if(training: TrainingJob, settings: Settings, why: str) -> None:
    result = why_not_moved(training, settings)
    assert result is not None
    assert (result.reason, why in result.message) == (names.REASON_STANDS_DOWN, True)
