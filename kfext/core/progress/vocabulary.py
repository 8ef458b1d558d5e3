"""The meaning of the name of a number: a count of steps or epochs, their end, or a measure.

One table serves all frameworks. A name with a word of a setting in it (`loss_scale`, `grad_acc`,
`warmup_steps`) has no meaning.
"""

import re
from dataclasses import dataclass
from enum import Enum, StrEnum
from functools import lru_cache


class Better(Enum):
    """The direction in which a metric improves."""

    LOWER = "lower"
    HIGHER = "higher"


class Role(StrEnum):
    """The role of a named number.

    `RUN_STEP` counts over the whole run, `STEP` perhaps within an epoch, `BATCH` within an epoch.
    `STEPS` is such a count or its end. `EPOCHS` is the last epoch, or an epoch if it has its own
    end. `END` is the last step, or the last step so far; `LAST` is surely the last step.
    `EPOCH_END` is the last step of an epoch. `OUTER` is a count that contains all of these: they
    begin again when it advances.
    """

    RUN_STEP = "run step"
    STEP = "step"
    STEPS = "steps"
    BATCH = "batch"
    END = "end"
    LAST = "last"
    EPOCH_END = "end of the epoch"
    EPOCH = "epoch"
    EPOCHS = "epochs"
    OUTER = "outer"
    MEASURE = "measure"


@dataclass(frozen=True, slots=True)
class Meaning:
    """The meaning of a name.

    `better`: the direction of improvement. `evaluation`: whether the measure is of an evaluation.
    `order`: a sort key, smallest for the measure that best shows the progress of a training:
        training before validation; rewards before losses, because a program that prints both
        optimizes the reward; the whole loss before its parts; losses before accuracies; among
        accuracies, a single word before a name with a word for the training.
    `counts`: whether a whole number under this name may be a count or a setting.
    """

    role: Role
    better: Better | None = None
    evaluation: bool = False
    order: tuple[int, int] = (0, 0)
    counts: bool = False


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_CAMEL = re.compile(r"(?<=[a-z]{2})(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z]{2})")
_AT = re.compile(r"(?<=[a-z])@(?=[0-9])")
_LOSS = re.compile(r"(?<![A-Za-z0-9_])[lL]_(?=[A-Za-z])")
"""The prefix of a name of a loss: `l_pix`."""
_WORDS = re.compile(r"[a-z]+[0-9]*")
_RATE = re.compile(r"[a-z]Per[A-Z]|(?i:persec|throughput)")
"""The sign of a rate in a joined name: `SamplesPerSec`."""
_LONGEST_NAME = 80
_CACHED = 4096

_FOREIGN = (
    "loss verlust strata perte pérdida perdida perda perdita 损失 損失 손실 потери|"
    "accuracy genauigkeit 准确率 精度 정확도|val validierung validación 验证 検証 검증 测试|"
    "epoch epoche epoka époque epoque época epoca 轮次 轮 エポック 에폭 эпоха|round runde|"
    "step schritt étape paso passo itération iteración 步数 步 ステップ 스텝 шаг|batch 批次"
)
"""Each English word, then its translations; these may also be parts of a name."""
_ENGLISH = {w: words.split()[0] for words in _FOREIGN.split("|") for w in words.split()[1:]}
_FOREIGN_WORD = re.compile(
    "|".join(w if w > "℀" else rf"{w}\b" if len(w) > 6 else rf"\b{w}\b" for w in _ENGLISH)
)
_RUN_STEPS = _set(
    "tick num_updates n_updates nupdates trained_steps env_step "
    "env_steps total_env_steps total_env_interacts num_env_steps num_env_steps_sampled "
    "total_timesteps total_numsteps timesteps_total timesteps timestep total_num_steps "
    "acc_iter accumulated_iter "
    "optimizer_step optim_step opt_step trainer_step gradient_step"
)
_STEPS = _set(
    "step steps iter iters iteration iterations it its update updates episode episodes round "
    "rounds generation minibatch batch batches rollout rollouts up"
)
_BATCHES = _set("batch batches minibatch")
_EPOCHS = {"epoch": Role.EPOCH, "ep": Role.EPOCH, "epochs": Role.EPOCHS}
_OUTER = _set("fold stage run trial task phase")
_JOINTS = re.compile(r"[\W_]+")
_AMOUNTS = _set("time word words token tokens sample samples image images sentences s sec n")
"""Words before a slash that make a name a rate: words/batch."""
_OF_ENDS = _set("total max maximum num n number final")
_SURELY_LAST = _set("max maximum final optimization train training")
_OF_COUNTS = _OF_ENDS | _SURELY_LAST | _set("trainer current cur completed mini global")
"""Words that may be joined to a count: train_step, current_epoch."""
_OF_OTHER_COUNTS = _set(
    "per episode micro inner local ppo accumulation accum acc grad gradient warmup eval evaluation "
    "val valid validation test save saved saving checkpoint log logging decay best early every "
    "interval last size skip skipped patience next from since until resume resumed resuming after "
    "remaining left between update fps speed throughput elapsed"
)
"""Words before a count of something else: `eval_steps`, `warmup steps`, `resumed from step 5`."""

