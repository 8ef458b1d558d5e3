"""The compiled components. They are read without kfp; `tests/adapters/pipelines` compiles them."""

import inspect
from typing import Any

import pytest
import yaml

from kfext.pipelines.launcher import FUNCTIONS
from tests.contract.manifests import REPOSITORY

SPEC, PLATFORM = yaml.safe_load_all((REPOSITORY / "tests/contract/pipeline.yaml").read_text())
STEP = SPEC["deploymentSpec"]["executors"]["exec-train"]["container"]


def test_the_golden_step_has_the_present_source_and_nothing_of_kfext() -> None:
    source = STEP["command"][-1]
    assert [step.__name__ for step in FUNCTIONS if inspect.getsource(step) not in source] == []
    assert "import kfext" not in source
    assert "from kfext" not in source


@pytest.mark.parametrize("task", SPEC["root"]["dag"]["tasks"].values())
def test_no_step_is_cached(task: dict[str, Any]) -> None:
    assert not task["cachingOptions"].get("enableCache")


@pytest.mark.parametrize("component", SPEC["components"].values())
def test_every_setting_of_a_step_is_passed_on(component: dict[str, Any]) -> None:
    fields = [passed["field"] for passed in component["taskConfigPassthroughs"]]
    assert sorted(fields) == [
        "ENV",
        "KUBERNETES_AFFINITY",
        "KUBERNETES_NODE_SELECTOR",
        "KUBERNETES_TOLERATIONS",
        "KUBERNETES_VOLUMES",
        "RESOURCES",
    ]
    assert not any(passed.get("applyToTask") for passed in component["taskConfigPassthroughs"])
