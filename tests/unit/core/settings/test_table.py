from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext import names
from kfext.core.settings.table import (
    OF_A_JOB,
    TABLE,
    Settings,
    field_of,
    is_setting,
    parse_setting,
)
from kfext.errors import SettingError
from kfext.model.gpu import GpuShare
from tests.setting_samples import MALFORMED

SHARE = names.GPU_SHARE
FORMER: dict[str, tuple[str, str]] = {
    "of one type": (f"{SHARE}.worker", SHARE),
    "of a type that shares no GPU": (f"{names.GPU_MEMORY}.evaluator", names.GPU_MEMORY),
    "a limit": ("kfext.dev/gpu-limit", SHARE),
    "a limit of one type": ("kfext.dev/gpu-limit.ps", SHARE),
    "isolation": ("kfext.dev/gpu-isolation", names.GPU_PRIORITY),
}


@pytest.mark.parametrize(("key", "now"), FORMER.values(), ids=FORMER)
def test_a_former_setting_is_refused_with_what_to_write_now(key: str, now: str) -> None:
    with pytest.raises(SettingError) as refused:
        parse_setting(key, "0.5" * 1000, place="annotation x")
    assert refused.value.field == "annotation x"
    assert refused.value.allowed.startswith(now)
    example, _, value = refused.value.example.partition(": ")
    parse_setting(example, value, place="the example")
    assert len(str(refused.value)) < 400


KEYS = {
    "a key of the table": (names.COLOCATION, True),
    "a former one": (f"{SHARE}.worker", True),
    "a type behind a key that never had one": (f"{names.COLOCATION}.worker", False),
    "a typing error": ("kfext.dev/gpu-shrae.worker", False),
    "what kfext itself writes": (names.HELD, False),
}


@pytest.mark.parametrize(("key", "want"), KEYS.values(), ids=KEYS)
def test_which_keys_are_settings(key: str, *, want: bool) -> None:
    assert is_setting(key) is want


def test_only_gpu_settings_are_of_a_job_alone() -> None:
    assert {key for key in TABLE if key.startswith("kfext.dev/gpu-")} == OF_A_JOB


@pytest.mark.parametrize("key", TABLE)
def test_the_example_is_no_default(key: str) -> None:
    default = {field.name: field.default for field in fields(Settings)}[field_of(key)]
    assert parse_setting(key, TABLE[key].example, place="f") != default


@pytest.mark.parametrize("key", TABLE)
def test_a_refusal_says_field_value_allowed_and_an_example(key: str) -> None:
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