_LOWER = _set(
    "loss losses ppl perplexity error err wer cer mse mae rmse rmsle mape nll xent bpc bpb fid "
    "crossentropy logloss nelbo bce learn"
)
_HIGHER = _set(
    "acc accuracy f1 auc auroc auprc bleu rouge hit hits hr ndcg reward return iou miou map dice "
    "precision recall top1 top3 top5 top10 psnr ssim mrr mcc r2 kappa jaccard score rew ret "
    "rewards returns epret"
)
_REWARDS = _set("reward rewards rew return returns ret epret")
_OF_SCORES = _set("critic episode ep")
"""Words that make a score a reward: `critic/score/mean`."""
_OF_SIDE_LOSSES = _set("d disc discriminator real fake temp entropy aux kl reg dur value vf")
"""Words of losses beside the main loss, such as of the discriminator of a GAN."""
_COSTS = _set("cost costs objective")
"""Words that are measures only beside words for the whole: `objective/kl` is no measure."""
_AMBIGUOUS = _HIGHER - _set("acc accuracy f1 auc bleu reward rew score") | _set("error err l")
"""Words that, alone before a whole number, more often name a count or a setting."""
_OF_EVALUATIONS = _set("val valid validation eval evaluation test dev heldout")
_OF_SETTINGS = _set(
    "scale scaler weight weights coef coeff coefficient factor smoothing fn function type "
    "rate lr threshold thresh time sec secs margin gamma alpha beta patience best min max prev "
    "delta init samples interval every freq frequency count num bound limit window target rank "
    "slice shard decay clip inf id line code size grad gradient accum accumulation accumulate "
    "schedule scheduler mode reduction norm improved from k p worst lowest highest ratio seed "
    "level version std regularize"
)
"""Words in names of settings and clocks rather than of measures, e.g. loss_scale."""
_COUNTERS = _set("step steps epoch epochs iter iters iteration iterations update updates")
"""Words that make a name a count if they end it: loss_steps, but not epoch_loss."""
_SPANS = _set("step epoch iter batch")
"""Words that Lightning appends for the span of a measurement: loss_step, acc_epoch."""
_OF_THE_WHOLE = _set("train training lm mean avg average avr running smooth smoothed my on total")
_OF_TRAINING = _set("train training")
_TOTAL = _set("total tot overall sum combined global")
WHOLE, UNKNOWN = 2, 5
"""In `Meaning.order`: the rank of the last losses, and of names outside the vocabulary."""
_NO_MEASURES = _set(
    "e eps epsilon temp temperature momentum mom wd mfu tflops flops mem memory ram gpu cpu vram "
    "gb mb tps wps tok it data wall hours days eta took duration kimg min kl entropy gn gnorm "
    "tau var gradnorm beta lambda util progress power bs len length dt forward backward "
    "set bandwidth"
)
_NO_LOSSES = _set("gloss logloss")
"""Words that end like a loss. A logloss is a metric of an evaluation beside its loss."""


@lru_cache(maxsize=_CACHED)
def meaning(name: str) -> Meaning | None:
    """Return the meaning of a name for a training, or None for a name that has none.

    >>> meaning("train/loss").better, meaning("max_steps").role, meaning("loss_scale")
    (<Better.LOWER: 'lower'>, <Role.LAST: 'last'>, None)
    """
    if not name or len(name) > _LONGEST_NAME:
        return None
    name = _in_english(name)
    role = _count_role(name)
    return Meaning(role) if role else _measure_meaning(name)


def better(name: str) -> Better | None:
    """Return the direction in which a metric improves, or None for the name of no measure."""
    known = meaning(name)
    return known.better if known else None


def order(name: str) -> tuple[int, int]:
    """Return the sort key of a measure; see Meaning.

    An unknown name is after the measures of a training and before measures of an evaluation.
    """
    known = meaning(name)
    if known:
        return known.order
    words = set(_words(name))
    return (
        UNKNOWN + bool(words & _OF_EVALUATIONS) * UNKNOWN,
        len(words & _OF_SIDE_LOSSES) - len(words & _TOTAL),
    )


@lru_cache(maxsize=_CACHED)
def may_measure(name: str) -> bool:
    """Return whether an unknown name may be a measure: it has no word of a count or setting."""
    if _RATE.search(name):
        return False
    words = set(_words(name.lower()))
    other = words & (_OF_SETTINGS | _OF_OTHER_COUNTS | _COUNTERS | _NO_MEASURES | _AMOUNTS)
    return bool(name) and not (other or words & _OF_EVALUATIONS or _count_role(name))


