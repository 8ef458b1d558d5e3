"""What the log of a job shows of its checkpoints: the last complete one, and its answers.

kfext risks work on such a line, so only messages count that a framework prints once its checkpoint
is written: `FORMS`, each with the file that prints it. A message counts as a whole, after the
prefix of a logger of rank 0. Any other line is no checkpoint.
"""

import re
from dataclasses import dataclass, replace
from enum import Enum
from typing import assert_never

from kfext.core.progress.fields import visible
from kfext.model.log_line import LogLine

LARGEST_ANSWER = 10**9

_LISTENS = "kfext.checkpoint"
_ANSWER = re.compile(r"(?:^|[\s:|\]>])kfext\.checkpoint[ \t]+([0-9]{1,10})$")

_COUNT = r" *[0-9]{1,15}"
_SAVE = r" *(?P<save>[0-9]{1,15})"
_PATH = (
    r"(?P<path>(?:[A-Za-z][\w+.-]{0,30}:/|~/|\.{0,2}/|[A-Za-z_][\w.+-]{0,200}/(?=\S{0,1000}[0-9.]))"
    r"\S{0,1000})"
)
"""An absolute path, a URL, or a relative path of a file; never a mere word, `n/a` or `3/8`."""
_PART = re.compile(
    r"(?:shard|part)[-_.]?[0-9]|[0-9][-_]of[-_][0-9]|rank[-_]?[0-9]+[^/]*$"
    r"|\.(?:tmp|part|partial|incomplete)$"
)
"""In a path: a part of a checkpoint, or a file that is still to be renamed."""


class Place(Enum):
    """Why all ranks have written their part when a program prints a form, or that they may not."""

    ALONE = "the process that prints has written all of it; docs/checkpoints.md asks others to wait"
    JOINED = "the ranks have met after their writes, in a barrier or another collective call"
    EARLY = "the process that prints has written its part, and other ranks may still write"


@dataclass(frozen=True, slots=True)
class Form:
    """What a framework prints when a checkpoint is complete.

    `place`: where its program prints it. After EARLY the checkpoint is complete once the log shows
        the next step, because all ranks take part in a step.
    `complete`: the whole message; docs/checkpoints.md has messages as printed.
    `source`: the repository and the file that print it.
    `begun`: the message at the begin of a save during which the training may go on; empty if the
        training stands still. The checkpoint is then as old as that message. The group `save` of
        both messages tells one save from another.
    """

    place: Place
    complete: str
    source: str
    begun: str = ""


