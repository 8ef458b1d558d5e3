"""The one path from a job, its namespace and the policies to the settings that hold for it."""

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace

from kfext.core.settings.gpu_values import GPU_RULES
from kfext.core.settings.resolve import Settings, resolve
from kfext.core.settings.values import Value, is_setting, parse_setting
from kfext.errors import SettingError
from kfext.model.job import TrainingJob
from kfext.model.job_state import JobState, state_of
from kfext.model.namespace import Namespace
from kfext.model.policy import TrainingPolicy, policy_for

_MOST_RECORDED = 1536
"""Characters of JSON for the recorded values: the rest of the state must fit beside them."""


def settings_of(
    job: TrainingJob, namespace: Namespace, policies: Iterable[TrainingPolicy]
) -> Settings:
    """Return the settings that hold for a job; never raises.

    If an edit made an annotation malformed, its last good value holds: the one that the controller
    recorded on the job, else the one that admission wrote into its templates.
    """
    policy = policy_for(policies, namespace.labels)
    settings = resolve(
        job.annotations, namespace.annotations, policy, last_good=_last_good(job, state_of(job))
    )
    return replace(settings, managed=namespace.managed)


def gpu_settings_of(job: TrainingJob) -> Mapping[str, Value]:
    """Return the settings by which a job shares GPUs, by key; never raises.

    They are those of the job alone. Once it has started they are those that its templates got then:
    what is edited later holds from the next start.
    """
    return gpu_settings_asked(job) if job.suspend else _gpu_settings(job, job.template_settings)


def gpu_settings_asked(job: TrainingJob) -> Mapping[str, Value]:
    """Return the same as the annotations of the job have them now, started or not."""
    return _gpu_settings(job, job.annotations)


def _gpu_settings(job: TrainingJob, written: Mapping[str, str]) -> Mapping[str, Value]:
    ours = {key: one for key, one in written.items() if key in GPU_RULES}
    if not ours:
        return {}
    return resolve(ours, {}, TrainingPolicy(), last_good=_last_good(job, state_of(job))).gpu


def recorded(job: TrainingJob, settings: Settings) -> Mapping[str, str]:
    """Return what the state of a job must record, so that a malformed edit keeps the last value.

    These are all well-formed annotations of the job that its templates do not have already, as far
    as they fit: in the order of keys, so that the result does not depend on earlier records.
    Nothing is recorded for a job that admission has not seen: its templates have no settings.
    """
    state = state_of(job)
    if not job.template_settings:
        return state.settings
    kept: dict[str, str] = {}
    for key, written in sorted({**state.settings, **settings.stated}.items()):
        if _parsed(key, written) != _parsed(key, job.template_settings.get(key)):
            more = {**kept, key: written}
            if len(json.dumps(more)) <= _MOST_RECORDED:
                kept = more
    return kept


def _last_good(job: TrainingJob, state: JobState) -> Mapping[str, str]:
    return {**job.template_settings, **state.settings}


def _parsed(key: str, written: str | None) -> Value | None:
    """Return a value to compare, None if it is absent or malformed."""
    if written is not None and is_setting(key):
        with suppress(SettingError):
            return parse_setting(key, written, field=key)
    return None