@lru_cache(maxsize=_CACHED)
def is_eval(name: str) -> bool:
    """Return whether a measure is of an evaluation, even if its name is unknown."""
    return bool(_OF_EVALUATIONS.intersection(_words(name)))


def _count_role(name: str) -> Role | None:
    """Return the role of a count such as `max_steps` or `Total steps`, or None."""
    head, _, last = _CAMEL.sub("_", name).lower().rpartition(" ")
    above, _, last = last.rpartition("/")
    if above in _AMOUNTS:
        return None
    parts = [part for part in _JOINTS.split(last) if part]
    is_run = "_".join(parts) in _RUN_STEPS
    core = parts.pop() if parts else ""
    words = {*parts, *_JOINTS.split(head)}
    if core in _OUTER and not parts:
        return Role.OUTER
    if core in _EPOCHS and "per" in words:
        return Role.EPOCH_END if words & _STEPS else None
    if is_run:
        return Role.RUN_STEP
    if words & _OF_OTHER_COUNTS or not _OF_COUNTS.issuperset(parts):
        return None
    return _of_steps(core, words) if core in _STEPS else _EPOCHS.get(core)


def _of_steps(core: str, words: set[str]) -> Role:
    ends = words & _OF_ENDS
    if "global" in words:
        return Role.RUN_STEP
    if core in _BATCHES:
        return Role.EPOCH_END if ends else Role.BATCH
    if not ends:
        return Role.STEPS if core.endswith("s") and not words & {"current", "cur"} else Role.STEP
    return Role.LAST if words & _SURELY_LAST else Role.END


def _measure_meaning(name: str) -> Meaning | None:
    """Return the meaning of a measure, or None for any other name."""
    words = _words(name)
    has_span = len(words) > 1 and words[-1] in _SPANS
    core = words[:-1] if has_span else words
    if not core or core[-1] in _COUNTERS:
        return None
    present = set(core)
    if {"error", "rate"} <= present or {"cross", "entropy"} <= present:
        present = present - {"rate", "cross", "entropy"} | {"error"}
    if present & _OF_SETTINGS:
        return None
    costs = present & _COSTS and present - _COSTS <= _OF_THE_WHOLE | _OF_EVALUATIONS
    is_loss = costs or any(map(_is_loss, core)) or name in {"l", "L"}
    if is_loss or present & _LOWER:
        direction = Better.LOWER
    elif present & _HIGHER:
        direction = Better.HIGHER
    else:
        return None
    evaluation = bool(present & _OF_EVALUATIONS)
    specific = present - _OF_THE_WHOLE - _OF_EVALUATIONS - _COUNTERS - _SPANS
    if is_loss:
        rank = 1 if present & _TOTAL or len(specific) == 1 else 2
    elif direction is Better.HIGHER and _is_reward(name, present):
        rank, words = 0, (*present - _OF_THE_WHOLE, *present & {"ret"})
    else:
        rank = 3 if direction is Better.LOWER else 4
    single = len(core) == 1 and core[0] in _AMBIGUOUS
    length = 0 if present & _TOTAL and is_loss else len(words) + (words[-1] == "epoch")
    length += 2 * (is_loss and not present.isdisjoint(_OF_SIDE_LOSSES))
    if rank > WHOLE and length > 1:
        length = 2 if present & _OF_TRAINING else length + 1
    return Meaning(
        Role.MEASURE,
        better=direction,
        evaluation=evaluation,
        order=((UNKNOWN + 1) * evaluation + rank, length),
        counts=single or has_span,
    )


def _is_loss(word: str) -> bool:
    return word in {"xent", "nll", "losses"} or (word.endswith("loss") and word not in _NO_LOSSES)


def _is_reward(name: str, present: set[str]) -> bool:
    """Return whether a name means a whole reward, and not a part such as `rewards/chosen`."""
    folders = (set(_words(folder)) for folder in reversed(name.split("/")))
    last = next((folder for folder in folders if folder - _OF_THE_WHOLE), present)
    scored = "score" in last and present & _OF_SCORES
    return bool(last & _REWARDS or scored)


def _in_english(name: str) -> str:
    """Return a name with English words in place of foreign words."""
    lower = name.lower()
    if not _FOREIGN_WORD.search(lower):
        return name
    return _FOREIGN_WORD.sub(lambda word: f" {_ENGLISH[word[0]]} ", lower).strip()


def _words(name: str) -> tuple[str, ...]:
    """Return the words of a name such as train/total_loss, Acc@1 or valLoss, without numbers."""
    split = _CAMEL.sub(" ", _LOSS.sub("loss ", _in_english(name))).lower()
    split = _AT.sub("", split)
    known = _LOWER | _HIGHER
    return tuple(
        word if word in known else word.rstrip("0123456789") for word in _WORDS.findall(split)
    )
