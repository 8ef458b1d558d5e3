"""Messages are short: at most 25 words in a clause, and "; " separates clauses."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import kfext

MAX_WORDS = 25
NO_MESSAGES = {"names.py", "vocabulary.py"}
"""Names, words of logs, and a grammar."""
ROOT = Path(kfext.__file__).parent
FILES = [path for path in sorted(ROOT.rglob("*.py")) if path.name not in NO_MESSAGES]


def texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the texts of a module with their lines: docstrings aside, one word for each value."""
    seen: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):
            seen.add(id(node.value))
        if isinstance(node, ast.JoinedStr):
            seen |= {id(part) for part in ast.walk(node)}
            parts = (part.value if isinstance(part, ast.Constant) else "X" for part in node.values)
            yield node.lineno, "".join(map(str, parts))
        elif (
            isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in seen
        ):
            yield node.lineno, node.value


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_clause_of_a_message_has_at_most_25_words(path: Path) -> None:
    long = [
        f"line {line}: {text}"
        for line, text in texts(ast.parse(path.read_text()))
        if any(len(clause.split()) > MAX_WORDS for clause in re.split(r"[;.] ", text))
    ]
    assert long == []
