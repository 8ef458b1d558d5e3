"""mypy reports a new member of a union or an enum wherever code distinguishes members."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (ROOT / "kfext").rglob("*.py")
    if "hook" not in path.parts  # Python 3.8 has no match
)


def is_open(match: ast.Match) -> bool:
    """Whether only strings are matched: the API may add strings, so no match can be complete."""
    patterns = [case.pattern for case in match.cases]
    flat = [
        pattern
        for outer in patterns
        for pattern in (outer.patterns if isinstance(outer, ast.MatchOr) else [outer])
    ]
    known = [
        pattern
        for pattern in flat
        if not (isinstance(pattern, ast.MatchAs) and pattern.pattern is None)
    ]
    return all(
        isinstance(pattern, ast.MatchValue)
        and isinstance(pattern.value, ast.Constant)
        and isinstance(pattern.value.value, str)
        for pattern in known
    )


def ends_in_assert_never(match: ast.Match) -> bool:
    last = match.cases[-1]
    return ast.unparse(last.pattern) == "_" and any(
        isinstance(node, ast.Call) and ast.unparse(node.func) == "assert_never"
        for statement in last.body
        for node in ast.walk(statement)
    )


def compared_enum(test: ast.expr) -> str | None:
    """The value and the enum of a test such as `phase is Phase.TRIAL`, without the member."""
    if not (isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Is | ast.IsNot)):
        return None
    member = test.comparators[0]
    if not (isinstance(member, ast.Attribute) and member.attr.isupper()):
        return None
    return f"{ast.unparse(test.left)} is {ast.unparse(member.value)}"


def chains(tree: ast.AST) -> Iterator[ast.If]:
    """Each `if` that tests for members of one enum, and continues in its `elif`."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.If)
            and len(node.orelse) == 1
            and isinstance(node.orelse[0], ast.If)
        ):
            first, second = compared_enum(node.test), compared_enum(node.orelse[0].test)
            if first is not None and first == second:
                yield node


@pytest.mark.parametrize("module", MODULES)
def test_every_match_over_a_union_ends_in_assert_never(module: str) -> None:
    tree = ast.parse((ROOT / module).read_text())
    matches = [node for node in ast.walk(tree) if isinstance(node, ast.Match)]
    silent = [
        match.lineno for match in matches if not (is_open(match) or ends_in_assert_never(match))
    ]
    assert silent == []


@pytest.mark.parametrize("module", MODULES)
def test_members_of_an_enum_are_distinguished_by_match_and_not_by_elif(module: str) -> None:
    assert [node.lineno for node in chains(ast.parse((ROOT / module).read_text()))] == []


@pytest.mark.parametrize(
    ("code", "wanted"),
    [
        ("match a:\n  case B():\n    pass", [False, False]),
        ("match a:\n  case B():\n    pass\n  case _:\n    return 1", [False, False]),
        ("match a:\n  case B():\n    pass\n  case _:\n    assert_never(a)", [False, True]),
        ("match a:\n  case 'In':\n    pass\n  case _:\n    pass", [True, False]),
        ("match a:\n  case 'In' | 'Out':\n    pass", [True, False]),
        ("match a:\n  case ('pod', b):\n    pass\n  case _:\n    pass", [False, False]),
    ],
)
def test_which_matches_count(code: str, wanted: list[bool]) -> None:
    (match,) = (node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Match))
    assert [is_open(match), ends_in_assert_never(match)] == wanted
