"""Read one line of a training log: its measures, such as the loss, and its position.

The code knows no framework by name. A line has a measure if a number stands beside the name of a
measure. Its position is in names (`epoch: 3`, `step 10/100`), in brackets (`[3/10][ 40/196]`) or in
a progress bar. A line seldom shows whether a step counts over the run or within an epoch, so a
`Position` has None in each field that the line does not show.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise

from kfext.core.progress import fields as texts
from kfext.core.progress.fields import Field, name_of, states
from kfext.core.progress.position import MOST, Position
from kfext.core.progress.vocabulary import Meaning, Role, better, is_eval, may_measure, meaning
from kfext.core.settings.values import compiled

_SETTINGS = re.compile(r"[\w'\"](?:=|: )(?:True|False|None)\b")
"""A setting of a program: `amp=True, iou=0.7`. A line of measures has no such values."""
_ENDED = re.compile(r"\b(?:done|finished|completed?|ended|end|took)\b(?!\s?[=:])", re.IGNORECASE)
"""The words for the end of an epoch: `Epoch 3 took 20 s`."""
_STORED = re.compile(r"checkpoint|\b(?:load|restor|resum|sav|continu)(?:e|ed|ing)\b", re.IGNORECASE)
"""The words of a line about a checkpoint, which may name the step of another run."""
_TRAINING = {"train", "training", "fitting", "progress", "learning", "optimizing"}
"""Words of the title of a bar that counts the steps of a training."""
_PARTS = {"micro", "layer", "region", "block", "head", "branch"}
"""Words for a part of a model; the number after the word identifies the part: `Region 82`."""
_OF_BARS = {Role.BATCH, Role.EPOCH}
_OF_FRACTIONS = _OF_BARS | {Role.STEP, Role.STEPS}
_STEP = Meaning(Role.STEP)
_AT = re.compile(r"(.{0,200}\S) (?:at|after|in|for|on|@) [\w ,#:=/]{1,60}$")
_MAX_MEASURES = 16
_MAX_GUESSES = 4
_UNIT = re.compile(r"%| ?(?:[A-Za-z]{1,9}/[A-Za-z]|(?:[mu]?s|sec|min|[KMGT]i?B|W|C)\b)")
_MAX_STATES = 8
"""At most so many overwritten states of a line are searched for a step."""
_NOWHERE = Position()


@dataclass(frozen=True, slots=True)
class Line:
    """The content of a line.

    `measures`: pairs of name and number, in the order printed.
    `guessed`: whether the names are unknown, so that only many lines show that they are measures.
    `evaluation`: whether the line announces an evaluation, so that the next lines may belong to it.
    `rank`: the rank of the process that printed the line, or None.
    """

    measures: tuple[tuple[str, float], ...]
    position: Position
    evaluation: bool = False
    rank: int | None = None
    guessed: bool = False


def read_line(raw: str, expression: str = "") -> Line | None:
    """Return what a line says about a training, or None; `expression`: the user's, if any."""
    if expression:
        return read_matched(raw, expression)
    seen = states(raw)
    line, rank = texts.split_rank(next(seen, ""))
    line = texts.normalise(line)
    numbers, marks = texts.fields(line), texts.marks_of(line)
    if not numbers and not marks:
        return None
    named = _with_inner_steps(line, [(field, _meaning_of(field)) for field in numbers])
    phases = texts.phases_of(numbers, marks)
    measures = tuple(islice(_measures(named, phases), _MAX_MEASURES))
    if measures and (_is_of_part(named) or len(_SETTINGS.findall(line)) > 2):
        return None
    if marks:
        named = [pair for pair, phase in zip(named, phases, strict=True) if not phase]
    if not measures and _STORED.search(line):
        named = []
    position = _position(named, measured=bool(measures))
    if position.epoch is not None and position.step is None and _ENDED.search(line):
        position = replace(position, ended=True)
    evaluation = not numbers and bool(marks[-1][1])
    guesses = tuple(islice(_guesses(line, named), _MAX_GUESSES))
    if guessed := not measures and not position.anew and bool(guesses):
        counted = _position(named, measured=True)
        if counted.step is not None or counted.epoch is not None:
            measures, position = guesses, counted
    if measures and position.step is None and not marks:
        position = _overwritten(position, seen)
    elif position.bar and not measures and position.step == position.steps:
        position = _overwritten(position, seen)  # an evaluation has overwritten the bar of the run
    if measures or position.known or evaluation:
        return Line(measures, position, evaluation, rank, guessed)
    return None


