"""The checkpoints in the log of a job: the last complete checkpoint, and the answers to requests.

kfext stops jobs in reliance on these lines, so it accepts only messages that a framework prints
after its checkpoint is written: `FORMS`, each with the file that prints it. The whole message must
match, after the prefix of a logger of rank 0. No other line shows a checkpoint.
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
"""An absolute path, a URL, or the relative path of a file; never a single word, `n/a` or `3/8`."""
_PART = re.compile(
    r"(?:shard|part)[-_.]?[0-9]|[0-9][-_]of[-_][0-9]|rank[-_]?[0-9]+[^/]*$"
    r"|\.(?:tmp|part|partial|incomplete)$"
)
"""The sign in a path of a part of a checkpoint, or of a file that will be renamed."""


class Proof(Enum):
    """What a message proves: whether all ranks have written their parts of the checkpoint."""

    ALONE = "the process that prints has written all of it; docs/checkpoints.md asks others to wait"
    JOINED = "the ranks have met after their writes, in a barrier or another collective call"
    EARLY = "the process that prints has written its part, and other ranks may still write"


@dataclass(frozen=True, slots=True)
class Form:
    """The message of a framework about a complete checkpoint.

    `proof`: what the message proves. After EARLY the checkpoint is complete when the log shows the
        next step, because all ranks participate in a step.
    `complete`: the whole message; docs/checkpoints.md has messages as printed.
    `source`: the repository and the file that prints it.
    `begun`: the message at the beginning of a save during which the training may continue; empty if
        the training pauses. The checkpoint is then as old as that message. The group `save` of both
        messages identifies the save.
    """

    proof: Proof
    complete: str
    source: str
    begun: str = ""


FORMS: dict[str, Form] = {
    "any program; TensorFlow Model Garden": Form(
        Proof.ALONE,
        rf"[Ss]aved checkpoint (?:(?:to )?{_PATH}|at step{_COUNT})",
        "kfext docs/checkpoints.md, tensorflow/models orbit/controller.py",
    ),
    "Colossal-AI": Form(
        Proof.EARLY,
        rf"Saved checkpoint at epoch [0-9]+ step{_COUNT} at folder {_PATH}",
        "hpcaitech/ColossalAI applications/Colossal-LLaMA/train.py",
        begun="Start saving model checkpoint with running states",
    ),
    "DeepSpeed, older": Form(
        Proof.EARLY,
        r"\[Torch\] (?P<save>Checkpoint \S{1,200}) is ready now!",
        "deepspeedai/DeepSpeed deepspeed/runtime/checkpoint_engine/torch_checkpoint_engine.py",
        begun=r"\[Torch\] (?P<save>Checkpoint \S{1,200}) is (?:about to be saved|begin to save)!",
    ),
    "diffusers' training scripts": Form(
        Proof.ALONE,
        rf"Saved state to (?=\S{{0,1000}}/checkpoint-[0-9]+$){_PATH}",
        "huggingface/diffusers examples/text_to_image/train_text_to_image.py",
    ),
    "fairseq": Form(
        Proof.ALONE,
        rf"[Ss]aved checkpoint {_PATH} \(epoch [0-9]+ @ [0-9]+ updates(?:, score \S{{1,40}})?\)"
        r" \(writing took [0-9.e+-]{1,40} seconds\)",
        "facebookresearch/fairseq fairseq/checkpoint_utils.py",
    ),
    "fairseq2": Form(
        Proof.JOINED,
        rf"Checkpoint at step{_SAVE} saved\.",
        "facebookresearch/fairseq2 src/fairseq2/trainer.py",
        begun=rf"Preparing checkpoint at step{_SAVE}\.",
    ),
    "Flax, flax.training.checkpoints": Form(
        Proof.JOINED,
        r"Saved checkpoint at (?P<path>\S{0,1000}?(?P<save>[0-9]{1,15}))",
        "google/flax flax/training/checkpoints.py",
        begun=rf"Saving checkpoint at step:{_SAVE}",
    ),
    "Keras 3": Form(
        Proof.ALONE,
        r"Epoch [0-9]+: finished saving model to \S{1,1000}",
        "keras-team/keras keras/src/callbacks/model_checkpoint.py",
    ),
    "Megatron-LM": Form(
        Proof.JOINED,
        rf"successfully saved checkpoint (?:from|at) iteration{_SAVE} to \S{{1,1000}}"
        r"(?: \[ [^\[\]]{1,100} \])?",
        "NVIDIA/Megatron-LM megatron/training/checkpointing.py",
        begun=rf"saving checkpoint at iteration{_SAVE} to \S{{1,1000}}(?: in \S{{1,40}} format)?",
    ),
    "MONAI": Form(
        Proof.ALONE,
        rf"Saved checkpoint at (?:epoch|iteration):{_COUNT}",
        "Project-MONAI/MONAI monai/handlers/checkpoint_saver.py",
    ),
    "NeMo": Form(
        Proof.JOINED,
        r"Async checkpoint save for step [0-9]+ \((?P<save>\S{1,1000})\) finalized successfully"
        r"(?: at [0-9.]{1,40})?\.",
        "NVIDIA/NeMo nemo/lightning/pytorch/callbacks/model_checkpoint.py",
        begun=r"Scheduled async checkpoint save for (?P<save>\S{1,1000})",
    ),
    "OLMo": Form(Proof.JOINED, rf"Checkpoint saved to {_PATH}", "allenai/OLMo olmo/train.py"),
    "Orbax": Form(
        Proof.JOINED,
        r"\[process=0\]\[thread=\S{1,60}\]"
        r"(?:\[step=(?P<save>[0-9]{1,15})\] Finished synchronous save\."
        r"| Background save thread done\.(?: Time taken: [0-9.]{1,40}s\.)?)",
        "google/orbax checkpoint/orbax/checkpoint/checkpoint_manager.py, "
        "_src/checkpointers/async_checkpointer.py",
        begun=rf"\[process=0\] Saving checkpoint at step{_SAVE}",
    ),
    "PyTorch Elastic's ImageNet": Form(
        Proof.ALONE,
        rf"=> saved checkpoint for epoch{_COUNT} at {_PATH}",
        "pytorch/elastic examples/imagenet/main.py",
    ),
    "SpeechBrain": Form(
        Proof.ALONE,
        rf"Saved an (?:end-of|intra)-epoch checkpoint in {_PATH}",
        "speechbrain/speechbrain speechbrain/utils/checkpoints.py",
    ),
    "TensorFlow's estimators": Form(
        Proof.ALONE,
        rf"Calling checkpoint listeners after saving checkpoint{_COUNT}\.\.\.",
        "tensorflow/tensorflow tensorflow/python/training/basic_session_run_hooks.py",
    ),
    "timm": Form(
        Proof.ALONE,
        r"Current checkpoints:",
        "huggingface/pytorch-image-models timm/utils/checkpoint_saver.py",
    ),
    "torchtitan": Form(
        Proof.JOINED,
        r"Finished saving the checkpoint in [0-9.]{1,40} seconds\.",
        "pytorch/torchtitan torchtitan/components/checkpointer/dcp.py",
        begun=r"Saving the checkpoint\.",
    ),
    "torchtune": Form(
        Proof.ALONE,
        r"Saving checkpoint took [0-9.]{1,40} secs",
        "meta-pytorch/torchtune torchtune/training/checkpointing/_checkpoint_client.py",
    ),
    "torchtune, asynchronous": Form(
        Proof.JOINED,
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
"""The prefixes of loggers and launchers: the time, the level, the source location, rank 0."""
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
class SaveBegun:
    """A save of `form` has begun; `save` identifies it, or is empty."""

    form: Form
    save: str


@dataclass(frozen=True, slots=True)
class Complete:
    """A checkpoint of `form` is complete; `save` identifies it, or is empty."""

    form: Form
    save: str
    message: str

    @property
    def is_numbered(self) -> bool:
        """Whether the message has a number that identifies this checkpoint."""
        return _NUMBERED.search(self.message) is not None


Saving = SaveBegun | Complete


def answer_of(text: str) -> int | None:
    """Return N of the line `kfext.checkpoint N`, or None for any other line.

    A logger may print its prefix before the line. N of 0 means that the job listens; any other N,
    up to LARGEST_ANSWER, means that checkpoint N is complete.
    """
    if _LISTENS not in text:
        return None
    match = _ANSWER.search(visible(text))
    number = int(match.group(1)) if match else -1
    return number if 0 <= number <= LARGEST_ANSWER else None


def saving(text: str) -> Saving | None:
    """Return the beginning or the completion of a checkpoint that a line reports, or None."""
    if not ("heckpoint" in text or "sav" in text or "Sav" in text):
        return None
    line = visible(text)
    prefix = _PREFIX.match(line)
    start = prefix.end() if prefix else 0
    for form, message in _COMPLETE:
        if match := message.fullmatch(line, start):
            groups = match.groupdict()
            if _PART.search(groups.get("path") or ""):
                return None
            return Complete(form, groups.get("save") or "", line[start:])
    for form, message in _BEGUN:
        if match := message.fullmatch(line, start):
            return SaveBegun(form, match.groupdict().get("save") or "")
    return None


def may_report_failure(text: str) -> bool:
    """Return whether a line may report a failure; a doubtful line counts."""
    return _FAILURE.search(visible(text)) is not None


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """The checkpoints of a job; None stands for a value that the log has not shown.

    `saved`: when the last complete checkpoint was written, in epoch seconds. If the training
        continued meanwhile: when its save began, because later work is not in the checkpoint.
    `step`: the step of the training at that time.
    `answered`: the largest number in an answer to a request, 0 if the job only listens so far.
    """

    saved: float | None = None
    step: int | None = None
    answered: int | None = None

    @property
    def shown(self) -> bool:
        """Whether the log has shown anything about checkpoints."""
        return self.saved is not None or self.answered is not None


class CheckpointLog:
    """Follows one job by the lines of its log, in order. `seen`: its checkpoints so far."""

    def __init__(self) -> None:
        self.seen = Checkpoints()
        self._begun: tuple[SaveBegun, float, int | None] | None = None
        self._early: tuple[Complete, float, int | None] | None = None
        self._message = ""

    def read_line(self, line: LogLine, *, step: int | None, now: float) -> None:
        """Read a line. `step`: the present step; `now`: the time of the reader, in epoch seconds.

        Clocks jump, so no checkpoint counts as older than the last, or newer than the reader.
        """
        at = min(max(line.at, self.seen.saved or line.at), now)
        answer = answer_of(line.text)
        if answer is not None:
            self.seen = replace(self.seen, answered=max(answer, self.seen.answered or 0))
            if answer:
                self.seen = replace(self.seen, saved=at, step=step)
            return
        event = saving(line.text)
        match event:
            case SaveBegun():
                self._begun = event, at, step
            case Complete():
                self._complete(event, at, step)
            case None:
                if (self._begun or self._early) and may_report_failure(line.text):
                    self._begun = self._early = None
            case _:
                assert_never(event)

    def _complete(self, checkpoint: Complete, at: float, step: int | None) -> None:
        """Record a complete checkpoint.

        If the training may have continued meanwhile, the checkpoint is as old as the beginning of
        its save. If that line is missing, the checkpoint counts only if the log shows no step after
        it. A repeated message about a numbered checkpoint is a status line about an old checkpoint.
        """
        if checkpoint.message == self._message and checkpoint.is_numbered:
            return
        begun = self._begun
        if begun is not None and begun[0].form is checkpoint.form:
            shown, (first, at, step) = step, begun
            if checkpoint.save and first.save != checkpoint.save:
                return
            self._begun = None
            if checkpoint.form.proof is Proof.EARLY:
                # If a step came meanwhile, the next step does not show that all ranks have written.
                self._early = (checkpoint, at, step) if shown == step else None
                return
        elif checkpoint.form.begun and not (
            checkpoint.save.isdecimal() and (step is None or int(checkpoint.save) >= step)
        ):
            return
        self._count(checkpoint, at, step)

    def _count(self, checkpoint: Complete, at: float, step: int | None) -> None:
        if self.seen.saved is None or at >= self.seen.saved:
            self.seen, self._message = replace(self.seen, saved=at, step=step), checkpoint.message

    def advance(self, step: int | None) -> None:
        """Record that the log shows a step: all ranks have finished earlier writes by then."""
        if self._early and step is not None and (self._early[2] is None or step > self._early[2]):
            self._count(*self._early)
            self._early = None

    def record_restart(self) -> None:
        """Record that the job started again: a checkpoint that was being written may be broken."""
        self._begun, self._early, self._message = None, None, ""
