"""Who looks for the test of a file finds it under the same name, in the same room."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LAID_OUT = ("core", "gpu/rules", "state")
"""The packages of kfext whose tests are laid out like them."""

ELSEWHERE: dict[str, str] = {
    "core/admission/hold": "unit/core/admission/test_job decides through it",
    "core/lifecycle/steps": "unit/sharing/test_path pins with the terms of shares",
    "state/queue": "unit/controller/test_queue drives it through the planner",
    "state/quotas": "unit/controller/test_queue drives it through the planner",
    "state/recording": "test_outlook compares a planner with one made from its snapshot",
    "state/rescaling": "unit/state/test_scale_policy and unit/scaling/test_faults drive it",
}
"""Module, such as core/ledger/fit -> why its tests stand elsewhere."""


def modules(package: str) -> Iterator[tuple[str, Path]]:
    for path in (ROOT / "kfext" / package).rglob("*.py"):
        yield path.relative_to(ROOT / "kfext").with_suffix("").as_posix(), path


def defines_a_function(path: Path) -> bool:
    found = ast.walk(ast.parse(path.read_text()))
    return any(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) for node in found)


def namesakes(package: str) -> set[str]:
    """The modules after which the tests of a package are named."""
    tests = (ROOT / "tests/unit" / package).rglob("test_*.py")
    return {
        path.relative_to(ROOT / "tests/unit").with_name(path.stem.removeprefix("test_")).as_posix()
        for path in tests
    }


@pytest.mark.parametrize("package", LAID_OUT)
def test_every_module_that_defines_a_function_has_a_test_of_its_name(package: str) -> None:
    wanted = {module for module, path in modules(package) if defines_a_function(path)}
    assert wanted - namesakes(package) - ELSEWHERE.keys() == set()


@pytest.mark.parametrize("package", LAID_OUT)
def test_every_test_is_named_after_a_module(package: str) -> None:
    assert namesakes(package) - dict(modules(package)).keys() == set()


def test_no_exception_has_outlived_its_reason() -> None:
    known = {module for package in LAID_OUT for module, _ in modules(package)}
    have = {module for package in LAID_OUT for module in namesakes(package)}
    assert ELSEWHERE.keys() <= known - have
