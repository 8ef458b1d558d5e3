from contextlib import suppress
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext import names
from kfext.core.settings.gpu_values import GPU_RULES
from kfext.core.settings.values import (
    MetricsSource,
    Range,
    Value,
    is_setting,
    known_settings,
    parse_setting,
)
from kfext.errors import SettingError
from tests.setting_samples import MALFORMED

LOSS = r"loss=(?P<value>[0-9.]+)"
ALLOWED: dict[str, tuple[str, str, Value]] = {
    "colocation preferred": (names.COLOCATION, "preferred", "preferred"),
    "colocation in capitals with spaces": (names.COLOCATION, " Required ", "required"),
    "colocation off": (names.COLOCATION, "off", "off"),
    "network host": (names.NETWORK, "HOST", "host"),
    "an elastic range": (names.ELASTIC, "2-8", Range(minimum=2, maximum=8)),
    "an elastic range of one size": (names.ELASTIC, "4-4", Range(minimum=4, maximum=4)),
    "elastic off": (names.ELASTIC, " Off ", "off"),
    "resize cpu": (names.RESIZE, "cpu", "cpu"),
    "resize observe in capitals": (names.RESIZE, "Observe", "observe"),
    "resize off": (names.RESIZE, "off", "off"),
    "migrate checkpointed": (names.MIGRATE, "checkpointed", "checkpointed"),
    "metrics auto": (names.METRICS, "auto", MetricsSource("auto")),
    "metrics push": (names.METRICS, "Push", MetricsSource("push")),
    "metrics from stdout": (names.METRICS, f"stdout:{LOSS}", MetricsSource("stdout", LOSS)),
    "a colon inside the regular expression": (
        names.METRICS,
        r"stdout:step: (?P<step>\d+) (?P<value>\S+)",
        MetricsSource("stdout", r"step: (?P<step>\d+) (?P<value>\S+)"),
    ),
    "half a GPU": (names.GPU_SHARE, "0.5", Fraction(1, 2)),
    "half a GPU without zero": (names.GPU_SHARE, ".5", Fraction(1, 2)),
    "a whole GPU": (names.GPU_SHARE, "1.0", Fraction(1)),
    "GPU memory": (names.GPU_MEMORY, "8Gi", 8 * 2**30),
    "GPU priority in capitals": (names.GPU_PRIORITY, "Low", "low"),
    "a budget": (names.GPU_LOSS_BUDGET, "0.05", Fraction(1, 20)),
    "no minimum share": (names.GPU_MIN_SHARE, "0", Fraction(0)),
}
REFUSED = {
    **{f"the malformed sample of {key}": (key, MALFORMED[key]) for key in MALFORMED},
    "a word that colocation does not know": (names.COLOCATION, "always"),
    "nothing": (names.COLOCATION, ""),
    "a network that does not exist": (names.NETWORK, "overlay"),
    "an elastic range from zero": (names.ELASTIC, "0-4"),
    "a single number": (names.ELASTIC, "4"),
    "a negative range": (names.ELASTIC, "-2-4"),
    "a range in words": (names.ELASTIC, "two-eight"),
    "a range too long to be meant": (names.ELASTIC, "1-1000000"),
    "resize memory": (names.RESIZE, "memory"),
    "metrics from stderr": (names.METRICS, f"stderr:{LOSS}"),
    "metrics from stdout without an expression": (names.METRICS, "stdout"),
    "metrics from stdout with an empty one": (names.METRICS, "stdout:"),
    "an expression that does not compile": (names.METRICS, "stdout:(?P<value>"),
    "an expression without the group": (names.METRICS, r"stdout:loss=([0-9.]+)"),
    "an expression beyond ASCII": (names.METRICS, "stdout:(?P<value>[a-\uffff])"),
    "an expression that is too costly": (names.METRICS, "stdout:(?P<value>(?:[ab]?){200})x"),
    "an expression that looks ahead": (names.METRICS, "stdout:(?=x)(?P<value>.)"),
    "an expression that is too long": (names.METRICS, "stdout:(?P<value>.)" + "x" * 512),
    "a colon behind a word that takes none": (names.METRICS, "push:8080"),
    "no share": (names.GPU_SHARE, "0"),
    "a negative share": (names.GPU_SHARE, "-0.5"),
    "a share in percent": (names.GPU_SHARE, "50%"),
    "a share as a division": (names.GPU_SHARE, "1/2"),
    "a share that is no number": (names.GPU_SHARE, "nan"),
    "no memory": (names.GPU_MEMORY, "0"),
    "more memory than any GPU has": (names.GPU_MEMORY, "101Ti"),
    "memory in no unit": (names.GPU_MEMORY, "8 GB"),
    "a priority between": (names.GPU_PRIORITY, "medium"),
    "a share above one": (names.GPU_SHARE, "2"),
    "a share in finer steps": (names.GPU_SHARE, "0.125"),
    "a budget of nothing": (names.GPU_LOSS_BUDGET, "0"),
    "a minimum of all": (names.GPU_MIN_SHARE, "1"),
}


@pytest.mark.parametrize(("key", "written", "want"), ALLOWED.values(), ids=ALLOWED)
def test_allowed_values(key: str, written: str, want: Value) -> None:
    assert parse_setting(key, written, field="f") == want


@pytest.mark.parametrize(("key", "written"), REFUSED.values(), ids=REFUSED)
def test_refused_values_say_field_value_allowed_and_an_example(key: str, written: str) -> None:
    with pytest.raises(SettingError) as caught:
        parse_setting(key, written, field="annotation x")
    error = caught.value
    assert error.field == "annotation x"
    assert str(error.value).rstrip("…") in written
    assert len(str(error)) < 400
    # The example is one that works.
    parse_setting(key, error.example, field="f")


@pytest.mark.parametrize("key", sorted(GPU_RULES))
def test_G1_a_malformed_value_about_a_part_of_a_gpu_is_refused(key: str) -> None:
    with pytest.raises(SettingError):
        parse_setting(key, MALFORMED[key], field="annotation x")


@given(key=st.sampled_from(known_settings()), written=st.text())
def test_any_text_is_parsed_or_refused(key: str, written: str) -> None:
    with suppress(SettingError):
        parse_setting(key, written, field="f")


KEYS = {
    "every key has a rule": (names.COLOCATION, True),
    "a type as suffix": ("kfext.dev/gpu-share.worker", False),
    "what kfext itself writes is no setting": (names.HELD, False),
}


@pytest.mark.parametrize(("key", "want"), KEYS.values(), ids=KEYS)
def test_which_keys_are_settings(key: str, *, want: bool) -> None:
    assert is_setting(key) is want
