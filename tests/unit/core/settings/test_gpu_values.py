import pytest

from kfext import names
from kfext.core.settings.gpu_values import contradictions, now_said

SHARE = names.GPU_SHARE
RULED_OUT: dict[str, tuple[dict[str, object], list[str]]] = {
    "nothing": ({}, []),
    "a share of a job that is not placed": (
        {SHARE: 0.5, names.COLOCATION: "off"},
        [names.COLOCATION],
    ),
    "no share of such a job": ({names.COLOCATION: "off", names.GPU_PRIORITY: "low"}, []),
}


@pytest.mark.parametrize(("values", "want"), RULED_OUT.values(), ids=RULED_OUT)
def test_what_other_settings_rule_out(values: dict[str, object], want: list[str]) -> None:
    found = list(contradictions(values))
    assert [key for key, _ in found] == want
    assert all(key in error.field for key, error in found)


GONE: dict[str, tuple[str, str]] = {
    "of one type": (f"{SHARE}.worker", SHARE),
    "of a type that shares no GPU": (f"{names.GPU_MEMORY}.evaluator", names.GPU_MEMORY),
    "a limit": ("kfext.dev/gpu-limit", SHARE),
    "a limit of one type": ("kfext.dev/gpu-limit.ps", SHARE),
    "isolation": ("kfext.dev/gpu-isolation", names.GPU_PRIORITY),
}


@pytest.mark.parametrize(("key", "now"), GONE.values(), ids=GONE)
def test_a_former_setting_is_said_in_another_way(key: str, now: str) -> None:
    said = now_said(key, "0.5")
    assert said is not None
    assert all(part.startswith(now) for part in said)


@pytest.mark.parametrize(
    "key", [SHARE, names.COLOCATION, f"{names.COLOCATION}.worker", "kfext.dev/gpu-shrae.worker"]
)
def test_other_keys_were_no_settings(key: str) -> None:
    assert now_said(key, "0.5") is None
