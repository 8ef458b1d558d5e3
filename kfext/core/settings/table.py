"""The table of settings, one row each.

A row is a field of `Settings` with its default, parser and documentation; its key is `kfext.dev/`
and its name with dashes. `make generate` writes the schema of TrainingPolicy, its sample and the
table of docs/settings.md from the rows.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from typing import Any, NoReturn

from kfext.core.settings.values import (
    ALWAYS,
    CHECKPOINT,
    CHECKPOINTED,
    HIGH,
    HOST,
    LONGEST,
    LOW,
    NEVER,
    OFF,
    POD,
    PUSH,
    REPORT,
    RESTART,
    Colocation,
    MetricsSource,
    Parser,
    Range,
    Resize,
    decimal,
    parse_memory,
    parse_metrics,
    parse_range,
    parse_units,
    word_of,
)
from kfext.errors import SettingError
from kfext.model.bounds import LONGEST_SETTING
from kfext.model.gpu import UNITS, GpuShare
from kfext.model.limit import Limit, MaxNodes
from kfext.model.parameters import HostNetwork, Placement, QueueOrder
from kfext.model.policy import Mode, PolicyChoice, default_choice
from kfext.names import DOMAIN, QUEUE_WEIGHT

PREFIX = f"{DOMAIN}/"
SHARES_GPUS = "it shares GPUs"
"""The reason why a job is never released: nothing would account for its GPU shares."""
DEFAULT = "the default"
_LONGEST_SHOWN = 80
_SHARE = GpuShare(units=UNITS)
_AT_NEXT_START = "at the next start of the job"
_OFF = PolicyChoice(Mode.OFF)
_HEIGHTS = {mode: height for height, mode in enumerate(Mode)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The definition of a setting.

    `allowed`: the allowed values in words. `example`: a value other than the default.
    `schema`: the schema of the field in a TrainingPolicy, empty if only a job's annotation counts.
    `effect`, `since`: the effect of the setting, and the time when an edit takes effect, in
        Markdown.
    `limit`: returns the limit of a value on the nodes of the job, or None. A job with a limit is
        never released.
    `to_pods`: returns the annotation that admission writes into pod templates for the pod webhook,
        wherever the setting comes from, or None.
    """

    parse: Parser
    allowed: str
    example: str
    effect: str
    since: str
    schema: Mapping[str, Any] = field(default_factory=dict)
    limit: Callable[[Any], Limit | None] | None = None
    to_pods: Callable[[Any], str | None] | None = None


def _row(default: Any, **row: Any) -> Any:
    return field(default=default, metadata={"row": Row(**row)})


