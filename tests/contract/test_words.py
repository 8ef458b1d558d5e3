"""The text of the product is plain: the words below are forbidden in code, messages and pages."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.manifests import REPOSITORY

OUT = {
    r"(?-i:None) (if|while|unless|until|where)": "or None, unset: X, None without X",
    r"(take|takes|took|taken|taking) in": "register, read, record",
    r"ours": "kfext's, and the noun",
    r"(some|any|no)body|someone": "a person, another client, nothing",
    r"whose": "with, that has, or a sentence of its own",
    r"(of|to|by|for|from|with) (which|whom)": "a sentence of its own",
    r"those (that|of|who|which|whose|with|to|in)|that of": "the noun again",
    r"looked (at|over)": "check, schedule",
    r"(?<!no\s)one (that|which|who)|(the|other|another) ones?|which one (it|is|they)": "the noun",
    r"noted|notes (what|which|that|the|down)": "record",
    r"(as|so) far as": "if, where",
    r"for ever": "forever, without end",
}
"""A phrase, as an expression that ignores line breaks and case, and the text to write instead."""

ONE = "one as a variable"

_GAP = r"[\s#]+"
_EXPRESSIONS = {
    re.compile(rf"\b({phrase.replace(' ', _GAP)})\b", re.IGNORECASE): instead
    for phrase, instead in OUT.items()
}
_IGNORED = {
    *("CHANGELOG.md", "tests/contract/test_words.py"),
    "tests/unit/progress/blind.yaml",  # output of other programs
}
_FOLDERS = ("kfext", "tests", "e2e", "docs", "manifests", "crds", "examples")
FILES = [
    path
    for path in sorted(
        [
            *REPOSITORY.glob("*.md"),
            *(path for top in _FOLDERS for path in (REPOSITORY / top).rglob("*")),
        ]
    )
    if path.suffix in {".py", ".md", ".yaml", ".js", ".html"}
    and path.relative_to(REPOSITORY).as_posix() not in _IGNORED
]

Text = tuple[int, str]
"""A line number and the text that begins there."""


def _python(source: str) -> Iterator[Text]:
    """Yield docstrings, other strings with X for each value, and blocks of comments."""
    seen: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            seen |= {id(part) for part in node.values}
            yield node.lineno, "".join(_part(part) for part in node.values)
        elif (
            isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in seen
        ):
            yield node.lineno, node.value
    block: list[tokenize.TokenInfo] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            if block and block[-1].start[0] + 1 != token.start[0]:
                yield _block(block)
                block = []
            block.append(token)
    if block:
        yield _block(block)


def _part(part: ast.expr) -> str:
    return str(part.value) if isinstance(part, ast.Constant) else "X"


def _block(tokens: list[tokenize.TokenInfo]) -> Text:
    return tokens[0].start[0], "\n".join(token.string for token in tokens)


def _variables(source: str) -> Iterator[int]:
    """Yield the lines that bind the name `one`."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.arg(arg="one") | ast.Name(id="one", ctx=ast.Store()):
                yield node.lineno
            case _:
                pass


def _page(source: str) -> Iterator[Text]:
    """Yield a page with its blocks of code blanked."""
    yield (
        1,
        re.sub(
            r"^ *```.*?^ *```",
            lambda block: "\n" * block[0].count("\n"),
            source,
            flags=re.DOTALL | re.MULTILINE,
        ),
    )


def _matches(suffix: str, source: str) -> Iterator[tuple[int, str, str]]:
    """Yield the line of each forbidden phrase, the phrase, and the text to write instead."""
    texts = {".py": _python, ".md": _page}.get(suffix, lambda text: iter([(1, text)]))
    for line, text in texts(source):
        for expression, instead in _EXPRESSIONS.items():
            for match in expression.finditer(text):
                phrase = " ".join(match[0].replace("#", " ").split())
                yield line + text.count("\n", 0, match.start()), phrase, instead
    if suffix == ".py":
        for line in _variables(source):
            yield line, ONE, "the noun: pod, job, node"


def findings(path: Path) -> list[str]:
    name = path.relative_to(REPOSITORY).as_posix()
    return [
        f"{name}:{line}: {phrase!r}: write {instead}"
        for line, phrase, instead in sorted(_matches(path.suffix, path.read_text()))
    ]


def test_no_file_has_a_forbidden_word() -> None:
    assert [line for path in FILES for line in findings(path)] == []


@pytest.mark.parametrize(
    ("suffix", "source", "wanted"),
    [
        (".py", '"""Return it, None\n    if unset."""', [(1, "None if")]),
        (".py", 'x = f"the pod whose {name}"', [(1, "whose")]),
        (".py", "x = 1  # the limit of\n# which no pod knows", [(1, "of which")]),
        (".py", "for one in jobs:\n  pass", [(1, ONE)]),
        (".py", "x = None if job.whose else those_that", []),
        (".py", '"""None of the jobs."""', []),
        (".md", "a\n\nThe node of\nwhich", [(3, "of which")]),
        (".md", "a\n```sh\nwhose\n```\nours", [(5, "ours")]),
        (".yaml", "a: 1 # those\n# that", [(1, "those that")]),
    ],
)
def test_which_words_count_as_forbidden(
    suffix: str, source: str, wanted: list[tuple[int, str]]
) -> None:
    assert [(line, phrase) for line, phrase, _ in _matches(suffix, source)] == wanted
