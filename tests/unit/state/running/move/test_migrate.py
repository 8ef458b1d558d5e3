"""When a job on several nodes is moved to one; tests/unit/sim/test_moves carries moves out."""

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


def weighed(
    to: Sequence[str] = ("c",),
    remaining: float | None = 1000.0,
    cost: float = 50.0,
    speed: float = 0.85,
) -> Proposal | Verdict:
    return move_or_stay(
        "uid", now=["a", "b"], better=to, remaining=remaining, cost=cost, speed=speed
    )


STAYS: dict[str, tuple[Proposal | Verdict, str]] = {
    "no better place has capacity": (weighed(to=()), "no better nodes have capacity"),
    "it does not show its progress": (weighed(remaining=None), "its remaining time is unknown"),
    "it ends too soon": (weighed(remaining=600.0), "saves about 90 s and costs about 50 s"),
    "it saves less than twice the cost": (
        weighed(remaining=1000.0, cost=75.1),
        "must save 2 times",
    ),
    "it is hardly slower on two nodes": (weighed(speed=0.95), "saves about 50 s"),
}


@pytest.mark.parametrize(("found", "why"), STAYS.values(), ids=STAYS)
def test_a_job_stays_if(found: Proposal | Verdict, why: str) -> None:
    assert isinstance(found, Verdict)
    assert found.reason == names.REASON_STAYS
    assert why in found.message


def test_S5_a_job_moves_only_if_it_saves_more_than_twice_its_cost() -> None:
    result = weighed(remaining=1000.0, cost=74.9)
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
        pytest.param(Settings(managed=True), Mode.OFF, id="it does not"),
        pytest.param(
            Settings(managed=False, migrate="checkpointed"), Mode.OFF, id="its namespace does not"
        ),
    ],
)
def test_the_mode_of_a_job_if(settings: Settings, mode: Mode) -> None:
    assert MIGRATE.effective(settings).mode is mode


def with_volume(*sources: Mapping[str, object], **mount: object) -> TrainingJob:
    """A job that mounts volumes in its training container."""
    volumes = [{"name": f"v{at}", **each} for at, each in enumerate(sources)]
    mounts = [{"name": each["name"], "mountPath": f"/{each['name']}", **mount} for each in volumes]
    container = {"name": "pytorch", "volumeMounts": mounts}
    return job().worker(2, spec={"containers": [container], "volumes": volumes}).build()


def with_claim(key: str) -> TrainingJob:
    """A job with a bound claim of a volume that only some nodes reach."""
    built = job().worker(2).build()
    terms = (Term(expressions=(Requirement(key, "In", ("x",)),)),)
    volumes = VolumeConstraints(terms=(terms,))
    return _with(built, Constraints(claims=("data",), volumes=volumes))


def _with(built: TrainingJob, constraints: Constraints) -> TrainingJob:
    groups = tuple(replace(group, constraints=constraints) for group in built.groups)
    return replace(built, groups=groups)


PLAIN, HOST, CLAIM = job().worker(2).build(), {"hostPath": {"path": "/d"}}, {
    "persistentVolumeClaim": {"claimName": "data"}
}  # fmt: skip
VOLUMES: dict[str, tuple[TrainingJob, str]] = {
    "no volume": (PLAIN, ""),
    "a claim": (with_volume(CLAIM), ""),
    "a directory of its node": (with_volume(HOST), "the hostPath volume v0"),
    "a directory of its pod": (with_volume({"emptyDir": {}}), "the emptyDir volume v0"),
    "shared memory": (with_volume({"emptyDir": {"medium": "Memory"}}), ""),
    "a directory of its node to read": (with_volume(HOST, readOnly=True), ""),
    "a directory of its node beside a claim": (with_volume(HOST, CLAIM), ""),
    "a directory of its node beside a secret": (
        with_volume({"secret": {"secretName": "s"}}, HOST),
        "the hostPath volume v1",
    ),
    "a claim on one node": (with_claim(names.HOSTNAME), "the volume of a claim"),
    "a claim in one zone": (with_claim("topology.kubernetes.io/zone"), ""),
}


@pytest.mark.parametrize(("of", "volume"), VOLUMES.values(), ids=VOLUMES)
def test_checkpoints_must_be_readable_on_another_node(of: TrainingJob, volume: str) -> None:
    why = why_not_moved(of, Settings())
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


@pytest.mark.parametrize(("of", "settings", "why"), OTHERS.values(), ids=OTHERS)
def test_a_job_is_not_moved_if(of: TrainingJob, settings: Settings, why: str) -> None:
    result = why_not_moved(of, settings)
    assert result is not None
    assert (result.reason, why in result.message) == (names.REASON_STANDS_DOWN, True)
