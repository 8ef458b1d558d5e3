"""The text of a line: what a terminal shows of it, its numbers as fields, and its phases.

`Epoch [3/10], loss: 0.5` has two fields. The name of a field is in the text before its number, and
at most _MAX_FIELDS are read. The names for the row of a table are in a line above it.
"""

import re
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from kfext.core.progress.vocabulary import Role, meaning

LONGEST_LINE = 4096
"""At most so many characters of a line are read; a progress line has a few hundred."""
_ESCAPES = re.compile(
    r"\x1b(?:\[[0-9;?]{0,32}[ -/]{0,4}[@-~]|\][^\x07\x1b]{0,256}(?:\x07|\x1b\\)?|[@-Z\\-_])"
)
_ANEW = re.compile(r"\r|\x08+|#015")
"""A carriage return, perhaps in syslog's form, or backspaces."""
_CONTROLS = re.compile(r"[\x00-\x07\x0b-\x1f\x7f]")


def visible(line: str) -> str:
    """Return what a terminal shows last of a line, without escapes and control characters."""
    return next(states(line), "")


def states(line: str) -> Iterator[str]:
    """Yield the states of a line that overwrites itself, the last state first.

    A carriage return begins the line anew; Keras 2 uses backspaces instead. Only the end of an
    overlong line is read, because a bar without line breaks grows there.
    """
    for state in reversed(_ANEW.split(line[-LONGEST_LINE:])):
        plain = _CONTROLS.sub("", _ESCAPES.sub("", state)).replace("#011", "\t").strip()
        if plain:
            yield plain


_NUMBER_FIRST = re.compile(
    r"(?<![\w./])第? ?(\d{1,9}(?: ?/ ?\d{1,9})?)"
    r"(?: ?个?(轮次?|步|批次?|エポック|ステップ|에폭|스텝)|(epoch|step|iter)(?=[:\s,\]]))"
)
_COMMA = re.compile(r"(?<=[=: ])(0|[1-9]\d{0,4}(?!,\d{3}(?!\d))),(\d{1,8})(?=[\s;|)\]%]|,\s|$)")


def normalise(line: str) -> str:
    """Return a line with `epoch 3` instead of `3epoch`, and with points for decimal commas."""
    if not line.isascii() or "epoch" in line:
        line = _NUMBER_FIRST.sub(lambda match: f" {match[2] or match[3]} {match[1]} ", line)
    return _COMMA.sub(r"\1.\2", line) if "," in line else line


_NUMBER = (
    r"[-+]?(?:[1-9]\d{0,2}(?:,\d{3}){1,5}(?!,?\d)(?:\.\d{1,25})?"
    r"|\d{1,20}(?:\.\d{1,25}|\.(?!\s|$))?|\.\d{1,25})(?:[eE][-+]?\d{1,3})?"
    r"(?:(?![\w.])|(?=\.(?:\s|$))|(?=[IWEF]\d{4} \d\d:))"
    r"|[-+]?(?:nan|NaN|NAN|inf|Inf|INF|[Ii]nfinity)(?!\w)"
)
_TIME = r"\d{1,3}:\d\d(?::\d\d)?(?:[.,]\d{1,9})?(?![\w:])Z?"
_CLOCK = (
    r"(?:\d{4}[-/]\d\d[-/]\d\d|(?:[01]\d[-/][0-3]\d|\d\d[-/]\d\d[-/]\d{2,4})(?=[T ]\d\d:))"
    rf"(?:[T ]{_TIME})?|{_TIME}|I\d{{4}} {_TIME} +\d{{1,20}} [\w.-]{{1,60}}:\d{{1,6}}\]"
)
_FIELDS = re.compile(
    rf"(?=[-+.\dnNiI])(?<![\w.@/])(?<!\w-)(?<!\.\d:)(?<!\.\d\d:)(?:(?P<clock>{_CLOCK})|(?P<text>{_NUMBER})"
    rf"(?:\ {{0,12}}(?:/|of|out\ of|von|de|sur|z|из)\ {{0,12}}(?P<total>{_NUMBER}))?)"
)
"""A number and its end; or a time or absl's source location, to skip the numbers in them.

The second number of `0.5:0.95` is not matched."""
_BACKWARDS = re.compile(r"[\w@./'-]{1,41}(?: [\w@./'-]{1,41}){0,2}")
"""Up to three words of a name, reversed. Two spaces or a tab separate two columns."""
_REMARK = re.compile(r"(?:\([\w ]{1,20}\)|\[[\w -]{1,20}\])$")
_CALLED = re.compile(r"(?:[:=] ?[A-Za-z][\w.]{1,20}| tensor)$")
"""The text before the number in `loss: tensor(0.5)`."""
_CODE = re.compile(r"\d{3}|\d/")
"""A code, which ends the search for more words of a name: `E012 B050/900 loss`."""
_VERB = re.compile(r" (?:is|was|of)$")
_QUOTES = frozenset("\"'")
_OPENING, _BEFORE, _BETWEEN = frozenset("([{<"), " \t([{<#", " \t)]}>,:|-"
_SIGNS = frozenset(":=|│┃\uff1a")
_BARS = frozenset("|│━╸╺█─")
_COUNTED = re.compile(r" ?([A-Za-z]{2,12})(?![\w/=:])")
_ELAPSED = re.compile(r" ?\[\d\d:\d\d(?::\d\d)?<")
_RATE = re.compile(r"(?<![A-Za-z])(?:([A-Za-z]{1,12})/s|m?s/([A-Za-z]{1,12}))\b")
_LONGEST_GAP, _LONGEST_WORD, _LONGEST_RATE = 100, 40, 60
_MAX_FIELDS = 96