FORMS: dict[str, Form] = {
    "any program; TensorFlow Model Garden": Form(
        Place.ALONE,
        rf"[Ss]aved checkpoint (?:(?:to )?{_PATH}|at step{_COUNT})",
        "kfext docs/checkpoints.md, tensorflow/models orbit/controller.py",
    ),
    "Colossal-AI": Form(
        Place.EARLY,
        rf"Saved checkpoint at epoch [0-9]+ step{_COUNT} at folder {_PATH}",
        "hpcaitech/ColossalAI applications/Colossal-LLaMA/train.py",
        begun="Start saving model checkpoint with running states",
    ),
    "DeepSpeed, older": Form(
        Place.EARLY,
        r"\[Torch\] (?P<save>Checkpoint \S{1,200}) is ready now!",
        "deepspeedai/DeepSpeed deepspeed/runtime/checkpoint_engine/torch_checkpoint_engine.py",
        begun=r"\[Torch\] (?P<save>Checkpoint \S{1,200}) is (?:about to be saved|begin to save)!",
    ),
    "diffusers' training scripts": Form(
        Place.ALONE,
        rf"Saved state to (?=\S{{0,1000}}/checkpoint-[0-9]+$){_PATH}",
        "huggingface/diffusers examples/text_to_image/train_text_to_image.py",
    ),
    "fairseq": Form(
        Place.ALONE,
        rf"[Ss]aved checkpoint {_PATH} \(epoch [0-9]+ @ [0-9]+ updates(?:, score \S{{1,40}})?\)"
        r" \(writing took [0-9.e+-]{1,40} seconds\)",
        "facebookresearch/fairseq fairseq/checkpoint_utils.py",
    ),
    "fairseq2": Form(
        Place.JOINED,
        rf"Checkpoint at step{_SAVE} saved\.",
        "facebookresearch/fairseq2 src/fairseq2/trainer.py",
        begun=rf"Preparing checkpoint at step{_SAVE}\.",
    ),
    "Flax, flax.training.checkpoints": Form(
        Place.JOINED,
        r"Saved checkpoint at (?P<path>\S{0,1000}?(?P<save>[0-9]{1,15}))",
        "google/flax flax/training/checkpoints.py",
        begun=rf"Saving checkpoint at step:{_SAVE}",
    ),
    "Keras 3": Form(
        Place.ALONE,
        r"Epoch [0-9]+: finished saving model to \S{1,1000}",
        "keras-team/keras keras/src/callbacks/model_checkpoint.py",
    ),
    "Megatron-LM": Form(
        Place.JOINED,
        rf"successfully saved checkpoint (?:from|at) iteration{_SAVE} to \S{{1,1000}}"
        r"(?: \[ [^\[\]]{1,100} \])?",
        "NVIDIA/Megatron-LM megatron/training/checkpointing.py",
        begun=rf"saving checkpoint at iteration{_SAVE} to \S{{1,1000}}(?: in \S{{1,40}} format)?",
    ),
    "MONAI": Form(
        Place.ALONE,
        rf"Saved checkpoint at (?:epoch|iteration):{_COUNT}",
        "Project-MONAI/MONAI monai/handlers/checkpoint_saver.py",
    ),
    "NeMo": Form(
        Place.JOINED,
        r"Async checkpoint save for step [0-9]+ \((?P<save>\S{1,1000})\) finalized successfully"
        r"(?: at [0-9.]{1,40})?\.",
        "NVIDIA/NeMo nemo/lightning/pytorch/callbacks/model_checkpoint.py",
        begun=r"Scheduled async checkpoint save for (?P<save>\S{1,1000})",
    ),
    "OLMo": Form(
        Place.JOINED,
        rf"Checkpoint saved to {_PATH}",
        "allenai/OLMo olmo/train.py",
    ),
    "Orbax": Form(
        Place.JOINED,
        r"\[process=0\]\[thread=\S{1,60}\]"
        r"(?:\[step=(?P<save>[0-9]{1,15})\] Finished synchronous save\."
        r"| Background save thread done\.(?: Time taken: [0-9.]{1,40}s\.)?)",
        "google/orbax checkpoint/orbax/checkpoint/checkpoint_manager.py, "
        "_src/checkpointers/async_checkpointer.py",
        begun=rf"\[process=0\] Saving checkpoint at step{_SAVE}",
    ),
    "PyTorch Elastic's ImageNet": Form(
        Place.ALONE,
        rf"=> saved checkpoint for epoch{_COUNT} at {_PATH}",
        "pytorch/elastic examples/imagenet/main.py",
    ),
    "SpeechBrain": Form(
        Place.ALONE,
        rf"Saved an (?:end-of|intra)-epoch checkpoint in {_PATH}",
        "speechbrain/speechbrain speechbrain/utils/checkpoints.py",
    ),
    "TensorFlow's estimators": Form(
        Place.ALONE,
        rf"Calling checkpoint listeners after saving checkpoint{_COUNT}\.\.\.",
        "tensorflow/tensorflow tensorflow/python/training/basic_session_run_hooks.py",
    ),
    "timm": Form(
        Place.ALONE,
        r"Current checkpoints:",
        "huggingface/pytorch-image-models timm/utils/checkpoint_saver.py",
    ),
    "torchtitan": Form(
        Place.JOINED,
        r"Finished saving the checkpoint in [0-9.]{1,40} seconds\.",
        "pytorch/torchtitan torchtitan/components/checkpointer/dcp.py",
        begun=r"Saving the checkpoint\.",
    ),
    "torchtune": Form(
        Place.ALONE,
        r"Saving checkpoint took [0-9.]{1,40} secs",
        "meta-pytorch/torchtune torchtune/training/checkpointing/_checkpoint_client.py",
    ),
    "torchtune, asynchronous": Form(
        Place.JOINED,
        r"Rank 0: Checkpoint is saved asynchronously to \S{1,1000} successfully\.",
        "meta-pytorch/torchtune torchtune/training/checkpointing/_checkpointer.py",
        begun=r"Rank 0: Trainer was blocked for [0-9.]{1,40} seconds for checkpointing to finish"
        r"\.\.\.",
    ),
}

