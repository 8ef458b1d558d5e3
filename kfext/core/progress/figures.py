"""The numbers of a line with what stands before them: `Epoch [3/10], loss: 0.5` has two figures.

One pass over the tokens of a line, of which there are at most _MOST_TOKENS, whatever a user prints.
"""

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

_NUMBER = r"[-+]?(?:\d{1,20}(?:\.\d{0,25})?|\.\d{1,25})(?:[eE][-+]?\d{1,3})?(?![\w.])"
_NOT_FINITE = r"(?:nan|NaN|NAN|[-+]?(?:inf|Inf|INF|[Ii]nfinity))(?!\w)"
_TOKENS = re.compile(rf"(?P<number>{_NUMBER}|{_NOT_FINITE})|(?P<word>\w[\w@./-]*)|(?P<mark>\S)")
_CLOCKS = re.compile(
    r"(?<![\w.])(?:\d{4}[-/]\d\d[-/]\d\d|[01]\d[-/][0-3]\d(?:[-/]\d{2,4})?(?=[T ]\d\d:))[T ]?"
    r"|(?<![\w.])\d{1,3}:\d\d(?::\d\d)?(?:[.,]\d{1,9})?(?![\w:])Z?"
)
"""Dates and times of day, whose numbers look like positions."""
_OPENING, _QUOTES, _SIGNS = frozenset("([{<"), frozenset("\"'"), frozenset(":=|")
_BEFORE = _OPENING | {"tensor", "#"}
"""What may stand between name and number: `loss: tensor(0.5)`, `Step #10`."""
_BARS = frozenset("|━╸╺█")
_MOST_WORDS, _LONGEST_WORD = 3, 40
_MOST_TOKENS = 600
"""Of a line, the last ones; those of a progress bar, of which each character is one, have 300."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A number of a line.

    `name`: the words before it, empty if it has none.
    `text`: the number as printed.
    `of`: the number after a slash, as in 10/100; empty without.
    `opened`: whether a bracket opens directly before it.
    `first`: whether it begins the line, or follows the bar of a progress bar.
    `sign`: what stands between name and number: `:`, `=`, `|`, or nothing.
    `unit`: the word or mark that follows it.
    """

    name: str
    text: str
    of: str = ""
    opened: bool = False
    first: bool = False
    sign: str = ""
    unit: str = ""


def figures(line: str) -> list[Figure]:
    """Return the numbers of a line in their order."""
    line = _CLOCKS.sub(" ", line).replace("\t", "  ")
    tokens = [
        (match.lastgroup or "", match.group(), match.start(), match.end())
        for match in deque(_TOKENS.finditer(line), maxlen=_MOST_TOKENS)
    ]
    found, at = [], 0
    while at < len(tokens):
        if tokens[at][0] != "number":
            at += 1
            continue
        fraction = _is_fraction(tokens, at)
        found.append(_figure(tokens, at, of=tokens[at + 2][1] if fraction else ""))
        at += 3 if fraction else 1
    return found


_Token = tuple[str, str, int, int]
"""Group, text, start and end."""


def _is_fraction(tokens: Sequence[_Token], at: int) -> bool:
    after = [(group, text) for group, text, *_ in tokens[at + 1 : at + 3]]
    return (
        len(after) == 2 and after[0] in {("mark", "/"), ("word", "of")} and after[1][0] == "number"
    )


def _figure(tokens: Sequence[_Token], at: int, *, of: str) -> Figure:
    before, opened, sign = at - 1, False, ""
    while before >= 0 and (tokens[before][1] in _BEFORE or _quotes(tokens, before)):
        opened |= tokens[before][1] in _OPENING
        before -= 1
    if before >= 0 and tokens[before][1] in _SIGNS:
        sign, before = tokens[before][1], before - 1
        while before >= 0 and tokens[before][1] in _QUOTES:
            before -= 1
    before = _before_remark(tokens, before)
    end = at + (3 if of else 1)
    return Figure(
        name=_name(tokens, before, signed=bool(sign)),
        text=tokens[at][1],
        of=of,
        opened=opened,
        first=at == 0 or tokens[at - 1][1] in _BARS or (opened and at == 1),
        sign=sign,
        unit=tokens[end][1] if end < len(tokens) else "",
    )


def _quotes(tokens: Sequence[_Token], at: int) -> bool:
    """Return whether a token is a quotation mark that opens, directly before the next token."""
    return tokens[at][1] in _QUOTES and tokens[at][3] == tokens[at + 1][2]


def _before_remark(tokens: Sequence[_Token], before: int) -> int:
    """Return the token before a remark in brackets, as in `Epoch(train) [1]`."""
    closed = before >= 2 and tokens[before][1] == ")"
    if closed and tokens[before - 1][0] == "word" and tokens[before - 2][1] == "(":
        return before - 3
    return before


def _name(tokens: Sequence[_Token], last: int, *, signed: bool) -> str:
    """Return the words that end with the token `last`: three at most, as in `train lm loss: 3`.

    A wider gap than one space, or a tab, is between two columns.
    """
    words: list[str] = []
    begin = 0
    while last >= 0 and tokens[last][0] == "word" and len(words) < _MOST_WORDS:
        _, word, start, end = tokens[last]
        if not word[0].isalpha() or len(word) > _LONGEST_WORD or (words and end + 1 < begin):
            break
        begin = start
        words.insert(0, word)
        last -= 1
    return " ".join(words if signed else words[-2:])
