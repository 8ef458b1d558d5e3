"""Only the adapters know which kinds of jobs there are; manifests and the CRD name every kind."""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from kfext.model.kinds.registered import KINDS
from kfext.names import OPERATOR_NAME
from tests.contract.manifests import CRDS, DEFAULT, render

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "kfext/model/kinds"
SHARED = {"job_kind", "registered"}
"""The modules of the folder that all code may import."""
OUTSIDE = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (ROOT / "kfext").rglob("*.py")
    if not {FOLDER, ROOT / "kfext/pipelines"} & {*path.parents}
    if path != ROOT / "kfext/sim/jobs.py"
)
"""All modules that must not know a kind. The simulation draws jobs of each kind, and the steps of
pipelines submit jobs of two kinds, as their users do."""
WITHIN = [word for kind in KINDS.values() for word in (kind.name, kind.plural, kind.replica_specs)]
NAMED = re.compile("|".join(map(re.escape, WITHIN)), re.IGNORECASE)
"""The names of a kind anywhere in a text."""
WHOLE = {
    word
    for kind in KINDS.values()
    for word in (kind.container, kind.port)
    if word not in {"", "node"}
}
"""The names of a kind as a whole text."""
OWNERS = {name for name, kind in KINDS.items() if not kind.rendered}
"""The kinds of jobs that control their pods themselves."""
ABOUT_KINDS = {"kfext.model.kinds.job_kind", "kfext.model.kinds.registered", "kfext.model.job"}
"""In modules that import one of these, `kind` is the kind of a job."""


def imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)


def adapters(tree: ast.AST) -> set[str]:
    """The modules about one kind that a module imports."""
    result = (name.split(".") for name in imports(tree))
    parts = {
        part[3] for part in result if part[:3] == ["kfext", "model", "kinds"] and len(part) > 3
    }
    return parts & {path.stem for path in FOLDER.glob("*.py")} - SHARED


def docstrings(tree: ast.AST) -> set[int]:
    """The constants that are documentation: of a module, a class, a function or a variable."""
    return {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }


def texts_naming_a_kind(tree: ast.AST) -> list[str]:
    """The texts in the code of a module that name a kind."""
    documentation = docstrings(tree)
    texts = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and id(node) not in documentation
    ]
    return [text for text in texts if text in WHOLE or NAMED.search(text)]


def is_kind(node: ast.AST, *, about_kinds: bool) -> bool:
    if isinstance(node, ast.Attribute) and node.attr == "kind":
        return about_kinds or ast.unparse(node.value).endswith("job")
    return about_kinds and isinstance(node, ast.Name) and node.id == "kind"


def is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def comparisons(tree: ast.AST) -> list[str]:
    """The comparisons of a kind with another kind; tests for None or a known kind do not count."""
    about = not ABOUT_KINDS.isdisjoint(imports(tree))
    is_kind_here = functools.partial(is_kind, about_kinds=about)
    results = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and not isinstance(node.ops[0], ast.In | ast.NotIn):
            sides = [node.left, *node.comparators]
            if any(map(is_kind_here, sides)) and not any(map(is_none, sides)):
                results.append(ast.unparse(node))
        elif isinstance(node, ast.Match) and is_kind_here(node.subject):
            results.append(ast.unparse(node.subject))
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance":
            is_text = ast.unparse(node.args[1]).startswith("str")
            results += [ast.unparse(node)] if is_kind_here(node.args[0]) and not is_text else []
    return results


@pytest.mark.parametrize("module", OUTSIDE)
def test_no_module_distinguishes_kinds(module: str) -> None:
    tree = ast.parse((ROOT / module).read_text())
    if module.startswith("kfext/gpu/hook/"):
        return  # it runs in the processes of jobs, and speaks of frameworks
    assert adapters(tree) == set()
    assert texts_naming_a_kind(tree) == []
    assert comparisons(tree) == []


JOBS = "from kfext.model.job import TrainingJob\n"