_DATE = r"[0-9]{4}[-/][0-9]{2}[-/][0-9]{2}"
_TIME = (
    rf"(?:(?:{_DATE}|[0-9]{{2}}/[0-9]{{2}}(?:/[0-9]{{2,4}})?)[ T])?"
    r"[0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]{1,9})?(?:Z|[+-][0-9]{2}:?[0-9]{2})?"
)
_FILE = r"[\w-]{1,60}\.py:[0-9]{1,6}(?::\w{1,60})?"
_DOTTED = r"[A-Za-z_]\w{0,60}(?:\.[A-Za-z_]\w{0,60}){1,8}"
_GAP = r"[ \t]*(?:[|:,>-]{1,2}[ \t]*)?"
_PREFIX = re.compile(
    rf"(?:(?:{_TIME}|{_DATE}){_GAP}"
    rf"|(?:INFO|DEBUG)\b{_GAP}"
    rf"|\[(?:{_TIME}|(?:INFO|DEBUG)(?:\|{_FILE})?|{_FILE}|(?:rank|default|Rank )0|titan"
    rf"|NeMo I {_TIME} \w{{1,60}}:[0-9]{{1,6}})\]{_GAP}"
    rf"|I[0-9]{{4}} {_TIME} +[0-9]{{1,10}} {_FILE}\] "
    rf"|(?:{_DOTTED}|\w{{1,60}}):\w{{1,60}}:[0-9]{{1,6}} - "
    r"|(?:root|__main__|absl|tensorflow)(?:: ?| [|-] )"
    rf"|{_DOTTED}(?::(?! )| [|-] )"
    rf"|[\w.-]{{1,63}}:0\t{_DOTTED}:[0-9]{{1,6}}\t){{0,8}}"
)
"""What loggers and launchers print before a message: the time, the level, the place, rank 0."""
_FAILURE = re.compile(
    r"\b(?:fail(?:s|ed|ure|ing)?|could not|couldn't|cannot|can't|unable|abort(?:s|ed|ing)?"
    r"|traceback|killed|quota|no space|denied|timed out|interrupted|cancell?ed|corrupt(?:ed)?"
    r"|incomplete|discard(?:s|ed|ing)?|errno)\b"
    r"|(?:error|exception)s?\b(?!\W{0,4}[0-9])",
    re.IGNORECASE,
)
_NUMBERED = re.compile(r"(?:step|iteration|iter|epoch|checkpoint|ckpt)[ =_:-]{0,8}[0-9]")
_COMPLETE = tuple((form, re.compile(form.complete)) for form in FORMS.values())
_BEGUN = tuple((form, re.compile(form.begun)) for form in FORMS.values() if form.begun)


@dataclass(frozen=True, slots=True)
class Begun:
    """A save of `form` has begun; `save` tells it from other saves, empty if nothing does."""

    form: Form
    save: str


@dataclass(frozen=True, slots=True)
class Complete:
    """A checkpoint of `form` is complete; `save`: as in Begun, `message`: of the line."""

    form: Form
    save: str
    message: str

    @property
    def is_numbered(self) -> bool:
        """Whether the message tells this checkpoint from the checkpoints before and after it."""
        return _NUMBERED.search(self.message) is not None


Saving = Begun | Complete


def answer_of(text: str) -> int | None:
    """Return N of the line `kfext.checkpoint N`, or None for any other line.

    A logger may print its prefix before the line. 0 means that the job listens; N from 1 on, up to
    LARGEST_ANSWER, means that checkpoint N is complete.
    """
    if _LISTENS not in text:
        return None
    match = _ANSWER.search(visible(text))
    number = int(match.group(1)) if match else -1
    return number if 0 <= number <= LARGEST_ANSWER else None