_Named = tuple[Field, Meaning | None]
"""A field, and the meaning of its name or unit, or None."""


def _meaning_of(field: Field) -> Meaning | None:
    """Return the meaning of a field's name, or else of its unit: `12/90 Steps`, `1.5s/epoch`."""
    named = meaning(field.name)
    if named is None and field.end and field.unit and (counted := meaning(field.unit)):
        units = _OF_BARS if field.bar else _OF_FRACTIONS
        return counted if counted.role in units else None
    return named


def _with_inner_steps(line: str, named: list[_Named]) -> list[_Named]:
    """Return the fields; a number between a measure's name and its value becomes the step.

    Examples are `Train loss 1000 0.59` and `Loss (one batch) at step 1000: 0.59`.
    """
    for index, ((field, _), (value, _)) in enumerate(pairwise(named)):
        count = meaning(_last_word(field))
        if count and not value.name and value.sign and (ahead := _AT.match(line, 0, field.at)):
            name, _ = name_of(ahead[1])
            named[index : index + 2] = (field, count), (value._replace(name=name), meaning(name))
    if any(known and known.role is not Role.MEASURE for _, known in named):
        return named  # the line names its step
    for index, ((field, known), (value, other)) in enumerate(pairwise(named)):
        if not _is_number(field) or not known or known.role is not Role.MEASURE:
            continue
        if value.joined and not value.opened and "." in value.text and other is None:
            named[index] = field, _STEP
            named[index + 1] = value._replace(name=field.name), known
    return named


def _is_of_part(named: Sequence[_Named]) -> bool:
    """Return whether the measures are about one part of a model or a job: `layer 2 loss: 0.9`."""
    if len(named) < 2:
        return False
    last = max(n for n, (_, known) in enumerate(named) if known and known.role is Role.MEASURE)
    return any(_counts(field) and _last_word(field) in _PARTS for field, _ in named[:last])


def _measures(named: Iterable[_Named], phases: Iterable[str]) -> Iterable[tuple[str, float]]:
    """Yield the name and the value of each measure.

    After `Test Instance Accuracy: 0.4`, `Class Accuracy: 0.3` is of the evaluation too.
    """
    seen: set[str] = set()
    evaluated = ""
    for (field, known), phase in zip(named, phases, strict=True):
        if known is None or known.role is not Role.MEASURE:
            seen = set() if known or field.end else seen  # the next fields are of a later step
            continue
        head, _, last = field.name.removesuffix(" mean").rpartition(" ")
        if not field.sign and head and better(last) is None:
            continue
        if known.counts and field.text.lstrip("+-").isdecimal():
            continue
        trains = not _TRAINING.isdisjoint(field.name.lower().split())
        if known.evaluation or trains:
            words = field.name.split() if known.evaluation and " " in field.name else []
            evaluated = next(filter(is_eval, words), "")
        prefix = phase or evaluated
        name = f"{prefix} {field.name}" if prefix and not known.evaluation else field.name
        if name not in seen:
            seen.add(name)
            whole = _counts(field) and _count(field.end)  # `10.5/9.0` is no fraction
            yield name, float(field.text) / (whole or 1)


def _guesses(line: str, named: Iterable[_Named]) -> Iterable[tuple[str, float]]:
    """Yield numbers that may be measures: decimal fractions with an unknown name and no unit."""
    for field, known in named:
        if known or field.end or field.text.lstrip("+-").isdecimal():
            continue
        if may_measure(field.name.rpartition(" ")[2]) and not _UNIT.match(
            line, field.at + len(field.text)
        ):
            yield field.name, float(field.text)


def _overwritten(position: Position, before: Iterable[str]) -> Position:
    """Add the step of the bar that the line has overwritten, if any, to a position."""
    for state in islice(before, _MAX_STATES):
        bar = _position(
            [(field, _meaning_of(field)) for field in texts.fields(state)], measured=False
        )
        if bar.bar and bar.steps != position.steps:
            return replace(bar, epoch=position.epoch, epochs=position.epochs, parts=position.parts)
    return position