class Field(NamedTuple):
    """A number in a line, with the text around it.

    `name`: the words before it, without a remark in brackets after them; empty if there are none.
    `text`, `end`: the number, and its end after a slash, as printed, without separators of
        thousands; `end` is empty if no slash follows.
    `sign`: the sign between name and number: `:`, `=`, `|`, or nothing.
    `opened`, `quoted`: whether a bracket, or a quotation mark, is directly before it.
    `first`: whether only a clock or a bar is before it in the line.
    `joined`: whether only brackets are between the previous field and it.
    `after`: the character after it, or a colon and a tab.
    `bar`: whether it is the count of a progress bar.
    `unit`: the unit of a bar or a fraction, if shown: `it` of 1.5s/it, `Steps` of 3/10 Steps.
    `at`: its position in the line, in characters.
    """

    name: str
    text: str
    end: str = ""
    sign: str = ""
    opened: bool = False
    quoted: bool = False
    first: bool = False
    joined: bool = False
    after: str = ""
    bar: bool = False
    unit: str = ""
    at: int = 0


def fields(line: str) -> list[Field]:
    """Return the numbers of a line in order. The count of a bar has the name before the bar.

    If a bar is drawn again on the same line, only its last drawing counts.
    """
    numbers: list[Field] = []
    end, title, joined, begins = 0, None, False, True
    drawn, ahead = None, 0
    for match in deque(_FIELDS.finditer(line), maxlen=_MAX_FIELDS):
        start, before = match.start(), end
        end = match.end()
        gap = line[max(before, start - _LONGEST_GAP) : start]
        if match["clock"]:
            begins = begins and not gap.strip(_BETWEEN + _BEFORE)
            continue
        if line.startswith(("%|", "% |"), end):
            bare = gap.rstrip(_BEFORE)
            title, joined = name_of(bare)[0], bool(numbers) and not bare.strip(_BETWEEN)
            continue
        field = _field(line, match, gap, begins=begins)
        begins = begins and field is not None and field.after == "%" and not field.name
        if field is not None:
            barred = bool(field.end) and (title is not None or bool(_ELAPSED.match(line, end)))
            if barred:
                name = field.name if title is None else title
                field = _bar(field, name, joined, line[end : end + _LONGEST_RATE])
            if barred or (field.end and field.after == "["):
                if drawn is None:
                    drawn, ahead = (field.name, field.end), len(numbers)
                elif drawn == (field.name, field.end):
                    numbers = numbers[len(numbers) - ahead :]
                    field = field._replace(first=field.first or not numbers)
            numbers.append(field)
            title, joined = None, False
    return numbers