def saving(text: str) -> Saving | None:
    """Return what a line says of a checkpoint, or None."""
    if not ("heckpoint" in text or "sav" in text or "Sav" in text):
        return None
    line = visible(text)
    prefix = _PREFIX.match(line)
    start = prefix.end() if prefix else 0
    for form, message in _COMPLETE:
        if match := message.fullmatch(line, start):
            named = match.groupdict()
            if _PART.search(named.get("path") or ""):
                return None
            return Complete(form, named.get("save") or "", line[start:])
    for form, message in _BEGUN:
        if match := message.fullmatch(line, start):
            return Begun(form, match.groupdict().get("save") or "")
    return None


def tells_failure(text: str) -> bool:
    """Return whether a line may say that something failed; a line in doubt does."""
    return _FAILURE.search(visible(text)) is not None


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """The checkpoints of a job; None stands for a part that the log has not shown.

    `saved`: when the last complete checkpoint was written, in epoch seconds. If the training went
        on meanwhile, this is when its save began, as later work is not in the checkpoint.
    `step`: the step of the training then.
    `answered`: the largest number in an answer to a request, 0 if the job has only printed that it
        listens.
    """

    saved: float | None = None
    step: int | None = None
    answered: int | None = None

    @property
    def shown(self) -> bool:
        """Whether the log has shown anything about checkpoints."""
        return self.saved is not None or self.answered is not None


class CheckpointLog:
    """Follows one job by its lines in the order printed. `seen`: what they have shown so far."""

    def __init__(self) -> None:
        self.seen = Checkpoints()
        self._begun: tuple[Begun, float, int | None] | None = None
        self._early: tuple[Complete, float, int | None] | None = None
        self._last = ""

    def read_line(self, line: LogLine, *, step: int | None, now: float) -> None:
        """Register a line; `step` is the present step, `now` the reader's epoch seconds.

        Clocks jump, so no checkpoint is older than the checkpoint before it nor newer than the
        reader.
        """
        at = min(max(line.at, self.seen.saved or line.at), now)
        answer = answer_of(line.text)
        if answer is not None:
            self.seen = replace(self.seen, answered=max(answer, self.seen.answered or 0))
            if answer:
                self.seen = replace(self.seen, saved=at, step=step)
            return
        said = saving(line.text)
        match said:
            case Begun():
                self._begun = said, at, step
            case Complete():
                self._complete(said, at, step)
            case None:
                if (self._begun or self._early) and tells_failure(line.text):
                    self._begun = self._early = None
            case _:
                assert_never(said)

    def _complete(self, said: Complete, at: float, step: int | None) -> None:
        """Register a checkpoint that is complete.

        If the training may have gone on meanwhile, the checkpoint is as old as the begin of its
        save. If that line is missing, the checkpoint counts only if no step after its own was
        shown. A repeated message about a numbered checkpoint is a status line about an old
        checkpoint.
        """
        if said.message == self._last and said.is_numbered:
            return
        begun = self._begun
        if begun is not None and begun[0].form is said.form:
            shown, (first, at, step) = step, begun
            if said.save and first.save != said.save:
                return
            self._begun = None
            if said.form.place is Place.EARLY:
                # A step meanwhile shows that the training goes on whether all have written or not.
                self._early = (said, at, step) if shown == step else None
                return
        elif said.form.begun and not (
            said.save.isdecimal() and (step is None or int(said.save) >= step)
        ):
            return
        self._count(said, at, step)

    def _count(self, said: Complete, at: float, step: int | None) -> None:
        if self.seen.saved is None or at >= self.seen.saved:
            self.seen, self._last = replace(self.seen, saved=at, step=step), said.message

    def go_on(self, step: int | None) -> None:
        """Register that the log shows a step: all ranks have written what they saved before."""
        if self._early and step is not None and (self._early[2] is None or step > self._early[2]):
            self._count(*self._early)
            self._early = None

    def restarted(self) -> None:
        """Register that the job began anew: a checkpoint that was being written may be broken."""
        self._begun, self._early, self._last = None, None, ""
