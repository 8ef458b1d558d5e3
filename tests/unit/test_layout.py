"""Files are found by their names: no name occurs twice, and each test is named after its file."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LAID_OUT = ("core", "gpu/rules", "state")
"""The packages of kfext with tests in the same layout."""

ELSEWHERE: dict[str, str] = {
    "core/admission/hold": "unit/core/admission/test_new_job decides through it",
    "core/progress/bars": "unit/core/progress/test_step_count reads bars through it",
    "core/progress/position": "unit/core/progress/test_step_count compares positions through it",
    "core/lifecycle/steps": "unit/sharing/test_path pins with the terms of shares",
    "core/lifecycle/new_nodes": "unit/sim/test_new_nodes drives it in a simulated cluster",
    "core/patches/placeholder": "unit/sim/test_new_nodes makes its placeholders with it",
    "state/mirror/placeholders": "unit/sim/test_new_nodes drives it in a simulated cluster",
    "state/waiting/asks": "unit/sim/test_new_nodes drives it in a simulated cluster",
    "state/running/move/executor": "unit/sim/test_moves drives it in a simulated cluster",
    "state/running/move/record": "unit/sim/test_moves drives it in a simulated cluster",
    "state/running/stop/drain": "unit/sim/test_drain drives it in a simulated cluster",
    "state/running/stop/executor": "unit/sim/test_preempt drives it in a simulated cluster",
    "state/running/stop/preempt": "unit/sim/test_preempt drives it in a simulated cluster",
    "state/running/stop/preemptions": "unit/sim/test_preempt drives it in a simulated cluster",
    "state/running/stop/record": "unit/sim/test_preempt drives it in a simulated cluster",
    "state/running/stop/stopping": "unit/sim/test_preempt drives it in a simulated cluster",
    "state/running/stop/search": "unit/sim/test_preempt drives it in a simulated cluster",
    "state/running/stop/victims": "unit/sim/test_preempt drives it in a simulated cluster",
    "state/running/stop/words": "unit/sim/test_preempt reads what it shows",
    "state/running/restarts": "size/test_scale_search reads the starts of a simulated cluster",
    "state/waiting/queue": "unit/controller/test_queue drives it through the planner",
    "state/waiting/quotas": "unit/controller/test_queue drives it through the planner",
    "state/running/size/rescaling": "test_scale_policy and unit/scaling/test_faults drive it",
}
"""Module, such as core/ledger/fit -> why its tests stand elsewhere."""


SEAMS = {"cards", "gpu"}
"""The names that modules about GPU sharing have in several packages."""
PARTS = {"executor", "record", "words"}
"""The names of the modules that each kind of change of a running job has."""
MAX_MODULES = 12
"""The most modules in a folder of state."""
SHORTEST = 60
"""The fewest lines of a file with one importer: a shorter file should be a part of it."""
ADAPTERS = "kinds"
"""The folder with a file for each kind of job, however short, and a registry that imports it."""
SHORTER = {"gpu/agent/hook_files"}
"""The shorter files that are not merged into their importer yet."""


def modules(package: str) -> Iterator[tuple[str, Path]]:
    for path in (ROOT / "kfext" / package).rglob("*.py"):
        yield path.relative_to(ROOT / "kfext").with_suffix("").as_posix(), path


def defines_a_function(path: Path) -> bool:
    result = ast.walk(ast.parse(path.read_text()))
    return any(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) for node in result)


def namesakes(package: str) -> set[str]:
    """The modules after which the tests of a package are named."""
    tests = (ROOT / "tests/unit" / package).rglob("test_*.py")
    return {
        path.relative_to(ROOT / "tests/unit").with_name(path.stem.removeprefix("test_")).as_posix()
        for path in tests
    }


def imported(path: Path) -> Iterator[str]:
    """The modules of kfext, and the names in them, that a file imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_no_name_of_a_file_occurs_twice_in_core_and_state() -> None:
    paths = (path for package in ("core", "state") for _, path in modules(package))
    times = Counter(path.stem for path in paths if path.stem != "__init__")
    assert {name for name, number in times.items() if number > 1} - SEAMS - PARTS == set()


def test_no_folder_of_state_has_too_many_modules() -> None:
    folders = Counter(path.parent for _, path in modules("state") if path.stem != "__init__")
    assert {folder.name: number for folder, number in folders.items() if number > MAX_MODULES} == {}


def test_no_short_file_has_one_importer() -> None:
    importers: Counter[str] = Counter()
    known = dict(modules("."))
    for path in known.values():
        importers.update({*imported(path)})
    short = {
        module
        for module, path in known.items()
        if path.stem not in {"__init__", *PARTS}
        and path.parent.name != ADAPTERS
        and len(path.read_text().splitlines()) < SHORTEST
        and importers[f"kfext.{module.replace('/', '.')}"] == 1
    }
    assert short - SHORTER == set()


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
