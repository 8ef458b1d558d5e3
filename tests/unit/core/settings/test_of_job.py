"""Every setting, on the one path from a job to what holds for it.

The tables of tests.setting_samples name every setting, so that a new one that is forgotten anywhere
on the path fails here.
"""

import json
from fractions import Fraction

import pytest

from kfext import names
from kfext.core.settings.gpu_values import GPU_RULES
from kfext.core.settings.of_job import gpu_settings_of, recorded, settings_of
from kfext.core.settings.resolve import LAST_GOOD, Settings
from kfext.core.settings.values import Value, known_settings, parse_setting
from kfext.model.job_state import JobState
from kfext.model.namespace import Namespace
from kfext.model.policy import parse_policy
from tests.builders import JobBuilder, job
from tests.setting_samples import MALFORMED, WELL_FORMED

TEAM = Namespace("team", labels={names.MANAGED: "true"})
ALL = pytest.mark.parametrize("key", WELL_FORMED)
OF_A_JOB_ALONE = sorted(GPU_RULES)
OF_OTHERS_TOO = pytest.mark.parametrize("key", sorted(WELL_FORMED.keys() - GPU_RULES.keys()))


def value(settings: Settings, key: str) -> Value | None:
    """What a setting is, by the name of its key."""
    if key in GPU_RULES:
        return settings.gpu.get(key)
    found: Value | None = getattr(settings, key.removeprefix("kfext.dev/").replace("-", "_"))
    return found


def parsed(key: str) -> Value:
    return parse_setting(key, WELL_FORMED[key], field=key)


def of(
    made: JobBuilder, *, namespace: Namespace = TEAM, policy: dict[str, str] | None = None
) -> Settings:
    raw = {"metadata": {"name": "gold"}, "spec": {"settings": policy or {}}}
    return settings_of(made.build(), namespace, [parse_policy(raw)])