def _field(line: str, match: re.Match[str], gap: str, *, begins: bool) -> Field | None:
    """Return a number with the text around it, or None for text like `[1,200]`: perhaps two."""
    text, total, end = match["text"], match["total"] or "", match.end()
    quoted = gap[-1:] in _QUOTES
    bare = (gap[:-1] if quoted else gap).rstrip(_BEFORE)
    stripped = gap[len(bare) :]
    opened = not _OPENING.isdisjoint(stripped)
    if "," in text or "," in total:
        if opened and not total:
            return None
        text, total = text.replace(",", ""), total.replace(",", "")
    if stripped[:1] == "(" and (called := _CALLED.search(bare)):
        bare = bare[: called.start() + 1].rstrip()
    name, sign = name_of(bare)
    last = bare[-1:]
    counted = _COUNTED.match(line, end) if total else None
    return Field(
        name,
        text,
        total,
        sign,
        opened,
        quoted,
        last in _BARS or (begins and not bare.strip(_BETWEEN)),
        not begins and not bare.strip(_BETWEEN),
        ":\t" if line.startswith(":\t", end) else line[end : end + 2].strip()[:1],
        bar=last in _BARS and last != "|",
        unit=counted[1] if counted else "",
        at=match.start(),
    )


def _bar(field: Field, title: str, joined: bool, after: str) -> Field:
    rate = _RATE.search(after)
    unit = (rate[1] or rate[2]) if rate else ""
    return Field(
        title, field.text, field.end, joined=joined, first=True, bar=True, unit=unit, at=field.at
    )


def name_of(bare: str) -> tuple[str, str]:
    """Return the name at the end of a text, without a remark in brackets, and the sign after it."""
    sign = ""
    if bare and bare[-1] in _SIGNS:
        sign, bare = bare[-1], bare[:-1].rstrip(" \"'")
    elif verb := _VERB.search(bare):
        sign, bare = "=", bare[: verb.start()]
    if bare.endswith((")", "]")) and (remark := _REMARK.search(bare)):
        bare = bare[: remark.start()].rstrip()
    words: list[str] = []
    reverse = _BACKWARDS.match(bare[::-1])
    for word in reversed(reverse[0][::-1].split(" ")) if reverse else ():
        plain = word.lstrip("-./@'")
        if not plain[:1].isalpha() or len(plain) > _LONGEST_WORD:
            break
        if words and _CODE.search(plain):
            break
        words.append(plain)
        if plain != word:
            break
    words = words[:3] if sign else words[:2]
    return " ".join(reversed(words)), sign


_GAP = re.compile(r"\s*[|│┃]\s*|\s{2,}|\t")
_CELL = re.compile(r"[-+]?(?:[\d.,:/]{1,24}(?:[eE][-+]?\d{1,3})?[a-zA-Z%]{0,2}|nan|inf|-)")
_RULE = "-=+|│┃─━┼ "
_NARROWEST, _WIDEST = 2, 32
_NUMBER_SIGN = "#"


class Table:
    """Follows the lines of a log. A line with the names of columns is a heading."""

    def __init__(self) -> None:
        self._names: list[str] = []

    def label(self, raw: str) -> str:
        """Return a row with its column's name before each number, and any other line unchanged.

        A row must have only numbers: a row with its own name is not about the whole training. Text
        after the row, such as a bar, stays there.
        """
        names = self._names
        line = visible(raw)
        bare = line.strip(_RULE)
        cells = _GAP.split(bare, _WIDEST) if _GAP.search(bare) else bare.split(",", _WIDEST)
        if _is_heading(cells):
            self._names = cells
        if not names or len(cells) < len(names):
            return raw
        row, behind = cells[: len(names)], cells[len(names) :]
        if behind and all(map(_CELL.fullmatch, behind)):
            return raw  # the names are not above their columns
        last, _, remainder = row[-1].partition(" ")
        row[-1] = last.rstrip(":")
        if not (any(row) and all(not cell or _CELL.fullmatch(cell) for cell in row)):
            return raw
        pairs = (
            f"{'step' if n == _NUMBER_SIGN else n}: {c}" for n, c in zip(names, row, strict=True)
        )
        return ", ".join((*pairs, *([remainder] if remainder else []), *behind))