def _position(named: Sequence[_Named], *, measured: bool) -> Position:
    if not named:
        return _NOWHERE
    roles: dict[Role, Field] = {}
    counts = [(field, known.role) for field, known in named if known]
    for field, named_role in counts:
        if named_role is not Role.MEASURE and (role := _role(field, named_role, measured)):
            roles.setdefault(role, field)
    if outer := roles.get(Role.OUTER):
        return Position(anew=True, epoch=_epoch(outer, over=False), epochs=_count(outer.end))
    numbers = [field for field, _ in named]
    epoch, first = roles.get(Role.EPOCH), None
    step, whole = _named(roles)
    if epoch is None and step is None and measured:
        epoch, step, first = _pair(numbers)
        whole = None if step is None or step.after == "|" else False
    bar = next((field for field in numbers if field.bar), None)
    if step and bar and not step.end and epoch is None:
        step = step._replace(end=bar.end)
    elif step and bar and step.end not in {"", bar.end} and numbers[numbers.index(bar) - 1] is step:
        epoch, step, whole = step, bar, False  # `Episode [3/20]: 10%|# | 5/50`
    elif step is None:
        step, whole = _unnamed(numbers, epoch, measured=measured)
    if epoch and step and (of_epochs := _of_epochs(epoch, step, measured=measured)):
        epoch, step = of_epochs, None
    if epoch is not None and first is None and not _may_begin_at_zero(epoch, step):
        first = 1
    steps, whole = _end(roles, step, whole)
    if step and step.end and whole is None and epoch is None and _is_within(step, numbers):
        whole, ahead = False, numbers[numbers.index(step) - 1]
        epoch = ahead if ahead.first and ahead.opened and ahead.end and not ahead.name else None
    # After a bar of epochs the next lines belong to the next epoch.
    over = epoch is not None and epoch.bar and not measured
    doubtful = roles.get(Role.END) if step is None and epoch is None and measured else None
    stated, epochs = doubtful or step, roles.get(Role.EPOCHS)
    return Position(
        step=_count(stated.text) if stated else None,
        steps=steps,
        whole=whole,
        epoch=_epoch(epoch, over=over),
        epochs=_count((epoch and epoch.end) or (epochs and epochs.text)),
        first=first,
        parts=bool(epoch and not epoch.end and (epoch.quoted or not epoch.text.isdecimal())),
        bar=bool(step.bar if step else measured and epoch and epoch.bar),
        named=bool(step and (step.name or step.joined)),
        doubt=doubtful is not None or _is_doubtful(roles, step),
    )


def _role(field: Field, role: Role, measured: bool) -> Role | None:
    """Return the role of a count, or None for a setting such as `batch: 8` without a measure."""
    if field.after == "%" or (role is not Role.EPOCH and _count(field.text) is None):
        return None
    if role is Role.OUTER and field.sign and not field.end and _last_word(field) != "fold":
        return None  # `stage=0 layers=19`, `/job:worker/task:0`
    if field.end:
        counted = {Role.STEPS: Role.STEP, Role.EPOCHS: Role.EPOCH, Role.LAST: Role.RUN_STEP}
        return counted.get(role, role)
    return role if measured or role not in {Role.STEPS, Role.BATCH} else None


def _named(roles: Mapping[Role, Field]) -> tuple[Field | None, bool | None]:
    """Return the step that has the name of a step, and whether it counts over the run."""
    if Role.RUN_STEP in roles:
        return roles[Role.RUN_STEP], True
    if Role.STEP in roles:
        step = roles[Role.STEP]
        return step, True if step.bar or Role.LAST in roles else None
    if Role.BATCH in roles:
        return roles[Role.BATCH], False
    return roles.get(Role.STEPS), None


def _pair(numbers: Sequence[Field]) -> tuple[Field | None, Field | None, int | None]:
    """Return the epoch and the step of a pair, and the number of the first epoch.

    Pairs are `[2, 2000]`, `[1/20][5/90]`, `Train: 2 [ 50/1251]` and `1|10|Loss: 1.5`.
    """
    for epoch, step in pairwise(numbers[:4]):
        if not (step.joined and (step.opened or epoch.after in {",", "|"})) or step.name:
            continue
        phase = _last_word(epoch) in _TRAINING
        alone = epoch.opened and epoch.end and not epoch.name
        if step.end and _counts(step) and (phase or alone):
            return epoch, step, 0 if epoch.end or not epoch.opened else None
        ends = epoch.after + step.after
        if epoch.first and ends == (",]" if epoch.opened else "||"):
            return (epoch, step, 1) if _counts(epoch) and _counts(step) else (None, None, None)
    return None, None, None


