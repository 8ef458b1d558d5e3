"""What the name of a number says: whether it is a measure of training, and which way is better."""

import re
from enum import Enum
from functools import lru_cache


class Better(Enum):
    """Which way a metric improves."""

    LOWER = "lower"
    HIGHER = "higher"


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_CAMEL = re.compile(r"(?<=[a-z]{2})(?=[A-Z])")
_AT = re.compile(r"(?<=[a-z])@(?=[0-9])")
_WORDS = re.compile(r"[a-z]+[0-9]*")
_LOWER = _set("loss ppl perplexity error err wer cer mse mae rmse nll xent bpc bpb")
_HIGHER = _set(
    "acc accuracy f1 auc bleu rouge hit hits hr ndcg reward return iou miou map dice "
    "precision recall top psnr ssim mrr score rew"
)
_AMBIGUOUS = _HIGHER - {"acc", "accuracy", "f1", "auc", "bleu"} | {"error", "err"}
"""Words that, as the whole name of a whole number, more often are a count or a setting."""
_OF_CHECKING = _set("val valid validation eval evaluation test dev")
_AHEAD = re.compile(rf"\W{{0,8}}({'|'.join(sorted(_OF_CHECKING))})\s*:", re.IGNORECASE)
_OF_SETTINGS = _set(
    "scale scaler weight weights coef coeff coefficient factor smoothing fn function type "
    "rate lr threshold time sec secs margin gamma alpha beta patience best min max prev "
    "delta samples interval every freq count num bound "
    "limit window target rank decay clip inf id line code size"
)
"""Words of names that belong to settings and clocks rather than to measures, e.g. loss_scale."""
_COUNTERS = _set("step steps epoch epochs iter iters iteration iterations update updates")
"""Words that make a name one of a count where they end it: loss_steps, but not epoch_loss."""
_OF_THE_WHOLE = _set("train training total lm mean avg average running batch")
_LONGEST = 80
_KNOWN = 4096


@lru_cache(maxsize=_KNOWN)
def better(name: str) -> Better | None:
    """Return which way a metric improves, None for a name that is no measure of training.

    >>> better("train/loss"), better("val_acc"), better("loss_scale")
    (<Better.LOWER: 'lower'>, <Better.HIGHER: 'higher'>, None)
    """
    words = _words(name)
    if not words or len(name) > _LONGEST:
        return None
    if _OF_SETTINGS.intersection(words) or words[-1] in _COUNTERS:
        return None
    if _LOWER.intersection(words) or any(map(_is_loss, words)):
        return Better.LOWER
    return Better.HIGHER if _HIGHER.intersection(words) else None


def is_checking(name: str) -> bool:
    """Return whether a measure is one of an evaluation."""
    return bool(_OF_CHECKING.intersection(_words(name)))


def evaluation_prefix(line: str) -> str:
    """Return the prefix that marks a line as an evaluation, such as `Test `; empty without one."""
    begins = _AHEAD.match(line)
    return f"{begins[1]} " if begins else ""


def may_be_whole(name: str) -> bool:
    """Return whether a whole number under this name is a measure too, such as `loss: 2`."""
    return not (len(words := _words(name)) == 1 and words[0] in _AMBIGUOUS)


@lru_cache(maxsize=_KNOWN)
def rank(name: str) -> tuple[int, int]:
    """Return how well a metric shows the progress of training; the smallest is the best.

    Training before validation, the whole loss before its parts, losses before accuracies.
    """
    words = _words(name)
    checking = is_checking(name)
    if any(map(_is_loss, words)):
        rest = [word for word in words if word not in _OF_THE_WHOLE | _OF_CHECKING | _COUNTERS]
        order = 0 if len(rest) == 1 else 1
    else:
        order = 2 if better(name) is Better.LOWER else 3
    return (4 * checking + order, len(words))


def _is_loss(word: str) -> bool:
    return word in {"xent", "nll"} or (word.endswith("loss") and word != "gloss")


def _words(name: str) -> tuple[str, ...]:
    """Return the words of a name such as train/total_loss, Acc@1 or valLoss, without numbers."""
    parted = _AT.sub("", _CAMEL.sub(" ", name).lower())
    found = _WORDS.findall(parted)
    known = _LOWER | _HIGHER
    return tuple(word if word in known else word.rstrip("0123456789") for word in found)