def admitted(**stated: str) -> JobBuilder:
    """A job into whose templates admission wrote what it stated."""
    made = job().worker(2)
    template = made.raw["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
    template["metadata"] = {"annotations": {names.COLOCATION: "preferred", **stated}}
    return made


def remembers(made: JobBuilder, **settings: str) -> JobBuilder:
    return made.annotated(names.STATE, JobState(settings=settings).encode(job_uid="uid-1"))


def test_every_setting_has_samples() -> None:
    assert WELL_FORMED.keys() == MALFORMED.keys() == set(known_settings())


@ALL
def test_the_job_decides(key: str) -> None:
    assert value(Settings(), key) != parsed(key), "the sample is the default"
    assert value(of(job().annotated(key, WELL_FORMED[key])), key) == parsed(key)


@OF_OTHERS_TOO
def test_else_the_namespace_decides(key: str) -> None:
    namespace = Namespace("team", annotations={key: WELL_FORMED[key]})
    assert value(of(job(), namespace=namespace), key) == parsed(key)


@OF_OTHERS_TOO
def test_else_the_policy_decides(key: str) -> None:
    policy = {key.removeprefix("kfext.dev/"): WELL_FORMED[key]}
    assert value(of(job(), policy=policy), key) == parsed(key)


@pytest.mark.parametrize("key", OF_A_JOB_ALONE)
def test_only_a_job_itself_shares_gpus(key: str) -> None:
    namespace = Namespace("team", annotations={key: WELL_FORMED[key]})
    policy = {key.removeprefix("kfext.dev/"): WELL_FORMED[key]}
    found = of(job(), namespace=namespace, policy=policy)
    assert found.gpu == {}
    assert [key in warning for warning in found.warnings] == [True, True]


RUNNING: dict[str, tuple[bool, str, str]] = {
    "a queued job has what its annotations say": (True, "0.3", "0.3"),
    "a running one has what it started with": (False, "0.3", "0.5"),
    "a queued one with a malformed edit has what it had": (True, "half", "0.5"),
}


@pytest.mark.parametrize(("suspend", "now", "want"), RUNNING.values(), ids=RUNNING)
def test_an_edit_of_a_share_holds_from_the_next_start(suspend: bool, now: str, want: str) -> None:
    edited = admitted(**{names.GPU_SHARE: "0.5"}).annotated(names.GPU_SHARE, now)
    edited.raw["spec"]["runPolicy"] = {"suspend": suspend}
    assert gpu_settings_of(edited.build()) == {names.GPU_SHARE: Fraction(want)}


@ALL
def test_after_a_malformed_edit_the_value_at_admission_holds(key: str) -> None:
    found = of(admitted(**{key: WELL_FORMED[key]}).annotated(key, MALFORMED[key]))
    assert (value(found, key), found.source(key)) == (parsed(key), LAST_GOOD)
    (error,) = found.errors
    assert error.field == f"annotation {key} of the job"


@ALL
def test_after_a_good_and_a_malformed_edit_the_good_one_holds(key: str) -> None:
    edited = admitted().annotated(key, WELL_FORMED[key])
    state = recorded(edited.build(), of(edited))
    spoilt = remembers(admitted(), **state).annotated(key, MALFORMED[key])
    assert value(of(spoilt), key) == parsed(key)
    assert recorded(spoilt.build(), of(spoilt)) == state, "it stays on record"


RECORDS: dict[str, tuple[JobBuilder, dict[str, str]]] = {
    "nothing of a job that states nothing": (admitted(), {}),
    "nothing that its templates have": (
        admitted(**{names.ELASTIC: "2-8"}).annotated(names.ELASTIC, " 2-8"),
        {},
    ),
    "what was stated later": (
        admitted().annotated(names.ELASTIC, "2-8"),
        {names.ELASTIC: "2-8"},
    ),
    "that it was opted out later, which is not the same as nothing": (
        admitted().annotated(names.ELASTIC, "off"),
        {names.ELASTIC: "off"},
    ),
    "what was changed": (
        admitted(**{names.ELASTIC: "2-8"}).annotated(names.ELASTIC, "2-4"),
        {names.ELASTIC: "2-4"},
    ),
    "nothing any more once it is as at admission": (
        remembers(
            admitted(**{names.ELASTIC: "2-8"}).annotated(names.ELASTIC, "2-8"),
            **{names.ELASTIC: "2-4"},
        ),
        {},
    ),
    "what stood there before it was taken away": (
        remembers(admitted(), **{names.ELASTIC: "2-4"}),
        {names.ELASTIC: "2-4"},
    ),
    "nothing of a job that admission has not seen": (
        job().worker(2).annotated(names.ELASTIC, "2-8"),
        {},
    ),
    "nothing malformed": (admitted().annotated(names.ELASTIC, "8-2"), {}),
}


@pytest.mark.parametrize(("made", "want"), RECORDS.values(), ids=RECORDS.keys())
def test_what_is_recorded(made: JobBuilder, want: dict[str, str]) -> None:
    assert recorded(made.build(), of(made)) == want


def test_what_is_recorded_fits_beside_the_rest_of_the_state() -> None:
    made = admitted()
    pattern = "stdout:" + "(?P<value>" + "ä" * 400 + ")"
    for key in WELL_FORMED:
        made.annotated(key, WELL_FORMED[key] if key != names.METRICS else pattern)
    kept = recorded(made.build(), of(made))
    assert len(json.dumps(kept)) <= 1536
    assert names.COLOCATION in kept
    state = JobState(settings=kept, message="m" * 5000, no_host_network="n" * 5000)
    assert recorded(remembers(made, **kept).build(), of(made)) == kept, "it does not change again"
    assert len(state.encode(job_uid="u" * 36).encode()) <= 4096


def test_a_namespace_is_managed_by_its_label() -> None:
    assert of(job()).managed
    assert not of(job(), namespace=Namespace("team")).managed
