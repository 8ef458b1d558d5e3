"""What a line of a log says of a checkpoint: that it is being written, or that it is complete.

Most programs print a line before they write and none after it. Words decide, not frameworks: a line
that denies, announces or reads a checkpoint is none, and one in doubt is none either, as work may
be risked on it.
"""

import re
from enum import Enum

from kfext.core.progress.visible import visible

LARGEST_ANSWER = 10**9

_ANSWER = re.compile(r"(?:^|[\s:|\]>])kfext\.checkpoint[ \t]+([0-9]{1,10})$")
_WORD = re.compile(r"[^\s\"'=()\[\]{},;]+")
_OTHERWISE = frozenset(
    {
        *("no", "not", "never", "without", "cannot", "can't", "couldn't", "didn't", "unable"),
        *("fail", "failed", "failing", "fails", "error", "skip", "skipped", "skipping", "disabled"),
        *("will", "would", "should", "if", "when", "every", "each", "before", "be", "being"),
        *("load", "loads", "loaded", "loading", "restore", "restored", "restoring", "resume"),
        *("resumed", "resuming", "resumes", "read", "reading", "found", "initialized", "using"),
        *("delete", "deleted", "deleting", "remove", "removed", "removing", "pruning"),
    }
)
"""Words with which a line is not about a checkpoint that is just being written."""
_SORT = (
    r"(?:(?:the|a|new|best|last|latest|final|current|full|model|training|epoch|step|state|[0-9]+) )"
    r"{0,4}"
)
_NUMBERED = r"(?:[^\s0-9/.]{0,40}[0-9/.]\S{0,200} )?"
_COMPLETE = re.compile(
    rf"\bsaved {_SORT}checkpoint\b"
    rf"|\bcheckpoint {_NUMBERED}(?:(?:was|is|has|been|successfully) ){{0,3}}saved\b"
    rf"|\b(?:finished|done|completed) saving {_SORT}(?:checkpoint|model)\b"
    r"|\bafter saving checkpoint\b"
    r"|\bcurrent checkpoints:$"
    rf"|\bcheckpoint {_NUMBERED}is ready now\b"
)
_BEGUN = re.compile(
    rf"\bsaving {_SORT}checkpoint\b"
    r"|\bsaving checkpoints for [0-9]+ into\b"
    r"|\bsaving current state to\b"
)
_EPOCH = re.compile(r"\bepoch [0-9]{1,9}[:,] ")
_MODEL = "saving model to "


class Saving(Enum):
    """How far a checkpoint is when a line is printed.

    `BEGUN`: it is being written; it is complete once the training goes on.
    """

    BEGUN = "begun"
    COMPLETE = "complete"


def answer_of(text: str) -> int | None:
    """Return N of the line `kfext.checkpoint N`, None for any other.

    It may follow the prefix of a logger. 0 means that the job listens; N from 1 on, up to
    LARGEST_ANSWER, that checkpoint N is complete.
    """
    match = _ANSWER.search(visible(text))
    number = int(match.group(1)) if match else -1
    return number if 0 <= number <= LARGEST_ANSWER else None


def saving(text: str) -> Saving | None:
    """Return what a line says of a checkpoint that is being written, None if nothing."""
    line = visible(text).lower()
    if not ("sav" in line or "checkpoint" in line):
        return None
    words = _WORD.findall(line)
    if _OTHERWISE.intersection(word.strip(".:!") for word in words):
        return None
    spoken = " ".join(words)
    if _COMPLETE.search(spoken):
        return Saving.COMPLETE
    if _BEGUN.search(spoken) or (_EPOCH.search(line) and _MODEL in line):
        return Saving.BEGUN
    return None