def _unnamed(
    numbers: Sequence[Field], epoch: Field | None, *, measured: bool
) -> tuple[Field | None, bool | None]:
    """Return the step without a name, and whether it counts over the run.

    It follows the epoch, is a bar or a fraction at the beginning or in brackets, or a first `[10]`.
    """
    fractions = [
        field
        for field in numbers
        if field.end and field is not epoch and field.text.isdecimal() and field.end.strip("0.")
    ]
    for field in fractions:
        if epoch is not None and field.joined and not field.name and field.at > epoch.at:
            return field, False
    for field in fractions:
        if field.bar and (measured or _is_of_training(field)):
            return field, None
        titled = field.name and _TRAINING.issuperset(field.name.lower().split())
        alone = field.first or field.opened or field is numbers[0]
        if measured and (titled or (not field.name and alone)):
            return field, False if field.after in {"[", "-"} else None
    ahead = numbers[0] if numbers and measured and epoch is None else None
    ends = {"]", ")"} if ahead and ahead.opened else {":\t"}
    if ahead and ahead.first and ahead.after in ends and _counts(ahead):
        return ahead, None
    return None, None


def _of_epochs(epoch: Field, step: Field, *, measured: bool) -> Field | None:
    """Return the field of the epochs if `step` counts them: `Epoch 5 (18/200)`, or a bar."""
    if step.joined and step.after == ")" and not (measured or epoch.end):
        return step
    return epoch if step.bar and epoch.end and epoch.end == step.end else None


def _is_of_training(bar: Field) -> bool:
    """Return whether a bar without a measure may count the steps of a training."""
    titled = _TRAINING.issuperset(bar.name.lower().split())
    return titled and (not bar.unit or meaning(bar.unit) is not None)


def _may_begin_at_zero(epoch: Field, step: Field | None) -> bool:
    """Return whether a line has a form in which the first epoch is as often 0 as 1.

    These forms are `Epoch: [2][ 10/100]` and `Epoch 2: 45%|##  | 10/20`.
    """
    bar = step is not None and step.bar and step.joined
    return (bar and not epoch.end) or (epoch.opened and epoch.sign == ":")


def _end(
    roles: Mapping[Role, Field], step: Field | None, whole: bool | None
) -> tuple[int | None, bool | None]:
    """Return the end of the steps, and whether they count over the run."""
    if step is None:
        last = roles.get(Role.LAST)
        return _count(last.text) if last and last.sign else None, whole
    if step.end:
        return _count(step.end), whole
    for role in (Role.LAST, Role.END, Role.STEPS):
        if role in roles and roles[role] is not step:
            return _count(roles[role].text), True
    if Role.EPOCH_END in roles and whole is not True:
        return _count(roles[Role.EPOCH_END].text), False
    return None, whole


def _is_within(step: Field, numbers: Iterable[Field]) -> bool:
    """Return whether a fraction before the step may contain it: `[3/9] 5/90`."""
    return any(field.end not in {"", step.end} and field.at < step.at for field in numbers)


def _is_doubtful(roles: Mapping[Role, Field], step: Field | None) -> bool:
    """Return whether the field named as the end may be the number of steps so far."""
    ends = roles.get(Role.LAST), roles.get(Role.END) or roles.get(Role.STEPS)
    return bool(step and not step.end and not ends[0] and ends[1] not in {None, step})


def _last_word(field: Field) -> str:
    return field.name.rpartition(" ")[2].lower()


def _counts(field: Field) -> bool:
    return _count(field.text) is not None


def _is_number(field: Field) -> bool:
    return not field.sign and not field.end and not field.opened and _counts(field)


def _count(text: str | None) -> int | None:
    """Return a non-negative whole number, or None for any other text."""
    digits = text.lstrip("+") if text else ""
    return min(int(digits), MOST) if digits.isdecimal() else None


def _epoch(field: Field | None, *, over: bool) -> float | None:
    if field is None or field.text.startswith("-"):
        return None
    value = float(field.text) + over
    return value if value < MOST else None


_NAME_BEFORE = re.compile(r"([A-Za-z][\w@./-]{0,40})\W{0,8}$")
_UNNAMED = "value"
_MAX_DIGITS = 15


def read_matched(raw: str, expression: str) -> Line | None:
    """Return the measure and position that a user's expression matches, or None.

    Its groups are `value`, `name` (by default the word before the value), `step` and `total`.
    """
    line = next(states(raw), "")
    pattern = compiled(expression)
    match = pattern.search(line)
    if match is None:
        return None
    groups, start = match.groupdict(), match.start(pattern.groupindex["value"])
    try:
        value = float(groups["value"] or "")
    except ValueError:
        return None
    before = _NAME_BEFORE.search(line[max(0, start - 64) : start])
    name = groups.get("name") or (before.group(1) if before else _UNNAMED)
    step, total = (
        _count(text) if (text := groups.get(group)) and len(text) <= _MAX_DIGITS else None
        for group in ("step", "total")
    )
    return Line(((name, value),), Position(step, total, whole=True))