def _is_heading(cells: list[str]) -> bool:
    """Return whether the cells are names, and at least one is a measure."""
    if len(cells) < _NARROWEST or any(not cell or cell[0] in "0123456789-+." for cell in cells):
        return False
    if any(":" in cell or "=" in cell for cell in cells):
        return False
    columns = [meaning(cell) for cell in cells]
    measured = any(column and column.role is Role.MEASURE for column in columns)
    measured |= columns[0] is not None and len(cells) > _NARROWEST
    return measured and (len(cells) > _NARROWEST or all(columns))


_EVALUATION = r"val(?:id[a-z]{0,6})?|eval(?:uat\w{2,4})?|test(?:ing)?|dev|cv|sanity checking"
_PHASE = re.compile(
    rf"(?<![\w./@-])(?:(?P<checks>{_EVALUATION})|(?P<trains>train(?:ing)?))(?![\w/-]|\.\w)"
    r"(?=[\"']?\s?(?:[:|\])}\[(>%,]|\.\.\.|\*\*\*|$|-\s|\s\d|(?:set|results?|begin|on|took)\b"
    r"|(?:dataloader|epoch|batch|iter|step|num_timesteps)\b))"
    rf"|\b(?:phase|split|mode|stage|subset)[\"']?\s?[:=]\s?[\"']?(?P<split>{_EVALUATION})\b"
    r"|saving dict for\b"
)
"""A word for the phase of its line, or of the text after it: `DEV : loss 0.9`, `[valid] ...`."""
_BEFORE_PHASE = re.compile(
    r"(?:^|[^\w\s.@/-]\s?|\s\s|[-\d]\s|\b(?:info|debug|running|on|for)\s)[\"']?$"
)
_HINTS = ("val", "test", "dev", "cv", "sanity", "dict")
_RANK = re.compile(
    r"\[1,(\d{1,5})\]<std(?:out|err)>:\s?|\[(?:rank|default)[ :_]?(\d{1,5})\]:?\s?"
    r"|(?<!\w)rank[\"' :=_]{1,3}(\d{1,5})(?=[\]),:| ])",
    re.IGNORECASE,
)
_LONGEST_PREFIX = 100
_MAX_MARKS = 16


def split_rank(line: str) -> tuple[str, int | None]:
    """Return a line without a prefix that names its process, and the rank of its process."""
    head = line[:_LONGEST_PREFIX].lower()
    if not ("rank" in head or "<std" in head or "[default" in head):
        return line, None
    match = _RANK.search(line, 0, _LONGEST_PREFIX)
    if match is None:
        return line, None
    rank = int(match[1] or match[2] or match[3])
    return (line[match.end() :] if match.start() == 0 else line), rank


Mark = tuple[int, str]
"""Where in the line a phase begins, and the word for an evaluation, empty for a training."""


def marks_of(line: str) -> list[Mark]:
    """Return the marks of a line in order."""
    lower = line.lower()
    if not any(hint in lower for hint in _HINTS):
        return []
    marks = []
    for match in islice(_PHASE.finditer(lower), _MAX_MARKS):
        begin, end = match.span()
        if match["split"]:
            marks.append((0, match["split"]))
        elif _BEFORE_PHASE.search(lower[max(0, begin - 9) : begin]):
            marks.append((end, "" if match["trains"] else line[begin:end]))
    return marks


def phases_of(numbers: Sequence[Field], marks: Sequence[Mark]) -> list[str]:
    """Return for each field the word that makes it part of an evaluation, or an empty string.

    The word is before the field; or after all fields, if none is before any of them.
    """
    if not marks or not numbers:
        return [""] * len(numbers)
    phases, passed = [], 0
    phase = marks[0][1] if marks[0][0] > numbers[-1].at else ""
    for field in numbers:
        while passed < len(marks) and marks[passed][0] <= field.at:
            phase = marks[passed][1]
            passed += 1
        phases.append(phase)
    return phases
