"""The values that settings may have."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kfext.core.settings.values as values_module
from kfext import names
from kfext.core.settings.table import TABLE, parse_setting
from kfext.core.settings.values import LONGEST, MetricsSource, Range, compiled
from kfext.errors import SettingError

LOSS = r"loss=(?P<value>[0-9.]+)"
ALLOWED: dict[str, tuple[str, str, object]] = {
    "colocation preferred": (names.COLOCATION, "preferred", "preferred"),
    "colocation in capitals with spaces": (names.COLOCATION, " Required ", "required"),
    "colocation off": (names.COLOCATION, "off", "off"),
    "network host": (names.NETWORK, "HOST", "host"),
    "an elastic range": (names.ELASTIC, "2-8", Range(minimum=2, maximum=8)),
    "an elastic range of one size": (names.ELASTIC, "4-4", Range(minimum=4, maximum=4)),
    "elastic off": (names.ELASTIC, " Off ", None),
    "resize cpu": (names.RESIZE, "cpu", "cpu"),
    "resize observe in capitals": (names.RESIZE, "Observe", "observe"),
    "resize off": (names.RESIZE, "off", "off"),
    "migrate checkpointed": (names.MIGRATE, "checkpointed", "checkpointed"),
    "metrics auto": (names.METRICS, "auto", MetricsSource("auto")),
    "metrics pushed": (names.METRICS, "push", MetricsSource("push")),
    "metrics from stdout": (names.METRICS, f"stdout:{LOSS}", MetricsSource("stdout", LOSS)),
    "a colon inside the regular expression": (
        names.METRICS,
        r"stdout:step: (?P<step>\d+) (?P<value>\S+)",
        MetricsSource("stdout", r"step: (?P<step>\d+) (?P<value>\S+)"),
    ),
    "half a GPU": (names.GPU_SHARE, "0.5", 50),
    "half a GPU without zero": (names.GPU_SHARE, ".5", 50),
    "a whole GPU": (names.GPU_SHARE, "1.0", 100),
    "GPU memory": (names.GPU_MEMORY, "8Gi", 8 * 2**30),
    "GPU priority in capitals": (names.GPU_PRIORITY, "Low", "low"),
    "a budget": (names.GPU_LOSS_BUDGET, "0.05", 0.05),
    "no minimum share": (names.GPU_MIN_SHARE, "0", 0.0),
}
REFUSED = {
    "a typing error": (names.COLOCATION, "requierd"),
    "an elastic range that runs backwards": (names.ELASTIC, "8-2"),
    "resize GPUs": (names.RESIZE, "gpu"),
    "migrate always": (names.MIGRATE, "always"),
    "metrics pushed elsewhere": (names.METRICS, "push:8080"),
    "an expression that does not end": (names.METRICS, "stdout:("),
    "a share above one GPU": (names.GPU_SHARE, "1.5"),
    "memory in words": (names.GPU_MEMORY, "much"),
    "a priority above all": (names.GPU_PRIORITY, "highest"),
    "a budget of everything": (names.GPU_LOSS_BUDGET, "1"),
    "a negative minimum": (names.GPU_MIN_SHARE, "-0.1"),
    "a word that colocation does not know": (names.COLOCATION, "always"),
    "nothing": (names.COLOCATION, ""),
    "a network that does not exist": (names.NETWORK, "overlay"),
    "an elastic range from zero": (names.ELASTIC, "0-4"),
    "a single number": (names.ELASTIC, "4"),
    "a negative range": (names.ELASTIC, "-2-4"),
    "a range in words": (names.ELASTIC, "two-eight"),
    "a range that is too long": (names.ELASTIC, "1-1000000"),
    "resize memory": (names.RESIZE, "memory"),
    "metrics from stderr": (names.METRICS, f"stderr:{LOSS}"),
    "metrics from stdout without an expression": (names.METRICS, "stdout"),
    "metrics from stdout with an empty expression": (names.METRICS, "stdout:"),
    "an expression that does not compile": (names.METRICS, "stdout:(?P<value>"),
    "an expression without the group": (names.METRICS, r"stdout:loss=([0-9.]+)"),
    "an expression beyond ASCII": (names.METRICS, "stdout:(?P<value>[a-\uffff])"),
    "an expression that is too costly": (names.METRICS, "stdout:(?P<value>(?:[ab]?){200})x"),
    "an expression that looks ahead": (names.METRICS, "stdout:(?=x)(?P<value>.)"),
    "an expression that is too long": (names.METRICS, "stdout:(?P<value>.)" + "x" * 512),
    "a colon after a word that allows none": (names.METRICS, "auto:8080"),
    "no share": (names.GPU_SHARE, "0"),
    "a negative share": (names.GPU_SHARE, "-0.5"),
    "a share in percent": (names.GPU_SHARE, "50%"),
    "a share as a division": (names.GPU_SHARE, "1/2"),
    "a share that is no number": (names.GPU_SHARE, "nan"),
    "no memory": (names.GPU_MEMORY, "0"),
    "more memory than any GPU has": (names.GPU_MEMORY, "101Ti"),
    "memory in no unit": (names.GPU_MEMORY, "8 GB"),
    "a priority between high and low": (names.GPU_PRIORITY, "medium"),
    "a share above one": (names.GPU_SHARE, "2"),
    "a share in finer steps": (names.GPU_SHARE, "0.125"),
    "a budget of nothing": (names.GPU_LOSS_BUDGET, "0"),
    "a minimum of everything": (names.GPU_MIN_SHARE, "1"),
    "a value that is valid up to its 1,024th character": (names.ELASTIC, "2-8" + " " * 1100 + "or"),
    "a valid value of more than 1,024 characters": (names.ELASTIC, "2-8" + " " * 1100),
}


@pytest.mark.parametrize(("key", "written", "want"), ALLOWED.values(), ids=ALLOWED)
def test_the_value_of_each_allowed_text(key: str, written: str, want: object) -> None:
    assert parse_setting(key, written, place="f") == want


@pytest.mark.parametrize(("key", "written"), REFUSED.values(), ids=REFUSED)
def test_refused_values_say_field_value_allowed_and_an_example(key: str, written: str) -> None:
    with pytest.raises(SettingError) as caught:
        parse_setting(key, written, place="annotation x")
    error = caught.value
    assert error.field == "annotation x"
    assert str(error.value).rstrip("…") in written
    assert len(str(error)) < 400
    # The example works.
    parse_setting(key, error.example, place="f")


@given(key=st.sampled_from(sorted(TABLE)), written=st.text())
def test_any_text_is_parsed_or_refused(key: str, written: str) -> None:
    with suppress(SettingError):
        parse_setting(key, written, place="f")


EXPRESSIONS = {
    "no group": "loss=([0-9.]+)",
    "it does not compile": "(?P<value>",
    "it looks ahead": "(?=x)(?P<value>.)",
    "it refers back": r"(?P<value>.)\1",
    "it repeats too often": "(?P<value>.){99999}",
    "it needs too much memory": "(?P<value>" + r"[\pL]{0,50}" * 4 + ")",
    "it names many classes of Unicode": r"(?i)\PL" + r"\PN" * 100 + "(?P<value>.)",
}


@pytest.mark.parametrize("expression", EXPRESSIONS.values(), ids=EXPRESSIONS)
def test_which_expressions_are_refused(expression: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        compiled(expression)


@pytest.mark.parametrize("expression", [*EXPRESSIONS.values(), "(?P<value>.)"])
def test_an_expression_is_compiled_once_even_if_that_fails(
    expression: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with suppress(ValueError):
        compiled(expression)
    monkeypatch.setattr(values_module, "re2", None)  # the compiled expression
    with suppress(ValueError):
        compiled(expression)


def test_a_compiled_expression_finds_its_groups() -> None:
    match = compiled(r"step (?P<step>\d+): (?P<value>[0-9.]+)").search("at step 10: 0.5")
    assert (match["step"], match["value"]) == ("10", "0.5")


@pytest.mark.parametrize(
    "expression", ["(a|a)*$(?P<value>b)", "(a*)*(?P<value>b)", "(.*.*.*)*(?P<value>=)"]
)
def test_an_expression_that_backtracks_forever_in_other_engines_ends(expression: str) -> None:
    assert len(expression) <= LONGEST
    assert compiled(expression).search("a" * 100_000 + "!") is None
