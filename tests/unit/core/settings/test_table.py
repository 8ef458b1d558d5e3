"""The table of settings: examples, limits, refusals, and the annotations of pods."""

from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext import names
from kfext.core.settings.table import (
    OF_A_JOB,
    TABLE,
    TO_PODS,
    Settings,
    field_of,
    parse_setting,
    settings_of_pod,
)
from kfext.core.settings.values import Colocation, MetricsSource
from kfext.errors import SettingError
from kfext.model.bounds import MAX_ANNOTATIONS, bounded
from kfext.model.gpu import GpuShare
from tests.setting_samples import MALFORMED

SHARE = names.GPU_SHARE


def test_only_gpu_settings_count_only_on_the_job_itself() -> None:
    assert {key for key in TABLE if key.startswith("kfext.dev/gpu-")} == OF_A_JOB


@pytest.mark.parametrize("key", TABLE)
def test_the_example_is_not_the_default(key: str) -> None:
    default = {field.name: field.default for field in fields(Settings)}[field_of(key)]
    assert parse_setting(key, TABLE[key].example, place="f") != default


def settings_with(key: str) -> Settings:
    return Settings(**{field_of(key): parse_setting(key, TABLE[key].example, place="f")})


LIMITS = [key for key, row in TABLE.items() if row.limit]


@pytest.mark.parametrize("key", LIMITS)
def test_a_job_with_a_limit_on_its_nodes_is_never_released(key: str) -> None:
    limited = settings_with(key)
    assert limited.node_limits.keys() == {key}
    why = limited.why_never_released
    assert why == f"{key.removeprefix('kfext.dev/')} is {TABLE[key].example}"
    assert replace(limited, colocation=Colocation.OFF).why_never_released == ""
    assert Settings().node_limits == {}


@pytest.mark.parametrize("key", LIMITS)
def test_a_limit_on_the_nodes_is_read_from_a_pod_and_a_job_with_too_many_annotations(
    key: str,
) -> None:
    limited = settings_with(key)
    of_pod = settings_of_pod({**limited.to_pods, "other": "x"})
    assert of_pod.why_never_released == limited.why_never_released
    many = {f"kfext.dev/x{number}": "" for number in range(MAX_ANNOTATIONS)}
    assert key in bounded({**many, key: TABLE[key].example})


@pytest.mark.parametrize("key", TO_PODS)
def test_the_pod_webhook_reads_what_admission_writes(key: str) -> None:
    pushed = Settings(metrics=MetricsSource("push"))  # an expression does not concern pods
    written = pushed if key == names.METRICS else settings_with(key)
    assert settings_of_pod(written.to_pods) == written


def test_the_pod_webhook_reads_a_malformed_value_as_the_default() -> None:
    read = settings_of_pod({names.COLOCATION: "requierd", names.ELASTIC: " " * 2000 + "2-8"})
    assert read == Settings()


@pytest.mark.parametrize("key", TABLE)
def test_a_refusal_has_the_field_the_value_the_allowed_values_and_an_example(key: str) -> None:
    with pytest.raises(SettingError) as caught:
        parse_setting(key, f" {MALFORMED[key]} ", place="annotation x")
    error = caught.value
    assert (error.field, error.value) == ("annotation x", MALFORMED[key])
    assert error.allowed.startswith(TABLE[key].allowed)
    parse_setting(key, error.example, place="f")


@given(st.text(min_size=81))
def test_a_long_value_is_cut(written: str) -> None:
    with pytest.raises(SettingError) as caught:
        parse_setting(names.NETWORK, f"x{written}x", place="f")
    assert str(caught.value.value).endswith("…")
    assert len(str(caught.value)) < 400 + len(repr(written[:80]))


def test_a_job_without_a_share_has_whole_gpus() -> None:
    assert Settings(gpu_priority="high").share is None
    assert Settings(gpu_share=50).share == GpuShare(50)
