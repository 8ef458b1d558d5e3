"""Whether a job is alive: a counter in its log has moved.

A counter is a step, a fraction (`40/100`), a percentage or an epoch, of the training, an
evaluation, or any other activity. Times, sizes and the load of a machine are not counters, so a
job that hangs and still prints them is not alive. Neither is a job that repeats a line, whatever
the timestamp of the line.
"""

import re
from itertools import islice

from kfext.core.progress.fields import visible
from kfext.core.progress.lines import Line

_WHOLE = r"(?:\d{1,3}(?:,\d{3}){1,4}|\d{1,15})"
_NUMBER = rf"(?:{_WHOLE}(?:\.\d{{1,9}})?)"
_AMOUNT = r"(?:[kKMGTP]?i?B|[mun]?s|sec(?:ond)?s?|min(?:ute)?s?|hours?|h|W|C)\b"
"""The unit of an amount that is not a count: `120/1800 s`."""
_LOAD = r"(?:[cg]pu|v?ram|mem(?:ory)?|disk|util\w{0,9}|usage|load)\W{0,3}"
_COUNTED = (
    r"(?:(?:time)?step|epoch|iter(?:ation)?|batch|update|episode|round|fold|sample|token|image"
    r"|example)(?:e?s)?"
)
_COUNTER = re.compile(
    rf"{_LOAD}{_NUMBER} ?%"
    rf"|((?<![\w./-])(?:{_WHOLE} {{0,3}}(?:/|of) {{0,3}}{_WHOLE}(?![\w/]|[.,:-]\d| ?{_AMOUNT})"
    rf"|{_NUMBER}(?: ?%|it\b(?!/)| {_COUNTED}\b(?! ?/| per\b|\W{{0,24}}\d)))"
    rf"|(?<![a-z]){_COUNTED}\W{{0,24}}{_NUMBER})",
    re.IGNORECASE,
)
"""The group matches a counter: `40/100`, `40%`, `189it`, `step 40`, `40 images`. It matches neither
the load of a machine nor a rate."""
_SAVES = re.compile(
    r"\b(?:(?:sav|writ|upload|stor|dump)ing|scheduled async|preparing(?= checkpoint)"
    r"|about to be saved|begin to save)\b",
    re.IGNORECASE,
)
_SAVED = re.compile(r"checkpoint|ckpt|model|state|weights|snapshot", re.IGNORECASE)
"""A line that matches both announces a save: `Saving model checkpoint to out/500`."""
_WORD = re.compile(r"\b[^\W\d]\w{0,40}")
_MAX_COUNTERS, _MAX_WORDS = 8, 6
_MAX_KINDS = 64
"""The most kinds of lines with stored counters: several ranks may print, and a short epoch soon
repeats the counters of the last epoch. The words before the first counter are the kind."""


class Life:
    """Follows the counters of a log. `saving`: no counter has moved since a save was announced."""

    def __init__(self) -> None:
        self.saving = False
        self._last: dict[tuple[str, ...], tuple[str, ...]] = {}  # counters by kind of line

    def read_line(self, text: str, line: Line | None) -> bool:
        """Read a line, in the order printed; return whether a counter in it has moved.

        `line`: what `text` says about the training. Its measures count too, because an epoch that
            is printed as 0.4 may have many steps.
        """
        shown = visible(text)
        matches = (match for match in _COUNTER.finditer(shown) if match[1])
        counters = tuple(islice(matches, _MAX_COUNTERS))
        values = tuple(match[1] for match in counters)
        if line is not None:
            position, measures = line.position, () if line.guessed else line.measures
            pairs = (("epoch", position.epoch), ("step", position.step), *measures)
            values += tuple(f"{name} {value}" for name, value in pairs if value is not None)
        words = _WORD.finditer(shown, 0, counters[0].start() if counters else len(shown))
        kind = tuple(word[0] for word in islice(words, _MAX_WORDS))
        # The words may include an identifier that is new in each line.
        known = (self._last[kind],) if kind in self._last else self._last.values()
        moved = bool(values) and values not in known
        if moved:
            self._last.pop(kind, None)
            self._last[kind] = values
            if len(self._last) > _MAX_KINDS:
                del self._last[next(iter(self._last))]
            self.saving = False
        self.saving |= bool(_SAVES.search(shown) and _SAVED.search(shown))
        return moved
