"""The only path from a job, its namespace and the policies to the settings of the job.

The job's annotation comes first, then the namespace's, then the policy's, then the default.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from itertools import starmap
from typing import Any

from kfext import names
from kfext.core.settings.table import (
    OF_A_JOB,
    OF_A_NAMESPACE,
    PREFIX,
    TABLE,
    Settings,
    field_of,
    parse_setting,
    parsed,
)
from kfext.core.settings.values import CHECKPOINTED, OFF, RESTART
from kfext.errors import SettingError
from kfext.model.gpu import GpuShare
from kfext.model.job import TrainingJob
from kfext.model.job_state import state_of
from kfext.model.namespace import Namespace
from kfext.model.policy import TrainingPolicy, policy_for

_KFEXT_KEYS = names.WRITTEN_BY_KFEXT | {names.RELEASED}
_MAX_WARNINGS = 8  # kubectl prints each; the API server drops all beyond 4 KiB
_LONGEST_KEY = 80
_MAX_RECORDED = 1536
"""The most characters of JSON for recorded values, so that the rest of the state fits too."""
LAST_GOOD = "the last good value"
_JOB, _NAMESPACE = "the job", "the namespace"


def settings_of(
    job: TrainingJob, namespace: Namespace, policies: Iterable[TrainingPolicy]
) -> Settings:
    """Return the settings that hold for a job; never raises.

    If an edit made an annotation malformed, its last good value holds: the value that the
    controller recorded on the job, else the value that admission wrote into its templates.
    """
    policy = policy_for(policies, namespace.labels)
    settings = resolve(job.annotations, namespace.annotations, policy, last_good=_last_good(job))
    return replace(settings, managed=namespace.managed)


def share_of(job: TrainingJob) -> GpuShare | None:
    """Return the GPU share that a job requests, or None; never raises.

    After the start of a job, the share in its templates holds: edits hold from the next start.
    """
    return requested_share(job) if job.suspend else _share(job, job.template_settings)


def requested_share(job: TrainingJob) -> GpuShare | None:
    """Return the GPU share that the annotations of a job request now, whether it runs or not."""
    return _share(job, job.annotations)


def to_record(
    job: TrainingJob, settings: Settings, *, before: Mapping[str, str]
) -> Mapping[str, str]:
    """Return the settings to record in the state of a job; they hold after a malformed edit.

    These are the well-formed annotations of the job that its templates do not have, in the order of
    their keys, as many as fit; so the result does not depend on earlier records. Nothing is
    recorded for a job that admission has not seen, because its templates have no settings.
    `before`: the settings recorded so far.
    """
    if not job.template_settings:
        return before
    fitting: dict[str, str] = {}
    for key, written in sorted({**before, **settings.stated}.items()):
        if parsed(key, written) != parsed(key, job.template_settings.get(key)):
            longer = {**fitting, key: written}
            if len(json.dumps(longer)) <= _MAX_RECORDED:
                fitting = longer
    return fitting


def _share(job: TrainingJob, written: Mapping[str, str]) -> GpuShare | None:
    if names.GPU_SHARE not in written:
        return None
    share_settings = {key: text for key, text in written.items() if key in OF_A_JOB}
    return resolve(share_settings, {}, TrainingPolicy(), last_good=_last_good(job)).share


def _last_good(job: TrainingJob) -> Mapping[str, str]:
    return {**job.template_settings, **state_of(job).settings}


@dataclass(slots=True)
class _Reader:
    """The settings read so far; the sources are read in the order of precedence."""

    last_good: Mapping[str, str]
    values: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    stated: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    errors: list[SettingError] = field(default_factory=list)
    unknown: list[tuple[str, str]] = field(default_factory=list)

    def read(self, written: Mapping[str, str], source: str) -> None:
        """Read the settings of a source."""
        for key in sorted(written):
            if not key.startswith(PREFIX) or key in _KFEXT_KEYS:
                continue
            place = f"annotation {key} of {source}"
            if key not in TABLE and key not in OF_A_NAMESPACE:
                self.unknown.append((key, source))
            elif key in OF_A_JOB and source != _JOB:
                self.warnings.append(f"ignored: {place}; it is for jobs only")
            elif key in OF_A_NAMESPACE and source != _NAMESPACE:
                self.warnings.append(f"ignored: {place}; it is for namespaces only")
            else:
                self._read(key, written[key], source=source, place=place)

    def _read(self, key: str, written: str, *, source: str, place: str) -> None:
        try:
            value = parse_setting(key, written, place=place)
        except SettingError as error:
            if source != _JOB:
                self.warnings.append(f"ignored: {error}")
                return
            self.errors.append(error)
            for good in parsed(key, self.last_good.get(key)):  # the templates may be edited too
                self.values[key], self.sources[key] = good, LAST_GOOD
            return
        if source == _JOB:
            self.stated[key] = written
        if key not in self.values and key in TABLE:
            self.values[key], self.sources[key] = value, source

    def ignore_off_for_sharers(self) -> None:
        """Ignore `colocation: off` on a job that shares GPUs: no plan would account for them."""
        if names.GPU_SHARE not in self.values or self.values.get(names.COLOCATION) != OFF:
            return
        if self.sources.pop(names.COLOCATION) in {_JOB, LAST_GOOD}:
            self.errors.append(_UNPLACED)
        del self.values[names.COLOCATION]
        self.stated.pop(names.COLOCATION, None)


def resolve(
    job_annotations: Mapping[str, str],
    namespace_annotations: Mapping[str, str],
    policy: TrainingPolicy,
    *,
    last_good: Mapping[str, str] | None = None,
) -> Settings:
    """Return the settings: the job's annotation, else the namespace's, the policy's, the default.

    Never raises: a malformed value is ignored and reported in `errors` or `warnings`. If an edit
    made an annotation of the job malformed, its value in `last_good` holds.
    """
    reader = _Reader(last_good or {})
    reader.read(job_annotations, _JOB)
    reader.read(namespace_annotations, _NAMESPACE)
    reader.read(policy.settings, f"TrainingPolicy {policy.name}")
    reader.ignore_off_for_sharers()
    settings = Settings(
        **{field_of(key): value for key, value in reader.values.items()},
        placement=policy.placement,
        queue_order=policy.queue.order,
        network_parameters=policy.network,
        companion=policy.companion,
        sources=reader.sources,
        stated=reader.stated,
        errors=tuple(reader.errors),
    )
    # The search for a similar key is slow, so it runs only for keys that are shown.
    shown, hidden = reader.unknown[:_MAX_WARNINGS], len(reader.unknown[_MAX_WARNINGS:])
    warnings = [*reader.warnings, *starmap(_unknown_warning, shown), *_without_effect(settings)]
    if more := max(len(warnings) + hidden - _MAX_WARNINGS, 0):
        warnings = [*warnings[:_MAX_WARNINGS], f"and {more} more settings are ignored"]
    return replace(settings, warnings=tuple(warnings))


_UNPLACED = SettingError(
    field=f"annotation {names.COLOCATION}",
    value=OFF,
    allowed=f"preferred or required, beside {names.GPU_SHARE}",
    example="preferred",
)


def _without_effect(settings: Settings) -> Iterator[str]:
    """Yield a warning for settings that have no effect without another setting."""
    idle = [key for key in settings.sources if key in OF_A_JOB]
    if idle and settings.gpu_share is None:
        yield f"{', '.join(idle)} has no effect without {names.GPU_SHARE}"
    if settings.stalled == RESTART and not settings.restarts_stalled:
        restarts = f"{names.STALLED}: {RESTART}"
        yield f"{restarts} has no effect without {names.MIGRATE}: {CHECKPOINTED}"


def _unknown_warning(key: str, source: str) -> str:
    shown = key[:_LONGEST_KEY]
    near = get_close_matches(shown, TABLE, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"annotation {shown} of {source} is unknown and ignored{hint}"
