"""The settings that hold for a job, and where each comes from.

The job's annotation comes first, then the namespace's, then the policy's, then the default.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any

from kfext import names
from kfext.core.settings.gpu_values import GPU_RULES, contradictions, now_said
from kfext.core.settings.rule import OFF, refuse
from kfext.core.settings.values import (
    POD,
    PUSH,
    Colocation,
    MetricsSource,
    Range,
    Resize,
    Value,
    is_setting,
    known_settings,
    parse_setting,
)
from kfext.errors import SettingError
from kfext.model.policy import HostNetwork, Placement, PolicyChoice, TrainingPolicy

_PREFIX = f"{names.DOMAIN}/"
_OWN = names.WRITTEN_BY_KFEXT | {names.RELEASED}
_MOST_WARNINGS = 8  # kubectl prints each; the API server drops all beyond 4 KiB
_LONGEST_KEY = 80
NEVER = "never"
SHARES_GPUS = "it shares GPUs"
"""Why a job is never released: it must not run on parts of GPUs that nothing accounts for."""
DEFAULT = "the default"
LAST_GOOD = "the last good value"


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one job, and the parameters of its namespace's policy.

    The field of a setting has the name of its key: `kfext.dev/some-thing` is `some_thing`.

    `gpu`: the GPU settings by full key, such as `kfext.dev/gpu-share`.
    `placement`, `network_parameters`: the parameters of the policy.
    `companion`: by name of a policy of the companion, what the TrainingPolicy allows it.
    `managed`: whether the namespace is opted in.
    `sources`: by full key, where a value that is not the default was found.
    `stated`: by full key, the well-formed annotations of the job itself, as written.
    `warnings`: sentences for the person who submits the job.
    `errors`: the malformed annotations of the job. Admission refuses a job with errors; later the
        last good value holds.
    """

    colocation: Colocation = Colocation.PREFERRED
    network: str = POD
    elastic: Range | None = None
    resize: Resize = Resize.OFF
    migrate: str = NEVER
    metrics: MetricsSource = field(default_factory=MetricsSource)
    gpu: Mapping[str, Value] = field(default_factory=dict)
    placement: Placement = field(default_factory=Placement)
    network_parameters: HostNetwork = field(default_factory=HostNetwork)
    companion: Mapping[str, PolicyChoice] = field(default_factory=dict)
    managed: bool = True
    sources: Mapping[str, str] = field(default_factory=dict)
    stated: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    errors: tuple[SettingError, ...] = ()

    @property
    def shares_gpus(self) -> bool:
        """Whether the job asks for parts of GPUs."""
        return names.GPU_SHARE in self.gpu

    @property
    def why_never_released(self) -> str:
        """Why the job waits for kfext without limit, in a clause; empty if it does not."""
        if self.colocation is Colocation.REQUIRED:
            return "colocation is required"
        return SHARES_GPUS if self.shares_gpus else ""

    def source(self, key: str) -> str:
        """Return where the value of a key comes from, for a sentence."""
        return self.sources.get(key, DEFAULT)


@dataclass(frozen=True, slots=True)
class _Layer:
    """One place where settings may be written; a malformed value in a strict layer is an error."""

    place: str
    written: Mapping[str, str]
    strict: bool = False