def _words(*words: str, of_job_alone: bool = False, **row: Any) -> Any:
    """Return the row of a setting with these words as values; the first is the default."""
    schema = {} if of_job_alone else {"type": "string", "enum": [str(word) for word in words]}
    return _row(
        words[0],
        parse=word_of(*words),
        allowed=", ".join(words),
        example=str(words[1]),
        schema=schema,
        **row,
    )


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one job, and the parameters of its namespace's policy.

    `placement`, `queue_order`, `network_parameters`: the parameters of the policy.
    `companion`: the choice of the TrainingPolicy for each policy of the companion, by name.
    `managed`: whether the namespace has opted in.
    `sources`: the source of each value that is not the default, by key.
    `stated`: the well-formed annotations of the job itself, by key, as written.
    `warnings`: sentences for the user who submits the job.
    `errors`: the malformed annotations of the job. Admission refuses a job with errors; later the
        last good value holds.
    """

    colocation: Colocation = _words(
        *Colocation,
        effect="whether all pods run on one node. `preferred`: else on the best few nodes, in the "
        "end as on plain Kubernetes. `required`: wait for one node. `preferred` or `required` on "
        "the job itself also means that kfext chooses nodes by requests alone, without [CPU beyond "
        "the requests](placement.md#cpu-beyond-the-requests). `off`: kfext neither suspends the "
        "job nor places its pods",
        since="at CREATE and at the next plan; a queued job that is set to `off` is released",
        limit=lambda value: MaxNodes(1) if value is Colocation.REQUIRED else None,
        to_pods=str,
    )
    network: str = _words(
        POD,
        HOST,
        effect="`host`: the pods use [the network of their node](network.md), each with ports of "
        "its own",
        since="at the next plan",
        to_pods=str,
    )
    elastic: Range | None = _row(
        None,
        parse=parse_range,
        allowed="MIN-MAX with 1 <= MIN <= MAX, or off",
        example="2-8",
        schema={
            "type": "string",
            "maxLength": 11,
            "pattern": "^(off|[1-9][0-9]{0,4}-[1-9][0-9]{0,4})$",
            "x-kubernetes-validations": [
                {
                    "rule": "self == 'off' || int(self.split('-')[0]) <= int(self.split('-')[1])",
                    "message": "MIN must not be larger than MAX, e.g. 2-8",
                }
            ],
        },
        effect="kfext may choose the number of training pods (Master and Chief count, PS and "
        "Evaluator do not), [when the job starts](placement.md) and [while it "
        "runs](elastic.md). `off`: never, even if the namespace or a policy has a range",
        since="at CREATE a job that starts torchrun is [made elastic](elastic.md#how-kfext-makes-a-"
        "job-elastic), and gets its [control file](checkpoints.md#the-request); a changed range "
        "within seconds, or at the next plan; `off` returns a running job to its requested size",
        to_pods=lambda value: value and f"{value.minimum}-{value.maximum}",
    )
    resize: Resize = _words(
        *Resize,
        effect="`cpu`: kfext may [change the CPU of running pods](resize.md). `observe`: it "
        "only shows what it would do",
        since="within about 10 s; `off` restores the CPU",
    )
    migrate: str = _words(
        NEVER,
        CHECKPOINTED,
        effect="`checkpointed`: kfext may [move the job](migrate.md) to other nodes; you assert "
        "that it resumes from its checkpoints on a shared volume",
        since="within about 10 s; the [control file](checkpoints.md#the-request) only at CREATE",
        to_pods=lambda value: None if value == NEVER else value,
    )
    preempt: str = _words(
        OFF,
        CHECKPOINT,
        ALWAYS,
        effect="kfext may [stop the job](priorities.md) for a job of higher priority. "
        "`checkpoint`: once it has saved its work; you assert that its checkpoints outlive its "
        "pods. `always`: even without a checkpoint",
        since="within about 10 s; the [control file](checkpoints.md#the-request) only at CREATE",
        to_pods=lambda value: None if value == OFF else value,
    )
    stalled: str = _words(
        REPORT,
        RESTART,
        effect="the reaction to a [stalled job](stalled-jobs.md). `report`: show it. `restart`: "
        "also restart the job from its last checkpoint, twice at most; only with "
        "`migrate: checkpointed`",
        since="within about 10 s",
    )
    metrics: MetricsSource = _row(
        MetricsSource(),
        parse=parse_metrics,
        allowed=f"auto, push, off, or stdout: and a regular expression (RE2) of at most {LONGEST} "
        "characters of ASCII with a group named `value`",
        example=r"stdout:loss=(?P<value>[0-9.]+)",
        schema={
            "type": "string",
            "maxLength": LONGEST + len("stdout:"),
            "pattern": r"^(auto|push|off|stdout:[\t -~]*\(\?P<value>[\t -~]*)$",
            "x-kubernetes-validations": [
                {
                    "rule": r"!self.matches(r'\\[uUN]')",
                    "message": r"REGEX must not have \u, \U or \N, which RE2 does not know",
                }
            ],
        },
        effect="the source of [progress](progress.md). `push`: [the program's "
        "posts](push.md), else its log. `stdout:`: an expression for its log, which may "
        "also have groups `name`, `step` and `total`",
        since="at the next read of the log: within 30 s, or within 10 s with `resize`, "
        "`elastic`, `migrate` or `preempt`; after half an hour without progress, within 5 minutes. "
        "`push` only at CREATE",
        to_pods=lambda value: PUSH if value.source == PUSH else None,
    )
    gpu_share: int | None = _row(
        None,
        parse=parse_units,
        allowed="a decimal number x with 0 < x <= 1, in steps of 0.01",
        example="0.5",
        effect="each replica that requests exactly one GPU [shares it](gpu-sharing.md), and gets "
        "this share of its time",
        since=_AT_NEXT_START,
    )
    gpu_memory: int | None = _row(
        None,
        parse=parse_memory,
        allowed="a quantity of memory above 0 and up to 100Ti",
        example="8Gi",
        effect="the GPU memory that each replica needs; unset, the same share as of time. It "
        "limits the choice of GPUs, but nothing stops a program from using more",
        since=_AT_NEXT_START,
    )
    gpu_priority: str = _words(
        LOW,
        HIGH,
        of_job_alone=True,
        effect="low-priority replicas work while the high-priority replica on their GPU is idle. A "
        "GPU has at most one high-priority replica",
        since=_AT_NEXT_START,
    )
    gpu_loss_budget: float = _row(
        _SHARE.loss_budget,
        parse=decimal(lambda x: 0 < x < 1),
        allowed="a decimal number x with 0 < x < 1",
        example="0.1",
        effect="the fraction of its speed that a high-priority replica may lose to the others on "
        "its GPU",
        since=_AT_NEXT_START,
    )
    gpu_min_share: float = _row(
        _SHARE.min_share,
        parse=decimal(lambda x: 0 <= x < 1),
        allowed="a decimal number x with 0 <= x < 1",
        example="0.1",
        effect="the fraction of the time that a low-priority replica should have beside a "
        "high-priority replica. It is placed only where [enough time is known to be "
        "free](gpu-sharing.md#what-is-guaranteed). The loss budget comes first",
        since=_AT_NEXT_START,
    )
    placement: Placement = field(default_factory=Placement)
    queue_order: QueueOrder = QueueOrder.ARRIVAL
    network_parameters: HostNetwork = field(default_factory=HostNetwork)
    companion: Mapping[str, PolicyChoice] = field(default_factory=dict)
    managed: bool = True
    sources: Mapping[str, str] = field(default_factory=dict)
    stated: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    errors: tuple[SettingError, ...] = ()

    @property
    def shares_gpus(self) -> bool:
        """Whether the job requests GPU shares."""
        return self.gpu_share is not None

    @property
    def share(self) -> GpuShare | None:
        """The GPU share that the job requests, or None."""
        if self.gpu_share is None:
            return None
        return GpuShare(
            units=self.gpu_share,
            memory=self.gpu_memory,
            high=self.gpu_priority == HIGH,
            loss_budget=self.gpu_loss_budget,
            min_share=self.gpu_min_share,
        )

    @property
    def asks_to_save(self) -> bool:
        """Whether kfext may request a checkpoint from the job."""
        asks = self.elastic is not None or self.migrate != NEVER
        return asks or self.preempt != OFF

    @property
    def restarts_stalled(self) -> bool:
        """Whether kfext may restart the job once it is stalled."""
        return self.stalled == RESTART and self.migrate == CHECKPOINTED

    @property
    def node_limits(self) -> Mapping[str, Limit]:
        """The limits on the nodes of the job, by key of the setting."""
        if self.colocation is Colocation.OFF:
            return {}
        limits = ((key, limit_of(getattr(self, name))) for key, name, limit_of in _NODE_LIMITS)
        return {key: limit for key, limit in limits if limit is not None}

    @property
    def why_never_released(self) -> str:
        """The setting that makes the job wait for kfext without limit, as a clause, if any."""
        for key in self.node_limits:
            return f"{key.removeprefix(PREFIX)} is {self.value(key)}"
        return SHARES_GPUS if self.shares_gpus else ""

    @property
    def to_pods(self) -> Mapping[str, str]:
        """The settings for the pod webhook, as annotations of pod templates."""
        texts = ((key, to_text(self.value(key))) for key, to_text in TO_PODS.items())
        return {key: text for key, text in texts if text is not None}

    def choice(self, policy: str, opted: Mode) -> PolicyChoice:
        """Return the choice for a policy of the companion, in the lower mode of job and policy.

        `opted`: the mode of the job; a TrainingPolicy cannot opt a job in.
        """
        if opted is Mode.OFF or not self.managed:
            return _OFF  # the choice of most jobs, and often read
        choice = self.companion.get(policy) or default_choice(policy)
        is_lower = _HEIGHTS[choice.mode] <= _HEIGHTS[opted]
        return choice if is_lower else replace(choice, mode=opted)

    def value(self, key: str) -> Any:
        """Return the value of a key of the table."""
        return getattr(self, field_of(key))

    def source(self, key: str) -> str:
        """Return the source of the value of a key, for a sentence."""
        return self.sources.get(key, DEFAULT)


def field_of(key: str) -> str:
    """Return the name of the field of a key."""
    return key.removeprefix(PREFIX).replace("-", "_")


TABLE: Mapping[str, Row] = {
    f"{PREFIX}{row.name.replace('_', '-')}": row.metadata["row"]
    for row in fields(Settings)
    if "row" in row.metadata
}
"""The rows by key."""
OF_A_JOB = frozenset(key for key, row in TABLE.items() if not row.schema)
"""The keys of GPU sharing, which count only as annotations of the job itself."""
OF_A_NAMESPACE: Mapping[str, Row] = {
    QUEUE_WEIGHT: Row(
        parse=decimal(lambda x: 0 <= x < 10),
        allowed="a decimal number x with 0 <= x < 10",
        example="2",
        effect="its weight where the queue is ordered by usage",
        since="within seconds",
    )
}
"""The rows that count only on a namespace itself, and are not settings of its jobs."""
TO_PODS = {key: row.to_pods for key, row in TABLE.items() if row.to_pods}
"""The functions from values to annotations of pod templates, by key that the pod webhook reads."""
_NODE_LIMITS = tuple((key, field_of(key), row.limit) for key, row in TABLE.items() if row.limit)


def parse_setting(key: str, written: str, *, place: str) -> Any:
    """Return the value of a known key.

    `place`: the place of the setting in an error. Raises SettingError.
    """
    row = OF_A_NAMESPACE.get(key) or TABLE[key]
    if len(written) > LONGEST_SETTING:
        _refuse(written, place, f"at most {LONGEST_SETTING:,} characters", row.example)
    written = written.strip()
    try:
        return row.parse(written)
    except ValueError as error:
        allowed = f"{row.allowed} (here: {error})" if str(error) else row.allowed
        _refuse(written, place, allowed, row.example)


def parsed(key: str, written: str | None) -> tuple[Any, ...]:
    """Return the value of a setting in a tuple, empty for an absent or malformed value.

    The value itself may be None, as for `elastic: off`.
    """
    if written is not None and (key in TABLE or key in OF_A_NAMESPACE):
        with suppress(SettingError):
            return (parse_setting(key, written, place=key),)
    return ()


def settings_of_pod(annotations: Mapping[str, str]) -> Settings:
    """Return the settings that admission wrote into the template of a pod; never raises."""
    written = {key: annotations[key] for key in TO_PODS if key in annotations}
    known = ((field_of(key), value) for key, text in written.items() for value in parsed(key, text))
    return Settings(**dict(known))


def _refuse(written: str, place: str, allowed: str, example: str) -> NoReturn:
    shown = written if len(written) <= _LONGEST_SHOWN else f"{written[:_LONGEST_SHOWN]}…"
    raise SettingError(field=place, value=shown, allowed=allowed, example=example)