@pytest.mark.parametrize(
    ("code", "counts"),
    [
        ("from kfext.model.kinds.tfjob import TFJob", [1, 0, 0]),
        ("from kfext.model.kinds import pytorchjob", [1, 0, 0]),
        ("from kfext.model.kinds.job_kind import WORKER", [0, 0, 0]),
        ("if name == 'TFJob': pass", [0, 1, 0]),
        ("path = f'/apis/{group}/tfjobs/{name}'", [0, 1, 0]),
        ("if container == 'pytorch': pass", [0, 1, 0]),
        ("message = 'with PyTorch, ranks'", [0, 0, 0]),
        ("def f():\n  '''Of a TFJob.'''", [0, 0, 0]),
        (JOBS + "if job.kind is TENSORFLOW: pass", [0, 0, 1]),
        (JOBS + "if kind == other: pass", [0, 0, 1]),
        (JOBS + "match job.kind:\n  case _: pass", [0, 0, 1]),
        (JOBS + "isinstance(job.kind, Some)", [0, 0, 1]),
        (JOBS + "isinstance(kind, str | None)", [0, 0, 0]),
        ("if situation.job.kind == other: pass", [0, 0, 1]),
        ("if review.kind == 'AdmissionReview': pass", [0, 0, 0]),
        (JOBS + "if kind is None or kind not in KINDS: pass", [0, 0, 0]),
        ("if kind == 'word': pass", [0, 0, 0]),
    ],
)
def test_which_code_distinguishes_kinds(code: str, counts: list[int]) -> None:
    tree = ast.parse(code)
    assert [len(adapters(tree)), len(texts_naming_a_kind(tree)), len(comparisons(tree))] == counts


def rules(group: str) -> Iterator[tuple[str, list[str]]]:
    """The resources of each rule about a group of jobs, with the object that has the rule."""
    for thing in render(DEFAULT):
        stack = [thing]
        while stack:
            result = stack.pop()
            if isinstance(result, list):
                stack += result
            elif isinstance(result, dict):
                stack += result.values()
                if group in (result.get("apiGroups") or ()):
                    name = f"{thing['kind']} {thing['metadata']['name']}"
                    yield name, result["resources"]


@pytest.mark.parametrize("group", sorted({kind.group for kind in KINDS.values()}))
def test_every_rule_about_jobs_names_the_resource_of_every_kind(group: str) -> None:
    plurals = {kind.plural for kind in KINDS.values() if kind.group == group}
    results = [(who, {name.partition("/")[0] for name in names}) for who, names in rules(group)]
    of_jobs = [rule for rule in results if rule[1] & plurals]
    assert len(of_jobs) > 3
    assert [rule for rule in of_jobs if rule[1] != plurals] == []


def conditions(thing: object) -> Iterator[str]:
    """All texts of a manifest that compare the kind of a pod's owner."""
    if isinstance(thing, dict):
        yield from (result for value in thing.values() for result in conditions(value))
    elif isinstance(thing, list):
        yield from (result for value in thing for result in conditions(value))
    elif isinstance(thing, str) and "owner.kind" in thing:
        yield thing


def test_every_condition_on_the_owner_of_a_pod_names_every_kind() -> None:
    results = [condition for thing in render(DEFAULT) for condition in conditions(thing)]
    assert len(results) >= 2
    lacking = [
        (kind, condition)
        for condition in results
        for kind in OWNERS
        if not re.search(rf"owner\.kind in \[[^]]*'{kind}'", condition)
    ]
    assert lacking == []


def operators_in_selectors(thing: object) -> Iterator[list[str]]:
    """The operators in all selectors of pods."""
    if isinstance(thing, dict):
        if thing.get("key") == OPERATOR_NAME:
            yield thing["values"]
        yield from (result for value in thing.values() for result in operators_in_selectors(value))
    elif isinstance(thing, list):
        yield from (result for value in thing for result in operators_in_selectors(value))


def test_every_selector_of_pods_names_the_operator_of_every_kind() -> None:
    results = [values for thing in render(DEFAULT) for values in operators_in_selectors(thing)]
    assert results
    wanted = {f"{name.lower()}-controller" for name in OWNERS}
    assert [values for values in results if set(values) != wanted] == []


def test_a_training_plan_may_be_about_a_job_of_every_kind() -> None:
    crd = yaml.safe_load((CRDS / "kfext.dev_trainingplans.yaml").read_text())
    (version,) = crd["spec"]["versions"]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    assert set(spec["job"]["properties"]["kind"]["enum"]) == KINDS.keys()
