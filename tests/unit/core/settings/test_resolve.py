"""The only path from a job, its namespace and the policies to the job's settings."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kfext.core.settings.resolve as resolve_module
from kfext import names
from kfext.core.settings.resolve import LAST_GOOD, resolve, settings_of, share_of, to_record
from kfext.core.settings.table import (
    DEFAULT,
    OF_A_JOB,
    PREFIX,
    TABLE,
    Settings,
    field_of,
    parse_setting,
)
from kfext.core.settings.values import Range
from kfext.model.gpu import GpuShare
from kfext.model.job_state import JobState, state_of
from kfext.model.namespace import Namespace
from kfext.model.policy import TrainingPolicy, parse_policy
from tests.builders import JobBuilder, job
from tests.setting_samples import MALFORMED, WELL_FORMED

Annotations = dict[str, str]
NO_POLICY = TrainingPolicy()


def settings(
    job: Annotations, namespace: Annotations | None = None, policy: Annotations | None = None
) -> Settings:
    return resolve(job, namespace or {}, TrainingPolicy(name="gold", settings=policy or {}))


C = names.COLOCATION
PRECEDENCE = {
    "nothing set: the default": ({}, {}, {}, "preferred", "the default"),
    "the policy": ({}, {}, {C: "off"}, "off", "TrainingPolicy gold"),
    "the namespace before a policy": ({}, {C: "required"}, {C: "off"}, "required", "the namespace"),
    "the job before all": ({C: "preferred"}, {C: "required"}, {C: "off"}, "preferred", "the job"),
    "a malformed namespace": ({}, {C: "never"}, {C: "off"}, "off", "TrainingPolicy gold"),
    "a malformed policy: the default": ({}, {}, {C: "x"}, "preferred", "the default"),
}


@pytest.mark.parametrize(
    ("job", "namespace", "policy", "want", "source"), PRECEDENCE.values(), ids=PRECEDENCE
)
def test_which_source_takes_precedence(
    job: Annotations, namespace: Annotations, policy: Annotations, want: str, source: str
) -> None:
    result = settings(job, namespace, policy)
    assert (result.colocation, result.source(C)) == (want, source)
    assert not result.errors


def test_every_malformed_annotation_of_the_job_is_an_error() -> None:
    result = settings({C: "x", names.ELASTIC: "8-2", names.NETWORK: "pod"})
    assert sorted(error.field for error in result.errors) == [
        f"annotation {C} of the job",
        f"annotation {names.ELASTIC} of the job",
    ]


def test_a_malformed_annotation_of_the_namespace_is_a_warning_even_if_the_job_overrides_it() -> (
    None
):
    result = settings({C: "off"}, {C: "sometimes"})
    assert not result.errors
    assert len(result.warnings) == 1
    assert "'sometimes'" in result.warnings[0]
    assert "the namespace" in result.warnings[0]


def test_a_malformed_edit_falls_back_to_the_next_source() -> None:
    result = settings({C: "x"}, {C: "required"})
    assert result.errors
    assert result.colocation == "required"


LAST = {
    "the value that admission wrote still holds": ({C: "x"}, {C: "required"}, "required"),
    "a well formed edit replaces it": ({C: "off"}, {C: "required"}, "off"),
    "a removed annotation falls back to the next source": ({}, {C: "required"}, "off"),
    "another client made the template malformed too": ({C: "x"}, {C: "y"}, "off"),
}


@pytest.mark.parametrize(("job", "last_good", "want"), LAST.values(), ids=LAST)
def test_a_malformed_edit_keeps_the_last_good_value(
    job: Annotations, last_good: Annotations, want: str
) -> None:
    result = resolve(job, {C: "off"}, NO_POLICY, last_good=last_good)
    assert result.colocation == want
    assert bool(result.errors) is (job.get(C) == "x")


UNKNOWN = {
    "a typing error is recognised": ({"kfext.dev/colocatoin": "off"}, "mean kfext.dev/colocation?"),
    "a key unlike all others": ({"kfext.dev/zzz": "1"}, "kfext.dev/zzz of the job is unknown"),
}


@pytest.mark.parametrize(("job", "want"), UNKNOWN.values(), ids=UNKNOWN)
def test_an_unknown_key_is_a_warning(job: Annotations, want: str) -> None:
    result = settings(job)
    assert not result.errors
    assert want in result.warnings[0]


def test_an_unknown_key_is_not_repeated_at_any_length() -> None:
    (warning,) = settings({f"kfext.dev/{'x' * 300}": "1"}).warnings
    assert "kfext.dev/xxx" in warning
    assert len(warning) < 200


def test_annotations_of_others_and_the_marks_of_kfext_are_no_settings() -> None:
    result = settings({"example.com/colocation": "x", names.HELD: "true", names.RELEASED: "x"})
    assert result == Settings()


def test_many_unknown_keys_do_not_flood_the_terminal() -> None:
    result = settings({f"kfext.dev/x{i}": "1" for i in range(100)})
    assert len(result.warnings) == 9
    assert "92 more" in result.warnings[-1]


def test_a_similar_key_is_searched_for_only_where_it_is_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    searched: list[str] = []

    def record_search(key: str, *more: Any, **rest: Any) -> list[str]:
        searched.append(key)
        return []

    monkeypatch.setattr(resolve_module, "get_close_matches", record_search)
    settings({f"kfext.dev/gpu-prioriti-{number:05}{'x' * 200}": "" for number in range(9000)})
    assert len(searched) == 8
    assert max(map(len, searched)) <= 80


@pytest.mark.parametrize(
    ("key", "value"), [(names.ELASTIC, "1-4"), (names.MIGRATE, "checkpointed")]
)
def test_a_setting_with_an_effect_does_not_warn(key: str, value: str) -> None:
    assert settings({key: value}, {}, {}).warnings == ()


OPTED_OUT: dict[str, tuple[Annotations, Annotations, Annotations]] = {
    "a job, out of its namespace's setting": ({names.ELASTIC: "off"}, {names.ELASTIC: "2-8"}, {}),
    "a job, out of the policy's setting": ({names.ELASTIC: "Off"}, {}, {names.ELASTIC: "2-8"}),
    "a namespace, out of the policy's": ({}, {names.ELASTIC: "off"}, {names.ELASTIC: "2-8"}),
}


@pytest.mark.parametrize("layers", OPTED_OUT.values(), ids=OPTED_OUT)
def test_a_nearer_source_opts_out_of_elastic(
    layers: tuple[Annotations, Annotations, Annotations],
) -> None:
    result = settings(*layers)
    assert result.elastic is None
    assert result.source(names.ELASTIC) != DEFAULT
    assert result.errors == () == result.warnings


def test_settings_that_switch_nothing_on_do_not_warn() -> None:
    annotations = {names.NETWORK: "pod", names.RESIZE: "off", names.MIGRATE: "never"}
    assert settings({**annotations, names.METRICS: "off"}).warnings == ()


@pytest.mark.parametrize("value", ["observe", "cpu"])
def test_resize_has_an_effect_and_does_not_warn(value: str) -> None:
    assert settings({names.RESIZE: value}).warnings == ()


def test_the_settings_have_parsed_values() -> None:
    result = settings({names.ELASTIC: "2-8", names.GPU_SHARE: "0.5"})
    assert result.elastic == Range(minimum=2, maximum=8)
    assert result.gpu_share == 50


SHARE = {names.GPU_SHARE: "0.5"}
UNPLACED: dict[str, tuple[Annotations, Annotations, int]] = {
    "the job itself": ({**SHARE, C: "off"}, {}, 1),
    "its namespace, which the job overrides": (SHARE, {C: "off"}, 0),
}


@pytest.mark.parametrize(("job", "namespace", "want"), UNPLACED.values(), ids=UNPLACED)
def test_a_job_that_shares_gpus_is_placed_whatever_switches_colocation_off(
    job: Annotations, namespace: Annotations, want: int
) -> None:
    result = settings(job, namespace)
    assert len(result.errors) == want
    assert result.colocation == "preferred"


def test_gpu_settings_without_a_share_warn() -> None:
    (warning,) = settings({names.GPU_PRIORITY: "high"}).warnings
    assert "without" in warning
    assert settings({**SHARE, names.GPU_PRIORITY: "high"}).warnings == ()


RESTARTS: dict[str, tuple[Annotations, bool, bool]] = {
    # annotations, whether kfext may restart the job, whether a warning says that it may not
    "report": ({names.STALLED: "report"}, False, False),
    "only restart": ({names.STALLED: "restart"}, False, True),
    "restart beside checkpoints": (
        {names.STALLED: "Restart", names.MIGRATE: "checkpointed"},
        True,
        False,
    ),
}


@pytest.mark.parametrize(("written", "restarts", "warns"), RESTARTS.values(), ids=RESTARTS)
def test_a_stalled_job_is_restarted_only_if_it_resumes_from_checkpoints(
    written: Annotations, restarts: bool, warns: bool
) -> None:
    result = settings(written)
    assert (result.restarts_stalled, bool(result.warnings)) == (restarts, warns)
    assert all("without kfext.dev/migrate: checkpointed" in warning for warning in result.warnings)


def test_a_job_that_shares_gpus_is_never_released_automatically() -> None:
    assert settings(SHARE).why_never_released
    assert settings({C: "required"}).why_never_released
    assert not settings({names.GPU_PRIORITY: "high"}).why_never_released


@given(
    *[
        st.dictionaries(
            st.sampled_from([*TABLE, "kfext.dev/x", "other"]),
            st.text(max_size=10) | st.sampled_from([*WELL_FORMED.values(), "off"]),
            max_size=4,
        )
        for _ in range(3)
    ]
)
def test_any_annotations_resolve(
    job: Annotations, namespace: Annotations, policy: Annotations
) -> None:
    result = settings(job, namespace, policy)
    assert result.colocation in ("preferred", "required", "off")
    assert {error.field.split()[1] for error in result.errors} <= job.keys()


# --- from a job to its settings --------------------------------------------------

TEAM = Namespace("team", labels={names.MANAGED: "true"})
each_key = pytest.mark.parametrize("key", WELL_FORMED)
each_shared_key = pytest.mark.parametrize("key", sorted(WELL_FORMED.keys() - OF_A_JOB))


def value(settings: Settings, key: str) -> object:
    """The value of a setting, by its key."""
    return getattr(settings, field_of(key))


def sample_value(key: str) -> object:
    return parse_setting(key, WELL_FORMED[key], place=key)


def settings_for(
    builder: JobBuilder, *, namespace: Namespace = TEAM, policy: dict[str, str] | None = None
) -> Settings:
    raw = {"metadata": {"name": "gold"}, "spec": {"settings": policy or {}}}
    return settings_of(builder.build(), namespace, [parse_policy(raw)])


def record_of(builder: JobBuilder) -> Mapping[str, str]:
    built = builder.build()
    return to_record(built, settings_for(builder), before=state_of(built).settings)


def admitted(**stated: str) -> JobBuilder:
    """A job with its settings written into its templates by admission."""
    builder = job().worker(2)
    template = builder.raw["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
    template["metadata"] = {"annotations": {names.COLOCATION: "preferred", **stated}}
    return builder


def with_record(builder: JobBuilder, **settings: str) -> JobBuilder:
    return builder.annotated(names.STATE, JobState(settings=settings).encode(job_uid="uid-1"))


@each_key
def test_the_job_decides(key: str) -> None:
    assert value(Settings(), key) != sample_value(key), "the sample is the default"
    assert value(settings_for(job().annotated(key, WELL_FORMED[key])), key) == sample_value(key)


@each_shared_key
def test_the_namespace_decides_if_the_job_does_not(key: str) -> None:
    namespace = Namespace("team", annotations={key: WELL_FORMED[key]})
    assert value(settings_for(job(), namespace=namespace), key) == sample_value(key)


@each_shared_key
def test_the_policy_decides_if_the_namespace_does_not(key: str) -> None:
    policy = {key.removeprefix(PREFIX): WELL_FORMED[key]}
    assert value(settings_for(job(), policy=policy), key) == sample_value(key)


@pytest.mark.parametrize("key", sorted(OF_A_JOB))
def test_only_the_job_itself_can_request_shared_gpus(key: str) -> None:
    namespace = Namespace("team", annotations={key: WELL_FORMED[key]})
    policy = {key.removeprefix(PREFIX): WELL_FORMED[key]}
    result = settings_for(job(), namespace=namespace, policy=policy)
    assert not result.sources
    assert [key in warning for warning in result.warnings] == [True, True]


RUNNING: dict[str, tuple[bool, str, str]] = {
    "a queued job has the values of its annotations": (True, "0.3", "0.3"),
    "a running job has the values of its start": (False, "0.3", "0.5"),
    "a queued job with a malformed edit keeps its values": (True, "half", "0.5"),
}


@pytest.mark.parametrize(("suspend", "edit", "want"), RUNNING.values(), ids=RUNNING)
def test_an_edit_of_a_share_holds_from_the_next_start(suspend: bool, edit: str, want: str) -> None:
    edited = admitted(**{names.GPU_SHARE: "0.5"}).annotated(names.GPU_SHARE, edit)
    edited.raw["spec"]["runPolicy"] = {"suspend": suspend}
    assert share_of(edited.build()) == GpuShare(int(100 * float(want)))


@each_key
def test_after_a_malformed_edit_the_value_at_admission_holds(key: str) -> None:
    result = settings_for(admitted(**{key: WELL_FORMED[key]}).annotated(key, MALFORMED[key]))
    assert (value(result, key), result.source(key)) == (sample_value(key), LAST_GOOD)
    (error,) = result.errors
    assert error.field == f"annotation {key} of the job"


@each_key
def test_after_a_well_formed_and_a_malformed_edit_the_well_formed_value_holds(key: str) -> None:
    edited = admitted().annotated(key, WELL_FORMED[key])
    state = record_of(edited)
    malformed = with_record(admitted(), **state).annotated(key, MALFORMED[key])
    assert value(settings_for(malformed), key) == sample_value(key)
    assert record_of(malformed) == state, "it stays on record"


RECORDS: dict[str, tuple[JobBuilder, dict[str, str]]] = {
    "nothing of a job without settings": (admitted(), {}),
    "nothing that its templates already state": (
        admitted(**{names.ELASTIC: "2-8"}).annotated(names.ELASTIC, " 2-8"),
        {},
    ),
    "a value that was stated later": (
        admitted().annotated(names.ELASTIC, "2-8"),
        {names.ELASTIC: "2-8"},
    ),
    "a later opt-out, which differs from nothing": (
        admitted().annotated(names.ELASTIC, "off"),
        {names.ELASTIC: "off"},
    ),
    "a changed value": (
        admitted(**{names.ELASTIC: "2-8"}).annotated(names.ELASTIC, "2-4"),
        {names.ELASTIC: "2-4"},
    ),
    "nothing once the value is as at admission": (
        with_record(
            admitted(**{names.ELASTIC: "2-8"}).annotated(names.ELASTIC, "2-8"),
            **{names.ELASTIC: "2-4"},
        ),
        {},
    ),
    "the value before its removal": (
        with_record(admitted(), **{names.ELASTIC: "2-4"}),
        {names.ELASTIC: "2-4"},
    ),
    "nothing of a job that admission has not seen": (
        job().worker(2).annotated(names.ELASTIC, "2-8"),
        {},
    ),
    "nothing malformed": (admitted().annotated(names.ELASTIC, "8-2"), {}),
}


@pytest.mark.parametrize(("builder", "want"), RECORDS.values(), ids=RECORDS.keys())
def test_which_settings_are_recorded(builder: JobBuilder, want: dict[str, str]) -> None:
    assert record_of(builder) == want


def test_the_recorded_settings_fit_beside_the_rest_of_the_state() -> None:
    builder = admitted()
    pattern = "stdout:" + "(?P<value>" + "ä" * 400 + ")"
    for key in WELL_FORMED:
        builder.annotated(key, WELL_FORMED[key] if key != names.METRICS else pattern)
    recorded = record_of(builder)
    assert len(json.dumps(recorded)) <= 1536
    assert names.COLOCATION in recorded
    state = JobState(settings=recorded, message="m" * 5000, no_host_network="n" * 5000)
    assert record_of(with_record(builder, **recorded)) == recorded, "it does not change again"
    assert len(state.encode(job_uid="u" * 36).encode()) <= 4096


def test_a_namespace_is_managed_by_its_label() -> None:
    assert settings_for(job()).managed
    assert not settings_for(job(), namespace=Namespace("team")).managed


# --- the weight of a namespace ---------------------------------------------------

WEIGHT = names.QUEUE_WEIGHT
WEIGHTS: dict[str, tuple[str, str]] = {
    "a number": ("2", ""),
    "a fraction": ("0.5", ""),
    "zero": ("0", ""),
    "negative": ("-1", "annotation kfext.dev/queue-weight of the namespace"),
    "huge": ("1e9", "e.g. 2"),
    "not a number": ("nan", "a decimal number x with 0 <= x < 10"),
    "long": ("1" * 2000, "at most 1,024 characters"),
}


@pytest.mark.parametrize(("written", "why"), WEIGHTS.values(), ids=WEIGHTS)
def test_a_malformed_weight_is_a_warning_for_each_job_of_the_namespace(
    written: str, why: str
) -> None:
    result = settings({}, {WEIGHT: written})
    assert not result.errors
    assert [why in warning for warning in result.warnings] == ([True] if why else [])
    assert replace(result, warnings=()) == Settings()


@pytest.mark.parametrize("place", ["job", "policy"])
def test_the_weight_of_a_namespace_is_no_setting_of_a_job(place: str) -> None:
    result = settings(
        {WEIGHT: "9"} if place == "job" else {}, {}, {WEIGHT: "9"} if place == "policy" else {}
    )
    (warning,) = result.warnings
    assert "it is for namespaces only" in warning
    assert replace(result, warnings=()) == Settings()