def resolve(
    job_annotations: Mapping[str, str],
    namespace_annotations: Mapping[str, str],
    policy: TrainingPolicy,
    *,
    last_good: Mapping[str, str] | None = None,
) -> Settings:
    """Return what holds: the job's annotation, else the namespace's, the policy's, the default.

    Total: a malformed value is left out and reported in `errors` or `warnings`. If an edit made an
    annotation of the job malformed, its value in `last_good` holds.
    """
    layers = (
        _Layer(place="the job", written=job_annotations, strict=True),
        _Layer(place="the namespace", written=namespace_annotations),
        _Layer(place=f"TrainingPolicy {policy.name}", written=policy.settings),
    )
    values: dict[str, Value] = {}
    sources: dict[str, str] = {}
    warnings: list[str] = []
    errors: list[SettingError] = []
    stated: dict[str, str] = {}
    unknown: list[tuple[str, str]] = []
    for layer in layers:
        keys = sorted(key for key in layer.written if key.startswith(_PREFIX) and key not in _OWN)
        for key in keys:
            field, written = f"annotation {key} of {layer.place}", layer.written[key]
            if key in GPU_RULES and not layer.strict:
                warnings.append(f"ignored: {field}; only a job has it")
                continue
            try:
                if gone := now_said(key, written):
                    refuse(field, written, *gone)
                if not is_setting(key):
                    unknown.append((key, layer.place))
                    continue
                value = parse_setting(key, written, field=field)
            except SettingError as error:
                if layer.strict:
                    errors.append(error)
                    _keep_last_good(key, last_good or {}, values=values, sources=sources)
                else:
                    warnings.append(f"ignored: {error}")
                continue
            if layer.strict:
                stated[key] = written
            if key not in values:
                values[key], sources[key] = value, layer.place
    for key, ruled_out in contradictions(values):
        if sources[key] in {layers[0].place, LAST_GOOD}:
            errors.append(ruled_out)
        del values[key], sources[key]
        stated.pop(key, None)
    # To look for a similar key is slow, so only for those that are shown.
    warnings += [_unknown(*one) for one in unknown[:_MOST_WARNINGS]]
    return _settings(
        values,
        policy,
        sources=sources,
        stated=stated,
        warnings=warnings,
        unshown=len(unknown[_MOST_WARNINGS:]),
        errors=errors,
    )


def _keep_last_good(
    key: str,
    last_good: Mapping[str, str],
    *,
    values: dict[str, Value],
    sources: dict[str, str],
) -> None:
    """Enter the last good value of a key, if it is there and valid: templates may be edited too."""
    with suppress(KeyError, SettingError):
        values[key] = parse_setting(key, last_good[key], field="the template")
        sources[key] = LAST_GOOD


def _settings(
    values: Mapping[str, Value],
    policy: TrainingPolicy,
    *,
    sources: Mapping[str, str],
    stated: Mapping[str, str],
    warnings: list[str],
    unshown: int,
    errors: list[SettingError],
) -> Settings:
    """Return the settings; `unshown` is how many warnings there are beside the given ones."""
    fields: dict[str, Any] = {
        key.removeprefix(_PREFIX).replace("-", "_"): value
        for key, value in values.items()
        if key not in GPU_RULES
    }
    if fields.get("elastic") == OFF:  # as if unset, but it comes before what others set
        fields["elastic"] = None
    settings = Settings(
        **fields,
        gpu={key: values[key] for key in values if key in GPU_RULES},
        placement=policy.placement,
        network_parameters=policy.network,
        companion=policy.companion,
        sources=sources,
        stated=stated,
        errors=tuple(errors),
    )
    warnings += _without_effect(settings)
    if more := max(len(warnings) + unshown - _MOST_WARNINGS, 0):
        warnings = [*warnings[:_MOST_WARNINGS], f"and {more} more settings are ignored"]
    return replace(settings, warnings=tuple(warnings))


def _without_effect(settings: Settings) -> Iterator[str]:
    """Yield a sentence for each setting of which this version does little or nothing."""
    if settings.migrate != NEVER:
        source = settings.source(names.MIGRATE)
        yield f"{names.MIGRATE} of {source} moves no job yet in this version of kfext"
    if settings.metrics.source == PUSH:
        source = settings.source(names.METRICS)
        yield f"{names.METRICS} of {source} has no effect yet in this version of kfext"
    if settings.gpu and not settings.shares_gpus:
        yield f"{', '.join(settings.gpu)} has no effect without {names.GPU_SHARE}"


def _unknown(key: str, place: str) -> str:
    shown = key[:_LONGEST_KEY]
    near = get_close_matches(shown, known_settings(), n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"annotation {shown} of {place} is unknown and ignored{hint}"
