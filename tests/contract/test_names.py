"""Public names are nouns and verbs. Messages and the glossary: test_messages, test_budget."""

import ast
from collections.abc import Iterator
from pathlib import Path

import kfext

ROOT = Path(kfext.__file__).parent
PREPOSITIONS = {"beside", "by", "of", "to"}
PARTICIPLES = {
    *("asked", "begun", "came", "done", "found", "given", "got", "had", "kept", "left", "made"),
    *("seen", "taken", "told", "took"),
}
"""Whole names that readers of kfext stumbled over; as a part of a name each is allowed."""

Named = tuple[int, str]
"""A line number and the name that it defines."""


def _public(node: ast.Module | ast.ClassDef) -> Iterator[Named]:
    """Yield the public classes, functions and methods, and their parameters."""
    for child in node.body:
        match child:
            case ast.ClassDef(name=name) if not name.startswith("_"):
                yield child.lineno, name
                yield from _public(child)
            case ast.FunctionDef(name=name, args=args) | ast.AsyncFunctionDef(name=name, args=args):
                if name == "__init__" or not name.startswith("_"):
                    parameters = (*args.posonlyargs, *args.args, *args.kwonlyargs)
                    yield child.lineno, name
                    yield from ((parameter.lineno, parameter.arg) for parameter in parameters)
            case _:
                pass


def _forbidden(source: str) -> list[Named]:
    names = _public(ast.parse(source))
    return [(at, name) for at, name in names if name.lower() in PREPOSITIONS | PARTICIPLES]


def test_no_public_name_is_a_preposition_or_a_participle() -> None:
    files = {str(path.relative_to(ROOT)): path.read_text() for path in ROOT.rglob("*.py")}
    assert {name: names for name, text in files.items() if (names := _forbidden(text))} == {}


def test_which_names_count_as_public() -> None:
    source = (
        "def of(by): made = 1\nclass Seen:\n  def kept(self, *, to): ...\n  def _took(x): ...\n"
    )
    assert _forbidden(source) == [(1, "of"), (1, "by"), (2, "Seen"), (3, "kept"), (3, "to")]
    assert _forbidden("def _of(by): ...\nclass _Made:\n  def of(self): ...\nto = 1") == []
